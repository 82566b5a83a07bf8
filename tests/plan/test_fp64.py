"""The planner's choice among the tiles of f64, beside what was measured on an H200."""

import itertools

import pytest

from support import cases
from support.plan_cases import H200, plan, rows_by_name

# The tiles within 4 % of the fastest of all tiles of the catalog, without slices of k.
FASTEST = {
    (80, 440, 72): "64x16",
    (128, 128, 128): "8x32",
    (152, 696, 2376): "64x16",
    (256, 256, 256): "64x16",
    (384, 384, 384): "64x32",
    (512, 512, 512): "64x32",
    (576, 288, 2648): "64x32",
    (640, 640, 640): "64x64",
    (1800, 208, 904): "64x64",
    (568, 472, 1800): "64x64",
    (768, 768, 768): "64x80",
    (1320, 920, 160): "64x80 128x80",
    (1024, 1024, 1024): "128x64",
    (1576, 2344, 392): "128x80 64x80",
    (1000, 3000, 512): "128x96 128x64",
    (1280, 1280, 1280): "128x112",
    (3000, 3000, 3000): "128x112 128x80",
    (2048, 2048, 2048): "128x128",
    (4096, 4096, 4096): "128x112 128x128",
    (8192, 8192, 8192): "128x128",
}


@pytest.mark.parametrize("sizes", FASTEST, ids=lambda sizes: "x".join(map(str, sizes)))
def test_the_tile_is_among_the_fastest(sizes):
    tile = plan(*sizes, dtype="f64", device=H200, kernel="sm90a_f64_f64")["tile"]
    assert "x".join(map(str, tile[:2])) in FASTEST[sizes].split()


def test_eight_warps_multiply_in_all_tiles_but_the_smallest():
    """Four warps leave the tensor cores idle while they wait for fragments."""
    rows = [row for row in rows_by_name().values() if row["input"] == "f64" == row["accumulator"]]
    rows = [row for row in rows if row["arch"] == "sm90a"]
    tiles = [row for row in rows if not row["gemv"]]
    few = {tuple(row["tile"][:2]) for row in tiles if row["threads"] < 384}
    assert few == {(64, 16)}


@pytest.mark.parametrize("device", ("A100", "A10", "L40S", "RTX 4090"))
def test_older_gpus_take_the_instruction_of_sm80(device):
    """In every layout, from any strides, whole tiles or not, and without a copy."""
    for sizes, layout in itertools.product(((4096,) * 3, (130, 70, 33), (1, 1, 1)), cases.LAYOUTS):
        fields = plan(*sizes, dtype="f64", device=device, layout=layout)
        assert fields["kernel"].startswith("sm80_f64_f64_")
        assert fields["kernel"].endswith(f"_{layout.lower()}") or sizes == (1, 1, 1)
        assert fields["repack_a"] is fields["repack_b"] is None
    fields = plan(64, 64, 64, dtype="f64", device=device, a=(0, 130, 2))
    assert fields["kernel"].endswith("_tn")
    assert not fields["vector_a"]
    assert fields["vector_b"]


def test_hopper_keeps_its_own_kernels():
    for sizes in FASTEST:
        assert plan(*sizes, dtype="f64", device=H200)["kernel"].startswith("sm90a_f64_")
