"""Products that must have the same bits are planned alike in all that decides bits: the kernel,
its orientation, and for f32 the terms. tests/gpu/test_same_bits.py compares the bits themselves.
"""

import itertools

import pytest
import torch

import tcgemm

from support.plan_cases import plan, rows_by_name

F32 = {"dtype": "f32"}
LAYOUTS = ("TN", "NN", "TT", "NT")
SIZES = [(40, 1920, 1093), (256, 512, 1024), (4096, 4096, 4096), (130, 70, 300), (64, 4096, 512)]
SIZES += [(256, 1024, 256), (96, 1024, 80)]  # their orientation once followed the result's major
# m, n, k of calls of an f32 layer whose plans with and without terms of the weight once differed.
ONCE_DIFFERENT = [(40, 1920, 1093), (255, 755, 576), (62, 2048, 1024), (1, 4096, 4096)]

KIND = ("arch", "input", "input_b", "accumulator", "layout", "mainloop", "pingpong")


def decides(fields):
    """The parts of a plan that decide bits. Promoted kernels of FP8 add the sums of 128 of k in one
    order, whatever their tile, and sums of integers are exact."""
    split = fields["split"]
    row = rows_by_name()[fields["kernel"]]
    kernel = fields["kernel"]
    if row["accumulator"] == "s32" or row["mainloop"] == "promoted":
        kernel = tuple(row[key] for key in KIND)
    kernels = split and (split["bf16"], split["alternative"] and split["alternative"]["kernel"])
    return kernel, fields["swap_ab"], kernels


FACTORS = [
    {"scale_a": "row", "scale_b": "row"},
    {"scale_a": "tensor", "scale_b": "tensor"},
    {"scale_a": "tensor", "scale_b": "row"},
    {"scale_a": "row", "alpha": 0.3},
    {"scale_b": "row", "alpha": 0.3},
]


def assert_one_orientation(**options):
    """The major of the result changes nothing of the plan that decides its bits."""
    for (m, n, k), layout in itertools.product(SIZES, LAYOUTS):
        outs = (None, (m * n, 1, m))
        rows, columns = (plan(m, n, k, out=out, layout=layout, **options) for out in outs)
        assert decides(rows) == decides(columns), (m, n, k, layout)


@pytest.mark.parametrize("device", ["H200", "A100"])
@pytest.mark.parametrize(
    "types", [{"dtype": "e4m3"}, {"dtype": "s8", "out_dtype": "bf16"}], ids=str
)
@pytest.mark.parametrize("factors", FACTORS, ids=str)
def test_two_factors_in_one_order(factors, types, device):
    """Two roundings depend on the order, so the major of the result must not swap A and B."""
    if device == "A100" and types["dtype"] == "e4m3":
        pytest.skip("an A100 has no fp8")
    assert_one_orientation(device=device, **types, **factors)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bf16"},
        {"dtype": "bf16", "alpha": 0.3},
        {"dtype": "e4m3"},
        {"dtype": "e4m3", "scale_a": "1x128", "scale_b": "128x128"},
    ],
    ids=str,
)
def test_one_factor_and_block_scales_may_swap(options):
    """One factor has one order, and a column-major result is stored faster as a row-major one."""
    fields = plan(4096, 4096, 4096, out=(0, 1, 4096), **options)
    assert fields["swap_ab"]


@pytest.mark.parametrize("precision", ["", "prepared"])
@pytest.mark.parametrize("terms", [0, 2, 3])
def test_float32_has_one_orientation(terms, precision):
    """A tensor core adds the products of low terms in the order of the operands."""
    assert_one_orientation(terms_b=terms, precision=precision, **F32)


def test_parts_change_nothing_for_a_layer():
    """precision="prepared" plans a product without terms as one with terms."""
    different = 0
    rows = (1, 16, 40, 62, 64, 128, 192, 255, 512, 4096)
    shapes = [(n, k) for _, n, k in ONCE_DIFFERENT] + [(768, 768), (4096, 11008), (512, 256)]
    for m, (n, k), terms in itertools.product(rows, shapes, ([], ["bias"], ["gelu"])):
        options = {"epilogue": terms, **F32}
        without, with_terms = (
            plan(m, n, k, precision="prepared", terms_b=count, **options) for count in (0, 2)
        )
        assert decides(without) == decides(with_terms), (m, n, k)
        assert decides(with_terms) == decides(plan(m, n, k, terms_b=2, **options)), (m, n, k)
        different += decides(without) != decides(plan(m, n, k, **options))
    assert different > 10  # the test sees something


def test_a_call_without_parts_takes_the_cheaper_way():
    """precision=None counts the passes of both operands."""
    assert plan(62, 2048, 1024, **F32)["split"] is None
    assert plan(62, 2048, 1024, precision="prepared", **F32)["split"] is not None


@pytest.mark.parametrize("scales", [1, 2])
def test_a_result_without_rows_is_copied(scales):
    """Where the sums of slices lie decides in which order two factors are multiplied: by columns, a
    kernel that transposes a in registers has the order of the call."""
    a, b = torch.empty(200, 8192, device="meta"), torch.empty(8192, 136, device="meta")
    options = {"scale_a": torch.empty(200, 1, device="meta"), "precision": "high"}
    if scales == 2:
        options["scale_b"] = torch.empty(1, 136, device="meta")
    plain = tcgemm.explain(a, b, **options, device="H200")
    assert plain.slices > 1 and plain.swap_ab and plain.store_path == "column_pairs"
    for out in (torch.empty(200, 136, 2, device="meta")[..., 0], torch.empty(136, 200).t()):
        text = tcgemm.explain(a, b, **options, out=out.to("meta"), device="H200")
        assert ("\n  copied        out has no contiguous rows: " in text) is (scales == 2)
        if scales == 2:
            assert (text.kernel, text.store_path) == (plain.kernel, plain.store_path)


@pytest.mark.parametrize("scales", [1, 2])
def test_explain_tells_of_the_copy(scales):
    a = torch.empty(256, 128, device="meta").to(torch.float8_e4m3fn)
    b = torch.empty(512, 128, device="meta").to(torch.float8_e4m3fn).t()
    options = {"scale_a": torch.empty(256, 1, device="meta")}
    if scales == 2:
        options["scale_b"] = torch.empty(1, 512, device="meta")
    out = torch.empty(512, 256, device="meta", dtype=torch.bfloat16).t()
    text = tcgemm.explain(a, b, **options, out=out, device="H200")
    plain = tcgemm.explain(a, b, **options, device="H200")
    assert ("\n  copied        out has no contiguous rows: " in text) is (scales == 2)
    assert text.swap_ab is (scales == 1) and not plain.swap_ab
    if scales == 2:
        assert (text.kernel, text.store_path) == (plain.kernel, plain.store_path)


def test_nothing_is_copied_beside_a_sparse_operand():
    """Its kernels store both majors, and the operand decides which of A and B it is."""
    w = tcgemm.compress24(torch.randn(512, 256).half(), prune=True)
    out = torch.empty(512, 128, dtype=torch.float16).t()
    scales = {"alpha": 0.3, "scale_b": torch.rand(1, 512)}
    text = tcgemm.explain(torch.randn(128, 256).half(), w.t(), **scales, out=out, device="H200")
    assert "\n  copied        out " not in text and text.swap_ab


def test_a_named_kernel_may_swap():
    """A name restricts the choice, so the kernel may compute the transpose although bits change."""
    scales = {"scale_a": "row", "scale_b": "row"}
    for name, types in (
        ("tf32_f32_64x64x32_w1_s12_tn", {"dtype": "tf32"}),
        ("u8xs8_s32_64x64x128_w1_s12_tn", {"dtype": "s8", "dtype_b": "u8", "out_dtype": "f32"}),
    ):
        fields = plan(64, 96, 256, kernel=f"sm90a_{name}", out=(0, 1, 64), **types, **scales)
        assert fields["swap_ab"]


@pytest.mark.parametrize("types", [("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e4m3", "e4m3")], ids=str)
@pytest.mark.parametrize("shape", [(67, 42, 96), (5, 300, 64), (130, 24, 256), (33, 65, 512)])
def test_an_epilogue_does_not_choose_between_wgmma_and_mma_sync(shape, types):
    """FP8 sums of the two have different bits. 67x42x96 once had one kernel without a scale, and
    the other one with it."""
    m, n, k = shape
    dtypes = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    a = torch.empty(m, k, dtype=dtypes[types[0]], device="meta")
    b = torch.empty(n, k, dtype=dtypes[types[1]], device="meta").t()
    one, bias = torch.empty((), device="meta"), torch.empty(n, device="meta")
    for options in ({}, {"scale_b": one}, {"bias": bias}, {"bias": bias, "activation": "gelu"}):
        kernel = tcgemm.explain(a, b, device="H200", **options).kernel
        assert kernel.startswith("sm90a_"), (options, kernel)
