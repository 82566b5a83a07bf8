"""Plans of grouped products on every GPU that the planner knows, and what explain says of them.

The tensors have no memory, so that nobody knows the values of offs: the planner counts with groups
of the mean length.
"""

import itertools
import math

import pytest
import torch

import tcgemm

from support.cases import BF16, F16, F32, F64
from support.plan_cases import DEVICES, H200
from support.samples import some

KINDS = ("rows", "columns", "k")
LAYOUTS = ("TN", "NN", "TT", "NT")
TYPES = (
    (F16, None),
    (BF16, None),
    (F32, "high"),
    (F32, "medium"),
    (F32, "highest"),
    (F64, None),
)
NAMED = [device for device in DEVICES if device["name"] in ("A100", "L40S", "H100", "H200")]


def matrix(shape, dtype, is_row_major, pad):
    """A tensor without memory; `pad` elements follow each line."""
    *batch, rows, cols = shape
    lines, length = (rows, cols) if is_row_major else (cols, rows)
    whole = torch.empty((*batch, lines, length + pad), dtype=dtype, device="meta")[..., :length]
    return whole if is_row_major else whole.mT


def operands(kind, groups, mean, other=256, k=512, *, dtype=BF16, layout="TN", pads=(0, 0)):
    """(a, b, offs). The groups divide groups * mean rows, columns or k; `other` counts the columns
    of groups of rows, the rows of groups of columns, and both of groups of k."""
    extent = groups * mean
    shapes = {
        "rows": ((extent, k), (groups, k, other)),
        "columns": ((groups, other, k), (k, extent)),
        "k": ((other, extent), (extent, other)),
    }
    of_b, of_a = layout  # N is row-major
    a, b = (
        matrix(shape, dtype, letter == "N", pad)
        for shape, letter, pad in zip(shapes[kind], (of_a, of_b), pads, strict=True)
    )
    return a, b, torch.empty(groups, dtype=torch.int32, device="meta")


def plan(*sizes, device=H200, kernel=None, precision=None, **options):
    a, b, offs = operands(*sizes, **options)
    return tcgemm.explain(a, b, offs=offs, device=device, kernel=kernel, precision=precision)


@some("device", DEVICES, NAMED, ids=lambda device: device["name"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "precision"), TYPES, ids=str)
def test_every_grouped_product_has_a_plan(device, kind, dtype, precision):
    options = {"dtype": dtype, "precision": precision, "device": device["name"]}
    if precision == "highest" and device["compute_capability"] != 90:
        with pytest.raises(RuntimeError, match=r"no kernel of this build multiplies f32 .* in gro"):
            plan(kind, 3, 64, **options)
        return
    sizes = ((1, 1, 8, 8), (1, 4096, 512, 64), (3, 5, 33, 7), (128, 300, 256, 512), (64, 1, 96, 80))
    for size, layout, pads in itertools.product(sizes, LAYOUTS, ((0, 0), (1, 0), (0, 3))):
        made = plan(kind, *size, layout=layout, pads=pads, **options)
        assert made.kernel.endswith("_grouped_k" if kind == "k" else "_grouped")
        assert made.kernel.startswith("sm80") or device["compute_capability"] == 90
        assert (made.grouped, made.groups) == (kind, size[0])
        assert made.swap_ab is (kind == "columns")
        assert made.grid >= 1 and made.slices == 1 and made.products == 1
        assert 0 < made.microseconds < math.inf and 0 < made.waves < math.inf
        assert made.product == ""  # tcgemm.tune has no grouped products


@pytest.mark.parametrize("device", ("A100", H200))
@pytest.mark.parametrize("kind", ("rows", "columns"))
def test_a_sum_of_nothing_has_a_plan(kind, device):
    assert plan(kind, 4, 16, 32, 0, device=device).kernel.endswith("_grouped")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_launched_without_a_group(kind):
    made = plan(kind, 0, 1)
    assert made.kernel is None and made.products == 0
    assert ": the result is empty, of shape (" in made


def test_a_result_without_groups_is_zeros():
    a, b = torch.empty(24, 64), torch.empty(0, 64, 32)
    text = tcgemm.explain(a, b, offs=torch.empty(0, dtype=torch.int64), device=H200)
    assert (
        text
        == "tcgemm.explain: the result has shape (24, 32); it is zeros, since there is no group."
    )


@pytest.mark.parametrize("dtype", (F16, BF16))
def test_the_tile_follows_the_length_of_the_groups(dtype):
    for mean in (1, 4, 16):
        assert plan("rows", 128, mean, 1536, 2048, dtype=dtype).tile[0] == 64
    for sizes in ((128, 256, 1536, 2048), (8, 1024, 4096, 14336)):
        assert plan("rows", *sizes, dtype=dtype).tile == (128, 256, 64)
    for sizes in ((8, 4096, 4096), (128, 256, 1536)):
        assert plan("k", *sizes, dtype=dtype, layout="NT").tile == (128, 256, 64)


@pytest.mark.parametrize("kind", ("rows", "k"))
@pytest.mark.parametrize("dtype", (F16, BF16))
def test_rows_of_whole_vectors_are_stored_by_tma(kind, dtype):
    for other, by_tma in ((512, True), (520, True), (513, False), (516, False)):
        made = plan(kind, 8, 1024, other, dtype=dtype, layout="NT" if kind == "k" else "TN")
        assert made.store_path == ("tma_rows" if by_tma else "elements")
        # A result by elements has one tile.
        if kind == "rows" and not by_tma:
            assert made.tile == (64, 128, 64)


@pytest.mark.parametrize("device", ("A100", "L40S"))
def test_older_gpus_store_vectors(device):
    assert plan("rows", 8, 256, 512, device=device).store_path == "vectors"
    assert plan("rows", 8, 256, 513, device=device).store_path == "elements"


# The operands that are copied, by the layout, without and with lines that are no multiple of 16
# bytes: of both, of a, of b.
COPIES = {
    ("rows", "TN"): ("", "a", "b"),
    ("rows", "NN"): ("", "a", "b"),
    ("rows", "TT"): ("a", "a", "ab"),  # groups begin anywhere along the rows of a
    ("rows", "NT"): ("a", "a", "ab"),
    ("columns", "TN"): ("", "a", "b"),
    ("columns", "TT"): ("", "a", "b"),
    ("columns", "NN"): ("b", "ab", "b"),
    ("columns", "NT"): ("b", "ab", "b"),
    ("k", "TN"): ("", "a", "b"),
    ("k", "NN"): ("b", "ab", "b"),  # the kernels read both operands alike
    ("k", "TT"): ("a", "a", "ab"),
    ("k", "NT"): ("", "ab", "ab"),
}


@pytest.mark.parametrize("device", ("H100", H200))
@pytest.mark.parametrize(("kind", "layout"), COPIES)
def test_which_operands_are_copied(kind, layout, device):
    for pads, copies in zip(((0, 0), (1, 0), (0, 1)), COPIES[kind, layout], strict=True):
        made = plan(kind, 16, 256, 512, layout=layout, pads=pads, device=device)
        assert made.copies == copies, pads
        for operand in "ab":
            assert (f"repack {operand}  " in made) is (operand in copies)


def test_a_copy_says_why():
    beginning = "because groups begin anywhere along its contiguous dimension"
    assert beginning in plan("rows", 16, 256, 512, layout="TT")
    assert "because grouped kernels read a and b both K-major" in plan("k", 4, 64, 512, layout="NN")
    assert "its leading dimension is not a mul" in plan("rows", 16, 256, 512, pads=(1, 0))
    loaded = plan("k", 16, 256, 512, layout="TN", device="A100")
    for operand in "ab":
        assert f"scalar loads  {operand} is loaded one element at a time: groups begin" in loaded


@pytest.mark.parametrize("precision", ("high", "medium"))
def test_float32_is_rounded_as_everywhere(precision):
    made = plan("rows", 16, 256, 512, dtype=F32, precision=precision)
    assert made.kernel.startswith("sm90a_tf32_f32" if precision == "high" else "sm90a_bf16_f32")
    assert made.copies == ("" if precision == "high" else "ab")  # bfloat16 copies


def test_float32_of_all_bits_is_multiplied_as_float64():
    made = plan("k", 16, 256, 512, dtype=F32, precision="highest", layout="NT")
    assert made.kernel.startswith("sm90a_f32_f64") and made.copies == ""
    assert "highest: multiplied and accumulated in f64" in made


SHAPES = {
    "rows": "out 1024 x 96 = a 1024 x 64 @ b 4 x 64 x 96, ",
    "columns": "out 96 x 1024 = a 4 x 96 x 64 @ b 64 x 1024, ",
    "k": "out 4 x 96 x 96 = a 96 x 1024 @ b 1024 x 96, ",
}
GROUPS = {
    "rows": "4 of the rows of a, 256 rows each in the mean",
    "columns": "4 of the columns of b, 256 columns each in the mean",
    "k": "4 of k, 256 each in the mean",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", ("A100", H200))
def test_the_text_says_the_groups(kind, device):
    made = plan(kind, 4, 256, 96, 64, device=device)
    assert made.startswith(f"tcgemm: {SHAPES[kind]}")
    assert f"\n  groups        {GROUPS[kind]}\n" in made
    assert " waves of tiles, if groups have the mean length\n" in made
    swaps = "kernels divide rows, and the groups are columns: out^T = b^T a^T is computed"
    assert (swaps in made) is (kind == "columns")
    assert made.flops == 2 * 1024 * 96 * (96 if kind == "k" else 64)
    a, b, offs = operands(kind, 4, 256, 96, 64)
    layout = tcgemm.check_layout(a, b, offs=offs, device=device)
    assert f"\n  groups        {GROUPS[kind]}\n" in layout and layout.kernel == made.kernel
    assert SHAPES[kind].split("= ")[1] in layout


def test_a_group_may_be_the_only_one_and_shorter_than_a_row():
    assert "b 1 x 512 x 256, " in plan("rows", 1, 64)
    a, b, _ = operands("rows", 4, 1)
    offs = torch.empty(4, dtype=torch.int64, device="meta")
    assert "4 of the rows of a, 0.25 rows each" in tcgemm.explain(a[:1], b, offs=offs)


def test_a_product_without_offs_has_no_groups():
    a, b, _ = operands("rows", 4, 64)
    made = tcgemm.explain(a, b)
    assert (made.grouped, made.groups) == ("", 0) and "  groups " not in made


def test_a_filter_names_the_kernel():
    row = "sm90a_bf16_f32_64x128x64_w1_s8_tn_grouped"
    sizes = (8, 1024, 4096, 4096)
    assert plan("rows", *sizes).kernel != row == plan("rows", *sizes, kernel=row).kernel
    assert plan("rows", *sizes, kernel=f"{row}@2").cluster == 2
    with pytest.raises(RuntimeError, match=r"in groups on H200, .* under the filter 'grouped_k'"):
        plan("rows", *sizes, kernel="grouped_k")


def test_the_epilogue_of_a_grouped_product():
    a, b, offs = operands("rows", 8, 256)
    bias, residual = torch.empty(8, 256, device="meta"), torch.empty(2048, 256, device="meta")
    epilogue = {"bias": bias, "residual": residual, "activation": "silu", "alpha": 2.0}
    made = tcgemm.explain(a, b, offs=offs, **epilogue)
    assert made.epilogue == "alpha, bias, silu, residual, fused"
    assert tcgemm.explain(a, b, offs=offs, out_dtype=F32).store_path == "tma_rows"


def test_a_product_that_is_added_to_out():
    a, b, offs = operands("k", 8, 1024, 512, layout="NT")
    out = torch.empty(8, 512, 512, dtype=F32, device="meta")
    made = tcgemm.explain(a, b, offs=offs, out=out, accumulate=True)
    assert "bf16 to f32 (accumulator f32)" in made and made.epilogue == "beta * c, fused"
    assert made.bytes > tcgemm.explain(a, b, offs=offs, out_dtype=F32).bytes
    with pytest.raises(RuntimeError, match=r"explain: accumulate=True adds the product to out, bu"):
        tcgemm.explain(a, b, offs=offs, accumulate=True)
    with pytest.raises(RuntimeError, match=r"explain: accumulate=True is given without offs, but"):
        tcgemm.explain(a, b, out=out[0], accumulate=True, out_dtype=F32)
    with pytest.raises(TypeError, match=r"explain: accumulate is .yes., but "):
        tcgemm.explain(a, b, offs=offs, out=out, accumulate="yes")


def test_tensors_on_the_cpu():
    a, b = torch.ones(24, 64).bfloat16(), torch.ones(3, 64, 32).bfloat16()
    ends = torch.tensor([8, 8, 20])
    text = tcgemm.explain(a, b, offs=ends, device="L40S")
    assert "3 of the rows of a, 8 rows each" in text
    assert text.endswith("the above is what one L40S would do.")
    with pytest.raises(
        RuntimeError, match=r"^tcgemm.explain: offs\[2\] is 30, but there are 24 ro"
    ):
        tcgemm.explain(a, b, offs=torch.tensor([8, 8, 30]), device="L40S")


@pytest.mark.parametrize("question", (tcgemm.explain, tcgemm.check_layout))
def test_what_grouped_mm_refuses_is_refused(question):
    a, b, offs = operands("rows", 4, 64)
    name = f"tcgemm.{question.__name__}: "
    for options, error, sentence in (
        ({"offs": 4}, TypeError, "offs must be a torch.Tensor, but is int"),
        ({"offs": offs.float()}, RuntimeError, "offs is torch.float32, but the ends of groups "),
        ({"offs": offs[:3]}, RuntimeError, "offs has 3 ends of groups, but b of shape (4, 512, "),
        ({"c": offs.float()}, RuntimeError, "c is given beside offs, but tcgemm.grouped_mm has no"),
        ({"scale_a": offs.float()}, RuntimeError, "scale_a is given beside offs, but "),
        ({"amax": True}, RuntimeError, "amax is given beside offs, but "),
        ({"acc_dtype": F32}, RuntimeError, "acc_dtype is given beside offs, but "),
        ({"bias": offs.float()}, RuntimeError, "bias must have shape (4, 256), a row for each"),
    ):
        with pytest.raises(error) as excinfo:
            question(a, b, **{"offs": offs, **options})
        assert str(excinfo.value).startswith(name + sentence)
    with pytest.raises(RuntimeError, match=r"offs is given, but a of shape \(4, 8, 8\) and b of"):
        question(torch.empty(4, 8, 8), torch.empty(4, 8, 8), offs=torch.zeros(4, dtype=torch.int32))
    sparse = tcgemm.compress24(torch.ones(256, 512).bfloat16(), prune=True)
    int4 = tcgemm.Int4Tensor.from_int8(torch.ones(256, 512, dtype=torch.int8))
    prepared = tcgemm.prepare(torch.ones(256, 512))
    for other in (sparse, int4, prepared):
        kind = rf"is of type {type(other).__name__}, but the operands of a grouped product are pl"
        with pytest.raises(TypeError, match=rf"^{name}b {kind}"):
            question(torch.ones(64, 512).bfloat16(), other.t(), offs=torch.tensor([64]))
    with pytest.raises(TypeError, match=rf"^{name}a is of type SparseTensor24, but .* pass a"):
        question(sparse, torch.ones(512, 4).bfloat16(), offs=torch.tensor([512]))
