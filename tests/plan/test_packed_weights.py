"""Plans of products with packed weights, on every GPU that the planner knows."""

import pytest
import torch

import tcgemm
from tcgemm import info

from support.plan_cases import DEVICES, H200, has_code

K, N = 1024, 2048
WEIGHTS = {
    "int4": tcgemm.pack_weight(torch.zeros(N, K), "int4", 128),
    "nf4": tcgemm.pack_weight(torch.ones(N, K), "nf4", 64),
    "int8": tcgemm.pack_weight(torch.zeros(N, K), "int8"),
}
ROWS = (1, 8, 9, 16, 17, 64, 128, 1000, 4096)
KERNELS = [row for row in info.catalog() if row["weight_bits"]]


def explained(rows, weight="int4", device=H200, dtype=torch.bfloat16, **options):
    x = torch.empty(rows, K, dtype=dtype)
    return tcgemm.explain(x, WEIGHTS[weight].t(), device=device, **options)


def packed_zeros(columns, depth, format="int4", group=128):
    return tcgemm.pack_weight(torch.zeros(columns, depth, dtype=torch.bfloat16), format, group)


@pytest.mark.parametrize("device", [row["name"] for row in DEVICES])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_every_gpu_has_a_kernel_that_decodes(device, weight):
    hopper = device in ("H200", "H100")
    bits = 8 if weight == "int8" else 4
    for rows in ROWS:
        plan = explained(rows, weight, device)
        assert plan.kernel.startswith("sm90a" if hopper else "sm80")
        assert f"_packed{bits}" in plan.kernel
        assert plan.copies == ""


def test_ampere_divides_k_of_few_rows_among_warps():
    assert explained(1, device="A100").kernel.endswith("packed4_gemv")
    assert explained(64, device="A100").kernel.endswith("_tn_packed4")


def test_hopper_divides_k_of_up_to_32_rows_among_warps():
    """More rows than 16 of a large weight have enough tiles without that."""
    for rows, tile in ((1, 8), (8, 8), (9, 16), (17, 16), (32, 16)):
        plan = explained(rows)
        assert plan.kernel.endswith("packed4_gemv") and f"_f32_{tile}x" in plan.kernel
    large = packed_zeros(28672, K)
    for rows, ending in ((1, "_gemv"), (8, "_gemv"), (17, "_mma"), (32, "_mma")):
        x = torch.empty(rows, K, dtype=torch.bfloat16)
        assert tcgemm.explain(x, large.t(), device=H200).kernel.endswith(ending)


@pytest.mark.parametrize("device", ("H200", "H100"))
def test_clusters_of_three_fit_where_those_of_four_do_not(device):
    """4096 columns are 32 tiles. 39 clusters of three run at one time, and 30 of four."""
    for columns, slices in ((4096, 3), (3584, 4)):
        x = torch.empty(64, 4096, dtype=torch.bfloat16)
        plan = tcgemm.explain(x, packed_zeros(columns, 4096).t(), device=device)
        assert plan.slices == slices and plan.cluster_adds
        assert plan.grid == columns // 128 * slices


def test_a_small_weight_has_few_slices():
    """To add 16 slices by another kernel took 1.6 times as long as a cluster of six, for 512
    columns. There the warps of GEMV kernels divide k: 48 x 512 x 2048 took 0.9 and 48 x 512 x 8192
    0.7 of the time of the wgmma kernels (int8, an H200)."""
    for rows in (33, 48, 64):
        x = torch.empty(rows, 4096, dtype=torch.bfloat16)
        plan = tcgemm.explain(x, packed_zeros(2048, 4096).t(), device=H200)
        assert plan.cluster_adds and 4 <= plan.slices <= 8
        assert tcgemm.explain(x, packed_zeros(512, 4096).t(), device=H200).kernel.endswith("_gemv")


@pytest.mark.parametrize(
    ("format", "rows", "columns", "depth", "tile", "way"),
    (
        ("int4", 96, 4096, 14336, 128, "stream"),  # 29.0 us, and 33.3 with four slices
        ("int4", 102, 11520, 6912, 128, "stream"),  # 36.2 us, and 40.5 with whole tiles
        ("int4", 320, 4096, 4096, 160, "stream"),  # 23.6 us, and 26.0 with two slices
        ("int4", 384, 28672, 4096, 192, "stream"),  # 127.5 us, and 138.1 with whole tiles
        ("int8", 407, 12160, 8448, 256, "stream"),  # 158 us, and 168 with 160 columns
        ("int4", 320, 6144, 4096, 160, "whole"),  # 28.1 us, and 29.9 with stream-K
        ("int4", 384, 6144, 4096, 192, "whole"),  # 31.6 us, and 33.4 with stream-K
        ("int4", 256, 6144, 4096, 128, "whole"),  # 24.5 us, and 25.3 with stream-K
        ("int4", 160, 4096, 4096, 128, "cluster"),  # 16.5 us, and 18.0 with 64 columns
        ("int4", 256, 4096, 14336, 128, "cluster"),  # 46.1 us, and 54.8 with slices of 256 columns
    ),
)
def test_more_than_64_rows_have_the_fastest_measured_kernel(
    format, rows, columns, depth, tile, way
):
    group = 128 if format == "int4" else None
    x = torch.empty(rows, depth, dtype=torch.bfloat16)
    plan = tcgemm.explain(x, packed_zeros(columns, depth, format, group).t(), device=H200)
    assert f"_f32_128x{tile}x64" in plan.kernel and plan.cluster == 1
    taken = "stream" if plan.stream_k else "cluster" if plan.cluster_adds else "whole"
    assert taken == way and (plan.slices > 1) == (way != "whole")


def test_a_table_is_filled_by_few_warps():
    """The start of a CTA with a table takes longer with 16 warps than with eight."""
    x = torch.empty(1, 4096, dtype=torch.bfloat16)
    for format, group, warpgroups in (("int4", 128, 4), ("nf4", 64, 2), ("mxfp4", 32, 2)):
        plan = tcgemm.explain(x, packed_zeros(4096, 4096, format, group).t(), device=H200)
        assert f"8x32x64_w{warpgroups}" in plan.kernel, format


def test_a_table_takes_shared_memory_of_the_ctas():
    """Two CTAs of eight warps with tables fit a multiprocessor, and three without them."""
    w = torch.ones(28672, 4096, dtype=torch.bfloat16)
    x = torch.empty(1, 4096, dtype=torch.bfloat16)
    times = []
    for format in ("int4", "nf4"):
        packed = tcgemm.pack_weight(w, format, 128)
        plan = tcgemm.explain(x, packed.t(), device=H200, kernel="8x32x64_w2_s3_tn_packed4_gemv")
        times.append(plan.microseconds)
    assert 1.2 < times[1] / times[0] < 1.5


def test_hopper_takes_a_kernel_of_ampere_if_it_is_asked_for():
    for row in KERNELS:
        if row["arch"] == "sm80":
            few = row["tile"][0] if row["name"].endswith("_gemv") else 64
            dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[row["input"]]
            weight = "int8" if row["weight_bits"] == 8 else "int4"
            plan = explained(few, weight, dtype=dtype, kernel=row["name"])
            assert plan.kernel == row["name"]
    assert explained(64, kernel="sm80").kernel.startswith("sm80")
    assert explained(64, kernel="packed4").kernel.startswith("sm90a")


def test_clusters_that_divide_k_are_taken_by_name():
    clusters = [row for row in KERNELS if row["gemv_cluster"] > 1]
    assert {row["gemv_cluster"] for row in clusters} == {2, 4}
    for row in clusters:
        weight = "int8" if row["weight_bits"] == 8 else "int4"
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[row["input"]]
        plan = explained(row["tile"][0], weight, dtype=dtype, kernel=row["name"])
        tiles = N // row["tile"][1]
        assert (plan.kernel, plan.cluster) == (row["name"], row["gemv_cluster"])
        assert plan.grid == tiles * row["gemv_cluster"]


@pytest.mark.parametrize(
    ("format", "group", "columns", "depth", "tile", "cluster"),
    (
        ("int4", 128, 2048, 14336, "8x32x64_w1", 4),  # 8.9 us, and 9.3 without a cluster
        ("int8", None, 2048, 7168, "8x32x64_w1", 4),  # 6.2 us and 7.3
        ("int8", None, 2560, 10240, "8x64x64_w2", 2),  # 9.7 us and 9.8, by four CTAs 13.2
        ("int4", 128, 4096, 4096, "8x32x64_w4", 1),  # 4.7 us, by two CTAs 5.3
        ("int8", None, 5120, 5120, "8x64x64_w2", 1),  # 9.1 us, by two CTAs 12.1
    ),
)
def test_clusters_divide_a_long_k_of_few_columns(format, group, columns, depth, tile, cluster):
    weight = packed_zeros(columns, depth, format, group).t()
    for rows in (1, 8, 9):
        plan = tcgemm.explain(torch.empty(rows, depth, dtype=torch.bfloat16), weight, device=H200)
        if rows <= 8:
            assert (tile in plan.kernel, plan.cluster) == (True, cluster)
        else:
            assert "_c2_" not in plan.kernel and "_c4_" not in plan.kernel


def test_kernels_of_ampere_fit_every_gpu():
    """A GPU of compute capability 8.6 or 8.9 gives a CTA 99 KB, which includes a table."""
    names = [row["name"] for row in KERNELS if row["arch"] == "sm80"]
    assert len(names) == 20
    for row in KERNELS:
        for device in DEVICES:
            if row["arch"] == "sm80" and has_code(device, "sm80"):
                assert row["shared_bytes"] <= device["shared_bytes"], row["name"]


def test_inputs_that_are_no_vectors_are_copied():
    transposed = torch.empty(K, 40, dtype=torch.bfloat16).t()
    odd = torch.empty(40, K + 1, dtype=torch.bfloat16)[:, 1:]
    for x in (transposed, odd, transposed[:4], odd[:4]):
        plan = tcgemm.explain(x, WEIGHTS["int4"].t(), device="A100")
        assert plan.kernel.startswith("sm80") and plan.copies == "a"


def test_only_the_activation_is_said_to_be_transposed():
    assert "transposed in registers" not in str(explained(4096))
    assert "transposed in registers" not in str(explained(64, device="A100"))
