"""Operands of products that are no plain tensors: how each kind enters a product.

    products           the class of an operand -> the function that multiplies it
    Operand            the base of classes that are no tensors
    TensorOperand      the base of classes that are tensors
    torch_functions    torch's products -> tcgemm's, for both bases; functional.py fills it

dispatch.gemm looks for a function in `products` where an operand is no plain tensor, and calls it
with its own arguments. NotImplemented as its result means that torch dispatches the call. The
function of another kind, and the class, can stand in one module.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from tcgemm.ops._torch_private import no_torch_function
from tcgemm.ops.arguments import refusal
from tcgemm.ops.epilogue import DESCRIBED, NO_SCALES, Epilogue
from tcgemm.ops.operator_table import Function, Register, registers_in
from tcgemm.ops.operators import ALL, Scaled

_OPS = torch.ops.tcgemm
products: dict[type, Function] = {}
torch_functions: dict[Any, Function] = {}
replaces_torch: Register = registers_in(torch_functions)


class Operand:
    """An operand that is no tensor: the weight of linear, and by its t() the b of other products.

    torch.matmul, torch.nn.functional.linear and their like call tcgemm's functions for it.
    """

    mend: ClassVar[str]  # what to pass where no such operand is taken, of the name of an argument

    def described(self, name: str, a: Any, epilogue: Epilogue) -> tuple[Tensor, dict[str, Any]]:
        """What the operator `name`, explain or check_layout, gets: b, and keyword arguments."""
        raise NotImplementedError

    def t(self) -> Self:
        """The transpose, which shares all tensors."""
        raise NotImplementedError

    @property
    def T(self) -> Self:
        """The same as t()."""
        return self.t()

    @property
    def mT(self) -> Self:
        """The same as t()."""
        return self.t()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        function = torch_functions.get(func)
        if getattr(func, "__module__", "").startswith("tcgemm"):
            function = func
        if function is None:
            name = getattr(func, "__name__", str(func))
            raise TypeError(
                f"tcgemm: torch's {name} takes no {cls.__name__}; call the products of tcgemm or "
                f"of torch with it, or pass {cls.mend.format('the argument')}."
            )
        with no_torch_function():
            return function(*args, **(kwargs or {}))


class TensorOperand(torch.Tensor):
    """A wrapper subclass whose operators are functions of the tensors inside, in a table."""

    TABLE: ClassVar[dict[Any, Function]] = {}  # by operator, for __torch_dispatch__
    FUNCTIONS: ClassVar[dict[Any, Function]] = {}  # the same for __torch_function__

    def __init_subclass__(cls) -> None:
        cls.TABLE, cls.FUNCTIONS = {**cls.TABLE}, {**cls.FUNCTIONS}

    @classmethod
    def unsupported(cls, func: Any) -> NotImplementedError:
        """The error for an operator that is not in the table and does not decompose."""
        raise NotImplementedError

    @classmethod
    def instead(cls, argument: str) -> str:
        """What to pass as an argument that can be no such tensor."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        function = cls.FUNCTIONS.get(func) or torch_functions.get(func)
        if function is not None:
            return function(*args, **(kwargs or {}))
        with no_torch_function():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        function = cls.TABLE.get(func)
        if function is not None:
            return function(*args, **(kwargs or {}))
        return cls.otherwise(func, args, kwargs or {})

    @classmethod
    def otherwise(cls, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator that is not in the table."""
        result = func.decompose(*args, **kwargs)
        if result is NotImplemented:
            raise cls.unsupported(func)
        return result


def deep_copy(self: Tensor, memo: dict[int, Any]) -> Any:
    """__deepcopy__ of classes that implement clone()."""
    if id(self) not in memo:
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = as_parameter(copied, getattr(self, "_is_param", False))
    return memo[id(self)]


def as_parameter(tensor: Tensor, is_parameter: bool) -> Any:
    """The tensor, which is an nn.Parameter if the flag is true."""
    if is_parameter:
        tensor._is_param = True
    return tensor


def register_products(
    kind: type[TensorOperand],
    check: Function,
    stored: Function,
    operators: tuple[Any, Any] = (_OPS.scaled_mm, _OPS.scaled_mm_amax),
) -> None:
    """Puts the products, explain and check_layout of a kind of tensors into its table.

    check(op, a, b, others) raises the error for tensors that do not fit each other or the function
    of `op`; others are the addends, scales and out by name.
    stored(name, operand_names, a, b, epilogue) is (a, b, keywords, epilogue): the tensors inside of
    matrices or of batches of them, and what the operators get besides. `name` is the function.
    operators: scaled_mm and scaled_mm_amax of these tensors.
    """
    for op in ALL:
        function = functools.partial(_product, kind, op, check, stored, operators)
        kind.TABLE[op.default] = function
        if op.out is not None:
            kind.TABLE[op.out] = function
    for name in ("explain", "check_layout"):
        operator = getattr(_OPS, name).default
        kind.TABLE[operator] = functools.partial(_described, kind, operator, name, stored)


def refuse_others(kind: type[TensorOperand], name: str, tensors: Mapping[str, Any]) -> None:
    """Raises RuntimeError if one of these arguments, which are no operands, is of this kind."""
    for argument, tensor in tensors.items():
        if isinstance(tensor, kind):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise RuntimeError(
                f"tcgemm.{name}: {argument} is {article} {kind.__name__}, but only the operands of "
                f"the product can be; pass {kind.instead(argument)}."
            )


def _product(kind, op, check, stored, operators, *args, out=None, **kwargs):
    """An operator: its operands become matrices, and the product gets the dimensions back."""
    call, (a, b, c, bias, residual, epilogue) = op.bind(args, kwargs)
    others = {"c": c, "bias": bias, "residual": residual, "out": out}
    others |= zip(call.constant_names, call.constants, strict=True)
    refuse_others(kind, op.name, others)
    check(op, a, b, others)
    dims = a.dim(), b.dim()
    a, b = op.matrix_a(a, dims[0]), op.matrix_b(b, dims[1])
    if residual is not None and residual.dim() > 0:
        residual = op.lift(residual, *dims)
    a, b, forms, epilogue = stored(op.name, op.operand_names, a, b, epilogue)
    tensors = Scaled(call.constants or NO_SCALES).tensors(a, b, c, bias, residual)
    keywords = call.keywords(epilogue) | forms
    operator = operators[call.amax]
    try:
        if out is not None:
            return operator.out(*tensors, **keywords, out=op.lift(out, *dims))
        result = operator.default(*tensors, **keywords)
    except RuntimeError as error:  # it does not name the called function
        raise (refusal(op.name, error, epilogue) or error) from None
    return (op.lower(result[0], *dims), result[1]) if call.amax else op.lower(result, *dims)


def _described(
    kind, operator, name, stored, a, b, *others, out_dtype=None, precision=None, **options
):
    """explain or check_layout."""
    refuse_others(kind, name, dict(zip(DESCRIBED, others, strict=False)) | options)
    epilogue = Epilogue(out_dtype=out_dtype, precision=precision)
    a, b, forms, epilogue = stored(name, ("a", "b"), a, b, epilogue)
    forms |= {"out_dtype": epilogue.out_dtype, "precision": epilogue.precision}
    return operator(a, b, *others, **options, **forms)
