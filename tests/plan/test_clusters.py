"""The products of test_row_in_clusters in tests/gpu/test_kernels.py run in clusters."""

import re

import pytest
import torch

from tcgemm import info

from support import cases, plan_cases
from support.catalog_rows import CLUSTERS, asked, kind_of, kind_sizes, parse

PADDED = {"contiguous": "padded", "transposed": "transposed_padded"}
# The faster of one and two on an H200, with x torch of both. A tile of 176 or 208 columns of an
# MN-major b begins inside a line of L2, so its rows cost two lines, which a cluster reads once.
MEASURED = {
    (2304, 2304, 2304, "NN"): 2,  # 1.048 x torch instead of 0.943, in tiles of 128x176
    (2304, 2304, 2304, "NT"): 2,  # 1.014 and 0.934
    (1792, 1792, 1792, "NN"): 2,  # 1.153 and 1.03, 128x208
    (1792, 1792, 1792, "TN"): 1,  # 1.105 and 1.09
    (1536, 1536, 1536, "NT"): 2,  # 0.87 and 0.825, 128x144
    (1536, 1536, 1536, "TN"): 1,  # 1.10 and 1.06 to 1.10
    (2048, 2048, 2048, "TN"): 1,  # 1.058 and 1.037
    (512, 6144, 4096, "TN"): 2,  # 1.02 to 1.08 and 1.01 to 1.02
    (512, 4096, 4096, "TN"): 1,  # 0.97 and 0.94
}
ROWS = [
    row
    for row in (parse(each["name"]) for each in info.catalog())
    if row.tma and row.more != "sparse"
]


def strides(name, shape, dtype):
    """The strides of a batch, a row and a column."""
    found = cases.empty(name, shape, dtype=dtype, device="meta").stride()
    return (*[0] * (3 - len(shape)), *found)


def options_of(row, kind, step):
    asks, layout = asked(row, kind.out, step)
    m, n, k = kind_sizes(kind, row)
    stored_a, stored_b = (PADDED[name] for name in cases.major_strides(layout))
    types, out = asks.types, asks.types.outs[0]
    options = {
        "dtype": types.a,
        "dtype_b": types.b,
        "out_dtype": out,
        "precision": types.precision,
        "accumulator": "f16" if types.accumulator == torch.float16 else None,
        "a": strides(stored_a, (*kind.batch, m, k), types.a),
        "b": strides(stored_b, (*kind.batch, k, n), types.b),
        "out": strides(kind.out, (*kind.batch, m, n), out),
        "batch": kind.batch[0] if kind.batch else 1,
        "layout": layout,
    }
    scales = {"scale_a": "1x128", "scale_b": "128x128"} if row.blocks else {}
    return {"m": m, "n": n, "k": k} | options | scales


def clusters(kind):
    """{kernel and layout: blocks in a cluster}"""
    found = {}
    for row in ROWS:
        for step, layout in enumerate(row.layouts):
            options = options_of(row, kind_of(kind, row), step)
            plan = info.plan("H200", kernel=row.name, **options)
            found[f"{row.name} {layout}"] = plan["cluster"]
    return found


@pytest.mark.parametrize("kind", CLUSTERS, ids=lambda kind: kind.name)
def test_blocks_share_their_loads(kind):
    assert {row: size for row, size in clusters(kind).items() if size not in (2, 4)} == {}


def test_four_blocks_share_their_loads():
    """But for kernels that change the places of m and n, or whose loads are hidden."""
    ragged = next(kind for kind in CLUSTERS if kind.name == "cluster_ragged")
    others = [row for row, size in clusters(ragged).items() if size != 4]
    assert all(re.search("_(rs|f16x2|bf16x3) ", row) for row in others)


@pytest.mark.parametrize("problem", MEASURED, ids=lambda problem: "x".join(map(str, problem)))
def test_the_cluster_is_the_faster_one(problem):
    *sizes, layout = problem
    made = plan_cases.plan(*sizes, device=plan_cases.H200, layout=layout)
    assert made["cluster"] == MEASURED[problem]
