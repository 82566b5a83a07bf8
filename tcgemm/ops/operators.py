"""The operators in one form.

Dispatch, derivatives, batching rules and fakes see the same operands for every operator:

    a, b, c, bias, residual, epilogue

They see a product of matrices, a[..., M, K] @ b[..., K, N]: `lift` adds the row or column that a
1-D operand of matmul or linear lacks, and `lower` removes it from the result. Tensors without a
derivative (scales, zero points, terms of b) belong to the operator: `bind` returns an Operator for
one call, which holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from tcgemm.ops._torch_private import redispatch
from tcgemm.ops.epilogue import ADDENDS, DEFAULT, NO_SCALES, TENSORS, Epilogue, Scales

# a, b, c, bias, residual and the epilogue of a call
Operands = tuple[Any, ...]
Tensors = tuple[torch.Tensor | None, ...]


class Operator:
    """What the operators share.

    weight: b is stored transposed, as linear's (N, K). batched: a and b are batches of one size.
    any_dims: a and b are vectors, matrices or batches. adds_c: c is an argument, and required.
    """

    name: str
    default: Any  # the overload of torch.ops, and that with out=
    out: Any
    kernel: Any = None  # calls the kernel for given dispatch keys, past the dispatcher
    plain_kernel: Any = None  # the same with at most a bias beside a and b, if there is a short way
    with_z: Any = None  # the overload that also returns the argument of the activation
    weight: bool = False
    batched: bool = False
    any_dims: bool = False
    adds_c: bool = False
    operand_names: tuple[str, str] = ("a", "b")
    positional: tuple[str, ...] = ("a", "b", "bias", "residual")
    constants: tuple[torch.Tensor | None, ...] = ()  # tensors of one call without a derivative
    constant_names: tuple[str, ...] = ()
    amax: bool = False  # the result is (out, amax)
    per_byte: int = 1  # elements of K that share a byte of a and b
    terms_b: torch.Tensor | None = None  # the terms of a Prepared b
    kernel_name: str | None = None  # only kernels whose name contains this are considered
    keeps_sign: bool = True  # the result has the sign of relu's result

    def __init__(self, name: str, **kind: bool):
        packet = getattr(torch.ops.tcgemm, name)
        self.name = name
        self.default = packet.default
        self.kernel = redispatch(packet.default)
        self.out = getattr(packet, "out", None)
        self.with_z = getattr(packet, "with_z", None)
        vars(self).update(kind)
        if self.adds_c:
            self.positional = ("c", *self.positional)
        else:
            self.plain_kernel = self.kernel
        if self.weight:
            self.operand_names = ("x", "weight")

    def take_overloads(self, own: Operator) -> None:
        """Calls the overloads of another operator."""
        self.name, self.default, self.kernel = own.name, own.default, own.kernel
        self.out, self.with_z = own.out, own.with_z

    def tensors(self, a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Tensors:
        """The tensors of a call in the order of the operator's arguments."""
        return (c, a, b, bias, residual) if self.adds_c else (a, b, bias, residual)

    def keywords(self, epilogue: Epilogue) -> dict[str, Any]:
        """The operator's keyword arguments."""
        keywords = epilogue.keywords()
        if self.kernel_name is not None:
            keywords["kernel_name"] = self.kernel_name
        return keywords

    def call(self, overload: Any, *operands: Any, **out: torch.Tensor) -> Any:
        """Calls an overload of the operator with the common operands."""
        *tensors, epilogue = operands
        return overload(*self.tensors(*tensors), **self.keywords(epilogue), **out)

    def run(self, *operands: Any) -> Any:
        """The operator's result for the common operands."""
        *tensors, epilogue = operands
        return self.default(*self.tensors(*tensors), **self.keywords(epilogue))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Operator, Operands]:
        """(the Operator of this call, the common operands) from the arguments of the schema."""
        return self, self.operands(self.arguments(args, kwargs))

    @staticmethod
    def operands(arguments: Mapping[str, Any]) -> Operands:
        """The common operands from the arguments by name."""
        epilogue = Epilogue(*map(arguments.get, Epilogue._fields, DEFAULT))
        return *map(arguments.get, TENSORS), DEFAULT if epilogue == DEFAULT else epilogue

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name. The dispatcher drops those that have their default."""
        return dict(zip(self.positional, args, strict=False), **kwargs)

    def with_constants(self, constants: Sequence[torch.Tensor | None]) -> Self:
        """The same operator with these constants, which autograd saved for the backward."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), constants=constants)
        return other

    def before_activation(self) -> Operator:
        """The operator that computes the activation's argument: without residual and scale_out."""
        return self

    def grad_operands(
        self, a: Any, b: Any, precision: str | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, str | None]:
        """(a, b, precision) for the products of the derivatives; an operand may be None. Their
        operands are never prepared."""
        return a, b, None if precision == "prepared" else precision

    def apply_scales(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of a @ b from the gradient of the product with its scales."""
        return gradient

    def apply_scale_out(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient before scale_out from the gradient of the result."""
        return gradient

    def takes(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> bool:
        """Has each operand a number of dimensions that this function takes? scaled_mm checks only
        what all functions share."""
        if self.batched:
            return a.dim() == b.dim() == 3 and a.shape[0] == b.shape[0]
        if self.any_dims:
            return a.dim() >= 1 and b.dim() >= 1
        if self.weight:
            return a.dim() >= 1 and b.dim() == 2 and (bias is None or bias.dim() == 1)
        return a.dim() == b.dim() == 2 and (bias is None or bias.dim() <= 2)

    def matrix_a(self, a: torch.Tensor, dims: int) -> torch.Tensor:
        """a as matrices; `dims` counts the dimensions of the call, without vmap's in front."""
        return a.unsqueeze(-2) if dims == 1 else a

    def matrix_b(self, b: torch.Tensor, dims: int) -> torch.Tensor:
        """b as matrices (K, N)."""
        if self.weight:
            return b.mT
        return b.unsqueeze(-1) if dims == 1 else b

    def lift(self, result: torch.Tensor, a_dims: int, b_dims: int) -> torch.Tensor:
        """A tensor of the result's shape, with the row and the column of the matrix product."""
        if b_dims == 1:
            result = result.unsqueeze(-1)
        return result.unsqueeze(-2) if a_dims == 1 else result

    def lower(self, result: torch.Tensor, a_dims: int, b_dims: int) -> torch.Tensor:
        """The inverse of lift."""
        if a_dims == 1:
            result = result.squeeze(-2)
        return result.squeeze(-1) if b_dims == 1 else result


_SCALED = {False: Operator("scaled_mm"), True: Operator("scaled_mm_amax")}  # by the argument amax


class Scaled(Operator):
    """scaled_mm and scaled_mm_amax, for one call: scales and zero points are part of it.

    So are other forms of an operand. terms_b serves the forward, and the backward where it
    computes the activation's argument again; the gradients multiply b along its other dimension,
    which has no terms. With sparse_a (sparse_b), a (b) holds the values of a sparse operand, and
    tcgemm.SparseTensor24 has the derivatives.
    """

    positional: tuple[str, ...] = (
        *("a", "b", *Scales._fields[:2], *ADDENDS, *Scales._fields[2:]),
        *("terms_b", "sparse_a", "sparse_b"),
    )
    any_dims = True
    constant_names: tuple[str, ...] = Scales._fields
    keeps_sign: bool
    constants: Scales
    sparse_a: torch.Tensor | None
    sparse_b: torch.Tensor | None

    def __init__(
        self,
        scales: Scales = NO_SCALES,
        *,
        amax: bool = False,
        terms_b: torch.Tensor | None = None,
        sparse_a: torch.Tensor | None = None,
        sparse_b: torch.Tensor | None = None,
        kernel_name: str | None = None,
    ):
        self.take_overloads(_SCALED[amax])
        self.constants = scales  # pyright: ignore[reportIncompatibleVariableOverride]
        self.keeps_sign = scales.scale_out is None
        self.amax = amax
        self.terms_b = terms_b
        self.sparse_a, self.sparse_b = sparse_a, sparse_b
        self.kernel_name = kernel_name

    def tensors(self, a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Tensors:
        scale_a, scale_b, *others = self.constants
        tensors = (a, b, scale_a, scale_b, c, bias, residual, *others)
        if self.sparse:
            return (*tensors, self.terms_b, self.sparse_a, self.sparse_b)
        return tensors if self.terms_b is None else (*tensors, self.terms_b)

    @property
    def sparse(self) -> bool:
        """True if a or b has the values of a sparse operand."""
        return self.sparse_a is not None or self.sparse_b is not None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Scaled, Operands]:
        arguments = self.arguments(args, kwargs)
        scales = Scales(*map(arguments.get, Scales._fields))
        names = ("terms_b", "sparse_a", "sparse_b", "kernel_name")
        others = {name: arguments.get(name) for name in names}
        return Scaled(scales, amax=self.amax, **others), self.operands(arguments)

    def with_constants(self, constants: Sequence[torch.Tensor | None]) -> Self:
        return super().with_constants(Scales(*constants))

    def before_activation(self) -> Scaled:
        return Scaled(self.constants._replace(scale_out=None), terms_b=self.terms_b)

    def grad_operands(
        self, a: Any, b: Any, precision: str | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, str | None]:
        if self.sparse:
            raise RuntimeError(
                "tcgemm.scaled_mm: an operand is given by the values of a sparse matrix, whose "
                "derivatives the operator does not know; multiply a tcgemm.SparseTensor24."
            )
        return super().grad_operands(a, b, precision)

    def apply_scales(self, gradient: torch.Tensor) -> torch.Tensor:
        for scale in (self.constants.scale_a, self.constants.scale_b):
            gradient = times(gradient, scale)
        return gradient

    def apply_scale_out(self, gradient: torch.Tensor) -> torch.Tensor:
        return times(gradient, self.constants.scale_out)


def times(gradient: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """A gradient times a scale, in the wider dtype of both. Block scales do not come here: they
    belong to 8-bit operands, which have no gradient."""
    if scale is None:
        return gradient
    gradient = gradient.to(torch.promote_types(gradient.dtype, scale.dtype))
    return gradient * (scale.reshape(()) if scale.numel() == 1 else scale)


MM = Operator("mm")
BMM = Operator("bmm", batched=True)
MATMUL = Operator("matmul", any_dims=True)
ADDMM = Operator("addmm", adds_c=True)
BADDBMM = Operator("baddbmm", batched=True, adds_c=True)
LINEAR = Operator("linear", weight=True)
SCALED = Scaled()
SCALED_AMAX = Scaled(amax=True)

PLAIN = (MM, BMM, MATMUL, ADDMM, BADDBMM, LINEAR)
ALL = (*PLAIN, SCALED, SCALED_AMAX)
ADDS_C = tuple(op.name for op in PLAIN if op.adds_c)
WITH_Z = tuple(op for op in ALL if op.with_z is not None)
