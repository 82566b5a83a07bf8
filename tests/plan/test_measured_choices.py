"""Products whose kernels were measured on an H200, for which the planner took a slower one before.

docs/dev/kernels/cost-models.md says what was corrected in the estimates.
"""

import pytest

from support import (
    meta_problems,
    plan_cases,  # noqa: F401 (skips where the build is for other GPUs)
)

SCALES = {"scale_a": "row", "scale_b": "row"}


def plan(dtype, m, n, k, **options):
    return meta_problems.plan("H200", dtype, m, n, k, **options)


@pytest.mark.parametrize(
    ("m", "n", "k", "precision"),
    [(8192, 28672, 4096, "fast"), (16384, 4096, 4096, "promoted"), (3488, 768, 512, "fast")],
)
def test_many_scaled_tiles_of_8_bits_are_stored_by_rows(m, n, k, precision):
    """By columns the first took 1687 us, by rows 1500."""
    fields = plan("e4m3", m, n, k, precision=precision, **SCALES)
    assert not fields["swap_ab"]


def test_promoted_sums_take_192_columns():
    """With 256 columns it took 993 us, with 192 it took 872."""
    fields = plan("e4m3", 12720, 6496, 6608, precision="promoted", **SCALES)
    assert fields["tile"][1] == 192


def test_few_rows_of_8_bits_do_not_share_a_alone():
    """Such a cluster took 36.7 us, one that shares b 27.5."""
    fields = plan("e4m3", 256, 4096, 14336, precision="fast", **SCALES)
    assert str(fields["cluster"]) != "1x2" or fields["swap_ab"]


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [
        (64, 256, 256, 256),
        (32, 512, 512, 512),
        (16, 512, 512, 256),
        (24, 384, 384, 384),
        (8, 1024, 1024, 512),
    ],
)
def test_batches_of_small_matrices_take_pingpong_alone(batch, m, n, k, layout):
    """Other kernels took 1.06 to 1.24 times as long, and clusters 1.02 to 1.33 times."""
    fields = plan("bf16", m, n, k, batch=batch, layout=layout)
    assert fields["kernel"].endswith("_pingpong")
    assert fields["cluster"] == 1


def test_batches_of_smaller_matrices_than_its_tile_do_not():
    """64x64 took 5.2 us."""
    assert plan("bf16", 64, 64, 64, batch=512)["tile"][:2] == (64, 64)


@pytest.mark.parametrize(("k", "pingpong"), [(512, True), (1024, True), (4096, False)])
def test_a_short_k_takes_pingpong(k, pingpong):
    """With K = 1024 it took 51 us, 128x256 57; with K = 4096 it is slower."""
    assert plan("bf16", 4096, 4096, k)["kernel"].endswith("_pingpong") == pingpong


def test_a_wide_product_takes_pingpong():
    """It took 227 us, 128x256 with a and b swapped 256."""
    assert plan("bf16", 2048, 24576, 1536)["kernel"].endswith("_pingpong")


@pytest.mark.parametrize(
    ("m", "n", "k", "transposes"), [(5872, 1760, 12680, False), (4096, 4096, 4096, True)]
)
def test_narrow_tiles_of_tf32_do_not_hide_the_transpose(m, n, k, transposes):
    """The first took 912 us in 128x128 with it, and 814 in 128x224 after a repack pass."""
    fields = plan("tf32", m, n, k, layout="NN")
    assert fields["kernel"].endswith("_rs") == transposes
    assert bool(fields["repack_a"] or fields["repack_b"]) != transposes
