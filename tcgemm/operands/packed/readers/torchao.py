"""The tensors of torchao whose codes have 4 or 8 bits.

    class                       a weight is
    Int4Tensor                  code * scale + zero_point, of codes from -8 to 7
    IntxUnpackedToInt8Tensor    (code - zero_point) * scale, a byte for each code
    MXTensor                    e2m1 * scale
    NVFP4Tensor                 e2m1 * (scale * per_tensor_scale)

A tensor is told by the name of its class, so torchao is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from tcgemm.operands.packed.codes import MIDDLE, pack_nibbles
from tcgemm.operands.packed.readers.checks import made

if TYPE_CHECKING:
    from tcgemm.operands.packed.weight import PackedWeight

_NAME = "tcgemm.packed.from_torchao"
_INPUT = "weight quantises its input as well, and a PackedWeight does not; pass another"
_HIGH = 0x88  # flips the sign bits of two codes in a byte


def from_torchao(weight: Any, *, dtype: torch.dtype | str | None = None) -> PackedWeight:
    """Makes a PackedWeight of a weight that torchao has quantised.

    Example:
        >>> from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_
        >>> linear = torch.nn.Linear(128, 64)
        >>> config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
        >>> quantize_(linear, config)
        >>> w = tcgemm.packed.from_torchao(linear.weight)
        >>> w.format, torch.equal(w.dequantize(), linear.weight.dequantize())
        ('int4', True)

    Arguments:
        weight: a matrix of one of torchao's classes: Int4Tensor (Int4WeightOnlyConfig),
            IntxUnpackedToInt8Tensor (IntxWeightOnlyConfig) of int4 or int8, MXTensor of e2m1, or
            NVFP4Tensor.
        dtype (torch.dtype): the dtype of dequantize(); default: the weight's dtype.

    An Int4Tensor becomes "int4" with offsets, or without where all are 0. An
    IntxUnpackedToInt8Tensor becomes "int4" with zero points, or without where all are 0, or "int8"
    where all are 0.

    Raises:
        RuntimeError: the weight has another class, other groups, or scales in the order of a
            kernel.
    """
    kind = type(weight.data if isinstance(weight, torch.nn.Parameter) else weight).__name__
    reader = _READERS.get(kind)
    if reader is None:
        _refuse(f"weight is {kind}, but there are {', '.join(_READERS)}; pass one of these")
    if weight.dim() != 2:
        _refuse(f"weight has shape {tuple(weight.shape)}, but must be a matrix; pass one")
    return reader(weight, dtype or weight.dtype)


def _refuse(text: str) -> NoReturn:
    raise RuntimeError(f"{_NAME}: {text}.")


def _group(weight: Any) -> int:
    """The elements along K of a block, which has one row."""
    rows, columns = weight.block_size
    if rows != 1:
        _refuse(
            f"the blocks of weight have {rows} rows, but a group of a PackedWeight lies in one "
            "row; quantise with a granularity along K"
        )
    return columns


def _int4(weight: Any, dtype: Any) -> PackedWeight:
    if getattr(weight, "act_pre_scale", None) is not None:
        _refuse(
            "weight has act_pre_scale, which multiplies the input, and a PackedWeight has none; "
            "multiply the input by it, and pass the weight without"
        )
    scales, codes = weight.scale.t().contiguous(), weight.qdata.view(torch.uint8)
    parts = {"scales": scales}
    if bool(weight.zero_point.any()):
        parts["offsets"] = weight.zero_point.t().to(scales.dtype).contiguous()
        codes = codes ^ _HIGH
    return made(_NAME, "int4", codes, weight.shape[1], _group(weight), dtype, **parts)


def _intx(weight: Any, dtype: Any) -> PackedWeight:
    k, size = weight.shape[1], _group(weight)
    codes, points = weight.qdata, weight.zero_point
    parts = {"scales": weight.scale.contiguous()}
    symmetric = not bool(points.any())
    if weight.activation_quantization is not None:
        _refuse(_INPUT)
    if weight.target_dtype is torch.int8:
        if not symmetric:
            _refuse(
                "weight has int8 codes with zero points, and a PackedWeight has none; pass int4"
            )
        return made(_NAME, "int8", codes, k, size, dtype, **parts)
    if str(weight.target_dtype) != "torch.int4":  # torch's stubs have no int4
        _refuse(f"weight has codes of {weight.target_dtype}; pass one of torch.int4 or torch.int8")
    if not symmetric:
        parts["zero_points"] = (points + MIDDLE).to(torch.uint8).contiguous()
        codes = codes + MIDDLE
    codes = pack_nibbles((codes & 15).to(torch.uint8))
    return made(_NAME, "int4", codes, k, size, dtype, **parts)


def _scaled(weight: Any, size: int) -> torch.Tensor:
    """The scales (N, G) of a weight whose groups must have this size."""
    if getattr(weight, "act_quant_kwargs", None) is not None:
        _refuse(_INPUT)
    if weight.is_swizzled_scales:
        _refuse(
            "weight has scales in the order of a kernel (is_swizzled_scales); quantise without it"
        )
    if weight.block_size != size:
        _refuse(f"weight has groups of {weight.block_size} elements; pass one with {size}")
    if not weight.qdata.is_contiguous():
        _refuse("weight is transposed; pass the weight (N, K) itself")
    return weight.scale.reshape(weight.shape[0], -1)


def _mx(weight: Any, dtype: Any) -> PackedWeight:
    if weight.elem_dtype is not torch.float4_e2m1fn_x2:
        _refuse(f"weight has elements of {weight.elem_dtype}; pass torch.float4_e2m1fn_x2")
    scales, codes = _scaled(weight, 32), weight.qdata.view(torch.uint8)
    return made(_NAME, "mxfp4", codes, weight.shape[1], 32, dtype, scales=scales)


def _nvfp4(weight: Any, dtype: Any) -> PackedWeight:
    scales, codes = _scaled(weight, 16), weight.qdata.view(torch.uint8)
    whole = weight.per_tensor_scale
    if whole is None:
        whole = torch.ones((), dtype=torch.float32, device=scales.device)
    parts = {"scales": scales.view(torch.float8_e4m3fn), "global_scale": whole.float().reshape(())}
    return made(_NAME, "nvfp4", codes, weight.shape[1], 16, dtype, **parts)


_READERS = {
    "Int4Tensor": _int4,
    "IntxUnpackedToInt8Tensor": _intx,
    "MXTensor": _mx,
    "NVFP4Tensor": _nvfp4,
}
