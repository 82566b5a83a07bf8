"""SparseTensor24: a matrix that stores half of the elements of every group along its rows.

    shape (N, K)      the shape of the dense matrix
    values (N, K/2)   the kept elements; `metadata` has two bits for the position of each
    tiles             on CUDA: the metadata in the order of the tensor cores
    transposed_...    the same three for the transpose, if that has the pattern as well

It is a wrapper subclass: torch sees the shape, and __torch_dispatch__ looks every operator up in a
table of functions of the tensors inside. t() exchanges rows and columns and stores nothing.
matmul.py adds the products to the table. torch's functions that multiply call tcgemm's before
autograd sees them, so that they have tcgemm's gradients.

Autograd has two more operators: to_dense24, and mask24, which takes the elements of a dense
matrix at the positions of a SparseTensor24. Each is the derivative of the other. The gradient of a
SparseTensor24 has the same positions, and so the same size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from tcgemm.operands.sparse.parts import (
    FORMAT_VERSION,
    check_kinds,
    check_new_values,
    check_parts,
    check_positions,
    check_transpose,
    check_version,
    default_pattern,
    of_saved_bytes,
    shown,
    value_columns,
)
from tcgemm.operands.sparse.positions import decompress, gather_values
from tcgemm.ops._torch_private import wrapper_subclass
from tcgemm.ops.arguments import wrong_type
from tcgemm.ops.kept import changes
from tcgemm.ops.memory import eager
from tcgemm.ops.operands import TensorOperand, as_parameter, deep_copy
from tcgemm.ops.operator_table import Register, registers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tcgemm.operands.sparse.fast_path import Operands
    from tcgemm.typing import SparsePattern

_OPS = torch.ops.tcgemm
_aten = torch.ops.aten
_STORED = ("values", "metadata", "tiles")
_TRANSPOSED = ("transposed_values", "transposed_metadata", "transposed_tiles")
_FIXED = {*_STORED, *_TRANSPOSED, "pattern", "transposed", "k"} - {"values"}


class SparseTensor24(TensorOperand):
    """A matrix with structured sparsity along its rows; tcgemm.compress24 makes it.

    Example:
        >>> w = tcgemm.compress24(torch.randn(48, 64).bfloat16(), prune=True)
        >>> w.shape, w.values.shape, w.metadata.shape
        (torch.Size([48, 64]), torch.Size([48, 32]), torch.Size([48, 8]))
        >>> torch.nn.functional.linear(torch.randn(10, 64).bfloat16(), w).shape
        torch.Size([10, 48])

    Of each group of four elements it stores two (pattern "2:4"), or of each group of two it stores
    one ("1:2", the pattern of float32, which is multiplied as tf32).

    Attributes:
        values (Tensor): (N, V), the kept elements in their order. V is K/2, rounded up to whole
            groups: zeros fill up the last group.
        metadata (Tensor): uint8 (N, ceil(V/4)). Two bits for each value are its position in the
            group. A byte holds four positions, the first one in the lowest bits. The format is the
            same on every device.
        tiles (Tensor): on CUDA the metadata in the order of the tensor cores, else None. They are
            made when the tensor is made or moved, and are never saved.
        pattern (str): "2:4" or "1:2".
        transposable (bool): whether the compressed transpose is stored as well. Products with the
            transpose, such as the gradient of a layer's input, are sparse then. Otherwise they are
            computed with to_dense(), which takes the memory of the dense matrix during the call.
        dense_gradient (bool): whether its gradients are dense ("straight through") instead of
            masked. A masked gradient is a SparseTensor24 of the same positions.
        transposed (bool): whether this is the .t() of the stored matrix. values and metadata
            always belong to the stored matrix.

    mm, matmul, addmm and linear, of torch and of tcgemm, and @ take it on either side of a dense
    operand, with gradients for both. There is no product of two SparseTensor24. It is moved and
    converted by to(), and copied by clone(), copy.deepcopy, pickle and copy_(), which also takes a
    dense tensor that has the pattern. torch.save saves values and metadata, and torch.load reads
    them with weights_only=True, on any architecture.

    to(dtype) converts the kept values. float32 of "1:2" becomes "2:4" in another dtype, because one
    of two elements in each pair is two of four. "2:4" stays "2:4", also in float32: products with
    that need precision="medium", because tensor cores take one of two float32 elements.

    Arithmetic that keeps zeros (scaling, sums with the same positions) stays compressed. Operators
    that add in place, a number too, change the kept elements only. So SGD, Adam, AdamW, NAdam,
    Adamax, RMSprop and Adagrad of torch.optim train it as a dense weight with masked gradients
    (leave foreach and fused None or False). Other operators are refused: call to_dense() first.

    `w.values = other` replaces the values by others of the same shape and dtype. Products, their
    gradients and the stored transpose use the new values, as after any other change in place.
    """

    values: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    metadata: Tensor
    tiles: Tensor | None
    transposed_values: Tensor | None
    transposed_metadata: Tensor | None
    transposed_tiles: Tensor | None
    pattern: SparsePattern
    transposed: bool
    dense_gradient: bool
    k: int  # columns of the stored matrix
    version_lead: int | None  # changes of the values that the transposed values do not have
    fast_operands: Operands | None = None  # a cache of fast_path.py
    __deepcopy__ = deep_copy

    if TYPE_CHECKING:  # torch annotates these methods with Tensor, but they keep the class

        def __init__(self, *arguments: Any, **options: Any) -> None: ...  # those of __new__
        def t(self) -> SparseTensor24: ...
        def to(self, *args: Any, **kwargs: Any) -> SparseTensor24: ...
        def clone(self, *, memory_format: torch.memory_format | None = ...) -> SparseTensor24: ...
        def detach(self) -> SparseTensor24: ...

    @staticmethod
    def __new__(
        cls: type[SparseTensor24],
        inner: dict[str, Tensor],
        shape: Sequence[int],
        pattern: SparsePattern,
        *,
        transposed: bool = False,
        dense_gradient: bool = False,
        requires_grad: bool = False,
    ) -> SparseTensor24:
        """`inner` has the tensors inside by name. from_parts checks them."""
        values = inner["values"]
        self = wrapper_subclass(
            cls,
            shape,
            strides=(1, max(shape[0], 1)) if transposed else (max(shape[1], 1), 1),
            dtype=values.dtype,
            device=values.device,
            requires_grad=requires_grad,
        )
        vars(self).update(
            {name: inner.get(name) for name in _STORED + _TRANSPOSED},
            pattern=pattern,
            transposed=transposed,
            dense_gradient=dense_gradient,
            k=shape[0] if transposed else shape[1],
        )
        self.version_lead = self._lead()
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "values":
            self._replace_values(value)
        elif name in _FIXED:
            raise RuntimeError(
                f"tcgemm.SparseTensor24: {name} cannot be replaced, because values, metadata and "
                "shape belong together; make a new tensor with SparseTensor24.from_parts."
            )
        else:
            super().__setattr__(name, value)

    def _replace_values(self, values: Tensor) -> None:
        """Autograd and the fast path notice the new values, and the transpose gets them too."""
        check_new_values(self.values, values)
        vars(self).update(values=_in_memory(values), fast_operands=None, version_lead=None)
        self.update_transpose()
        if not self.is_inference():
            torch.autograd.graph.increment_version(self)

    def take_values(self, values: Tensor, transposed: Tensor | None = None) -> None:
        """Takes values of one matrix, and those of its compressed transpose, in one step: calls of
        other threads see the old or the new ones."""
        parts = {"values": values, "transposed_values": transposed, "fast_operands": None}
        vars(self).update(parts, version_lead=_lead(values, transposed))

    def _lead(self) -> int | None:
        return _lead(self.values, self.transposed_values)

    def update_transpose(self) -> None:
        """Copies the values of the matrix into the stored transpose.

        It is called after a change of only the former. An element without a position in the
        transpose becomes zero in both.
        """
        if self.transposed_values is None:
            return
        self.version_lead = self._lead()  # gather_values compares it
        dense = decompress(self)
        values = [gather_values(dense, self, transpose) for transpose in (False, True)]
        self.values.copy_(values[0])
        self.transposed_values.copy_(values[1])
        self.version_lead = self._lead()

    @property
    def versioned(self) -> tuple[Tensor, ...]:
        """The tensors whose changes autograd counts: the values, those of the compressed transpose,
        and the metadata. Empty for traced tensors, which have none."""
        values, metadata, _tiles = self.stored()
        if type(values) is not torch.Tensor:
            return ()
        if not self.transposable:
            return values, metadata
        transposed_values, transposed_metadata, _tiles = self.stored(True)
        return values, transposed_values, metadata, transposed_metadata

    def count_change(self) -> None:
        """Counts a change in place, by an operator of this tensor, for the tensors inside as well.
        torch counts it for this tensor alone."""
        torch.autograd.graph.increment_version(self.versioned)

    def values_changed(self) -> None:
        """Follows a change in place of the values alone."""
        self.update_transpose()
        self.count_change()

    @staticmethod
    def from_parts(
        values: Tensor,
        metadata: Tensor,
        k: int,
        pattern: SparsePattern | None = None,
        *,
        transpose: tuple[Tensor, Tensor] | None = None,
        trusted: bool = False,
        dense_gradient: bool = False,
        requires_grad: bool = False,
    ) -> SparseTensor24:
        """Makes the tensor from the values and metadata of a matrix (N, k).

        Example:
            >>> w = tcgemm.compress24(torch.randn(4, 8).half(), prune=True)
            >>> again = tcgemm.SparseTensor24.from_parts(w.values, w.metadata, 8)
            >>> torch.equal(again.to_dense(), w.to_dense())
            True

        Arguments:
            values, metadata (Tensor): see the attributes of the class.
            k (int): the number of columns of the matrix.
            pattern (str): "2:4" or "1:2"; default: the pattern of the values' dtype.
            transpose (tuple): values and metadata of the compressed transpose, or None.
            trusted (bool): True skips the check of the metadata, which waits for a GPU.
            dense_gradient, requires_grad (bool): attributes of the new tensor.

        Raises RuntimeError if dtypes or shapes do not belong together, or if the metadata are
        invalid: tensor cores have undefined results if the positions in a group do not rise.
        """
        if not trusted:
            check_kinds(values, metadata, k, pattern, transpose)
        pattern = default_pattern(values.dtype) if pattern is None else pattern
        inner = _side(_STORED, values, metadata, k, pattern, trusted)
        rows = values.shape[0]
        if transpose is not None:
            inner |= _side(_TRANSPOSED, *transpose, rows, pattern, trusted)
            check_transpose(values, k, transpose)
        options = {"dense_gradient": dense_gradient, "requires_grad": requires_grad}
        return SparseTensor24(inner, (rows, k), pattern, **options)

    @property
    def transposable(self) -> bool:
        """Is the compressed transpose stored as well?"""
        return self.transposed_values is not None

    def mask(self, dense: Tensor, transpose: bool = True) -> SparseTensor24:
        """The elements of a dense tensor at the kept positions, as a SparseTensor24.

        The gradient for `dense` has zeros at the other positions, unless dense_gradient is true for
        this tensor. `transpose=False` leaves out the compressed transpose.
        """
        if not hasattr(dense, "__torch_function__"):  # objects that trace a call have it too
            raise wrong_type("SparseTensor24.mask", "dense", dense)
        return _OPS.mask24.default(dense, self, transpose)

    @overload
    def stored(self, transpose: Literal[False] = False) -> tuple[Tensor, Tensor, Tensor | None]: ...
    @overload
    def stored(self, transpose: bool) -> tuple[Any, Any, Tensor | None]: ...
    def stored(self, transpose: bool = False) -> tuple[Any, Any, Tensor | None]:
        """(values, metadata, tiles) of the stored matrix, or of its compressed transpose.

        All three are None if there is no compressed transpose.
        """
        if transpose and self.version_lead != self._lead():
            self.update_transpose()
        if transpose:
            return self.transposed_values, self.transposed_metadata, self.transposed_tiles
        return self.values, self.metadata, self.tiles

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the stored matrix: the shape of .t() if `transposed`."""
        return tuple(reversed(self.shape)) if self.transposed else tuple(self.shape)

    def tensors(
        self, function: Callable[[Tensor], Tensor] | None = None, *, transpose: bool = True
    ) -> dict[str, Tensor]:
        """The tensors inside, by name, with the function applied to each."""
        if transpose and self.version_lead != self._lead():
            self.update_transpose()
        names = _STORED + _TRANSPOSED if transpose else _STORED
        tensors = {name: getattr(self, name) for name in names}
        return {
            name: tensor if function is None else function(tensor)
            for name, tensor in tensors.items()
            if tensor is not None
        }

    def like(
        self,
        inner: dict[str, Tensor],
        shape: Sequence[int] | None = None,
        *,
        transposed: bool | None = None,
    ) -> SparseTensor24:
        """A SparseTensor24 with these tensors inside and the other attributes of this one."""
        transposed = self.transposed if transposed is None else transposed
        options = {"transposed": transposed, "dense_gradient": self.dense_gradient}
        return SparseTensor24(inner, shape or self.shape, self.pattern, **options)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        gradient = ""
        if self.requires_grad:
            made_by = None if self.is_leaf else self.grad_fn
            gradient = f", grad_fn={made_by.name()}" if made_by else ", requires_grad=True"
        text = (
            f"shape={tuple(self.shape)}, pattern='{self.pattern}', dtype={self.dtype}, "
            f"device='{self.device}', transposable={self.transposable}"
        )
        size = sum(tensor.nbytes for tensor in self.tensors().values())
        transpose = ", transposed=True" if self.transposed else ""
        return f"SparseTensor24({text}{transpose}, nbytes={size}{gradient})"

    def __tensor_flatten__(self) -> tuple[list[str], tuple[SparsePattern, bool, bool]]:
        """For torch.compile: the names of the tensors inside, and the attributes."""
        return list(self.tensors()), (self.pattern, self.transposed, self.dense_gradient)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor],
        context: tuple[SparsePattern, bool, bool],
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> SparseTensor24:
        """The inverse of __tensor_flatten__."""
        pattern, transposed, dense_gradient = context
        options = {"transposed": transposed, "dense_gradient": dense_gradient}
        return SparseTensor24(inner, outer_size, pattern, **options)

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        values, metadata, _ = self.stored()
        transpose: Any = self.stored(True)[:2] if self.transposable else None
        dtype = None
        if self.dtype.is_floating_point and self.dtype.itemsize == 1:  # pickle takes no float8
            dtype, values = self.dtype, values.view(torch.uint8)
            if transpose is not None:
                transpose = (transpose[0].view(torch.uint8), transpose[1])
        options = (self.transposed, bool(self.dense_gradient), self.requires_grad)
        parts = (values, metadata, self.stored_shape[1], self.pattern, transpose)
        parameter = getattr(self, "_is_param", False)
        return restored, (FORMAT_VERSION, *parts, *options, parameter, dtype)

    @classmethod
    def instead(cls, argument: str) -> str:
        if argument == "out":
            return "a dense tensor, and compress it with tcgemm.compress24"
        return f"{argument}.to_dense()"

    @classmethod
    def unsupported(cls, func: Any) -> NotImplementedError:
        return NotImplementedError(
            f"tcgemm.SparseTensor24: {func} is not supported for 2:4 sparse tensors; "
            f"{_mend(func.name())}."
        )


implements: Register = registers_in(SparseTensor24.TABLE)
replaces: Register = registers_in(SparseTensor24.FUNCTIONS)


def _mend(operator: str) -> str:
    """The advice for an operator that is not supported, by its name."""
    for kind in ("fused", "foreach"):
        if operator.startswith(f"aten::_{kind}_"):
            return f"pass {kind}=False to the optimizer or function that calls it"
    return "call it with to_dense() of the tensor"


def _in_memory(tensor: Tensor) -> Tensor:
    """The tensor with its elements in memory, row by row: no negative bit, no ZeroTensor."""
    tensor = tensor.clone() if tensor._is_zerotensor() else tensor
    return tensor.contiguous().resolve_neg()


def _lead(values: Tensor, transposed: Tensor | None) -> int | None:
    """The number of changes of the values that the transposed values do not have. Operators change
    both, so a new number means that only the values were changed. None: not counted."""
    if type(transposed) is not torch.Tensor or transposed.is_inference():
        return None
    own, other = changes(values), changes(transposed)
    return None if own is None or other is None else own - other


def _side(
    names: tuple[str, ...], values: Tensor, metadata: Tensor, k: int, pattern: str, trusted: bool
) -> dict[str, Any]:
    """The checked tensors of the matrix or of its transpose, by name. The metadata are reordered
    on CUDA, for patterns that tensor cores multiply."""
    check_parts(values, metadata, k, pattern)
    if not trusted:
        check_positions(metadata, value_columns(k, pattern), pattern)
        values, metadata = _in_memory(values), _in_memory(metadata)
    values, metadata, tiles = values.contiguous(), metadata.contiguous(), None
    if values.device.type == "cuda" and pattern == default_pattern(values.dtype):
        tiles = eager(_OPS.tile24.default)(metadata, k, pattern, values.dtype)
    return dict(zip(names, (values, metadata, tiles), strict=True))


def restored(
    version: int,
    values: Tensor,
    metadata: Tensor,
    k: int,
    pattern: SparsePattern,
    transpose: tuple[Tensor, Tensor] | None,
    transposed: bool,
    dense_gradient: bool,
    leaf: bool,
    parameter: bool,
    dtype: torch.dtype | None = None,
) -> SparseTensor24:
    """The inverse of __reduce_ex__, for pickle and torch.load. dtype: the float8 dtype of values
    that are saved as bytes.

    Files may be damaged or forged, so every argument is checked.
    """
    check_version(version)
    if dtype is not None:
        values, transpose = of_saved_bytes(values, transpose, dtype)
    flags = (transposed, dense_gradient, leaf, parameter)
    if not all(isinstance(flag, bool) for flag in flags):
        raise RuntimeError(
            f"tcgemm.SparseTensor24: the saved tensor is damaged: the flags "
            f"{', '.join(map(shown, flags))} are not all True or False; load another copy of the "
            "file."
        )
    options: dict[str, Any] = {"transpose": transpose, "dense_gradient": dense_gradient}
    tensor: Tensor = SparseTensor24.from_parts(values, metadata, k, pattern, **options)
    tensor = tensor.t() if transposed else tensor
    if leaf and not tensor.is_floating_point():
        raise RuntimeError(
            f"tcgemm.SparseTensor24: the saved tensor is damaged: {tensor.dtype} needs a gradient, "
            "but only floating-point tensors have one; load another copy of the file."
        )
    return as_parameter(tensor.detach().requires_grad_(leaf), parameter)
