"""Products whose a and b a kernel swaps: out^T = b^T a^T. "^T" in the name of a kernel asks for the
orientation that the planner does not take for a row-major result by itself; a kernel with the path
"columns" stores such a result by TMA. tests/gpu/test_transposed_store.py runs these kernels.
"""

import itertools
import re

import pytest
import torch

import tcgemm
from tcgemm import info
from tcgemm.measure import operands
from tcgemm.ops import query

from support.catalog_rows import MIRRORED
from support.meta_problems import meta
from support.plan_cases import H200, plan, types_of

ROW = "sm90a_bf16_f32_128x128x64_w2_s6_tn"
ONLY = "sm90a_bf16_f32_64x80x64_w1_s12_tn"  # for results by columns alone
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
M, N, K = 200, 136, 256
COLUMNS = [row for row in info.catalog() if "columns" in row["epilogue_paths"]]
ALONE = [row for row in COLUMNS if row["columns_only"]]


def by_columns(fields):
    """Is it stored by columns? Both fields say so, or none."""
    columns = fields["epilogue_path"] == "columns"
    assert not columns or fields["store_path"] == "tma_columns"
    return columns


# The name of a kernel.

ENDS = {  # cluster, slices, cluster_adds, by columns
    "^T": (None, 1, False, True),
    "@1^T": (1, 1, False, True),
    "@2^T": (2, 1, False, True),
    "@4/1^T": (4, 1, False, True),
    "@2x2^T": ("2x2", 1, False, True),
    "@1x2/1^T": ("1x2", 1, False, True),
    "/2^T": (None, 2, False, False),
    "@2/2^T": (2, 2, False, False),
    "/2c^T": (1, 2, True, False),
    "@1/2c^T": (1, 2, True, False),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_name_may_ask_for_the_other_orientation(end):
    """Slices are added by another kernel, or stored by the CTAs of a cluster element by element."""
    cluster, slices, cluster_adds, columns = ENDS[end]
    fields = plan(M, N, K, kernel=ROW + end)
    assert (fields["kernel"], fields["swap_ab"]) == (ROW, True)
    assert (fields["slices"], fields["cluster_adds"]) == (slices, cluster_adds)
    assert cluster in (None, fields["cluster"]) and by_columns(fields) == columns


def test_a_part_of_a_name_or_none_may_ask_for_it():
    for kernel in ("128x128x64_w2^T", "nothing,128x128^T", "sm90a^T", "^T"):
        assert plan(M, N, K, kernel=kernel)["swap_ab"], kernel


def test_the_other_orientation_of_a_column_major_result_is_that_of_the_call():
    """The planner swaps a and b for it, so that the kernel stores rows."""
    out = (0, 1, M)
    fields = plan(M, N, K, kernel=ROW, out=out)
    assert fields["swap_ab"] and not by_columns(fields)
    fields = plan(M, N, K, kernel=ROW + "^T", out=out)
    assert not fields["swap_ab"] and by_columns(fields)


@pytest.mark.parametrize(
    "kernel", ("nothing^T", f"{ROW}^", f"{ROW}^t", f"{ROW}^T^T", f"{ROW}^T/2", f"^T{ROW}", "sm70^T")
)
def test_another_name_is_refused(kernel):
    text = f"under the filter '{re.escape(kernel)}'; there is bf16"
    with pytest.raises(RuntimeError, match=text):
        plan(M, N, K, kernel=kernel)


def test_a_cluster_that_no_kernel_has_is_refused_beside_it():
    refused = {
        f"{ROW}@3^T": "asks for a cluster of 3 CTAs, but there are clusters of 1, 2, 4, 8, 1x2",
        f"{ROW}@2/2c^T": "asks for a cluster of 2 CTAs, but no kernel under that filter has it",
        f"{ROW}^T@2": "asks for a cluster of 2 CTAs, but no kernel under that filter has it",
    }
    for kernel, text in refused.items():
        with pytest.raises(RuntimeError, match=f"kernel='{re.escape(kernel)}' {text}"):
            plan(M, N, K, kernel=kernel)


@pytest.mark.parametrize("side", ("a", "b"))
def test_a_sparse_operand_has_one_orientation(side):
    """It is the a of the kernel."""
    assert plan(M, N, K, sparse=side, kernel="sparse")["swap_ab"] == (side == "b")
    for kernel in ("sparse^T", "^T"):
        with pytest.raises(RuntimeError, match=re.escape(kernel)):
            plan(M, N, K, sparse=side, kernel=kernel)


def test_a_packed_weight_is_a_of_the_kernel_for_many_rows():
    x = torch.empty(64, 512, dtype=BF16)
    weight = tcgemm.pack_weight(torch.zeros(2048, 512, dtype=BF16), "int4")
    assert tcgemm.explain(x, weight.t(), device=H200, kernel="packed4").swap_ab
    with pytest.raises(RuntimeError, match=r"packed4\^T"):
        tcgemm.explain(x, weight.t(), device=H200, kernel="packed4^T")


@pytest.mark.parametrize("kernel", ("packed4^T", "gemv^T", "sm80^T", "^T"))
@pytest.mark.parametrize("rows", (1, 16, 64))
def test_a_packed_weight_has_one_orientation(rows, kernel):
    """GEMV kernels, which have it as b, take no "^T" either."""
    x = torch.empty(rows, 512, dtype=BF16)
    weight = tcgemm.pack_weight(torch.zeros(256, 512, dtype=BF16), "int4")
    with pytest.raises(RuntimeError, match=re.escape(kernel)):
        tcgemm.explain(x, weight.t(), device=H200, kernel=kernel)


def test_split_float32_has_one_orientation():
    """The terms of a and b are added in the order of the operands."""
    for kernel in ("f16x2^T", "bf16x3^T"):
        with pytest.raises(RuntimeError, match=re.escape(kernel)):
            plan(M, N, K, dtype="f32", precision="highest", kernel=kernel)


REASONS = (  # what the sentence of a refused name says besides the name
    ({"kernel": "sparse^T", "sparse": "a"}, "sparse"),
    ({"kernel": ONLY, "out_dtype": "f32"}, "by columns"),
    ({"kernel": ONLY + "/2", "k": 4096}, "by columns"),
    ({"kernel": ONLY, "n": 132}, "by columns"),
)


@pytest.mark.parametrize(("options", "reason"), REASONS, ids=str)
def test_a_refused_name_has_its_reason(options, reason):
    """It is wrong that no kernel multiplies bf16."""
    sizes = {"m": M, "n": N, "k": K} | {name: options[name] for name in "nk" if name in options}
    rest = {name: value for name, value in options.items() if name not in sizes}
    with pytest.raises(RuntimeError) as error:
        plan(**sizes, **rest)
    head = str(error.value).replace(rest["kernel"], "")
    assert reason in head and "no kernel of this build multiplies bf16" not in head


def test_explain_says_why_a_and_b_are_swapped():
    text = plan(M, N, K, kernel=ROW + "^T")["explain"]
    line = re.search(r"\n  swap A/B +(.*)", text).group(1)
    assert "transposed in registers" not in line and "columns" in line


# Which kernels, and when.


def asked(row, kernel, layout, **options):
    """The plan of a product of the types of a row, with a result of the path."""
    types = types_of(row).options | {"out_dtype": "f32" if row["input"] == "tf32" else "bf16"}
    types |= options
    return plan(208, 144, 512, layout=layout, kernel=kernel, **types)


def test_the_path_is_one_of_dense_kernels_with_a_k_major_b():
    for row in COLUMNS:
        assert row["mainloop"] in ("dense", "promoted") and row["layout"] in ("TN", "TT")
        assert row["arch"] == "sm90a" and row["input"] == row["input_b"]
        assert not row["pingpong"] and row["tile"][1] <= 256
    assert {row["input"] for row in COLUMNS} == {"bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8"}
    assert {row["layout"] for row in ALONE} == {"TN", "TT"}


def test_every_kernel_of_the_path_can_be_asked_for():
    for row, out_dtype in itertools.product(COLUMNS, ("bf16", "f16", "f32", "e4m3", "s8")):
        layout = MIRRORED[row["layout"]]
        if (out_dtype == "f32") != (row["input"] == "tf32"):
            continue
        if (out_dtype == "s8") != (row["accumulator"] == "s32") and out_dtype in ("s8", "e4m3"):
            continue
        fields = asked(row, row["name"] + "^T", layout, out_dtype=out_dtype)
        assert (fields["kernel"], fields["swap_ab"]) == (row["name"], True)
        assert by_columns(fields) and not fields["copies"], row["name"]


def test_without_it_a_name_keeps_the_orientation():
    for row in COLUMNS:
        if row in ALONE:
            continue
        for name in (row["name"], "_".join(row["name"].split("_")[:5])):
            fields = asked(row, name, row["layout"])
            assert not fields["swap_ab"] and not by_columns(fields), name


def test_kernels_of_this_path_alone_need_not_be_asked_for_it():
    for row in ALONE:
        layout = MIRRORED[row["layout"]]
        for kernel in (row["name"], row["name"] + "^T", row["name"] + "@2"):
            fields = asked(row, kernel, layout)
            assert (fields["kernel"], fields["swap_ab"]) == (row["name"], True)
            assert by_columns(fields)
        # The orientation of the call, for a column-major result.
        fields = asked(row, row["name"], row["layout"], out=(0, 1, 208))
        assert (fields["kernel"], fields["swap_ab"]) == (row["name"], False)
    assert plan(M, N, K, kernel="64x80")["kernel"] == ONLY


@pytest.mark.parametrize("division", ("/2", "@1/2", "@1/2c", "/2c"))
def test_kernels_of_this_path_alone_divide_no_k(division):
    for end in ("", "^T"):
        with pytest.raises(RuntimeError, match=re.escape(f"'{ONLY}{division}{end}'")):
            plan(M, N, 16 * K, kernel=ONLY + division + end)


@pytest.mark.parametrize("out_dtype", ("e4m3", "e5m2"))
def test_results_of_8_bits_have_no_addend(out_dtype):
    """Their vectors have 16 elements."""
    for row in (ROW, ONLY):
        assert by_columns(plan(M, 144, K, kernel=row + "^T", out_dtype=out_dtype))
    epilogue = ["bias", "gelu", "amax", "scale_out"]
    options = {"out_dtype": out_dtype, "kernel": ROW + "^T"}
    assert by_columns(plan(M, 144, K, epilogue=epilogue, **options))
    for word in ("c", "residual"):
        assert not by_columns(plan(M, 144, K, epilogue=[word], **options))
    assert not by_columns(plan(M, 136, K, **options))


def test_results_of_tf32_have_32_bits():
    options = {"dtype": "f32", "precision": "high", "kernel": "tf32_f32_128x128x32_w2_s6_tn^T"}
    for n in (136, 132):
        assert by_columns(plan(M, n, K, **options))
    assert by_columns(plan(M, N, K, epilogue=["c", "bias", "silu"], **options))
    for change in ({"epilogue": ["gelu"]}, {"out_dtype": "bf16"}, {"n": 130}):
        sizes = {"m": M, "n": change.pop("n", N), "k": K}
        assert not by_columns(plan(**sizes, **options, **change))


@pytest.mark.parametrize("out_dtype", ("f32", "e4m3", "e5m2"))
def test_results_of_other_sizes_take_other_paths(out_dtype):
    fields = plan(M, N, K, kernel=ROW + "^T", out_dtype=out_dtype)
    assert fields["swap_ab"] and not by_columns(fields)
    assert not by_columns(plan(M, N, K, out_dtype=out_dtype))
    with pytest.raises(RuntimeError, match=f"'{ONLY}'"):
        plan(M, N, K, kernel=ONLY, out_dtype=out_dtype)


@pytest.mark.parametrize("zero", ("zero_a", "zero_b"))
def test_zero_points_take_other_paths(zero):
    name = "sm90a_s8_s32_128x128x128_w2_s6_tn"
    options = {"dtype": "s8", "out_dtype": "bf16", "kernel": name + "^T"}
    assert by_columns(plan(M, N, K, **options))
    assert not by_columns(plan(M, N, K, epilogue=[zero], **options))
    assert not by_columns(plan(M, N, K, **(options | {"out_dtype": None})))  # s32


# The terms. The call has M x N; whole vectors are 8 elements of 16 bits.


def vector(count, step=1, dtype=F32, address=0):
    """A bias of the columns of the call."""
    return meta((count,), dtype, (step,), address)


def matrix(strides, dtype=BF16, address=0, sizes=(M, N)):
    return meta(sizes, dtype, strides, address)


WHOLE, PADDED = (N, 1), (N + 8, 1)
TAKEN = {
    "nothing": {},
    "m of no vectors": {"m": 201},
    "one row": {"m": 1},
    "one vector": {"n": 8},
    "f16": {"out_dtype": "f16"},
    "padded": {"out": (0, N + 8, 1)},
    "column-major": {"out": (0, 1, M)},
    "batch": {"batch": 3},
    "batch of padded matrices": {"batch": 3, "out": ((M + 1) * N, N, 1)},
    "alpha": {"alpha": 0.3},
    **{word: {"epilogue": [word]} for word in ("bias", "relu", "gelu", "gelu_tanh", "silu")},
    "bias of every second element": {"bias": vector(N, 2)},
    "bias of f16": {"bias": vector(N, dtype=F16)},
    "bias at 4 bytes": {"bias": vector(N, address=4)},
    "bias of rows": {"bias": matrix((1, 1), F32, sizes=(M, 1))},
    "bias of rows at 2 bytes": {"bias": matrix((1, 1), BF16, 2, sizes=(M, 1))},
    "c": {"c": matrix(WHOLE)},
    "c of f16": {"c": matrix(PADDED, F16), "beta": 0.5},
    "c, one row for all": {"c": matrix((1,), sizes=(N,)), "beta": 0.5},
    "residual": {"residual": matrix(PADDED), "activation": "gelu"},
    "all": {"epilogue": ["c", "bias", "silu", "amax", "scale_out"], "alpha": 2.0},
    "amax": {"epilogue": ["amax"]},
    "scale_out": {"epilogue": ["scale_out"]},
    "scales": {"scale_a": "row", "scale_b": "row"},
    "scales, a bias": {"scale_a": "row", "scale_b": "row", "epilogue": ["bias"]},
    "scales, m of no vectors": {"scale_a": "row", "scale_b": "row", "m": 201},
    "scales, a bias, m of no vectors": {"scale_a": "row", "epilogue": ["bias"], "m": 201},
    "one scale": {"scale_a": "tensor", "scale_b": "tensor"},
    "scales, a bias of rows": {
        "scale_a": "row",
        "bias": matrix((1, 1), F32, sizes=(M, 1)),
    },
}
REFUSED = {
    "n of no vectors": {"n": 132},
    "a pitch of no vectors": {"out": (0, N + 4, 1)},
    "out at 8 bytes": {"out_address": 8},
    "every second column of out": {"out": (0, 2 * N, 2)},
    "out of 32 bits": {"out_dtype": "f32"},
    "out of 8 bits": {"out_dtype": "e4m3"},
    "batches at no vector": {"batch": 3, "out": (M * N + 4, N, 1)},
    "c of f32": {"c": matrix(WHOLE, F32)},
    "c at 8 bytes": {"c": matrix(WHOLE, address=8)},
    "c, a pitch of no vectors": {"c": matrix((N + 4, 1))},
    "c, column-major": {"c": matrix((1, M))},
    "c, one column for all": {"c": matrix((1, 1), sizes=(M, 1))},
    "residual, every second column": {"residual": matrix((2 * N, 2))},
    "residual of f32": {"residual": matrix(WHOLE, F32)},
    "c and residual": {"epilogue": ["c", "residual"]},
    "bias of every second row": {"bias": matrix((2, 1), F32, sizes=(M, 1))},
    "scales and a bias of rows, m of no vectors": {
        "m": 201,
        "scale_a": "row",
        "bias": matrix((1, 1), F32, sizes=(201, 1)),
    },
}


def planned(row, options):
    sizes = {"m": M, "n": N, "k": K} | {name: options[name] for name in "mn" if name in options}
    rest = {name: value for name, value in options.items() if name not in sizes}
    return plan(**sizes, kernel=row + "^T", **rest)


@pytest.mark.parametrize("row", (ROW, ONLY))
@pytest.mark.parametrize("terms", TAKEN)
def test_the_path_takes(terms, row):
    fields = planned(row, TAKEN[terms])
    assert fields["kernel"] == row and by_columns(fields)
    assert fields["swap_ab"] == (terms != "column-major")


@pytest.mark.parametrize("terms", REFUSED)
def test_the_path_leaves_to_others(terms):
    """The kernel of the same row that has another path; a row with this one alone is refused."""
    fields = planned(ROW, REFUSED[terms])
    assert fields["kernel"] == ROW and not by_columns(fields)
    with pytest.raises(RuntimeError, match=re.escape(f"'{ONLY}^T'")):
        planned(ONLY, REFUSED[terms])


SCALES = {  # taken
    "rows": (True, {"scale_a": matrix((1, 1), F32, sizes=(M, 1))}),
    "every second row": (False, {"scale_a": matrix((2, 1), F32, sizes=(M, 1))}),
    "rows at 4 bytes": (False, {"scale_a": matrix((1, 1), F32, 4, sizes=(M, 1))}),
    "every second column": (True, {"scale_b": matrix((1, 2), F32, sizes=(1, N))}),
    "columns at 4 bytes": (True, {"scale_b": matrix((1, 1), F32, 4, sizes=(1, N))}),
    "blocks of 1 x 128": (False, {"scale_a": matrix((2, 1), F32, sizes=(M, 2))}),
}


@pytest.mark.parametrize("scales", SCALES)
def test_scales_of_rows_are_read_in_pairs(scales):
    """A row of the call is a column of the kernel."""
    taken, options = SCALES[scales]
    a, b = meta((M, K), torch.float8_e4m3fn), meta((N, K), torch.float8_e4m3fn).mT
    kernel = "128x128x128_w2_s6_tn_promoted^T" if scales[:6] != "blocks" else "block_scaled^T"
    assert by_columns(query.ask("explain", a, b, **options, device=H200, kernel=kernel)) == taken


def test_scales_of_every_matrix_of_a_batch_begin_at_an_even_one():
    for rows, taken in ((200, True), (201, False)):
        a, b = meta((3, rows, K), BF16), meta((3, N, K), BF16).mT
        options = {"scale_a": meta((3, rows, 1), F32), "device": H200, "kernel": ROW + "^T"}
        assert by_columns(query.ask("explain", a, b, **options)) == taken


# The planner.

SIZES = [(64, 4096, 4096), (200, 136, 256), (1000, 1000, 1000), (4096, 4096, 4096), (33, 8200, 520)]
PLANNED = (
    *({"epilogue": terms} for terms in ([], ["bias"], ["c", "silu"], ["c", "residual"])),
    *({"out_dtype": word} for word in ("f32", "f16", "e4m3")),
    *({"dtype": "e4m3", "scale_a": "row", "scale_b": "row"}, {"dtype": "s8", "out_dtype": "f16"}),
    *({"dtype": "s8", "out_dtype": "bf16", "epilogue": ["zero_a"]}, {"dtype": "s8"}),
)


@pytest.mark.parametrize("options", PLANNED, ids=str)
def test_the_planner_swaps_where_the_kernel_stores_columns(options):
    """For a row-major result. Kernels that transpose an operand, or are for few rows, swap too."""
    rows = {row["name"]: row for row in info.catalog()}
    for (m, n, k), layout in itertools.product(SIZES, ("TN", "NN", "NT", "TT")):
        fields = plan(m, n, k, layout=layout, **options)
        row = rows[fields["kernel"]]
        if row["operand_source"] == "SS" and not row["gemv"]:
            assert fields["swap_ab"] == by_columns(fields)


FACTORS = (
    {"scale_a": "row", "scale_b": "row"},
    {"scale_a": "row", "alpha": 0.3},
    {"scale_b": "tensor", "alpha": 0.3},
)


@pytest.mark.parametrize("factors", FACTORS, ids=str)
@pytest.mark.parametrize("dtype", ("bf16", "e4m3", "s8"))
def test_batch_invariant_products_swap_only_where_no_bit_changes(dtype, factors):
    """Two factors are multiplied in the order of the kernel's operands."""
    options = {"dtype": dtype, "out_dtype": "bf16", **factors}
    rows = (1, 16, 64, 100, 200, 512, 1000, 4096)
    with tcgemm.batch_invariant():
        for (n, k), out in itertools.product(((4096, 4096), (1000, 520)), (False, True)):
            strides = [(0, 1, m) if out else None for m in rows]
            plans = [plan(m, n, k, out=s, **options) for m, s in zip(rows, strides, strict=True)]
            assert len({fields["swap_ab"] for fields in plans[1:]}) == 1, (n, k, out)
        # A name restricts the choice, so it decides.
        row = next(
            row["name"]
            for row in COLUMNS
            if row["input"] == dtype and row["tile"][:2] == (128, 128) and row["layout"] == "TN"
            if row["promoted"] == (dtype == "e4m3")
        )
        assert by_columns(plan(M, N, K, kernel=row + "^T", **options))


@pytest.mark.parametrize(
    ("layout", "sizes"),
    # Stored element by element, other kernels have the lowest estimate than by TMA.
    [("NN", (24, 216, 272)), ("NT", (24, 1896, 64)), ("NN", (200, 136, 4096))],
)
def test_strides_of_a_result_do_not_decide_the_order_of_two_factors(layout, sizes):
    """A kernel that computes out^T multiplies by the factors in the other order, which rounds
    otherwise."""
    m, n, k = sizes
    a, b = operands.in_layout(layout, torch.empty(m, k), torch.empty(k, n))
    scales = {"scale_a": torch.empty(m, 1), "scale_b": torch.empty(1, n), "precision": "high"}
    outs = [
        torch.empty(m, n),
        torch.empty(m, n + 3)[:, :n],
        torch.empty(m * n + 1)[1:].view(m, n),
        torch.empty(m, n, 2)[..., 0],
        torch.empty(n, m).t(),
    ]
    plans = [tcgemm.explain(a, b, out=out, device=H200, **scales) for out in outs]
    assert len({plan.swap_ab and plan.store_path != "tma_columns" for plan in plans}) == 1
