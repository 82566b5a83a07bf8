"""The operators of sub-byte operands as fakes, batching rules and FLOP counts see them."""

from tcgemm.ops import fake
from tcgemm.ops.flops import count
from tcgemm.ops.operators import SCALED, Operator
from tcgemm.ops.vmap import register_one_by_one


class Int4Product(Operator):
    """_int4_mm and _int4_mm_amax: scaled_mm of bytes with two elements of K each."""

    positional: tuple[str, ...] = SCALED.positional[:-3]  # without the other forms of operands
    per_byte: int = 2


class BinaryProduct(Operator):
    """_binary_mm: no epilogue."""

    positional: tuple[str, ...] = ("a", "b")
    per_byte: int = 8


INT4 = (Int4Product("_int4_mm"), Int4Product("_int4_mm_amax", amax=True))
BINARY = BinaryProduct("_binary_mm")
for _op in (*INT4, BINARY):
    # Products of the bytes, which are uint8, have the dtypes of products of int4 and of bits.
    fake.register(_op)
    register_one_by_one(_op.name)
    count(_op)
