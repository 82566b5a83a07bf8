"""Products whose k the planner divides into slices, and what the number of slices depends on."""

import itertools

import pytest
import torch

import tcgemm

from support.plan_cases import plan

LONG = [(64, 64, 65536), (128, 128, 32768), (100, 1000, 10000)]
LONG += [(512, 512, 32768), (16, 4096, 14336), (1, 4096, 4096), (4096, 2, 4096)]
TYPES = [
    {"dtype": "bf16"},
    {"dtype": "f16", "accumulator": "f16"},
    {"dtype": "tf32"},
    {"dtype": "e4m3"},
    {"dtype": "e4m3", "precision": "fast"},
    {"dtype": "e4m3", "scale_a": "1x128", "scale_b": "128x128"},
    {"dtype": "s8"},
]
EPILOGUES = ([], ["bias"], ["bias", "gelu", "residual"], ["c", "silu"])


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_a_long_k_is_divided(types):
    for m, n, k in LONG[:3]:
        fields = plan(m, n, k, **types)
        assert fields["slices"] > 1, (m, n, k)
        stored = not fields["cluster_adds"]
        assert fields["workspace"] >= fields["slices"] * m * n * 4 * stored
        assert fields["grid"] > plan(m, n, k, **types, kernel=fields["kernel"])["grid"]
        words = {(True, False): "the CTAs of a cluster add", (False, False): "another kernel adds"}
        words[False, True] = "the CTAs add when all have stored theirs"
        adds = words[fields["cluster_adds"], fields["grid_adds"]]
        assert f"slices of k   {fields['slices']}, whose sums {adds}" in fields["explain"]
        assert stored or (m, n) != (64, 64)


def test_who_adds_slices():
    """The grid, where each CTA has one slice of one tile, and its kernel has the width."""
    kernel = "sm90a_bf16_f32_64x64x64_w1_s12_tn/"
    assert plan(64, 64, 65536, kernel=kernel + "64")["grid_adds"]
    assert not plan(64, 64, 65536, kernel=kernel + "8c")["grid_adds"]
    assert not plan(640, 640, 65536, kernel=kernel + "2")["grid_adds"]  # 200 CTAs
    assert not plan(64, 64, 65536, kernel="sm90a_bf16_f32_64x48x64_w1_s14_tn/8")["grid_adds"]


def test_enough_tiles_are_not_divided():
    for m, n, k in ((4096, 4096, 4096), (2048, 2048, 65536), (64, 28672, 4096), (1024, 1024, 512)):
        assert plan(m, n, k)["slices"] == 1, (m, n, k)


@pytest.mark.parametrize(("dtype", "sizes"), [("f64", LONG[:3]), ("f32", LONG[:2])])
def test_float64_sums_are_divided(dtype, sizes):
    """The partial sums of float32 operands are float64 as well."""
    for m, n, k in sizes:
        fields = plan(m, n, k, dtype=dtype)
        assert fields["slices"] > 1 and not fields["cluster_adds"], (m, n, k)
        assert fields["split"] is None
        assert fields["workspace"] >= fields["slices"] * m * n * 8


def test_clusters_add_the_slices_of_split_float32():
    """Sums must be whole before they are rescaled."""
    fields = plan(64, 4096, 4096, dtype="f32", precision="prepared")
    assert (fields["slices"], fields["cluster_adds"], fields["split"]["bf16"]) == (2, True, False)
    name = fields["kernel"]
    assert plan(64, 4096, 4096, dtype="f32", kernel=name + "/2c")["slices"] == 2
    with pytest.raises(RuntimeError, match="no kernel of this build"):
        plan(64, 4096, 4096, dtype="f32", kernel=name + "/2")


def test_sums_lie_as_the_result_where_lanes_hold_pairs_of_a_column():
    """The kernel that adds them reads rows and writes rows then."""
    m, n, k = 72, 200, 4096
    name = "sm90a_tf32_f32_128x64x32_w2_s8_tt_rs/3"
    rows = plan(m, n, k, dtype="tf32", layout="TT", kernel=name)
    assert not rows["swap_ab"] and rows["workspace"] == 3 * m * 224 * 4
    columns = plan(m, n, k, dtype="tf32", layout="NN", kernel=name)
    assert columns["swap_ab"] and columns["workspace"] == 3 * m * 224 * 4
    # Other kernels store rows of their tiles, whatever the result is.
    kernel = "sm90a_bf16_f32_64x48x64_w1_s14_tn/3^T"
    assert plan(m, n, k, kernel=kernel)["workspace"] == 3 * n * 96 * 4


def test_no_other_gpu_divides_k():
    assert plan(64, 64, 65536, device="A100")["slices"] == 1


def division(fields):
    """How the kernel divides k: into slices, or among the warps of a cluster of GEMV blocks."""
    return fields["slices"], fields["kernel"].endswith("_gemv") and fields["cluster"]


@pytest.mark.parametrize("types", [*TYPES, {"dtype": "f64"}], ids=str)
def test_the_epilogue_and_the_result_do_not_change_the_slices(types):
    """So z, out= and a fused term do not change bits."""
    for m, n, k in LONG:
        plain = division(plan(m, n, k, **types))
        integers = types["dtype"] == "s8"
        for epilogue, out in itertools.product(EPILOGUES, (None, (0, 1, m), (0, n + 1, 1))):
            options = types | ({"out_dtype": "bf16"} if integers else {})
            fields = plan(m, n, k, **options, epilogue=epilogue, out=out)
            assert division(fields) == plain, (m, n, k)


def test_a_filter_asks_for_slices():
    fields = plan(64, 64, 4096, kernel="64x64x64_w1_s12_tn/8")
    assert fields["slices"] == 8
    assert plan(64, 64, 4096, kernel="64x64x64_w1_s12_tn")["slices"] == 1
    assert plan(200, 64, 4096, kernel="64x64x64_w1_s12_tn@2/8")["cluster"] == 2
    with pytest.raises(RuntimeError, match="under the filter"):
        plan(64, 64, 128, kernel="64x64x64_w1_s12_tn/3")  # two k-blocks


def test_batch_invariant_has_other_slices():
    a, b = torch.empty(64, 32768).bfloat16(), torch.empty(64, 32768).bfloat16().t()
    assert tcgemm.explain(a, b, device="H200").slices == 32
    with tcgemm.batch_invariant():
        with tcgemm.batch_invariant():
            assert tcgemm.explain(a, b, device="H200").slices == 16
        assert tcgemm.explain(a, b, device="H200").slices == 16
        assert plan(64, 64, 32768)["slices"] == 16
    assert tcgemm.explain(a, b, device="H200").slices == 32


def test_few_rows_fill_the_gpu():
    """By tiles whose width divides the columns so."""
    for n, width in ((4096, 32), (6144, 48), (28672, 224)):
        for m in (24, 64):
            fields = plan(m, n, 4096)
            assert (fields["tile"][1], fields["slices"], fields["grid"]) == (width, 1, 128)


def test_clusters_of_three_fill_the_gpu():
    """32 tiles have no clusters of four, of which 30 run at one time. 64x48 with four slices takes
    as long on an H200, and by the estimate 10 % less."""
    for m, n in ((64, 1024), (128, 512)):
        fields = plan(m, n, 4096, kernel="64x32x64_w1_s18_tn/3c")
        assert (fields["slices"], fields["cluster_adds"], fields["grid"]) == (3, True, 96)
        assert fields["microseconds"] <= 1.12 * plan(m, n, 4096)["microseconds"]
    # Where memory bounds the product, a cluster adds after the last byte has come.
    assert plan(64, 2048, 8192)["slices"] == 2


GEMV = [
    (1, 4096, "8x32"),
    (8, 4096, "8x32"),
    (8, 6144, "8x48"),
    (4, 7168, "8x64"),
    (16, 4096, "16x64"),
]


@pytest.mark.parametrize(("rows", "columns", "tile"), GEMV)
def test_gemv_kernels_serve_few_rows(rows, columns, tile):
    fields = plan(rows, columns, 4096)
    assert fields["kernel"].endswith("_gemv") and f"_{tile}x" in fields["kernel"]
    assert fields["slices"] == 1 and fields["cluster"] == (2 if rows == 16 else 1)


def test_gemv_kernels_serve_few_columns():
    """The kernel computes the transposed product."""
    fields = plan(4096, 1, 4096)
    assert fields["kernel"].endswith("_gemv") and fields["swap_ab"]


def test_gemv_is_not_for_batch_invariance_nor_a_short_k():
    with tcgemm.batch_invariant():
        assert "gemv" not in plan(1, 4096, 4096)["kernel"]
    assert "gemv" not in plan(1, 4096, 64)["kernel"]
    assert "gemv" not in plan(33, 4096, 4096)["kernel"]


def test_a_cluster_that_adds_slices_stores_no_columns_by_tma():
    """The warps that store columns by TMA do not take part in the barriers of such a cluster."""
    kernel = "sm90a_bf16_f32_128x64x64_w2_s12_tn_sparse"
    whole = plan(64, 4096, 4096, sparse="b", kernel=kernel)
    divided = plan(64, 4096, 4096, sparse="b", kernel=f"{kernel}/2c")
    assert whole["store_path"] == "tma_columns"
    assert divided["cluster_adds"] and divided["store_path"] == "column_pairs"
