"""Sets of cases that a seed draws, so that no kernel is tuned to them.

    drawn-squares   M = N = K, each size in two of the eight pairs of layout and dtype
    drawn-mm ...    SHAPES shapes of each family of FAMILIES: M, N and K are log-uniform multiples
                    of 8, and of 16 for e4m3, because torch multiplies no others
    drawn-few-rows  40 products in bf16 with M from 8 to 256
    drawn-long-k    20 products in bf16 with M and N from 64 to 1024, and K >= 16 max(M, N)

Each set has its own source of random numbers, so a set has the same cases whichever other sets are
measured.
"""

from __future__ import annotations

import random
from typing import Any

from tcgemm.measure.case import FLOATS, FORWARD, Case
from tcgemm.measure.operands import LAYOUTS
from tcgemm.typing import Layout

SEED = 1  # of sets for which no other seed is given
STEPS = {"e4m3": 16}  # elements: every drawn size is a multiple
STEP = 8  # the same for the other dtypes
SHAPES = 40
SQUARES = (*range(1536, 4097, 256), *range(5120, 16385, 1024))
PAIRS: tuple[tuple[Layout, str], ...] = tuple(
    (layout, dtype) for layout in LAYOUTS for dtype in FLOATS
)
SMALLEST, LARGEST = 512, 16384  # M, N and K; few rows and small results have sets of their own
BATCHED = (64, 2048)  # the same of a batch
BATCHES = (8, 512)
MOST_FLOPS = 1.5e12  # of one product, so that a short look has several calls

# Fields of Case; a list has the values that are drawn from.
_LINEAR = {"op": "linear", "dtype": "bf16", "layout": "TN"}
_FAST, _PROMOTED = (
    {"op": "mm", "dtype": "e4m3", "layout": "TN", "accumulation": sums}
    for sums in ("fast", "promoted")
)
FAMILIES: dict[str, dict[str, Any]] = {
    "mm": {"op": "mm", "dtype": [*FLOATS], "layout": [*LAYOUTS]},
    "bias": {**_LINEAR, "epilogue": "bias"},
    "relu": {**_LINEAR, "epilogue": "bias+relu"},
    "activations": {**_LINEAR, "epilogue": ["bias+gelu", "bias+gelu_tanh", "bias+silu"]},
    "residual": {**_LINEAR, "epilogue": "residual"},
    "gelu-residual": {**_LINEAR, "epilogue": "bias+gelu+residual"},
    "train": {**_LINEAR, "op": "train", "epilogue": "bias"},
    "train-gelu": {**_LINEAR, "op": "train", "epilogue": "bias+gelu"},
    "fast": {**_FAST, "epilogue": "tensor-scales"},
    "promoted": {**_PROMOTED, "epilogue": "tensor-scales"},
    "fast-rows": {**_FAST, "epilogue": "row-scales"},
    "promoted-rows": {**_PROMOTED, "epilogue": "row-scales"},
    "128x128": {**_PROMOTED, "epilogue": "128x128-scales"},
    "1x128": {**_PROMOTED, "epilogue": "1x128-scales"},
    "s8": {"op": "mm", "dtype": "s8", "layout": "TN"},
    **{name: {"op": "mm", "dtype": name, "layout": [*FORWARD]} for name in ("tf32", "f64", "f32")},
    "batch": {"op": "bmm", "dtype": "bf16", "layout": [*FORWARD]},
}
THIN = {"few-rows": 40, "long-k": 20}  # sets of plain products in bf16, and their cases
NAMES = tuple(f"drawn-{name}" for name in ("squares", *THIN, *FAMILIES))


def log_uniform(source: random.Random, least: int, most: int, step: int = STEP) -> int:
    """A multiple of `step` between two others; its logarithm is uniform."""
    size = least * (most / least) ** source.random()
    return min(most, max(least, round(size / step) * step))


def shape(
    source: random.Random, least: int, most: int, step: int = STEP, flops: float = MOST_FLOPS
) -> tuple[int, int, int]:
    """(m, n, k) of at most this many floating-point operations."""
    while True:
        m, n, k = (log_uniform(source, least, most, step) for _ in range(3))
        if 2.0 * m * n * k <= flops:
            return m, n, k


def _of_family(source: random.Random, family: dict[str, Any]) -> Case:
    fields = dict(family)
    for field, value in fields.items():
        if isinstance(value, list):
            fields[field] = source.choice(value)
    batch, sizes = 1, (SMALLEST, LARGEST)
    if fields["op"] == "bmm":
        batch, sizes = log_uniform(source, *BATCHES), BATCHED
    step = STEPS.get(fields["dtype"], STEP)
    m, n, k = shape(source, *sizes, step, MOST_FLOPS / batch)
    return Case(m=m, n=n, k=k, batch=batch, **fields)


def _thin(source: random.Random, kind: str) -> Case:
    if kind == "few-rows":
        m, n, k = (log_uniform(source, *ends) for ends in ((8, 256), *[(SMALLEST, LARGEST)] * 2))
    else:
        m, n = (log_uniform(source, 64, 1024) for _ in range(2))
        k = log_uniform(source, 16 * max(m, n), 65536)
    return Case("mm", "bf16", "TN", m, n, k)


def cases(name: str, seed: int) -> list[Case]:
    """The cases of one of NAMES. Those that are drawn one by one differ from each other."""
    kind = name.removeprefix("drawn-")
    source = random.Random(f"{kind} {seed}")
    if kind == "squares":
        return [
            Case("mm", dtype, layout, size, size, size)
            for size in SQUARES
            for layout, dtype in source.sample(PAIRS, 2)
        ]
    found: dict[Case, None] = {}
    while len(found) < THIN.get(kind, SHAPES):
        found[_thin(source, kind) if kind in THIN else _of_family(source, FAMILIES[kind])] = None
    return list(found)
