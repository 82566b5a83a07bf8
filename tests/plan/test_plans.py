"""Plans for every supported problem on every GPU that the planner knows, without a GPU.

They go through the catalog module: thousands of problems as plain numbers, without tensors. What
explain and check_layout say of a plan stands in test_explain.py.
"""

import itertools
import re

import pytest

from support import cases
from support.plan_cases import (
    ALL_TYPES,
    DEVICES,
    check_plan,
    has_code,
    plan,
    rows_by_name,
    types_of,
)

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


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["name"])
@pytest.mark.parametrize("types", ALL_TYPES, ids=str)
def test_every_problem_has_a_plan(device, types):
    if not types.runs_on(device):
        with pytest.raises(RuntimeError, match=rf"no kernel .* multiplies {types.dtype} .* on "):
            plan(64, 64, 64, device=device["name"], **types.options)
        return
    for (m, n, k), layout in itertools.product(SIZES, cases.LAYOUTS):
        for out_dtype, batch in zip(types.outs, (1, 3, 70000), strict=True):
            if m * n * k > 2**30 and batch > 3:
                continue
            column_major = (m * n, 1, m)
            for out in (None, column_major):
                made = plan(
                    *(m, n, k),
                    device=device["name"],
                    layout=layout,
                    batch=batch,
                    out_dtype=out_dtype,
                    out=out,
                    alpha=1.0 if out is None else 0.5,
                    **types.options,
                )
                row = check_plan(made, device, m, n, k, batch, types, layout)
                swapped = made["transposed"] == (out is not None and n > 1 and m > 1)
                assert swapped or row["registers"]


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["name"])
@pytest.mark.parametrize("types", ALL_TYPES, ids=str)
def test_depth_zero_has_a_plan_without_copies(device, types):
    if not types.runs_on(device):
        return
    for layout, (m, n) in itertools.product(cases.LAYOUTS, ((1, 1), (130, 70), (4096, 4096))):
        made = plan(m, n, 0, device=device["name"], layout=layout, **types.options)
        row = rows_by_name()[made["kernel"]]
        assert row["arch"] != "sm90a" or row["accumulator"] == "f64"
        assert not row["block_scaled"]
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["workspace"] == 0
        assert made["grid"] <= made["tiles_m"] * made["tiles_n"]


def test_nothing_is_launched_for_an_empty_result():
    for m, n, batch in ((0, 5, 1), (5, 0, 1), (5, 5, 0)):
        made = plan(m, n, 64, batch=batch)
        assert made["kernel"] is None
        assert made["workspace"] == made["grid"] == 0
        assert "empty" in made["explain"]
        assert "empty" in made["check_layout"]


def test_every_kernel_can_be_asked_for():
    """A full name leaves one row, and its plan is that row: on each GPU that can hold it."""
    size = 1008  # whole words of every dtype
    for name, row in rows_by_name().items():
        if row["sparse"]:
            continue  # test_sparse.py
        places = [
            device
            for device in DEVICES
            if row["shared_bytes"] <= device["shared_bytes"] and has_code(device, row["arch"])
        ]
        assert places, f"no GPU can run {name}"
        types = types_of(row)
        for device in places:
            made = plan(
                *(size, size, size),
                device=device["name"],
                layout=row["layout"],
                kernel=name,
                **types.options,
            )
            assert made["kernel"] == name
            assert made["prepare_a"] is made["prepare_b"] is None
            check_plan(made, device, size, size, size, 1, types, row["layout"])


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
        {"dtype": "f64", "device": "A100"},
        {"dtype": "e4m3", "device": "A100"},
        {"dtype": "bf16", "accumulator": "f16"},
        {"dtype": "f16", "dtype_b": "bf16"},
        {"dtype": "e4m3", "dtype_b": "s8"},
    ):
        with pytest.raises(RuntimeError) as error:
            plan(64, 64, 64, **types)
        assert f"multiplies {types['dtype']}" in str(error.value)
        assert "bf16 (accumulator f32)" in str(error.value)
        assert "f16 (accumulator f16)" in str(error.value)
        assert "run on the CPU" in str(error.value)
        for precision in ("high", "medium"):
            assert (f'"{precision}"' in str(error.value)) == (types["dtype"] == "f32")


# Which pass, which kernel.


def test_aligned_operands_are_never_copied():
    for layout, size in itertools.product(cases.LAYOUTS, (64, 1000, 4096)):
        made = plan(size, size, size, layout=layout)
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["workspace"] == 0
        assert made["store_path"].startswith("tma")


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_large_odd_operands_are_copied_for_wgmma(layout):
    size = 4095
    made = plan(size, size, size, layout=layout)
    assert made["kernel"].startswith("sm90a")
    assert made["kernel"].endswith("_tn")
    for name in ("prepare_a", "prepare_b"):
        assert made[name]["pitch"] == 4096
    assert made["workspace"] == 2 * size * 4096 * 2
    assert not made["store_path"].startswith("tma")


@pytest.mark.parametrize(("k", "pitch"), [(31, 32), (500, 504), (505, 512), (4097, 4160)])
def test_copies_have_whole_lines_where_that_is_little(k, pitch):
    """Words of 8 elements, and lines of 64 in rows of a kilobyte and more."""
    made = plan(4096, 4096, k, a=(0, 4097, 1), kernel="sm90a")
    assert made["prepare_a"]["pitch"] == pitch


def test_rows_inside_lines_are_read_in_clusters():
    """They cost L2 twice the lines, and a cluster shares b."""
    for pitch, cluster in ((8192, 1), (8208, 2)):
        options = {"a": (0, pitch, 1), "b": (0, 1, pitch), "dtype": "e4m3", "out_dtype": "bf16"}
        made = plan(8192, 8192, 8192, **options)
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["kernel"].startswith("sm90a")
        assert made["cluster"] == cluster


def test_only_what_needs_it_is_copied():
    pitched = (4096 * 4097, 4097, 1)
    made = plan(4096, 4096, 4096, a=pitched)
    assert made["prepare_a"] is not None
    assert made["prepare_b"] is None
    assert made["kernel"].endswith("_tn")
    made = plan(4096, 4096, 4096, layout="NN", a=pitched)
    assert made["prepare_a"] is not None
    assert made["prepare_b"] is None
    assert made["kernel"].endswith("_nn")
    made = plan(4096, 4096, 4096, layout="NT", b=pitched)
    assert made["prepare_a"] is None
    assert made["prepare_b"] is not None
    assert made["kernel"].endswith("_tt")


def test_a_broadcast_matrix_is_copied_once():
    made = plan(2047, 2047, 2047, batch=8, b=(0, 1, 2047))
    assert made["prepare_a"]["batch"] == 8
    assert made["prepare_b"]["batch"] == 1


def test_small_odd_products_are_not_copied():
    made = plan(33, 17, 31)
    assert made["prepare_a"] is made["prepare_b"] is None
    assert "sm80" in made["kernel"]


def test_what_stands_in_the_way_of_tma():
    """Base address, pitch, batch stride, step, stride 0: each alone keeps TMA from reading a."""
    options = {"kernel": "sm90a"}
    m = n = k = 256
    plain = plan(m, n, k, **options)
    assert plain["prepare_a"] is plain["prepare_b"] is None
    obstacles = (
        {"a_address": 2},
        {"a_address": 8},
        {"a": (0, 257, 1)},
        {"a": (0, 260, 1)},
        {"a": (0, 512, 2)},
        {"a": (0, 0, 1)},
        {"a": (256 * 256 + 4, 256, 1), "batch": 2},
    )
    for obstacle in obstacles:
        made = plan(m, n, k, **options, **obstacle)
        assert made["prepare_a"] is not None, obstacle
        assert made["prepare_b"] is None
        assert "TMA cannot read it" in made["check_layout"]
    fine = (
        {"a_address": 16},
        {"a": (0, 264, 1)},
        {"a": (0, 1, 264), "layout": "TT"},
        {"a": (256 * 264, 264, 1), "batch": 2},
        {"a": (0, 256, 1), "batch": 2},
        {"a": (264, 264 * 2, 1), "batch": 2},
    )
    for strides in fine:
        made = plan(m, n, k, **options, **strides)
        assert made["prepare_a"] is made["prepare_b"] is None, strides


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


def test_other_gpus_get_mma_sync():
    for device in DEVICES:
        made = plan(4096, 4096, 4096, device=device["name"])
        assert made["kernel"].startswith("sm90a" if device["compute_capability"] == 90 else "sm80")
        # Their kernels read any alignment: a pass is worth it only against element-wise loads.
        assert made["prepare_a"] is made["prepare_b"] is None


def test_names_of_gpus_in_any_case():
    assert plan(64, 64, 64, device="rtx 4090") == plan(64, 64, 64, device="RTX 4090")


def test_bound_follows_the_shape():
    assert plan(8192, 8192, 8192)["bound"] == "compute"
    assert plan(16, 16384, 16384)["bound"] == "memory"
    assert plan(64, 64, 64)["bound"] == "launch"


def test_more_work_takes_longer():
    times = [plan(size, size, size)["microseconds"] for size in (1024, 2048, 4096, 8192, 16384)]
    assert times == sorted(times)
    assert times[-1] > 100 * times[0]
    # Half of the H200's rate at least, and no more than all of it.
    seconds = times[3] * 1e-6
    assert 400e12 < 2 * 8192**3 / seconds < 989e12
