"""Products of few elements: GEMV kernels of many tiles of rows, beside the others.

The times are of an H200: of the kernel here, and of the one that was the plan before.
"""

import pytest
import torch

import tcgemm

from support.plan_cases import H200, plan


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "tile"),
    [
        ("bf16", 64, 128, 512, "8x32"),  # 2.2 us, and 2.8 with two slices of 64x32
        ("bf16", 40, 40, 512, "8x32"),  # 2.1 us, and 2.8
        ("f32", 128, 256, 2048, "8x32"),  # 7.4 us, and 13.9 with eight slices of 64x32
        ("f32", 48, 512, 512, "8x32"),  # 3.8 us, and 8.7 with TF32 terms
        ("f64", 128, 128, 512, "8x32"),  # 3.7 us, and 7.7 with eight slices of 64x16
        ("bf16", 256, 256, 512, "64x32"),  # 2.6 us, and 3.4 with the warps of 8x64
        ("bf16", 64, 1024, 512, "64x32"),  # 2.7 us, and 3.5
        ("e4m3", 4096, 16, 2048, "64x32"),  # 4.6 us, and 6.2
        ("tf32", 256, 256, 512, "64x32"),  # 3.5 us, and 4.8 with the warps of 16x64
        ("f64", 256, 256, 128, "64x16"),  # 3.2 us, and 4.5
    ],
)
def test_a_small_result_has_the_faster_kernel(dtype, m, n, k, tile):
    options = {"precision": "fast"} if dtype == "e4m3" else {}
    kernel = plan(m, n, k, dtype=dtype, device=H200, **options)["kernel"]
    assert f"_{tile}x" in kernel
    assert kernel.endswith("_gemv") == tile.startswith("8")


def test_a_small_packed_product_is_divided_among_warps():
    """48 x 512 x 512 with int8 takes 2.5 us, and 3.5 with mma.sync; 256 x 256 x 8192 15.6, and 9.6
    with wgmma: L2 delivers the weight 32 times there."""
    for m, n, k, is_gemv in ((48, 512, 512, True), (256, 256, 8192, False)):
        weight = tcgemm.pack_weight(torch.zeros(n, k, dtype=torch.bfloat16), "int8")
        x = torch.empty(m, k, dtype=torch.bfloat16)
        assert tcgemm.explain(x, weight.t(), device=H200).kernel.endswith("_gemv") == is_gemv


def test_a_pass_before_a_gemv_kernel_costs_more():
    """GEMV kernels load nothing before the pass has ended: tf32 NN 256 x 256 x 128 takes 3.1 us
    with a kernel that transposes in registers, and 4.8 with a pass and 8x64."""
    fields = plan(256, 256, 128, dtype="tf32", layout="NN", device=H200)
    assert fields["repack_b"] is None and fields["kernel"].endswith("_rs")


def test_batches_of_small_results_have_one_tile_of_rows():
    fields = plan(64, 128, 512, batch=2, device=H200)
    assert not fields["kernel"].endswith("_gemv")


def test_2_4_products_share_the_dense_operand_in_clusters_of_two():
    """8192 cubed in s8 takes 568 us in clusters of two, and 576 without; bf16 1079 and 1127."""
    for dtype in ("s8", "bf16", "f16"):
        for m, n, k in ((8192, 8192, 8192), (4096, 28672, 8192)):
            assert plan(m, n, k, dtype=dtype, sparse="b", device=H200)["cluster"] == 2


def test_a_pass_overlaps_the_next_kernel_on_hopper_alone():
    """The estimate of a launch of a pass: 1.2 us on an H200, 2.5 on an A100."""
    for device, us in ((H200, "1.2 us"), ("A100", "2.5 us")):
        fields = plan(1000, 1000, 1001, device=device, dtype="tf32", layout="NN")
        assert f"and {us} to launch" in fields["explain"]
