"""The demo's table of products, by dtype, layout and shape: kernel, error, time, torch's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tcgemm
from tcgemm.measure import machine, operands
from tcgemm.measure.case import Case
from tcgemm.measure.compare.measure import Functions, jobs_of, measured
from tcgemm.measure.compare.result import Comparison, size
from tcgemm.measure.results import is_wrong
from tcgemm.measure.work import TORCH
from tcgemm.typing import Layout

# (layouts, m, n, k): on a GPU sizes that fill it, on the CPU what two cores do in milliseconds.
Shapes = tuple[tuple[Sequence[Layout], int, int, int], ...]
SHAPES: dict[str, Shapes] = {
    "cuda": (
        (operands.LAYOUTS, 4096, 4096, 4096),
        (("TN",), 8192, 8192, 8192),
        (("TN", "NN"), 4095, 4095, 4095),
        (("TN",), 1000, 1000, 1000),
        (("TN",), 5000, 333, 777),
        (("TN",), 16, 4096, 4096),
    ),
    "cpu": (
        (operands.LAYOUTS, 512, 512, 512),
        (("TN", "NN"), 511, 511, 511),
        (("TN",), 500, 33, 777),
        (("TN",), 16, 1024, 1024),
    ),
}
# The shapes of the dtypes that have no table of their own.
FEW: dict[str, Shapes] = {
    "cuda": (SHAPES["cuda"][0], (("TN",), 4095, 4095, 4095), (("TN",), 16, 4096, 4096)),
    "cpu": (SHAPES["cpu"][0], (("TN",), 500, 33, 777)),
}
SPARSE: dict[str, Shapes] = {
    "cuda": ((("TN",), 4096, 4096, 4096), (("TN",), 16, 28672, 4096)),
    "cpu": ((("TN",), 512, 512, 512),),
}
PACKED: dict[str, Shapes] = {
    "cuda": ((("TN",), 1, 28672, 4096), (("TN",), 16, 28672, 4096), (("TN",), 4096, 4096, 4096)),
    "cpu": ((("TN",), 16, 512, 512),),
}
# (dtype, the epilogue of the cases) -> shapes
KINDS: dict[tuple[str, str], dict[str, Shapes]] = {
    **{(dtype, "none"): SHAPES for dtype in ("f16", "bf16")},
    **{(dtype, "none"): FEW for dtype in ("tf32", "e4m3", "s8", "f64")},
    **{(dtype, "sparse"): SPARSE for dtype in ("bf16", "s8")},
    ("bf16", "packed-int4-128"): PACKED,
    ("f32", "none"): {"cuda": (), "cpu": SHAPES["cpu"]},
}
SECONDS: dict[str, float] = {"cuda": 0.04, "cpu": 0.03}  # of a candidate; a benchmark takes 0.4


def why_no_kernel(device: str, dtype: torch.dtype, epilogue: str = "none") -> str | None:
    """Why this GPU has no kernel for products of the torch dtype, or None. With the epilogue
    "sparse" or "packed-int4-128", b is 2:4 sparse or a packed weight."""
    a = torch.zeros(64, 128, device=device).to(dtype)
    try:
        b: Any = a
        if epilogue.startswith("packed"):
            b = tcgemm.pack_weight(a, "int4", 128)
        elif epilogue == "sparse":
            b = tcgemm.compress24(a, prune=True)
        tcgemm.check_layout(a, b.t(), precision="high" if dtype is torch.float32 else None)
    except RuntimeError as error:
        return str(error)
    return None


def products(device: str) -> str | None:
    """Prints the table of products; returns a complaint or None."""
    gpu = torch.device(device)
    cases = []
    for (dtype, epilogue), shapes in KINDS.items():
        if why_no_kernel(device, operands.DTYPES[dtype], epilogue):
            print(f"{dtype} {epilogue}: this GPU has no kernel for it")
            continue
        for layouts, m, n, k in shapes[device]:
            cases += [Case("mm", dtype, name, m, n, k, epilogue=epilogue) for name in layouts]
    functions: Functions = {TORCH: None} if device == "cuda" else {}
    print(
        "Matrix products of normal data. Error: the largest, over its float64 bound; above 1 it is"
    )
    print("wrong, and the rounding of a 16-bit result alone comes close to 1. The times are from")
    print("short measurements; python -m tcgemm bench takes longer ones.")
    common: Any = {"device": gpu, "seconds": SECONDS[device], "progress": lambda line: None}
    rows = measured(jobs_of(cases, gpu), functions, **common)
    print(Comparison(rows, machine.facts(gpu)))
    faults = [
        f"{row['dtype']} {row['layout']} {size(row)} ({row['max_error_ratio']})"
        for row in rows
        if row["us"] is None or is_wrong(row)
    ]
    if faults:
        return "These products are outside their error bound: " + ", ".join(faults) + "."
    return None
