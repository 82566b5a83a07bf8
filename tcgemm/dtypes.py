"""The operand dtypes: their names, devices, accumulators and result dtypes.

csrc/ops/check decides whether a call is accepted. Python needs this table before that: fakes
and gradients need the dtypes of results, and swap_linear needs the devices.
"""

from collections.abc import Collection
from typing import Any, NamedTuple, overload

import torch

_DTypes = tuple[torch.dtype, ...]  # in the class, torch is a field


class DType(NamedTuple):
    """One row: an operand dtype of a product."""

    name: str  # as in csrc/core/dtype.h and in benchmarks/results
    torch: torch.dtype
    devices: tuple[str, ...]
    accumulators: _DTypes  # the first is the default
    outputs: _DTypes


E4M3: torch.dtype = torch.float8_e4m3fn
E5M2: torch.dtype = torch.float8_e5m2
FP8: tuple[torch.dtype, ...] = (E4M3, E5M2)
INT8: tuple[torch.dtype, ...] = (torch.int8, torch.uint8)
DEVICES: tuple[str, ...] = ("cpu", "cuda")

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_FROM_FLOATS = (*_FLOATS, *FP8)
_FROM_INTS = (torch.int32, *_FLOATS, torch.int8)

# The two of float8 may be mixed, and so may int8 and uint8.
TABLE = (
    DType("f16", torch.float16, DEVICES, (torch.float32, torch.float16), _FROM_FLOATS),
    DType("bf16", torch.bfloat16, DEVICES, (torch.float32,), _FROM_FLOATS),
    DType("f32", torch.float32, DEVICES, (torch.float32,), _FROM_FLOATS),
    DType("f64", torch.float64, DEVICES, (torch.float64,), (torch.float64,)),
    DType("e4m3", E4M3, DEVICES, (torch.float32,), _FROM_FLOATS),
    DType("e5m2", E5M2, DEVICES, (torch.float32,), _FROM_FLOATS),
    DType("s8", torch.int8, DEVICES, (torch.int32,), _FROM_INTS),
    DType("u8", torch.uint8, DEVICES, (torch.int32,), _FROM_INTS),
)
# Sub-byte types: elements share bytes, and torch's dtype is the one of to_int8() and to_bool().
# They are operands of tcgemm.Int4Tensor and BinaryTensor, and no dtype of a torch.Tensor.
SUBBYTE = (
    DType("s4", torch.int8, DEVICES, (torch.int32,), _FROM_INTS),
    DType("u4", torch.uint8, DEVICES, (torch.int32,), _FROM_INTS),
    DType("b1", torch.bool, DEVICES, (torch.int32,), (torch.int32,)),
)
# (dtype, accumulator, instruction) that no GPU has, and that no kernel is written for.
NO_INSTRUCTION: set[tuple[str, str, str]] = {
    *(("f64", "f64", family) for family in ("mma.sp", "wgmma", "wgmma.sp")),
    ("f16", "f16", "wgmma.sp"),
    *((name, "s32", family) for name in ("s4", "u4") for family in ("wgmma", "wgmma.sp")),
    *(("b1", "s32", family) for family in ("mma.sp", "wgmma.sp")),
}
NO_KERNEL: set[tuple[str, str, str]] = {
    ("f16", "f16", "mma.sp"),
    *((name, "f32", "mma.sp") for name in ("e4m3", "e5m2")),
    *((name, "s32", "mma.sp") for name in ("s4", "u4")),
}
QUANTIZED = (*FP8, torch.int8)  # the dtypes that quantize converts to
DIFFERENTIABLE = (*_FLOATS, torch.float64)  # results of another dtype carry no gradient


NAMES = {row.torch: row.name for row in TABLE} | {torch.int32: "s32"}


@overload
def of(
    function: str, name: str, value: torch.dtype | str, accepted: Collection[torch.dtype] = ...
) -> torch.dtype: ...
@overload
def of(
    function: str,
    name: str,
    value: torch.dtype | str | None,
    accepted: Collection[torch.dtype] = ...,
) -> torch.dtype | None: ...
def of(
    function: str,
    name: str,
    value: torch.dtype | str | None,
    accepted: Collection[torch.dtype] = NAMES,
) -> torch.dtype | None:
    """The dtype that an argument means, read by `named`. Values that are no str come back as they
    are. Raises RuntimeError for a str that names no accepted dtype."""
    if not isinstance(value, str):
        return value
    dtype = named(value)
    if dtype not in accepted:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in accepted)
        raise RuntimeError(
            f"{function}: {name} is {value!r}, but it must be one of {names}; pass one of these, "
            "as a torch.dtype or its name."
        )
    return dtype


def named(value: Any) -> Any:
    """torch.float16 for "float16", "torch.float16" and torch's alias "half". What names no dtype
    comes back as it is."""
    dtype = getattr(torch, value.removeprefix("torch."), None) if isinstance(value, str) else value
    return dtype if isinstance(dtype, torch.dtype) else value


def short_name(dtype: torch.dtype | str) -> str:
    """The name in csrc/core/dtype.h of a torch dtype or of its name: "bf16" for torch.bfloat16,
    "torch.bfloat16" and "bfloat16". Other words come back as they are."""
    value = named(dtype)
    return NAMES.get(value, str(value))


def supported(device_type: str) -> tuple[torch.dtype, ...]:
    """The operand dtypes of products on a device type ("cpu" or "cuda"; empty for another)."""
    return tuple(row.torch for row in TABLE if device_type in row.devices)


def result(dtype: torch.dtype) -> torch.dtype:
    """The default dtype of a result, from the dtype of the operands."""
    return torch.bfloat16 if dtype in FP8 else torch.int32 if dtype in INT8 else dtype


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The widest floating type of a product of this dtype: float64 for float64, else float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32
