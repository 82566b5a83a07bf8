"""The layout of bitsandbytes' Linear4bit: NF4 and FP4, also with absmax in 8 bits.

    weight         uint8 (N K / 2, 1)    two codes a byte, row by row, the first one high
    absmax         float32 (N K / blocksize,), or uint8 indexes of nested_quant_map
    quant_map      float32 (16,), the value of each code
    nested_absmax  float32, the scale of each nested_blocksize elements of absmax

The weight is quant_map[code] * absmax. absmax is nested_quant_map[index] * nested_absmax + offset.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.packed.codes import pack_nibbles
from tcgemm.packed.formats import ENTRIES, NF4
from tcgemm.packed.readers.checks import check_tensor, divided, shown_dtype
from tcgemm.packed.weight import PackedWeight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_NAME = "tcgemm.packed.from_bitsandbytes"
_PREFIX = "quant_state.bitsandbytes__"  # of the name of the tensor with the other facts
_INDEXES = 256  # of nested_quant_map


class _State(NamedTuple):
    """The quantisation state of one weight."""

    absmax: torch.Tensor
    quant_map: torch.Tensor
    shape: tuple[int, ...]
    blocksize: int
    dtype: torch.dtype
    nested_absmax: torch.Tensor | None = None
    nested_quant_map: torch.Tensor | None = None
    nested_blocksize: int = 0
    offset: float = 0.0


def from_bitsandbytes(
    weight: Tensor, state: Any, *, dtype: torch.dtype | str | None = None
) -> PackedWeight:
    """Makes a PackedWeight of a 4-bit weight of bitsandbytes.

    Example:
        >>> state = {"absmax": torch.ones(4), "quant_map": torch.arange(16.0)}
        >>> facts = '{"quant_type": "fp4", "blocksize": 64, "dtype": "float16", "shape": [2, 128]}'
        >>> state["quant_state.bitsandbytes__fp4"] = torch.tensor(list(facts.encode()))
        >>> weight = torch.full((128, 1), 0x21, dtype=torch.uint8)
        >>> tcgemm.packed.from_bitsandbytes(weight, state).dequantize()[0, :2]
        tensor([2., 1.], dtype=torch.float16)

    Arguments:
        weight (Tensor): the bytes, of the dtype uint8 or of another quant_storage.
        state: the quant_state of a Params4bit, or the tensors of a checkpoint in a dict: absmax,
            quant_map, quant_state.bitsandbytes__nf4 (or __fp4), and nested_absmax and
            nested_quant_map where absmax has 8 bits ("double quant"). Names may have a prefix, such
            as "weight.".
        dtype (torch.dtype): the dtype of dequantize(); default: the state's dtype.

    A block must lie in one row: blocksize divides K. Blocks of more than 128 elements become groups
    of 128 with equal scales. Scales of nested blocks become float32, with a rounding after each
    operation as in bitsandbytes.

    Raises:
        TypeError: an argument is no tensor.
        RuntimeError: a tensor is missing, or has another dtype or shape; or blocksize does not
            divide K.
    """
    entry = _of_mapping(state) if hasattr(state, "items") else _of_object(state)
    if len(entry.shape) != 2:
        raise RuntimeError(
            f"{_NAME}: the weight has shape {entry.shape}, but a PackedWeight is a matrix (N, K); "
            "pass one matrix."
        )
    dtype = shown_dtype(_NAME, dtype)
    n, k = entry.shape
    if k % entry.blocksize:
        raise RuntimeError(
            f"{_NAME}: blocks of {entry.blocksize} elements do not divide rows of {k}, but a group "
            "of a PackedWeight lies in one row; multiply the dequantised weight."
        )
    if not isinstance(weight, torch.Tensor):
        raise TypeError(
            f"{_NAME}: weight must be a torch.Tensor, but is {type(weight).__name__}; pass the "
            "tensor of the checkpoint."
        )
    packed = weight.detach().contiguous().reshape(-1).view(torch.uint8)
    check_tensor(_NAME, "weight, as bytes,", packed, (torch.uint8,), (n * k // 2,))
    check_tensor(_NAME, "quant_map", entry.quant_map, (torch.float32,), (ENTRIES,))
    blocks = n * k // entry.blocksize
    scales = _scales(entry, blocks).reshape(n, k // entry.blocksize)
    codes = torch.stack([packed >> 4, packed & 15], -1).view(n, k)
    table = entry.quant_map.to(packed.device)
    name = "nf4" if table.cpu().equal(torch.tensor(NF4)) else "table"
    size, scales = divided(_NAME, name, k, entry.blocksize, scales)
    return PackedWeight.from_parts(
        pack_nibbles(codes),
        scales.contiguous(),
        name,
        k=k,
        group_size=size,
        table=table,
        dtype=dtype or entry.dtype,
    )


def _scales(state: _State, blocks: int) -> Tensor:
    """The float32 scale of each block."""
    if state.nested_absmax is None:
        check_tensor(_NAME, "absmax", state.absmax, (torch.float32,), (blocks,))
        return state.absmax
    check_tensor(_NAME, "absmax", state.absmax, (torch.uint8,), (blocks,))
    name, table = "nested_quant_map", state.nested_quant_map
    check_tensor(_NAME, name, table, (torch.float32,), (_INDEXES,))
    groups = math.ceil(blocks / state.nested_blocksize)
    name, nested = "nested_absmax", state.nested_absmax
    check_tensor(_NAME, name, nested, (torch.float32,), (groups,))
    values = state.nested_quant_map[state.absmax.int()]  # pyright: ignore[reportOptionalSubscript]
    spread = nested.repeat_interleave(state.nested_blocksize)[:blocks]
    return values * spread + state.offset


def _of_object(state: Any) -> _State:
    """The state of a bitsandbytes.functional.QuantState."""
    try:
        nested = state.state2 if state.nested else None
        return _State(
            state.absmax,
            state.code,
            tuple(state.shape),
            state.blocksize,
            state.dtype,
            *(() if nested is None else (nested.absmax, nested.code, nested.blocksize)),
            *(() if nested is None else (float(state.offset),)),
        )
    except AttributeError:
        raise TypeError(
            f"{_NAME}: state is {type(state).__name__}, but it must be the quant_state of a "
            "Params4bit or a dict of tensors; pass one of these."
        ) from None


def _of_mapping(state: Mapping[str, Any]) -> _State:
    """The state of the tensors of a checkpoint."""
    tensors: dict[str, Any] = {}
    for name, tensor in state.items():
        start = name.rfind(_PREFIX)
        tensors[_PREFIX if start >= 0 else name.rpartition(".")[2]] = tensor
    for name in ("absmax", "quant_map", _PREFIX):
        if name not in tensors:
            shown = f"{_PREFIX}nf4 (or fp4)" if name == _PREFIX else name
            raise RuntimeError(
                f"{_NAME}: state has no {shown}, but only {', '.join(map(repr, state)) or 'none'}; "
                "pass all tensors of the checkpoint that belong to the weight."
            )
    facts = json.loads(bytes(tensors[_PREFIX].tolist()))
    dtype = getattr(torch, str(facts.get("dtype", "float16")))
    return _State(
        tensors["absmax"],
        tensors["quant_map"],
        tuple(facts["shape"]),
        int(facts["blocksize"]),
        dtype,
        tensors.get("nested_absmax"),
        tensors.get("nested_quant_map"),
        int(facts.get("nested_blocksize", 0)),
        float(facts.get("nested_offset", 0.0)),
    )
