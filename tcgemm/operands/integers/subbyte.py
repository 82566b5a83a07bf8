"""SubbyteTensor: what the tensors of sub-byte elements share, the views and copies of torch.

    shape (.., K)             the shape in elements
    bytes (.., K / per_byte)  uint8; elements that follow each other along K share a byte, the
                              first one in its lowest bits

It is a wrapper subclass: torch sees the shape, and __torch_dispatch__ looks each operator up in a
table of functions of the bytes. A view is a view of the bytes, and knows along which of its
dimensions elements share bytes. What would divide a byte is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from tcgemm.ops._torch_private import wrapper_subclass
from tcgemm.ops.arguments import wrong_type
from tcgemm.ops.operands import TensorOperand, deep_copy
from tcgemm.ops.operator_table import Register, registers_in

_aten = torch.ops.aten
FORMAT_VERSION = 1  # the version of saved tensors


class SubbyteTensor(TensorOperand):
    """The base of Int4Tensor and BinaryTensor, which are bytes with FIELDS."""

    name: ClassVar[str]
    FIELDS: ClassVar[tuple[str, ...]]  # the attributes beside bytes, as `of` takes them
    per_byte: ClassVar[int]
    conversion: ClassVar[str]  # the call that gives the elements one by one
    bytes: Tensor
    byte_dim: int  # the dimension whose elements share bytes, counted from the last one: -1, ..
    extent: int  # elements along it
    __deepcopy__ = deep_copy

    if TYPE_CHECKING:  # torch annotates these with Tensor, but they keep the class

        def __init__(self, *arguments: Any, **options: Any) -> None: ...  # those of __new__
        def t(self) -> Self: ...
        def transpose(self, dim0: Any, dim1: Any) -> Self: ...
        def to(self, *args: Any, **kwargs: Any) -> Self: ...
        def clone(self, *, memory_format: torch.memory_format | None = ...) -> Self: ...
        def detach(self) -> Self: ...

        mT: Self  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def of(cls, bytes: Tensor, *fields: Any) -> Self:
        """The tensor of these bytes and FIELDS, which are right."""
        raise NotImplementedError

    @classmethod
    def wrapped(cls, bytes: Tensor, byte_dim: int, extent: int, dtype: torch.dtype) -> Self:
        """The tensor around these bytes; a subclass sets what it has besides."""
        shape, strides = list(bytes.shape), [cls.per_byte * stride for stride in bytes.stride()]
        shape[byte_dim], strides[byte_dim] = extent, 1
        tensor = wrapper_subclass(cls, shape, strides=strides, dtype=dtype, device=bytes.device)
        vars(tensor).update(bytes=bytes, byte_dim=byte_dim, extent=extent)
        return tensor

    @classmethod
    def check_bytes(cls, bytes: Any, byte_dim: int, expected: str) -> None:
        """Raises an error unless the bytes are uint8 and have the dimension."""
        if not isinstance(bytes, torch.Tensor):
            raise wrong_type(cls.name, "bytes", bytes)
        if bytes.dtype is not torch.uint8 or not -bytes.dim() <= byte_dim < 0:
            raise RuntimeError(
                f"tcgemm.{cls.name}: bytes is {bytes.dtype} of shape {tuple(bytes.shape)}, but "
                f"must be torch.uint8 with {expected}."
            )

    @property
    def fields(self) -> tuple[Any, ...]:
        """The values of FIELDS."""
        return tuple(getattr(self, name) for name in self.FIELDS)

    def like(self, bytes: Tensor, **changes: int) -> Self:
        """A tensor of the same elements with other bytes."""
        return self.of(bytes, *(changes.get(name, getattr(self, name)) for name in self.FIELDS))

    @property
    def along(self) -> int:
        """The dimension whose elements share bytes, counted from the first one."""
        return self.bytes.dim() + self.byte_dim

    @classmethod
    def unsupported(cls, func: Any) -> NotImplementedError:
        return NotImplementedError(
            f"tcgemm.{cls.name}: {func} is not supported for sub-byte elements; call it with "
            f"{cls.conversion} of the tensor."
        )

    @classmethod
    def instead(cls, argument: str) -> str:
        return f"{argument}.{cls.conversion} in a dtype that {argument} can have"

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return (
            f"{self.name}(shape={tuple(self.shape)}, {self.attributes()}device='{self.device}', "
            f"nbytes={self.bytes.nbytes})"
        )

    def attributes(self) -> str:
        """What a subclass shows of itself, with a comma and a blank behind."""
        return ""

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        """For torch.compile: the name of the tensor inside, and the attributes."""
        return ["bytes"], self.fields

    @classmethod
    def __tensor_unflatten__(
        cls,
        inner: dict[str, Tensor],
        context: tuple[Any, ...],
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> Self:
        """The inverse of __tensor_flatten__."""
        return cls.of(inner["bytes"], *context)

    @property
    def saved(self) -> tuple[Any, ...]:
        """What pickle and torch.save write."""
        return FORMAT_VERSION, self.bytes, *self.fields


def check_version(kind: type[SubbyteTensor], version: object) -> None:
    """Raises RuntimeError unless this is the version of the format of saved tensors."""
    if version != FORMAT_VERSION:
        raise RuntimeError(
            f"tcgemm.{kind.name}: the saved tensor has the format {version!r}, but this tcgemm "
            f"reads {FORMAT_VERSION}; update tcgemm."
        )


implements: Register = registers_in(SubbyteTensor.TABLE)


def _refused(x: SubbyteTensor, what: str) -> RuntimeError:
    return RuntimeError(
        f"tcgemm.{x.name}: {what} would divide a byte, because the elements along dimension "
        f"{x.along} share bytes; call it with {x.conversion} of the tensor."
    )


def _from_first(x: SubbyteTensor, dim: int, dims: int | None = None) -> int:
    """A dimension counted from the first one."""
    dims = x.dim() if dims is None else dims
    if not -dims <= dim < dims:
        raise IndexError(
            f"tcgemm.{x.name}: dimension {dim} is out of range; pass one from {-dims} to "
            f"{dims - 1}."
        )
    return dim % dims


@implements(_aten.detach.default, _aten.alias.default)
def _alias(x):
    return x.like(x.bytes.detach())


@implements(_aten.clone.default)
def _clone(x, *, memory_format=None):
    # The bytes along byte_dim stay adjacent.
    moved = x.bytes.movedim(x.byte_dim, -1)
    return x.like(moved.contiguous().clone().movedim(-1, x.byte_dim))


@implements(_aten._to_copy.default)
def _to_copy(x, *, dtype=None, device=None, non_blocking=False, **options):
    if dtype not in (None, x.dtype):
        raise RuntimeError(
            f"tcgemm.{x.name}: to({dtype}) would change the sub-byte elements; convert "
            f"{x.conversion} of the tensor."
        )
    if device is None or torch.device(device) == x.device:
        return _clone(x)
    return x.like(x.bytes.to(device=device, non_blocking=non_blocking))


@implements(_aten.t.default)
def _t(x):
    return _transpose(x, 0, x.dim() - 1) if x.dim() < 3 else x.bytes.t()


@implements(_aten.transpose.int)
def _transpose(x, first, second):
    first, second = _from_first(x, first), _from_first(x, second)
    along = {first: second, second: first}.get(x.along, x.along)
    return x.like(x.bytes.transpose(first, second), byte_dim=along - x.dim())


@implements(_aten.unsqueeze.default)
def _unsqueeze(x, dim):
    dim = _from_first(x, dim, x.dim() + 1)
    return x.like(x.bytes.unsqueeze(dim), byte_dim=x.byte_dim - (dim > x.along))


@implements(_aten.select.int)
def _select(x, dim, index):
    dim = _from_first(x, dim)
    if dim == x.along:
        raise _refused(x, f"select({dim}, {index})")
    return x.like(x.bytes.select(dim, index), byte_dim=x.byte_dim + (dim > x.along))


@implements(_aten.slice.Tensor)
def _slice(x, dim=0, start=None, end=None, step=1):
    dim = _from_first(x, dim)
    if dim != x.along:
        return x.like(_aten.slice.Tensor(x.bytes, dim, start, end, step))
    start, end, step = slice(start, end, step).indices(x.extent)
    end = max(start, end)
    whole = start % x.per_byte == 0 and (end % x.per_byte == 0 or end == x.extent)
    if step != 1 or not whole:
        raise _refused(x, f"the slice {start}:{end}:{step}")
    first, last = start // x.per_byte, -(-end // x.per_byte)
    return x.like(x.bytes.narrow(dim, first, last - first), extent=end - start)


@implements(_aten.expand.default)
def _expand(x, size, *, implicit=False):
    size = list(size)
    if size[x.byte_dim] not in (-1, x.extent):
        raise RuntimeError(
            f"tcgemm.{x.name}: a tensor of shape {tuple(x.shape)} does not expand to "
            f"{tuple(size)}: the dimension whose elements share bytes keeps its size."
        )
    size[x.byte_dim] = -1
    return x.like(x.bytes.expand(size))


@implements(_aten.view.default, _aten._unsafe_view.default)
def _view(x, size):
    size = list(size)
    if x.byte_dim != -1 or not size or size[-1] not in (-1, x.extent):
        raise RuntimeError(
            f"tcgemm.{x.name}: a tensor of shape {tuple(x.shape)} has no view of shape "
            f"{tuple(size)}: the dimension whose elements share bytes must be the last one and "
            f"keep its size; call it with {x.conversion} of the tensor."
        )
    return x.like(x.bytes.view(*size[:-1], x.bytes.shape[-1]))


def to_bytes(values: Tensor, per_byte: int) -> Tensor:
    """Packs uint8 values, each below 2 ** (8 / per_byte), along the last dimension, whose size is a
    multiple of per_byte."""
    width = 8 // per_byte
    groups = values.unflatten(-1, (-1, per_byte))
    result = groups[..., 0].clone()
    for i in range(1, per_byte):
        result |= groups[..., i] << (width * i)
    return result


def from_bytes(bytes: Tensor, per_byte: int) -> Tensor:
    """The inverse of to_bytes."""
    width = 8 // per_byte
    parts = [(bytes >> (width * i)) & (2**width - 1) for i in range(per_byte)]
    return torch.stack(parts, dim=-1).flatten(-2)
