"""The demo's table of products, by dtype, layout and shape: kernel, error, time, torch's time.

operands -> tcgemm.mm -> error over its float64 bound
                      -> time, interleaved with torch's on a GPU: dense, or cuSPARSELt's
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tcgemm
from tcgemm.emulate.rounding import round_to_tf32
from tcgemm.measure import baseline, errors, kernel_name, operands, timing
from tcgemm.measure.packed_weight import ROUNDINGS
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
    "cuda": (
        (operands.LAYOUTS, 4096, 4096, 4096),
        (("TN",), 4095, 4095, 4095),
        (("TN",), 16, 4096, 4096),
    ),
    "cpu": ((operands.LAYOUTS, 512, 512, 512), (("TN",), 500, 33, 777)),
}
# Half of b is zero and not stored.
SPARSE: dict[str, Shapes] = {
    "cuda": ((("TN",), 4096, 4096, 4096), (("TN",), 16, 28672, 4096)),
    "cpu": ((("TN",), 512, 512, 512),),
}
# b is a packed weight, with a scale for 128 elements.
PACKED: dict[str, Shapes] = {
    "cuda": ((("TN",), 1, 28672, 4096), (("TN",), 16, 28672, 4096), (("TN",), 4096, 4096, 4096)),
    "cpu": ((("TN",), 16, 512, 512),),
}
_OTHERS = {"tf32": FEW, "e4m3": FEW, "s8": FEW, "f64": FEW, "bf16 2:4": SPARSE, "s8 2:4": SPARSE}
DTYPES: dict[str, dict[str, dict[str, Shapes]]] = {
    "cuda": {"f16": SHAPES, "bf16": SHAPES, **_OTHERS, "bf16 int4": PACKED},
    "cpu": {"f16": SHAPES, "bf16": SHAPES, "f32": SHAPES, **_OTHERS, "bf16 int4": PACKED},
}
# f32 for all others
ACCUMULATION: dict[str, str] = {"f64": "f64", "s8": "s32", "e4m3": "promoted"}
# Floating-point operations of one float64 reference.
CHECK_BUDGET: dict[str, float] = {"cuda": 3e12, "cpu": 2e9}
# Milliseconds of a candidate; python -m benchmarks run takes 400.
TIMED_MS: dict[str, float] = {"cuda": 40.0, "cpu": 30.0}


def why_no_kernel(device: str, dtype: torch.dtype, kind: str = "") -> str | None:
    """Why this GPU has no kernel for products of the torch dtype, or None. The kind
    of b is "2:4" or "int4"."""
    a = torch.zeros(64, 64, device=device).to(dtype)
    try:
        b: Any = a
        if kind:
            packs = kind == "int4"
            b = tcgemm.pack_weight(a, "int4", 64) if packs else tcgemm.compress24(a, prune=True)
        tcgemm.check_layout(a, b.t(), precision="high" if dtype is torch.float32 else None)
    except RuntimeError as error:
        return str(error)
    return None


def products(device: str, seed: int) -> str | None:
    """Prints the table of products; returns a complaint or None."""
    last = "x torch" if device == "cuda" else ""
    print(
        "Matrix products of normal data. Error: the largest, over its float64 bound; the limit is"
    )
    print("1, which the rounding of a 16-bit result alone comes close to. The times are from short")
    print("measurements; python -m benchmarks run takes longer ones.")
    print(f"  {'dtype':9}{'layout':7}{'m x n x k':20}{'kernel':45}{'error':>6}{'us':>10} {last:>8}")
    faults = []
    for name, shapes in DTYPES[device].items():
        dtype, _, kind = name.partition(" ")
        if why_no_kernel(device, operands.DTYPES[dtype], kind):
            print(f"  {name:9} this GPU has no kernel for it")
            continue
        for layouts, *shape in shapes[device]:
            for layout in layouts:
                text, error = product(device, name, layout, shape, seed)
                print(text, flush=True)
                if not error <= 1.0:  # NaN is not
                    faults.append(f"{name} {layout} {'x'.join(map(str, shape))} ({error:.3g})")
    if faults:
        return "These products are outside their error bound: " + ", ".join(faults) + "."
    return None


def product(
    device: str, name: str, layout: Layout, shape: Sequence[int], seed: int
) -> tuple[str, float]:
    """-> (the table's line, the error over its bound) of one product."""
    dtype, _, kind = name.partition(" ")
    generator = torch.Generator(device).manual_seed(seed)
    data = operands.Operands.build(layout, *shape, dtype=operands.DTYPES[dtype], device=device)
    data.normal(generator).poison()
    weights: Sequence[Any] = data.b.views
    b = data.b[0]
    if kind == "int4":
        packed = [tcgemm.pack_weight(b.mT, "int4", 128).t() for b in data.b.views]
        weights, b = packed, packed[0].dequantize(torch.float32)
    elif kind:
        weights = [weight.t() for weight in data.prune()]
    a = data.a[0]
    options: dict[str, Any] = {"precision": "high"} if dtype == "tf32" else {}
    tcgemm.mm(a, weights[0], out=data.out[0], **options)
    factors = (round_to_tf32(a), round_to_tf32(b)) if dtype == "tf32" else (a, b)
    error = errors.error_ratio(
        data.out[0],
        *factors,
        accumulation=ACCUMULATION.get(dtype, "f32"),
        dtype=dtype,
        budget=CHECK_BUDGET[device],
        operand_error=ROUNDINGS * errors.UNIT_ROUNDOFF[a.dtype] if kind == "int4" else 0.0,
    )
    candidates: dict[str, Callable[[int], Any]] = {
        "tcgemm": lambda i: tcgemm.mm(data.a[i], weights[i], out=data.out[i], **options)
    }
    call = torch_product(data, dtype, sparse=kind == "2:4")
    refusal = device == "cuda" and baseline.refusal(call)
    if device == "cuda" and not refusal:
        candidates["torch"] = call
    timings = timing.measure(candidates, data.sets, device=device, min_ms=TIMED_MS[device])
    kernel = kernel_name(a, weights[0], **options) if device == "cuda" else "cpu"
    us = timings["tcgemm"].us
    ratio = f"{timings['torch'].us / us:8.2f}" if "torch" in timings else ""
    ratio = f"{'refused':>8}" if refusal else ratio
    size = " x ".join(map(str, shape))
    return f"  {name:9}{layout:7}{size:20}{kernel:45}{error:6.2f}{us:10.1f} {ratio}", error


def torch_product(data: operands.Operands, dtype: str, *, sparse: bool) -> Callable[[int], Any]:
    """torch's call on operand set i; the first call prepares what all need."""
    if sparse:
        prepared = functools.cache(
            lambda: baseline.CusparseltGemm([b.t() for b in data.b.views], data.a[0])
        )
        return lambda i: prepared()(data.a[i], i)
    unit_scale = torch.ones((), device=data.out.memory.device)
    ways = {"scales": (unit_scale, unit_scale), "tf32": dtype == "tf32"}
    return lambda i: baseline.gemm(data.a[i], data.b[i], data.out[i], **ways)
