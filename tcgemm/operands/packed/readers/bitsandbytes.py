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
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.operands.packed.codes import pack_nibbles
from tcgemm.operands.packed.formats import ENTRIES, NF4
from tcgemm.operands.packed.readers.checks import check, check_is_tensor, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tcgemm.operands.packed.weight import PackedWeight

_NAME = "tcgemm.packed.from_bitsandbytes"
_PREFIX = "quant_state.bitsandbytes__"  # of the name of the tensor with the other facts
_INDEXES = 256  # of nested_quant_map


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
        RuntimeError: a tensor or a fact is missing, or has another dtype or shape; state has
            tensors of two weights; or blocksize does not divide K.
    """
    entry = _entry(state)
    shape, blocksize = tuple(entry["shape"]), _positive(entry, "blocksize")
    if len(shape) != 2:
        raise RuntimeError(
            f"{_NAME}: the weight has shape {shape}, but a PackedWeight is a matrix (N, K); pass "
            "one matrix."
        )
    n, k = shape
    if k % blocksize:
        raise RuntimeError(
            f"{_NAME}: blocks of {blocksize} elements do not divide rows of {k}, but a group of a "
            "PackedWeight lies in one row; multiply the dequantised weight."
        )
    check_is_tensor(_NAME, "weight", weight)
    packed = weight.detach().contiguous().reshape(-1).view(torch.uint8)
    check(_NAME, "weight, as bytes,", packed, (torch.uint8,), (n * k // 2,))
    table = entry["quant_map"]
    check(_NAME, "quant_map", table, (torch.float32,), (ENTRIES,))
    scales = _scales(entry, n * k // blocksize).reshape(n, k // blocksize)
    codes = pack_nibbles(torch.stack([packed >> 4, packed & 15], -1).view(n, k))
    name = "nf4" if table.cpu().equal(torch.tensor(NF4, device="cpu")) else "table"
    dtype = dtype or str(entry.get("dtype", "float16"))
    table = table.to(packed.device)
    return made(_NAME, name, codes, k, blocksize, dtype, scales=scales, table=table)


def _scales(entry: Mapping[str, Any], blocks: int) -> Tensor:
    """The float32 scale of each block."""
    absmax, nested = entry["absmax"], entry.get("nested_absmax")
    if nested is None:
        check(_NAME, "absmax", absmax, (torch.float32,), (blocks,))
        return absmax
    values, size = entry.get("nested_quant_map"), _positive(entry, "nested_blocksize")
    check(_NAME, "absmax", absmax, (torch.uint8,), (blocks,))
    check(_NAME, "nested_quant_map", values, (torch.float32,), (_INDEXES,))
    check(_NAME, "nested_absmax", nested, (torch.float32,), (math.ceil(blocks / size),))
    spread = nested.repeat_interleave(size)[:blocks]
    values = values[absmax.int()]  # pyright: ignore[reportOptionalSubscript]
    return values * spread + float(entry.get("nested_offset", 0.0))


def _positive(entry: Mapping[str, Any], name: str) -> int:
    """A size of the facts."""
    value = entry.get(name)
    if not isinstance(value, int) or value < 1:
        raise RuntimeError(
            f"{_NAME}: {name} is {value!r}, but it must be a positive number; pass the tensors of "
            "the checkpoint."
        )
    return value


def _facts(name: str, tensor: Any) -> dict[str, Any]:
    """What bitsandbytes saves as JSON beside the tensors."""
    check_is_tensor(_NAME, name, tensor)
    try:
        facts = json.loads(bytes(tensor.tolist()))
    except (ValueError, TypeError):
        facts = None
    if not isinstance(facts, dict):
        raise RuntimeError(f"{_NAME}: {name} is no JSON; pass the tensor of the checkpoint.")
    for fact in ("shape", "blocksize"):
        if fact not in facts:
            raise RuntimeError(
                f"{_NAME}: state has no {fact} among its facts ({', '.join(facts)}); pass all "
                "tensors of the checkpoint that belong to the weight."
            )
    return facts


def _entry(state: Any) -> Mapping[str, Any]:
    """The tensors and facts by the names that bitsandbytes saves them by."""
    if not hasattr(state, "items"):  # a bitsandbytes.functional.QuantState
        try:
            entry = state.as_dict()
            return entry | {"shape": tuple(entry["shape"])}
        except (AttributeError, TypeError):
            raise TypeError(
                f"{_NAME}: state is {type(state).__name__}, but it must be the quant_state of a "
                "Params4bit or a dict of tensors; pass one of these."
            ) from None
    entry, names = {}, {}
    for name, tensor in state.items():
        short = _PREFIX if _PREFIX in name else name.rpartition(".")[2]
        if short in entry:
            raise RuntimeError(
                f"{_NAME}: state has {names[short]!r} and {name!r}, so it has tensors of two "
                "weights; pass those of one."
            )
        entry[short], names[short] = tensor, name
    for name in ("absmax", "quant_map", _PREFIX):
        if name not in entry:
            shown = f"{_PREFIX}nf4 (or fp4)" if name == _PREFIX else name
            raise RuntimeError(
                f"{_NAME}: state has no {shown}, but only {', '.join(map(repr, state)) or 'none'}; "
                "pass all tensors of the checkpoint that belong to the weight."
            )
    return entry | _facts(names[_PREFIX], entry[_PREFIX])
