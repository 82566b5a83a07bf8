"""SparseTensor24: a matrix that stores half of the elements of every group along its rows.

    shape (N, K)      the shape of the dense matrix
    values (N, K/2)   the kept elements; `metadata` has two bits for the position of each
    tiles             on CUDA: the metadata in the order of the tensor cores
    transposed_...    the same three for the transpose, if that has the pattern as well

It is a wrapper subclass: torch sees the shape, and __torch_dispatch__ looks every operator up in a
table of functions of the tensors inside. t() exchanges rows and columns and stores nothing.
matmul.py adds the products to the table. It sends torch's functions that multiply to tcgemm's
before autograd sees them, so that they have tcgemm's gradients.

Autograd knows two more operators: to_dense24, and mask24, which takes the elements of a dense
matrix at the positions of a SparseTensor24. Each is the derivative of the other. The gradient of a
SparseTensor24 has the same positions, and so the same size.
"""

import torch

from tcgemm.ops._torch_private import (
    SingleLevelFunction,
    below_autograd,
    enable_single_level_autograd_function,
    no_torch_function,
    wrapper_subclass,
)
from tcgemm.ops.arguments import wrong_type
from tcgemm.sparse.parts import (
    DTYPES,
    FORMAT_VERSION,
    check_kinds,
    check_parts,
    check_positions,
    check_transpose,
    check_version,
    shown,
)
from tcgemm.sparse.shapes import GROUPS, default_pattern, value_columns

_OPS = torch.ops.tcgemm
_aten = torch.ops.aten
_STORED = ("values", "metadata", "tiles")
_TRANSPOSED = ("transposed_values", "transposed_metadata", "transposed_tiles")
_FIXED = {*_STORED, *_TRANSPOSED, "pattern", "transposed", "k"} - {"values"}

TABLE = {}  # for __torch_dispatch__: operator -> function of the same arguments
FUNCTIONS = {}  # for __torch_function__: function -> function of the same arguments


def implements(*operators, table=TABLE):
    """Registers the decorated function for these operators."""

    def register(function):
        table.update(dict.fromkeys(operators, function))
        return function

    return register


def _tile(values, metadata, k, pattern):
    """The reordered metadata; None on the CPU and for patterns that no tensor core multiplies."""
    if values.device.type != "cuda" or pattern != default_pattern(values.dtype):
        return None
    return _OPS.tile24.default(metadata, k, pattern, values.dtype)


class SparseTensor24(torch.Tensor):
    """A matrix with structured sparsity along its rows; tcgemm.compress24 makes it.

    Of each group of four elements two are stored (pattern "2:4"), or one of two ("1:2", the
    pattern of float32, which is multiplied as tf32).

    Attributes:
        values (Tensor): the kept elements in their order, (N, V): V = K/2, of the last group filled
            up with zeros.
        metadata (Tensor): uint8 (N, ceil(V/4)); two bits for each value, its position in the group,
            four of them in a byte, the first in the lowest bits. The same on every device.
        tiles (Tensor): on CUDA the metadata in the order of the tensor cores, else None. Made when
            the tensor is made or moved, and never saved.
        pattern (str): "2:4" or "1:2".
        transposable (bool): whether the transpose is stored compressed as well. Products with it,
            as the gradient of a layer's input is one, are sparse then; otherwise they are computed
            with to_dense(), which takes the memory of the dense matrix for the time of the call.
        dense_gradient (bool): whether gradients of it are dense (straight through) instead of
            masked, which is a SparseTensor24 of the same positions.
        transposed (bool): whether this is the .t() of what is stored; values and metadata are those
            of the stored matrix.

    mm, matmul, addmm and linear, of torch and of tcgemm, and @ take it on either side of a dense
    operand, with gradients for both; there is no product of two. It moves and converts by to(),
    is copied by clone(), copy_() (from a dense tensor too, which has to have the pattern),
    copy.deepcopy and pickle, and saved by torch.save, loaded with weights_only=True. What is
    stored is values and metadata, so it can be loaded on another architecture.

    to(dtype) converts the kept values. float32 of "1:2" becomes "2:4" in another dtype, since one
    of two in pairs is two of four; "2:4" stays "2:4", also in float32, where products with it are
    refused unless precision is "medium": tensor cores take one of two there.

    Arithmetic that keeps zeros (scaling, sums with the same positions) stays compressed. What is
    added in place, a number too, is taken at the kept positions only. So SGD, Adam, AdamW, NAdam,
    Adamax, RMSprop and Adagrad of torch.optim train it as a dense weight with masked gradients
    (foreach and fused stay None or False). Other operators are refused: call to_dense().

    `w.values = other` replaces the values by others of the same shape and dtype. Products, their
    gradients and the stored transpose see this, and writes into values, as any other change.

    Example:
        >>> w = tcgemm.compress24(torch.randn(48, 64).bfloat16(), prune=True)
        >>> w.shape, w.values.shape, w.metadata.shape
        (torch.Size([48, 64]), torch.Size([48, 32]), torch.Size([48, 8]))
        >>> torch.nn.functional.linear(torch.randn(10, 64).bfloat16(), w).shape
        torch.Size([10, 48])
    """

    fast_operands = None  # a cache of fast_path.py

    @staticmethod
    def __new__(
        cls, inner, shape, pattern, *, transposed=False, dense_gradient=False, requires_grad=False
    ):
        """`inner` has the tensors inside by name. from_parts checks them."""
        values = inner["values"]
        return wrapper_subclass(
            cls,
            shape,
            strides=(1, max(shape[0], 1)) if transposed else (max(shape[1], 1), 1),
            dtype=values.dtype,
            device=values.device,
            requires_grad=requires_grad,
        )

    def __init__(
        self, inner, shape, pattern, *, transposed=False, dense_gradient=False, requires_grad=False
    ):
        vars(self).update(
            {name: inner.get(name) for name in _STORED + _TRANSPOSED},
            pattern=pattern,
            transposed=transposed,
            dense_gradient=dense_gradient,
            k=shape[0] if transposed else shape[1],  # columns of the stored matrix
        )
        self.version_lead = self._lead()

    def __setattr__(self, name, value):
        if name == "values":
            self._replace_values(value)
        elif name in _FIXED:
            raise RuntimeError(
                f"tcgemm.SparseTensor24: {name} cannot be replaced, since values, metadata and "
                "shape belong together; make a new tensor with SparseTensor24.from_parts."
            )
        else:
            super().__setattr__(name, value)

    def _replace_values(self, values):
        """Autograd and the fast path notice the new values, and the transpose gets them too."""
        mine = self.values
        if (
            not isinstance(values, torch.Tensor)
            or (values.shape, values.dtype, values.device) != (mine.shape, mine.dtype, mine.device)
            or values.layout is not torch.strided
            or values.requires_grad
        ):
            came = type(values).__name__
            if isinstance(values, torch.Tensor):
                needs = " that needs a gradient" if values.requires_grad else ""
                came = f"{values.dtype} of shape {tuple(values.shape)} on {values.device}{needs}"
            raise RuntimeError(
                f"tcgemm.SparseTensor24: values are {mine.dtype} of shape {tuple(mine.shape)} on "
                f"{mine.device}, without a gradient, but came {came}; pass such a tensor, or make "
                "a new one with tcgemm.compress24."
            )
        vars(self).update(values=_in_memory(values), fast_operands=None, version_lead=None)
        self.update_transpose()
        if not self.is_inference():
            torch.autograd.graph.increment_version(self)

    def _lead(self):
        """The number of changes of the values that the transposed values do not have. Operators
        change both, so a new number means that only the values were changed. None: not counted."""
        transposed = self.transposed_values
        if type(transposed) is not torch.Tensor or transposed.is_inference():
            return None
        return self.values._version - transposed._version

    def update_transpose(self):
        """Gives the transpose the values of the matrix, after these were changed alone.

        An element that the transpose has no position for becomes zero in both.
        """
        if not self.transposable:
            return
        self.version_lead = self._lead()  # gather_values asks for it
        dense = decompress(self)
        kept = [gather_values(dense, self, transpose) for transpose in (False, True)]
        self.values.copy_(kept[0])
        self.transposed_values.copy_(kept[1])
        self.version_lead = self._lead()

    @property
    def versioned(self):
        """The values, whose changes autograd counts. It counts none of traced tensors."""
        values, transposed = self.values, self.stored(True)[0]
        if type(values) is not torch.Tensor:
            return ()
        return (values,) if transposed is None else (values, transposed)

    @staticmethod
    def from_parts(values, metadata, k, pattern=None, *, turned=None, trusted=False, **options):
        """The tensor with these values and metadata of a matrix (N, k).

        Keyword arguments: turned, the values and metadata of the transpose; dense_gradient;
        requires_grad; trusted=True skips the check of the metadata, which waits for a GPU. Raises
        RuntimeError if dtypes or shapes do not belong together, or if the metadata are invalid:
        the results of tensor cores are undefined for positions that do not rise.
        """
        if not trusted:
            check_kinds(values, metadata, k, pattern, turned)
        pattern = default_pattern(values.dtype) if pattern is None else pattern
        for k_of_side, parts in ((k, (values, metadata)), (values.shape[0], turned)):
            if parts is not None:
                check_parts(*parts, k_of_side, pattern)
                if not trusted:
                    check_positions(parts[1], value_columns(k_of_side, pattern), pattern)
        if turned is not None:
            check_transpose(values, k, turned)
        if not trusted:
            values, metadata = _in_memory(values), _in_memory(metadata)
            turned = None if turned is None else tuple(map(_in_memory, turned))
        inner = _side(values, metadata, k, pattern, _STORED)
        if turned is not None:
            inner |= _side(*turned, values.shape[0], pattern, _TRANSPOSED)
        return SparseTensor24(inner, (values.shape[0], k), pattern, **options)

    @property
    def transposable(self):
        return self.transposed_values is not None

    def mask(self, dense, turned=True):
        """The elements of a dense tensor at the kept positions, as a SparseTensor24.

        Differentiable: a gradient comes back with zeros elsewhere, or, where dense_gradient is set
        here, as it is. `turned=False` leaves out the compressed transpose.
        """
        if not hasattr(dense, "__torch_function__"):  # what traces a call stands for a tensor
            raise wrong_type("SparseTensor24.mask", "dense", dense)
        return _OPS.mask24.default(dense, self, turned)

    def stored(self, transpose=False):
        """(values, metadata, tiles) of the stored matrix, or of its transpose."""
        if transpose and self.version_lead != self._lead():
            self.update_transpose()
        return tuple(getattr(self, name) for name in (_TRANSPOSED if transpose else _STORED))

    @property
    def stored_shape(self):
        return tuple(reversed(self.shape)) if self.transposed else tuple(self.shape)

    def inner(self, function=None, *, transpose=True):
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

    def like(self, inner, shape=None, **changes):
        """A SparseTensor24 with these tensors inside and the other attributes of this one."""
        options = {"transposed": self.transposed, "dense_gradient": self.dense_gradient}
        pattern = changes.pop("pattern", self.pattern)
        return SparseTensor24(inner, shape or self.shape, pattern, **(options | changes))

    def __repr__(self):
        gradient = ""
        if self.requires_grad:
            gradient = (
                ", requires_grad=True" if self.is_leaf else f", grad_fn={self.grad_fn.name()}"
            )
        text = (
            f"shape={tuple(self.shape)}, pattern='{self.pattern}', dtype={self.dtype}, "
            f"device='{self.device}', transposable={self.transposable}"
        )
        size = sum(each.nbytes for each in self.inner().values())
        transpose = ", transposed=True" if self.transposed else ""
        return f"SparseTensor24({text}{transpose}, nbytes={size}{gradient})"

    def __tensor_flatten__(self):
        return list(self.inner()), (self.pattern, self.transposed, self.dense_gradient)

    @staticmethod
    def __tensor_unflatten__(inner, context, outer_size, outer_stride):
        pattern, transposed, dense_gradient = context
        options = {"transposed": transposed, "dense_gradient": dense_gradient}
        return SparseTensor24(inner, outer_size, pattern, **options)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            memo[id(self)] = _as_parameter(copied, getattr(self, "_is_param", False))
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        transpose = self.stored(True)[:2] if self.transposable else None
        options = (self.transposed, bool(self.dense_gradient), self.requires_grad)
        parts = (*self.stored()[:2], self.stored_shape[1], self.pattern, transpose)
        parameter = getattr(self, "_is_param", False)
        return restored, (FORMAT_VERSION, *parts, *options, parameter)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        function = FUNCTIONS.get(func)
        if function is not None:
            return function(*args, **(kwargs or {}))
        with no_torch_function():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        function = TABLE.get(func)
        if function is not None:
            return function(*args, **(kwargs or {}))
        result = func.decompose(*args, **(kwargs or {}))
        if result is NotImplemented:
            raise NotImplementedError(
                f"tcgemm.SparseTensor24: {func} is not there for 2:4 sparse tensors; "
                f"{_mend(func.name())}."
            )
        return result


def _mend(operator):
    """The way out for an operator that is not there, by its name."""
    for kind in ("fused", "foreach"):
        if operator.startswith(f"aten::_{kind}_"):
            return f"pass {kind}=False to the optimizer or function that calls it"
    return "call it with to_dense() of the tensor"


def _as_parameter(tensor, is_parameter):
    if is_parameter:
        tensor._is_param = True
    return tensor


def _in_memory(tensor):
    """The tensor with its elements in memory, row by row: no negative bit, no ZeroTensor."""
    tensor = tensor.clone() if tensor._is_zerotensor() else tensor
    return tensor.contiguous().resolve_neg()


def _side(values, metadata, k, pattern, names):
    values, metadata = values.contiguous(), metadata.contiguous()
    tiles = _tile(values, metadata, k, pattern)
    return dict(zip(names, (values, metadata, tiles), strict=True))


def restored(
    version, values, metadata, k, pattern, transpose, transposed, dense_gradient, leaf, parameter
):
    """The inverse of __reduce_ex__, for pickle and torch.load. A file may hold anything."""
    check_version(version)
    flags = (transposed, dense_gradient, leaf, parameter)
    if not all(isinstance(each, bool) for each in flags):
        raise RuntimeError(
            f"tcgemm.SparseTensor24: what was saved is damaged: the flags "
            f"{', '.join(map(shown, flags))} are not all True or False; load another copy of the "
            "file."
        )
    options = {"turned": transpose, "dense_gradient": dense_gradient}
    tensor = SparseTensor24.from_parts(values, metadata, k, pattern, **options)
    tensor = tensor.t() if transposed else tensor
    if leaf and not tensor.is_floating_point():
        raise RuntimeError(
            f"tcgemm.SparseTensor24: what was saved is damaged: {tensor.dtype} needs a gradient, "
            "which only floating point numbers have; load another copy of the file."
        )
    return _as_parameter(tensor.detach().requires_grad_(leaf), parameter)


def decompress(w):
    """The dense matrix, without autograd."""
    values, metadata, _tiles = w.stored()
    dense = _OPS.decompress24.default(values, metadata, w.stored_shape[1], w.pattern)
    return dense.t() if w.transposed else dense


def _bits(tensor):
    """8-bit types as integers: torch has few operators of float8."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def keep(mask, dense):
    """The dense tensor where the mask is true, zero elsewhere, NaN or not."""
    bits = _bits(dense)
    kept = torch.where(mask, bits, bits.new_zeros(()))
    return kept if bits is dense else kept.view(dense.dtype)  # view(dtype) has no gradient


def gather(dense, metadata, pattern):
    """The elements of a dense matrix at the positions in the metadata."""
    if dense.dtype in DTYPES and pattern in ("2:4", default_pattern(dense.dtype)):
        return _OPS.gather24.default(dense, metadata, pattern)
    # The operator has no kernel for this dtype, which arithmetic may use.
    group = GROUPS[pattern]
    k = dense.shape[1]
    columns = value_columns(k, pattern)
    codes = torch.stack([(metadata >> shift) & 3 for shift in (0, 2, 4, 6)], -1).flatten(1)
    first = torch.arange(columns, device=dense.device) // (group // 2) * group
    index = codes[:, :columns] + first
    bits = torch.nn.functional.pad(_bits(dense), (0, -k % group))
    return bits.gather(1, index).view(dense.dtype)


def gather_values(dense, w, transpose):
    """The values that a dense matrix of w's shape gives to w, or to its compressed transpose.

    Groups with few elements may be padded with different zeros in the tensor and its transpose.
    These zeros stay zero, so that both store the same matrix.
    """
    dense = dense.t() if w.transposed is not transpose else dense
    sides = w.stored(transpose), w.stored(not transpose)
    if w.transposable:
        values, metadata, _tiles = sides[1]
        ones = torch.ones_like(values, dtype=torch.uint8)
        other = _OPS.decompress24.default(ones, metadata, dense.shape[0], w.pattern).t()
        dense = keep(other != 0, dense)
    return gather(dense, sides[0][1], w.pattern)


_library = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations
_library.define("to_dense24(Tensor w) -> Tensor")
_library.define("mask24(Tensor dense, Tensor w, bool turned=True) -> Tensor")


class _ToDense(SingleLevelFunction):
    @staticmethod
    def forward(ctx, w):
        ctx.save_for_backward(w)
        with below_autograd():
            return _OPS.to_dense24.default(w)

    @staticmethod
    def backward(ctx, gradient):
        (w,) = ctx.saved_tensors
        return gradient if w.dense_gradient else _OPS.mask24.default(gradient, w, False)


class _Mask(SingleLevelFunction):
    @staticmethod
    def forward(ctx, dense, w, transpose=True):
        ctx.save_for_backward(w)
        with below_autograd():
            return _OPS.mask24.default(dense, w, transpose)

    @staticmethod
    def backward(ctx, gradient):
        (w,) = ctx.saved_tensors
        if not isinstance(gradient, SparseTensor24):
            if w.dense_gradient:
                return gradient, None, None
            gradient = _OPS.mask24.default(gradient, w, False)
        return _OPS.to_dense24.default(gradient), None, None


def _autograd_kernel(function):
    def kernel(*arguments):
        with enable_single_level_autograd_function():
            return function.apply(*arguments)

    return kernel


def _refuse(*arguments):
    raise RuntimeError(
        "tcgemm.SparseTensor24: mask24 and to_dense24 take a SparseTensor24, but came "
        f"{type(arguments[-1]).__name__}; make one with tcgemm.compress24."
    )


for _name, _function in (("to_dense24", _ToDense), ("mask24", _Mask)):
    _library.impl(_name, _refuse, "CompositeExplicitAutograd")
    _library.impl(_name, _autograd_kernel(_function), "Autograd")
