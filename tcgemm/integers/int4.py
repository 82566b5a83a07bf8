"""Int4Tensor: two 4-bit integers in each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tcgemm.integers.subbyte import SubbyteTensor, from_bytes, to_bytes
from tcgemm.ops.arguments import check_flag, wrong_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

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
    per_byte = 2
    conversion = "to_int8()"
    TABLE: ClassVar[dict[Any, Callable[..., Any]]] = {**SubbyteTensor.TABLE}
    signed: bool

    def __new__(cls, bytes: Tensor, signed: bool = True, byte_dim: int = -1) -> Int4Tensor:
        if not isinstance(bytes, torch.Tensor):
            raise wrong_type("Int4Tensor", "bytes", bytes)
        check_flag("Int4Tensor", "signed", signed)
        if bytes.dtype is not torch.uint8 or not -bytes.dim() <= byte_dim < 0:
            raise RuntimeError(
                f"tcgemm.Int4Tensor: bytes is {bytes.dtype} of shape {tuple(bytes.shape)}, but "
                f"must be torch.uint8 with a dimension {byte_dim}, which holds two elements in "
                "each byte; pass such bytes, or call Int4Tensor.from_int8."
            )
        dtype = torch.int8 if signed else torch.uint8
        tensor = cls.wrapped(bytes, byte_dim, 2 * bytes.shape[byte_dim], dtype)
        vars(tensor)["signed"] = bool(signed)
        return tensor

    def __init__(self, bytes: Tensor, signed: bool = True, byte_dim: int = -1) -> None:
        super().__init__()

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

    def like(
        self, bytes: Tensor, byte_dim: int | None = None, extent: int | None = None
    ) -> Int4Tensor:
        """A tensor of the same elements with other bytes."""
        return Int4Tensor(bytes, self.signed, self.byte_dim if byte_dim is None else byte_dim)

    def attributes(self) -> str:
        return f"signed={self.signed}, "

    def __tensor_flatten__(self) -> tuple[list[str], tuple[bool, int]]:
        """For torch.compile: the name of the tensor inside, and the attributes."""
        return ["bytes"], (self.signed, self.byte_dim)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor],
        context: tuple[bool, int],
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> Int4Tensor:
        """The inverse of __tensor_flatten__."""
        return Int4Tensor(inner["bytes"], *context)

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return restored_int4, (1, self.bytes, self.signed, self.byte_dim)


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
    if version != 1:
        raise RuntimeError(
            f"tcgemm.Int4Tensor: the saved tensor has the format {version!r}, but this tcgemm "
            "reads 1; update tcgemm."
        )
    if type(byte_dim) is not int:
        raise RuntimeError(
            f"tcgemm.Int4Tensor: the saved tensor is damaged: byte_dim is {byte_dim!r}, which "
            "is no int; load another copy of the file."
        )
    return Int4Tensor(bytes, signed, byte_dim)
