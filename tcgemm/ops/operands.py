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
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tcgemm.ops._torch_private import no_torch_function
from tcgemm.ops.operator_table import Function, Register, registers_in
from tcgemm.ops.operators import ALL, Scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tcgemm.ops.epilogue import Epilogue

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

    @classmethod
    def unsupported(cls, func: Any) -> NotImplementedError:
        """The error for an operator that is not in the table and does not decompose."""
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


def register_products(
    kind: type[TensorOperand], check: Function, multiply: Function, describe: Function
) -> None:
    """Puts the products, explain and check_layout of a kind of tensors into its table.

    check(op, a, b, others) raises the error for tensors that do not fit each other or the function
    of `op`; others are the addends, scales and out by name.
    multiply(op, call, out, a, b, c, bias, residual, epilogue) is the product of matrices, or of
    batches of them, by the Scaled `call`.
    describe(name, a, b, *others, **options) is the operator explain or check_layout.
    """
    for op in ALL:
        function = functools.partial(_product, op, check, multiply)
        kind.TABLE[op.default] = function
        if op.out is not None:
            kind.TABLE[op.out] = function
    for name in ("explain", "check_layout"):
        operator = getattr(torch.ops.tcgemm, name).default
        kind.TABLE[operator] = functools.partial(describe, name)


def _product(op, check, multiply, *args, out=None, **kwargs):
    """An operator: its operands become matrices, and the product gets the dimensions back."""
    call, (a, b, c, bias, residual, epilogue) = op.bind(args, kwargs)
    others = {"c": c, "bias": bias, "residual": residual, "out": out}
    check(op, a, b, others | dict(zip(call.constant_names, call.constants, strict=True)))
    dims = a.dim(), b.dim()
    a, b = op.matrix_a(a, dims[0]), op.matrix_b(b, dims[1])
    if residual is not None and residual.dim() > 0:
        residual = op.lift(residual, *dims)
    call = call if isinstance(call, Scaled) else Scaled()
    view = None if out is None else op.lift(out, *dims)
    result = multiply(op, call, view, a, b, c, bias, residual, epilogue)
    if out is not None:
        return result
    return (op.lower(result[0], *dims), result[1]) if call.amax else op.lower(result, *dims)
