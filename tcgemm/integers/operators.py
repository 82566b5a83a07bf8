"""The operators of sub-byte operands as fakes, batching rules and FLOP counts see them."""

from __future__ import annotations

import math
from typing import Any

import torch

from tcgemm.ops import fake
from tcgemm.ops.after_import import after_import
from tcgemm.ops.epilogue import ADDENDS, Scales
from tcgemm.ops.operators import Operator
from tcgemm.ops.vmap import register_one_by_one


class Int4Product(Operator):
    """_int4_mm and _int4_mm_amax: scaled_mm of bytes with two elements of K each."""

    positional: tuple[str, ...] = (*("a", "b", *Scales._fields[:2], *ADDENDS, *Scales._fields[2:]),)

    def __init__(self, name: str, *, amax: bool = False) -> None:
        super().__init__(name)
        self.amax = amax


class BinaryProduct(Operator):
    """_binary_mm: no epilogue."""

    positional: tuple[str, ...] = ("a", "b")


BINARY = BinaryProduct("_binary_mm")
INT4 = (Int4Product("_int4_mm"), Int4Product("_int4_mm_amax", amax=True))


def _count(op: Operator, per_byte: int) -> None:
    def formula(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        arguments = op.arguments(args, kwargs)
        out = arguments["out"] if out_val is None else out_val
        out = out[0] if isinstance(out, tuple | list) else out
        return 2 * math.prod(out.shape) * per_byte * arguments["a"].shape[-1]

    def register(flop_counter: Any) -> None:
        packet = getattr(torch.ops.tcgemm, op.name)
        flop_counter.register_flop_formula(packet, get_raw=True)(formula)

    after_import("torch.utils.flop_counter", register)


for _op in INT4:
    # Products of the bytes, which are uint8, have the dtypes of products of int4.
    torch.library.register_fake(f"tcgemm::{_op.name}", fake.gemm(_op))
    register_one_by_one(_op.name)
    _count(_op, 2)
torch.library.register_fake("tcgemm::_int4_mm.out", fake.writes_out(INT4[0]))
torch.library.register_fake("tcgemm::_binary_mm", fake.gemm(BINARY))
torch.library.register_fake("tcgemm::_binary_mm.out", fake.writes_out(BINARY))
register_one_by_one(BINARY.name)
_count(BINARY, 8)
