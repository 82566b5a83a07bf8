"""Plans for every supported problem on every GPU that the planner knows, without a GPU.

They go through the catalog module: thousands of problems as plain numbers, without tensors. What
explain and check_layout say of a plan stands in test_explain.py.
"""

import functools
import itertools
import math
import re

import cases
import pytest

from tcgemm import info

needs_catalog = pytest.mark.skipif(info._catalog is None, reason=info.NO_CATALOG)
DEVICES = info.devices() if info._catalog else []
H200 = "H200"
ELEMENTS_A_WORD = 8  # 16 bytes of f16 or bf16

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


def types_on_gpu():
    return tuple(dict.fromkeys(types[:2] for types in cases.all_types("cuda")))


def plan(m, n, k, *, device=H200, dtype="bf16", **options):
    return info.plan(device, dtype, m, n, k, **options)


@functools.cache
def rows_by_name():
    return {row["name"]: row for row in info.catalog()}


def check_plan(made, device, m, n, k, batch, *, dtype, accumulator, layout):
    """What has to hold for every plan."""
    row = rows_by_name()[made["kernel"]]
    assert (row["input"], row["accumulator"]) == (dtype, accumulator)
    assert device["compute_capability"] >= 80
    assert row["arch"] == "sm80" or device["compute_capability"] == 90
    assert row["shared_bytes"] <= device["shared_bytes"]
    if made["transposed"]:
        m, n = n, m
        layout = {"TN": "TN", "NT": "NT", "NN": "TT", "TT": "NN"}[layout]

    tile_m, tile_n, _ = row["tile"]
    cluster = made["cluster"]
    assert made["tiles_m"] * cluster == math.ceil(math.ceil(m / tile_m) / cluster) * cluster
    assert made["tiles_n"] == math.ceil(n / tile_n)
    blocks = made["tiles_m"] * made["tiles_n"] * batch * cluster
    assert 0 < made["grid"] <= blocks
    assert made["grid"] % cluster == 0
    if row["arch"] == "sm90a":
        assert cluster in (1, 2)
        assert made["grid"] == blocks or made["grid"] > device["multiprocessors"] - cluster
        assert made["grid"] <= device["multiprocessors"]
        assert k > 0
    else:
        assert cluster == 1
        assert made["grid"] == blocks

    end = 0
    for name, pass_rows in (("prepare_a", m), ("prepare_b", n)):
        if copy := made[name]:
            assert (copy["rows"], copy["k"]) == (pass_rows, k)
            assert copy["batch"] in (1, batch)
            assert copy["pitch"] >= k
            assert copy["pitch"] % ELEMENTS_A_WORD == 0
            assert copy["offset"] >= end
            assert copy["offset"] % 256 == 0
            end = copy["offset"] + copy["batch"] * pass_rows * copy["pitch"] * 2
    assert made["workspace"] >= end
    assert (made["workspace"] == 0) == (end == 0)
    majors = (
        "T" if made["prepare_b"] else layout[0],  # a copy is K-major
        "N" if made["prepare_a"] else layout[1],
    )
    if min(m, n, k) > 1:  # the layout of a single row is anybody's
        assert "".join(majors) == row["layout"]

    assert made["microseconds"] > 0
    assert math.isfinite(made["microseconds"])
    assert made["bytes"] > 0
    assert made["bound"] in ("compute", "memory", "launch")
    assert made["kernel"] in made["explain"]
    assert made["kernel"] in made["check_layout"]
    return row


@needs_catalog
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["name"])
@pytest.mark.parametrize(
    "types", types_on_gpu(), ids=lambda types: "-".join(cases.NAMES[t] for t in types)
)
def test_every_problem_has_a_plan(device, types):
    dtype, accumulator = (cases.NAMES[kind] for kind in types)
    options = {"dtype": dtype, "accumulator": accumulator}
    for (m, n, k), layout in itertools.product(SIZES, cases.LAYOUTS):
        outputs = [cases.NAMES[out] for out in cases.FLOATS]
        for out_dtype, batch in zip(outputs, (1, 3, 70000), strict=True):
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
                    **options,
                )
                check_plan(made, device, m, n, k, batch, layout=layout, **options)
                assert made["transposed"] == (out is not None and n > 1 and m > 1)


@needs_catalog
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["name"])
def test_depth_zero_has_a_plan_without_copies(device):
    for layout, (m, n) in itertools.product(cases.LAYOUTS, ((1, 1), (130, 70), (4096, 4096))):
        made = plan(m, n, 0, device=device["name"], layout=layout)
        assert "sm80" in made["kernel"]
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["workspace"] == 0
        assert made["grid"] == made["tiles_m"] * made["tiles_n"]


@needs_catalog
def test_nothing_is_launched_for_an_empty_result():
    for m, n, batch in ((0, 5, 1), (5, 0, 1), (5, 5, 0)):
        made = plan(m, n, 64, batch=batch)
        assert made["kernel"] is None
        assert made["workspace"] == made["grid"] == 0
        assert "empty" in made["explain"]
        assert "empty" in made["check_layout"]


@needs_catalog
def test_every_kernel_can_be_asked_for():
    """A full name leaves one row, and its plan is that row: on each GPU that can hold it."""
    for name, row in rows_by_name().items():
        places = [
            device
            for device in DEVICES
            if row["shared_bytes"] <= device["shared_bytes"]
            and (row["arch"] == "sm80" or device["compute_capability"] == 90)
        ]
        assert places, f"no GPU can run {name}"
        types = {"dtype": row["input"], "accumulator": row["accumulator"]}
        for device in places:
            made = plan(
                *(1000, 1000, 1000),
                device=device["name"],
                layout=row["layout"],
                kernel=name,
                **types,
            )
            assert made["kernel"] == name
            check_plan(made, device, 1000, 1000, 1000, 1, layout=row["layout"], **types)


@needs_catalog
def test_filter_takes_a_part_of_a_name_or_several():
    assert "sm80" in plan(4096, 4096, 4096, kernel="sm80")["kernel"]
    assert "_128x128x" in plan(4096, 4096, 4096, kernel="128x128x64_w2")["kernel"]
    assert "128x" in plan(4096, 4096, 4096, kernel="nothing,128x")["kernel"]
    with pytest.raises(RuntimeError, match="under the filter 'sm70'"):
        plan(64, 64, 64, kernel="sm70")
    with pytest.raises(RuntimeError, match=r"no kernel of this build multiplies .* on A100"):
        plan(64, 64, 64, device="A100", kernel="sm90a")


@needs_catalog
def test_types_without_a_kernel_are_refused():
    for types in (
        {"dtype": "f32"},
        {"dtype": "f64", "accumulator": "f64"},
        {"dtype": "bf16", "accumulator": "f16"},
    ):
        with pytest.raises(RuntimeError) as error:
            plan(64, 64, 64, **types)
        assert f"multiplies {types['dtype']}" in str(error.value)
        assert "bf16 (accumulator f32)" in str(error.value)
        assert "f16 (accumulator f16)" in str(error.value)


# Which pass, which kernel.


@needs_catalog
def test_aligned_operands_are_never_copied():
    for layout, size in itertools.product(cases.LAYOUTS, (64, 1000, 4096)):
        made = plan(size, size, size, layout=layout)
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["workspace"] == 0
        assert made["store_tma"]


@needs_catalog
@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_large_odd_operands_are_copied_for_wgmma(layout):
    size = 4095
    made = plan(size, size, size, layout=layout)
    assert made["kernel"].startswith("sm90a")
    assert made["kernel"].endswith("_tn")
    for name in ("prepare_a", "prepare_b"):
        assert made[name]["pitch"] == 4096
    assert made["workspace"] == 2 * size * 4096 * 2
    assert not made["store_tma"]


@needs_catalog
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


@needs_catalog
def test_a_broadcast_matrix_is_copied_once():
    made = plan(2047, 2047, 2047, batch=8, b=(0, 1, 2047))
    assert made["prepare_a"]["batch"] == 8
    assert made["prepare_b"]["batch"] == 1


@needs_catalog
def test_small_odd_products_are_not_copied():
    made = plan(65, 33, 77)
    assert made["prepare_a"] is made["prepare_b"] is None
    assert "sm80" in made["kernel"]


@needs_catalog
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


@needs_catalog
def test_tma_stores_what_it_can():
    for options, fast in (
        ({}, True),
        ({"out_dtype": "f16"}, True),
        ({"out_dtype": "f32"}, False),
        ({"alpha": 2.0}, True),
        ({"out_address": 2}, False),
        ({"out": (0, 520, 1)}, True),
        ({"out": (0, 513, 1)}, False),
        ({"out": (0, 1, 512)}, True),
        ({"out": (0, 1024, 2)}, False),
    ):
        assert plan(512, 512, 512, kernel="sm90a", **options)["store_tma"] == fast, options
    text = plan(512, 512, 512, kernel="sm90a")["explain"]
    assert "TMA" in re.search(r"\n  epilogue +(.*)", text).group(1)


@needs_catalog
def test_other_gpus_get_mma_sync():
    for device in DEVICES:
        made = plan(4096, 4096, 4096, device=device["name"])
        assert made["kernel"].startswith("sm90a" if device["compute_capability"] == 90 else "sm80")
        # Their kernels read any alignment: a pass is worth it only against element-wise loads.
        assert made["prepare_a"] is made["prepare_b"] is None


@needs_catalog
def test_names_of_gpus_in_any_case():
    assert plan(64, 64, 64, device="rtx 4090") == plan(64, 64, 64, device="RTX 4090")


@needs_catalog
def test_bound_follows_the_shape():
    assert plan(8192, 8192, 8192)["bound"] == "compute"
    assert plan(16, 16384, 16384)["bound"] == "memory"
    assert plan(64, 64, 64)["bound"] == "launch"


@needs_catalog
def test_more_work_takes_longer():
    times = [plan(size, size, size)["microseconds"] for size in (1024, 2048, 4096, 8192, 16384)]
    assert times == sorted(times)
    assert times[-1] > 100 * times[0]
    # Half of the H200's rate at least, and no more than all of it.
    seconds = times[3] * 1e-6
    assert 400e12 < 2 * 8192**3 / seconds < 989e12
