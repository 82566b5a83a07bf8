"""BinaryTensor: eight bits in each byte, and their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from tcgemm.operands.integers.subbyte import SubbyteTensor, check_version, from_bytes, to_bytes
from tcgemm.ops._torch_private import below_autograd
from tcgemm.ops.arguments import wrong_type
from tcgemm.ops.memory import raise_typed
from tcgemm.ops.operands import register_products
from tcgemm.ops.operators import Operator
from tcgemm.typing import BinaryOperation, words

_OPS = torch.ops.tcgemm
OPERATIONS = words(BinaryOperation)


class BinaryTensor(SubbyteTensor):
    """A tensor of bits, eight in each byte, for tcgemm.binary_mm.

    Example:
        >>> x = tcgemm.BinaryTensor.from_bool(torch.randn(16, 100) > 0)
        >>> x.shape, x.bytes.shape
        (torch.Size([16, 100]), torch.Size([16, 13]))

    Bit i of byte j along the last dimension is element 8 j + i: little-endian. The bits after the
    last element, which fill its byte, are 0.

    t(), mT and transpose() exchange dimensions, clone() and to(device) copy. Other dimensions than
    byte_dim can be indexed and sliced; byte_dim can be sliced at multiples of 8. Whatever else
    needs the elements one by one: call it with to_bool().

    Attributes:
        bytes (Tensor): uint8. Dimension byte_dim has an eighth of the size.
        byte_dim (int): the dimension whose elements share bytes, counted from the last one: -1,
            or -2 for the t() of a matrix.
        dtype: torch.bool, the dtype of to_bool().

    Arguments:
        bytes (Tensor): uint8 (..., K/8); it is not copied.

    Raises:
        TypeError, RuntimeError: bytes is no uint8 tensor with a dimension.
    """

    name = "BinaryTensor"
    FIELDS: ClassVar[tuple[str, ...]] = ("byte_dim", "extent")
    per_byte = 8
    conversion = "to_bool()"

    def __new__(cls, bytes: Tensor) -> BinaryTensor:
        expected = (
            "at least one dimension, which holds eight bits in each byte; pass such bytes, or call "
            "BinaryTensor.from_bool"
        )
        cls.check_bytes(bytes, -1, expected)
        return cls.of(bytes, -1, 8 * bytes.shape[-1])

    @classmethod
    def of(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, bytes: Tensor, byte_dim: int, extent: int
    ) -> BinaryTensor:
        """The tensor of these bytes. The bits after the last element are 0."""
        return cls.wrapped(bytes, byte_dim, extent, torch.bool)

    @staticmethod
    def from_bool(x: Tensor) -> BinaryTensor:
        """Packs truth values along their last dimension.

        Example:
            >>> tcgemm.BinaryTensor.from_bool(torch.tensor([True, False, True])).bytes
            tensor([5], dtype=torch.uint8)

        Arguments:
            x (Tensor): bool (..., K), of any K. For a tensor of numbers pass x > 0, or x != 0.

        Raises:
            TypeError, RuntimeError: x is no bool tensor with a dimension.
        """
        if not isinstance(x, torch.Tensor):
            raise wrong_type("BinaryTensor.from_bool", "x", x)
        if x.dtype is not torch.bool or x.dim() == 0 or isinstance(x, SubbyteTensor):
            kind = "a BinaryTensor" if isinstance(x, SubbyteTensor) else x.dtype
            raise RuntimeError(
                f"tcgemm.BinaryTensor.from_bool: x is {kind} of shape {tuple(x.shape)}, but must "
                "be torch.bool with at least one dimension; pass x > 0, or x != 0."
            )
        extent = x.shape[-1]
        whole = torch.nn.functional.pad(x.view(torch.uint8), (0, -extent % 8))
        return BinaryTensor.of(to_bytes(whole, 8), -1, extent)

    def to_bool(self) -> Tensor:
        """Returns the elements one by one: bool, of the same shape.

        Example:
            >>> tcgemm.BinaryTensor.from_bool(torch.tensor([True, False, True])).to_bool()
            tensor([ True, False,  True])
        """
        bits = from_bytes(self.bytes.movedim(self.byte_dim, -1), 8)
        return bits[..., : self.extent].bool().movedim(-1, self.byte_dim)

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return restored_binary, self.saved


def restored_binary(version: int, bytes: Tensor, byte_dim: int, extent: int) -> BinaryTensor:
    """The inverse of __reduce_ex__, for pickle and torch.load. Files may be damaged or forged."""
    check_version(BinaryTensor, version)
    whole = BinaryTensor(bytes)
    fits = type(byte_dim) is int and type(extent) is int and -bytes.dim() <= byte_dim < 0
    if not fits or -(-extent // 8) != bytes.shape[byte_dim]:
        raise RuntimeError(
            f"tcgemm.BinaryTensor: the saved tensor is damaged: {extent!r} bits along dimension "
            f"{byte_dim!r} do not fit bytes of shape {tuple(bytes.shape)}; load another copy of "
            "the file."
        )
    restored = whole.like(bytes, byte_dim=byte_dim, extent=extent)
    last = bytes.movedim(byte_dim, -1)[..., -1:]
    if extent % 8 and bool((last >> (extent % 8)).any()):
        raise RuntimeError(
            "tcgemm.BinaryTensor: the saved tensor is damaged: bits after its last element are 1; "
            "load another copy of the file."
        )
    return restored


def _check(name: str, a: Any, b: Any) -> None:
    """Raises unless both are BinaryTensors of matrices that share bytes along K."""
    for argument, x in (("a", a), ("b", b)):
        if not isinstance(x, torch.Tensor):
            raise wrong_type(name, argument, x)
        if not isinstance(x, BinaryTensor):
            raise RuntimeError(
                f"tcgemm.{name}: {argument} is {x.dtype} of shape {tuple(x.shape)}, but must be a "
                "BinaryTensor; pass BinaryTensor.from_bool of its bits."
            )
        if x.dim() < 2:
            raise RuntimeError(
                f"tcgemm.{name}: {argument} has shape {tuple(x.shape)}, but must be at least a "
                "matrix; unsqueeze it."
            )
    for argument, x, along in (("a", a, -1), ("b", b, -2)):
        if x.byte_dim != along:
            raise RuntimeError(
                f"tcgemm.{name}: {argument} of shape {tuple(x.shape)} shares bytes along "
                f"dimension {x.byte_dim}, but the bits of a byte must follow each other along K, "
                f"dimension {along}; pack the transpose: "
                f"BinaryTensor.from_bool({argument}.to_bool().mT).mT."
            )
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"tcgemm.{name}: a of shape {tuple(a.shape)} and b of shape {tuple(b.shape)} cannot be "
            f"multiplied: a has {a.shape[-1]} columns (K), but b has {b.shape[-2]} rows; pass a b "
            f"with K = {a.shape[-1]} rows, for example b.mT if yours is stored as (N, K)."
        )


def binary_mm(
    a: BinaryTensor,
    b: BinaryTensor,
    operation: BinaryOperation = "and",
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Multiplies two matrices of bits, or batches of them: for each row of a and column of b it
    counts bits along K, exactly, as int32.

    Example:
        >>> x, w = torch.randn(64, 1000), torch.randn(48, 1000)
        >>> a, b = (tcgemm.BinaryTensor.from_bool(each > 0) for each in (x, w))
        >>> signs = tcgemm.binary_mm(a, b.t(), "pm1")
        >>> torch.equal(signs, (x.sign() @ w.sign().t()).int())
        True

    Arguments:
        a (BinaryTensor): (..., M, K), whose elements share bytes along K.
        b (BinaryTensor): (..., K, N), whose elements share bytes along K: the .t() or .mT of a
            tensor (..., N, K).
        operation (str): what is counted.

            - "and": the k where both bits are 1. It is the product of matrices of 0 and 1.
            - "xor": the k where the bits differ, the Hamming distance.
            - "pm1": the product of matrices of -1 and 1, where bit 0 means -1: K - 2 * xor.
        out (Tensor): int32 (..., M, N), takes the result.

    Returns:
        An int32 tensor (..., M, N). Batch dimensions broadcast. It has no gradient.

    Raises:
        TypeError: an operand is no tensor.
        RuntimeError: an operand is no BinaryTensor, shares bytes along another dimension, or does
            not fit the other one; operation is another word; out does not fit.

    GPUs of compute capability 8.0 and later count the ones of a & b in their tensor cores. A pass
    over each operand counts its ones for the other operations.
    """
    _check("binary_mm", a, b)
    if operation not in OPERATIONS:
        raise RuntimeError(
            f"tcgemm.binary_mm: operation is {operation!r}, but there are "
            f"{', '.join(f'{chr(34)}{name}{chr(34)}' for name in OPERATIONS)}; pass one of these."
        )
    call = {"k": a.shape[-1], "operation": operation}
    if torch.compiler.is_compiling():
        return _run(a.bytes, b.bytes, out, call)
    try:
        with below_autograd():
            return _run(a.bytes, b.bytes, out, call)
    except RuntimeError as error:
        raise_typed(error)


def _run(a: Tensor, b: Tensor, out: Tensor | None, call: dict[str, Any]) -> Tensor:
    if out is None:
        return _OPS._binary_mm.default(a, b, **call)
    if not isinstance(out, torch.Tensor):
        raise wrong_type("binary_mm", "out", out)
    _OPS._binary_mm.out(a, b, **call, out=out)
    return out


def _stored(name: str, _names: object, a: Any, b: Any, epilogue: Any) -> tuple[Any, ...]:
    """What explain and check_layout get for the product with operation "and"."""
    _check(name, a, b)
    product = {"types": "b1,b1", "k": a.shape[-1], "operation": "and"}
    return a.bytes, b.bytes, product, epilogue


def _no_product(op: Operator, *args: Any) -> NoReturn:
    raise RuntimeError(
        f"tcgemm.{op.name}: an operand is a BinaryTensor, whose products need an operation; call "
        "tcgemm.binary_mm."
    )


register_products(BinaryTensor, _no_product, _stored)
