"""Int4Tensor: two 4-bit integers in each byte, and the products of two of them.

    tcgemm.mm --> autograd --> an operator --> __torch_dispatch__ --> _int4_mm of the bytes

_int4_mm computes scaled_mm, so all options of the products work: bias, activation, residual, c,
scales, zero points, amax, out. c, bias and residual have gradients as for int8 operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from tcgemm.operands.integers.subbyte import SubbyteTensor, check_version, from_bytes, to_bytes
from tcgemm.ops.arguments import check_flag, wrong_type
from tcgemm.ops.operands import register_products
from tcgemm.ops.operators import Operator

_OPS = torch.ops.tcgemm
_VALUES = {True: (-8, 7), False: (0, 15)}  # the key is `signed`


class Int4Tensor(SubbyteTensor):
    """A tensor of 4-bit integers, two in each byte, for exact products with int32 sums.

    Example:
        >>> x = tcgemm.Int4Tensor.from_int8(torch.randint(-8, 8, (16, 64), dtype=torch.int8))
        >>> w = tcgemm.Int4Tensor.from_int8(torch.randint(-8, 8, (32, 64), dtype=torch.int8))
        >>> x.shape, x.bytes.shape
        (torch.Size([16, 64]), torch.Size([16, 32]))
        >>> tcgemm.linear(x, w).dtype
        torch.int32

    Elements 2 i and 2 i + 1 along the last dimension are in byte i, the first one in its low four
    bits. Signed elements are two's complement, from -8 to 7; unsigned ones are from 0 to 15.

    mm, bmm, matmul, addmm, baddbmm and linear of tcgemm take two Int4Tensors, signed or not, with
    all that they have for int8: scales, zero points, bias, activation and residual. The elements
    of a byte must follow each other along K: pass x (M, K) and the w.t() of a w (N, K), or call
    linear(x, w). GPUs of compute capability 8.0 to 8.9 multiply int4 itself. Others convert it to
    int8 first, in a pass of its own; the sums are the same.

    t(), mT and transpose() exchange dimensions, clone() and to(device) copy. Other dimensions than
    byte_dim can be indexed and sliced; byte_dim can be sliced at even positions. Whatever else
    needs the elements one by one: call it with to_int8().

    Attributes:
        bytes (Tensor): uint8. Dimension byte_dim has half of the size.
        byte_dim (int): the dimension whose elements share bytes, counted from the last one: -1,
            or -2 for the t() of a matrix.
        signed (bool): whether the elements are from -8 to 7, or from 0 to 15.
        dtype: torch.int8 if signed, else torch.uint8: the dtype of to_int8().

    Arguments:
        bytes (Tensor): uint8 (..., K/2); it is not copied.
        signed (bool): how their halves are read.
        byte_dim (int): the dimension whose elements share bytes, counted from the
            last one.

    Raises:
        TypeError, RuntimeError: bytes is no uint8 tensor with that dimension.
    """

    name = "Int4Tensor"
    FIELDS: ClassVar[tuple[str, ...]] = ("signed", "byte_dim")
    per_byte = 2
    conversion = "to_int8()"
    signed: bool

    def __new__(cls, bytes: Tensor, signed: bool = True, byte_dim: int = -1) -> Int4Tensor:
        check_flag("Int4Tensor", "signed", signed)
        expected = (
            f"a dimension {byte_dim}, which holds two elements in each byte; pass such bytes, or "
            "call Int4Tensor.from_int8"
        )
        cls.check_bytes(bytes, byte_dim, expected)
        return cls.of(bytes, bool(signed), byte_dim)

    @classmethod
    def of(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, bytes: Tensor, signed: bool, byte_dim: int
    ) -> Int4Tensor:
        """The tensor of these bytes."""
        dtype = torch.int8 if signed else torch.uint8
        tensor = cls.wrapped(bytes, byte_dim, 2 * bytes.shape[byte_dim], dtype)
        vars(tensor)["signed"] = signed
        return tensor

    @staticmethod
    def from_int8(x: Tensor, signed: bool = True) -> Int4Tensor:
        """Packs integers along their last dimension.

        Example:
            >>> x = torch.tensor([[1, -2, 3, -8]], dtype=torch.int8)
            >>> tcgemm.Int4Tensor.from_int8(x).bytes
            tensor([[225, 131]], dtype=torch.uint8)

        Arguments:
            x (Tensor): int8 or uint8 (..., K), K even. The values are checked, which waits for a
                GPU.
            signed (bool): whether the values are from -8 to 7, or from 0 to 15.

        Raises:
            TypeError, RuntimeError: x has another dtype, an odd K, or a value that 4 bits do not
                hold.
        """
        if not isinstance(x, torch.Tensor):
            raise wrong_type("Int4Tensor.from_int8", "x", x)
        check_flag("Int4Tensor.from_int8", "signed", signed)
        if x.dtype not in (torch.int8, torch.uint8) or isinstance(x, SubbyteTensor):
            kind = "an Int4Tensor" if isinstance(x, SubbyteTensor) else x.dtype
            raise RuntimeError(
                f"tcgemm.Int4Tensor.from_int8: x is {kind}, but must be torch.int8 or torch.uint8; "
                "convert it with .to(torch.int8)."
            )
        if x.dim() == 0 or x.shape[-1] % 2:
            raise RuntimeError(
                f"tcgemm.Int4Tensor.from_int8: x has shape {tuple(x.shape)}, but its last "
                "dimension must be even, because a byte holds two elements; pad it with a zero."
            )
        _check_values(x, signed)
        return Int4Tensor(to_bytes(x.view(torch.uint8) & 15, 2), signed)

    def to_int8(self) -> Tensor:
        """Returns the elements one by one: int8, or uint8 if they are unsigned, of the same shape.

        Example:
            >>> x = torch.tensor([[1, -2, 3, -8]], dtype=torch.int8)
            >>> tcgemm.Int4Tensor.from_int8(x).to_int8()
            tensor([[ 1, -2,  3, -8]], dtype=torch.int8)
        """
        codes = from_bytes(self.bytes.movedim(self.byte_dim, -1), 2)
        if self.signed:
            codes = ((codes ^ 8) - 8).view(torch.int8)
        return codes.movedim(-1, self.byte_dim)

    def attributes(self) -> str:
        return f"signed={self.signed}, "

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return restored_int4, self.saved


def _check_values(x: Tensor, signed: bool) -> None:
    if x.device.type == "meta" or torch.compiler.is_compiling() or x.numel() == 0:
        return
    least, most = _VALUES[bool(signed)]
    low, high = (int(bound) for bound in torch.aminmax(x))
    if low < least or high > most:
        kind = "signed" if signed else "unsigned"
        raise RuntimeError(
            f"tcgemm.Int4Tensor.from_int8: x has values from {low} to {high}, but {kind} int4 "
            f"holds {least} to {most}; clamp them, or pass signed={not signed} where that fits."
        )


def restored_int4(version: int, bytes: Tensor, signed: bool, byte_dim: int) -> Int4Tensor:
    """The inverse of __reduce_ex__, for pickle and torch.load. Files may be damaged or forged."""
    check_version(Int4Tensor, version)
    if type(byte_dim) is not int:
        raise RuntimeError(
            f"tcgemm.Int4Tensor: the saved tensor is damaged: byte_dim is {byte_dim!r}, which "
            "is no int; load another copy of the file."
        )
    return Int4Tensor(bytes, signed, byte_dim)


def _check(op: Operator, a: Any, b: Any, others: dict[str, Any]) -> None:
    _check_operands(op.name, op.operand_names, a, b)
    if not op.takes(a, b, others["bias"]):
        raise RuntimeError(
            f"tcgemm.{op.name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)}, or the "
            "bias, do not have the dimensions that it takes; tcgemm.matmul takes vectors and "
            "batches."
        )


def _check_operands(name: str, names: tuple[str, str], a: Any, b: Any) -> None:
    """Raises RuntimeError unless both operands are Int4Tensors."""
    for argument, tensor, other in ((names[0], a, names[1]), (names[1], b, names[0])):
        if not isinstance(tensor, Int4Tensor):
            raise RuntimeError(
                f"tcgemm.{name}: {argument} is {tensor.dtype}, but {other} is an Int4Tensor, and "
                f"both must be; pass Int4Tensor.from_int8 of {argument}, or {other}.to_int8()."
            )


def _stored(name: str, names: tuple[str, str], a: Any, b: Any, epilogue: Any) -> tuple[Any, ...]:
    """The bytes of the operands, whose elements must follow each other along K, and their types."""
    _check_operands(name, names, a, b)
    for argument, tensor, along, other in ((names[0], a, -1, "M"), (names[1], b, -2, "N")):
        if tensor.byte_dim != along:
            raise RuntimeError(
                f"tcgemm.{name}: {argument}, as a matrix of shape {tuple(tensor.shape[-2:])}, "
                f"shares bytes along {other}, but the two elements of a byte must follow each "
                "other along K; pack the transpose: "
                f"Int4Tensor.from_int8({argument}.to_int8().mT.contiguous()).mT."
            )
    types = ",".join("s4" if operand.signed else "u4" for operand in (a, b))
    return a.bytes, b.bytes, {"types": types}, epilogue


register_products(Int4Tensor, _check, _stored, (_OPS._int4_mm, _OPS._int4_mm_amax))
