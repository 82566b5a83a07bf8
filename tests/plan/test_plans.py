"""Plans for every supported problem on every GPU that the planner knows, without a GPU.

They go through explain: thousands of problems of tensors without memory. Which operand is copied
stands in test_layout_copies.py, scales in test_scales.py, what explain and check_layout say of a
plan in test_explain.py.
"""

import itertools
import re

import pytest

from support import cases
from support.catalog_rows import MIRRORED, SUBBYTE
from support.plan_cases import (
    ALL_TYPES,
    DEVICES,
    check_plan,
    has_code,
    plan,
    rows_by_name,
    types_of,
)
from support.samples import some

SIZES = (
    *cases.SHAPES,
    (1, 1, 1 << 20),
    (1 << 20, 1, 64),
    (1, 1 << 20, 64),
    (16, 4096, 4096),
    (2048, 2048, 2048),
    (4095, 4095, 4095),
    (8192, 8192, 8192),
    (131072, 8192, 512),
)


ONE_OF_EACH_ARCHITECTURE = [
    device for device in DEVICES if device["name"] in ("A100", "L40S", "H200")
]


@some("device", DEVICES, ONE_OF_EACH_ARCHITECTURE, ids=lambda device: device["name"])
@pytest.mark.parametrize("types", ALL_TYPES, ids=str)
def test_every_problem_has_a_plan(device, types):
    if not types.runs_on(device):
        with pytest.raises(RuntimeError, match=rf"no kernel .* multiplies {types.dtype} .* on "):
            plan(64, 64, 64, device=device["name"], **types.options)
        return
    keeps_orientation = types.dtype == "f32" and types.precision in ("", "highest")
    for (m, n, k), layout in itertools.product(SIZES, cases.LAYOUTS):
        for out_dtype, batch in zip(types.outs, (1, 3, 70000), strict=True):
            if m * n * k > 2**30 and batch > 3:
                continue
            column_major = (m * n, 1, m)
            for out in (None, column_major):
                options = {"layout": layout, "batch": batch, "out_dtype": out_dtype, "out": out}
                options |= {"device": device["name"], "alpha": 1.0 if out is None else 2.0}
                fields = plan(m, n, k, **options, **types.options)
                row = check_plan(fields, device, m, n, k, batch, types, layout)
                # Scales and alpha, which column-major results have, are two factors.
                scaled = bool(types.scale_a) and not row["block_scaled"]
                swapped = out is not None and n > 1 and m > 1
                swapped &= not scaled and not keeps_orientation
                by_columns = fields["epilogue_path"] == "columns"
                other = by_columns or row["operand_source"] == "RS" or row["gemv"]
                other |= row["mainloop"] == "thin"
                assert fields["swap_ab"] == swapped or other


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["name"])
@pytest.mark.parametrize("types", ALL_TYPES, ids=str)
def test_depth_zero_has_a_plan_without_copies(device, types):
    if not types.runs_on(device):
        return
    for layout, (m, n) in itertools.product(cases.LAYOUTS, ((1, 1), (130, 70), (4096, 4096))):
        fields = plan(m, n, 0, device=device["name"], layout=layout, **types.options)
        row = rows_by_name()[fields["kernel"]]
        assert row["arch"] != "sm90a" or row["accumulator"] == "f64"
        assert not row["block_scaled"]
        assert fields["repack_a"] is fields["repack_b"] is None
        assert fields["workspace"] == 0
        assert fields["grid"] <= fields["tiles_m"] * fields["tiles_n"]


def test_nothing_is_launched_for_an_empty_result():
    for m, n, batch in ((0, 5, 1), (5, 0, 1), (5, 5, 0)):
        fields = plan(m, n, 64, batch=batch)
        assert "kernel" not in fields and fields["products"] == 0
        assert "empty" in fields["explain"]
        assert "empty" in fields["check_layout"]


def test_every_kernel_can_be_asked_for():
    """A full name leaves one row, and its plan is that row: on each GPU that can hold it."""
    size = 1008  # whole words of every dtype
    for name, row in rows_by_name().items():
        if row["sparse"] or row["input"] in SUBBYTE:
            continue  # test_sparse.py, test_subbyte.py
        places = [
            device
            for device in DEVICES
            if row["shared_bytes"] <= device["shared_bytes"] and has_code(device, row["arch"])
        ]
        assert places, f"no GPU can run {name}"
        types = types_of(row)
        # A kernel for results by columns alone swaps a and b.
        columns_only = row["columns_only"]
        layout = MIRRORED[row["layout"]] if columns_only else row["layout"]
        for device in places:
            options = {"device": device["name"], "layout": layout, "kernel": name}
            sizes = (size, size, size) if row["mainloop"] != "thin" else (size, 24, 40)
            fields = plan(*sizes, **options, **types.options)
            assert (fields["kernel"], fields["swap_ab"]) == (name, columns_only)
            assert fields["repack_a"] is fields["repack_b"] is None
            check_plan(fields, device, *sizes, 1, types, layout)


def test_filter_takes_a_part_of_a_name_or_several():
    assert "sm80" in plan(4096, 4096, 4096, kernel="sm80")["kernel"]
    assert "_128x128x" in plan(4096, 4096, 4096, kernel="128x128x64_w2")["kernel"]
    assert "128x" in plan(4096, 4096, 4096, kernel="nothing,128x")["kernel"]
    with pytest.raises(RuntimeError, match="under the filter 'sm70'"):
        plan(64, 64, 64, kernel="sm70")
    with pytest.raises(RuntimeError, match=r"no kernel of this build multiplies .* on A100"):
        plan(64, 64, 64, device="A100", kernel="sm90a")


def test_types_without_a_kernel_are_refused():
    for types in (
        {"dtype": "f32", "device": "A100"},
        {"dtype": "e4m3", "device": "A100"},
    ):
        with pytest.raises(RuntimeError) as error:
            plan(64, 64, 64, **types)
        assert f"multiplies {types['dtype']}" in str(error.value)
        assert "bf16 (accumulator f32)" in str(error.value)
        assert "f16 (accumulator f16)" in str(error.value)
        assert "run on the CPU" in str(error.value)
        for precision in ("high", "medium"):
            assert (f'"{precision}"' in str(error.value)) == (types["dtype"] == "f32")


def test_tma_stores_what_it_can():
    for options, fast in (
        ({}, True),
        ({"out_dtype": "f16"}, True),
        ({"out_dtype": "f32"}, True),
        ({"out_dtype": "e4m3"}, False),
        ({"alpha": 2.0}, True),
        ({"out_address": 2}, False),
        ({"out": (0, 520, 1)}, True),
        ({"out": (0, 513, 1)}, False),
        ({"out": (0, 1, 512)}, True),
        ({"out": (0, 1024, 2)}, False),
    ):
        assert (
            plan(512, 512, 512, kernel="sm90a", **options)["store_path"].startswith("tma") == fast
        ), options
    text = plan(512, 512, 512, kernel="sm90a")["explain"]
    assert "TMA" in re.search(r"\n  epilogue +(.*)", text).group(1)


def test_bound_follows_the_shape():
    assert plan(8192, 8192, 8192)["bound"] == "compute"
    assert plan(16, 16384, 16384)["bound"] == "memory"
    assert plan(64, 64, 64)["bound"] == "launch"


def test_more_work_takes_longer():
    times = [plan(size, size, size)["microseconds"] for size in (1024, 2048, 4096, 8192, 16384)]
    assert times == sorted(times)
    assert times[-1] > 100 * times[0]


def test_rates_follow_the_dtype():
    """At 8192 every dtype is bound by its tensor cores: half of their rate or more, never all."""
    rates = {"bf16": 989e12, "tf32": 495e12, "e4m3": 1979e12, "s8": 1979e12, "f64": 67e12}
    for dtype, peak in rates.items():
        fields = plan(8192, 8192, 8192, dtype=dtype)
        assert fields["bound"] == "compute"
        assert peak * 0.5 < 2 * 8192**3 / (fields["microseconds"] * 1e-6) < peak
