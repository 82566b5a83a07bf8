"""The products of test_row_in_clusters in tests/gpu/test_kernels.py run in clusters of two."""

import pytest
import torch

from tcgemm import info

from support import (
    cases,
    plan_cases,  # noqa: F401 (skips where the build is for other GPUs)
)
from support.catalog_rows import CLUSTERS, asked, kind_of, kind_sizes, parse

PADDED = {"contiguous": "padded", "transposed": "transposed_padded"}
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


@pytest.mark.parametrize("kind", CLUSTERS, ids=lambda kind: kind.name)
def test_two_blocks_share_their_loads(kind):
    alone = [
        f"{row.name} {row.layouts[step]}"
        for row in ROWS
        for step in range(len(row.layouts))
        if info.plan("H200", kernel=row.name, **options_of(row, kind_of(kind, row), step))[
            "cluster"
        ]
        != 2
    ]
    assert not alone
