"""With batch_invariant nothing that decides the bits of a row changes with the number of rows: the
slices of k, the way of float32, promotion, and the order of the factors.
"""

import functools
import itertools

import pytest
import torch

import tcgemm
from tcgemm import info
from tcgemm.ops import query

from support.plan_cases import BYTES, plan

ROWS = (*range(1, 33), 40, 63, 64, 65, 100, 127, 128, 129, 192, 200, 255, 256, 257, 384, 500, 512)
WEIGHTS = [
    (4096, 4096),
    (64, 65536),
    (1000, 10000),
    (6144, 4096),
    (768, 768),
    (136, 8200),
    (512, 33),
]
ROW = {"scale_a": "row", "scale_b": "row"}
TYPES = [
    {"dtype": "bf16"},
    {"dtype": "bf16", "epilogue": ["bias", "gelu", "residual"]},
    {"dtype": "f16"},
    {"dtype": "f16", "accumulator": "f16"},
    {"dtype": "tf32"},
    {"dtype": "f32", "precision": "highest"},
    {"dtype": "f32", "precision": "highest", "terms_b": 2},
    {"dtype": "f32", "precision": "prepared"},
    {"dtype": "f64"},
    {"dtype": "e4m3", **ROW},
    {"dtype": "e4m3", "precision": "fast", **ROW},
    {"dtype": "e5m2", "dtype_b": "e4m3", "precision": "fast"},
    {"dtype": "e4m3", "scale_a": "1x128", "scale_b": "128x128"},
    {"dtype": "s8", "out_dtype": "bf16", **ROW},
    {"dtype": "bf16", "sparse": "b"},
]


@functools.cache
def rows_of_catalog():
    return {row["name"]: row for row in info.catalog()}


def decides(fields, swaps):
    """The parts of a plan that decide the bits of a row. `swaps`: the orientation is one."""
    row = rows_of_catalog()[fields["kernel"]]
    way = (row["accumulator"], row["terms"], row["promoted"], row["block_scaled"])
    fp8 = row["input"] in ("e4m3", "e5m2")  # mma.sync multiplies them as f16
    return (*way, fields["slices"], row["arch"] if fp8 else "", swaps and fields["swap_ab"])


def decisions(types, layout):
    """The deciding parts by weight: a set of one element if they are the same for all rows."""
    swaps = "scale_a" in types or types["dtype"] == "f32"
    return {
        (n, k): {decides(plan(m, n, k, layout=layout, **types), swaps) for m in ROWS}
        for n, k in WEIGHTS
    }


def stated_slices(n, k, dtype):
    """The slices of k that docs/numerics/same-bits.md states."""
    slices = k * BYTES.get(dtype, 1) // (4096 if n <= 128 else 8192)
    return min(max(min(slices, 6144 // n), 1), 64)


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize("types", TYPES, ids=str)
def test_the_plan_of_a_row_is_one_for_all_numbers_of_rows(types, layout):
    with tcgemm.batch_invariant():
        plans = decisions(types, layout)
    for weight, ways in plans.items():
        assert len(ways) == 1, (weight, ways)
        ((accumulator, terms, *_, slices, _, _),) = ways
        assert slices == stated_slices(*weight, types["dtype"]) and terms == 1
        assert accumulator == "f64" or types["dtype"] not in ("f32", "f64")


@pytest.mark.parametrize(
    ("types", "layout"),
    [
        ({"dtype": "bf16"}, "TN"),
        ({"dtype": "f32", "precision": "highest"}, "TN"),
        ({"dtype": "f32", "precision": "highest", "terms_b": 2}, "TN"),
        ({"dtype": "s8", "out_dtype": "bf16", **ROW}, "NN"),
    ],
    ids=str,
)
def test_without_it_the_plan_changes(types, layout):
    """So the test above sees each of these."""
    plans = decisions(types, layout).values()
    assert any(len(ways) > 1 or way[1] > 1 for ways in plans for way in ways)


def test_batches_have_the_slices_of_one_matrix():
    with tcgemm.batch_invariant():
        slices = {plan(64, 64, 16384, batch=batch)["slices"] for batch in (1, 3, 200)}
    assert slices == {8}


def test_the_gradient_of_a_weight_has_one_slice():
    """Its k are rows. The gradient of x keeps the slices of its n and k."""
    g, x, w = (
        torch.empty(size, dtype=torch.bfloat16) for size in [(65536, 64), (65536, 64), (64, 64)]
    )
    words = {"batch_invariant": True, "device": "H200"}
    for one_slice, slices in ((False, 32), (True, 1)):
        answer = query.ask("explain", g.mT, x, one_slice=one_slice, **words)
        assert answer["slices"] == slices
    assert query.ask("explain", g, w, **words)["slices"] == 1  # a short k


@pytest.mark.parametrize(
    ("m", "batch", "parts"),
    [(16384, 1, 1), (70000, 1, 2), (300000, 1, 5), (3000, 12, 1), (3000, 60, 3)],
)
def test_sums_of_slices_take_256_megabytes_at_most(m, batch, parts):
    """A call with more of them is several products, of some rows or of some matrices."""
    n, k = 64, 32768  # 16 slices: 4096 bytes of sums for each row
    options = {"dtype": torch.bfloat16, "device": "meta"}
    a, b = torch.empty(batch, m, k, **options), torch.empty(batch, n, k, **options).mT
    plan = tcgemm.explain(a, b, batch_invariant=True, device="H200")
    assert plan.slices == 16 and plan.products == parts
    assert plan.workspace <= (256 << 20) + 4096
    assert ("products of up to" in str(plan)) == (parts > 1)
    assert tcgemm.explain(a, b, device="H200").products == 1


@pytest.mark.parametrize("device", ["A100", "L40S"])
def test_other_gpus_keep_their_plans(device):
    for m, (n, k) in itertools.product((1, 16, 200), WEIGHTS):
        outside = plan(m, n, k, device=device)
        with tcgemm.batch_invariant():
            assert plan(m, n, k, device=device) == outside


def test_a_filter_still_chooses():
    """Who names a kernel or a number of slices gets it."""
    with tcgemm.batch_invariant():
        assert plan(64, 64, 4096, kernel="64x64x64_w1_s12_tn/8")["slices"] == 8
        fields = plan(512, 512, 4096, dtype="f32", precision="highest", kernel="f16x2")
        assert fields["kernel"].endswith("f16x2")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_argument_plans_as_the_context(dtype):
    a, b = torch.empty(64, 32768, dtype=dtype), torch.empty(64, 32768, dtype=dtype).t()
    outside = tcgemm.explain(a, b, precision=None, device="H200")
    argument = tcgemm.explain(a, b, batch_invariant=True, device="H200")
    with tcgemm.batch_invariant():
        assert tcgemm.explain(a, b, device="H200").fields == argument.fields
    assert argument.fields == tcgemm.explain(a, b, batch_invariant=True, device="H200").fields
    assert argument.slices == (16 if dtype is torch.bfloat16 else 32)
    assert dtype is torch.float32 or outside.slices == 32
    layout = tcgemm.check_layout(a, b, batch_invariant=True, device="H200")
    assert layout.fields == argument.fields
