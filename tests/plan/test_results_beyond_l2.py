"""Results that L2 cannot hold: they leave it first, and are computed in whole rows."""

import pytest

from support.plan_cases import DEVICES, plan

HOPPER = [device for device in DEVICES if device["compute_capability"] == 90]
on_hopper = pytest.mark.parametrize("device", HOPPER, ids=lambda device: device["name"])


def most_rows(device, columns, itemsize):
    """The most rows of a result that L2 can hold."""
    return device["l2_bytes"] // (columns * itemsize)


@on_hopper
@pytest.mark.parametrize(("dtype", "itemsize"), [("bf16", 2), ("b1", 4), ("f32", 4)])
@pytest.mark.parametrize("batch", (1, 3))
def test_a_result_leaves_l2_first_if_it_is_larger(device, dtype, itemsize, batch):
    fitting = most_rows(device, 4096 * batch, itemsize)
    for rows, fits in ((fitting, True), (fitting + 1, False)):
        options = {"dtype": dtype, "device": device["name"], "batch": batch}
        if dtype == "f32":
            options["precision"] = "high"
        assert plan(rows, 4096, 1024, **options)["result_fits_l2"] is fits


@on_hopper
def test_sums_of_slices_that_another_kernel_adds_stay(device):
    rows = 2 * most_rows(device, 4096, 2)
    name = "sm90a_bf16_f32_128x256x64_w2_s4_tn"
    options = {"device": device["name"], "layout": "TN"}
    assert plan(rows, 4096, 1024, kernel=f"{name}/2", **options)["result_fits_l2"]
    assert not plan(rows, 4096, 1024, kernel=name, **options)["result_fits_l2"]


@on_hopper
@pytest.mark.parametrize(
    ("m", "n", "k", "whole_rows"),
    [
        (8192, 8192, 8192, True),  # 1.07 times as fast as in square groups, on an H200
        (16384, 16384, 4096, True),  # 1.16
        (8192, 8192, 65536, False),
        (4096, 16384, 8192, False),  # 0.98: L2 does not keep 17 MB of b beside the result
        (2048, 4096, 8192, False),  # L2 holds the result
    ],
    ids=str,
)
def test_bits_in_whole_rows(device, m, n, k, whole_rows):
    fields = plan(m, n, k, dtype="b1", device=device["name"])
    assert (fields["raster_group"] == 1) is whole_rows


@on_hopper
def test_whole_rows_of_other_dtypes(device):
    """Batches and 2:4 operands have square groups."""
    name = device["name"]
    assert plan(8192, 8192, 512, device=name)["raster_group"] == 1
    assert plan(8192, 8192, 512, device=name, dtype="e4m3", out_dtype="bf16")["raster_group"] == 1
    assert plan(8192, 8192, 8192, device=name)["raster_group"] > 1
    assert plan(8192, 8192, 512, device=name, batch=2)["raster_group"] > 1
    assert plan(8192, 8192, 512, device=name, sparse="a")["raster_group"] > 1
