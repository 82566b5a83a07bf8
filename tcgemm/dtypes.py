"""Element types of a product: what they are called, where they run, what they accumulate in.

csrc/ops/check_*.cpp decides whether a call is accepted; this table is what Python has to know
beforehand: fakes and gradients need the accumulator, swap_linear needs the devices.
"""

from typing import NamedTuple

import torch


class DType(NamedTuple):
    """One row: an operand dtype of a product."""

    name: str  # as in csrc/core/dtype.h and in benchmarks/results
    torch: torch.dtype
    devices: tuple[str, ...]
    accumulators: tuple[torch.dtype, ...]  # the first is the default
    outputs: tuple[torch.dtype, ...]


_FLOATS = (torch.float16, torch.bfloat16, torch.float32)

TABLE = (
    DType("f16", torch.float16, ("cpu", "cuda"), (torch.float32, torch.float16), _FLOATS),
    DType("bf16", torch.bfloat16, ("cpu", "cuda"), (torch.float32,), _FLOATS),
    DType("f32", torch.float32, ("cpu",), (torch.float32,), _FLOATS),
    DType("f64", torch.float64, ("cpu",), (torch.float64,), (torch.float64,)),
)


def supported(device_type: str) -> tuple[torch.dtype, ...]:
    """The operand dtypes of products on a device type ("cpu" or "cuda"; empty for another)."""
    return tuple(row.torch for row in TABLE if device_type in row.devices)


DEVICES = ("cpu", "cuda")


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The widest type that a product of this dtype is summed in: float64 for float64, else f32."""
    return torch.float64 if dtype is torch.float64 else torch.float32
