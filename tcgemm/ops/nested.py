"""linear of jagged NestedTensors: one product of all rows, as torch.nn.functional.linear has it.

x (B, j, K)  its values (rows, K) --> linear --> values (rows, N) --> (B, j, N)
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tcgemm.ops._torch_private import NestedTensor, known_lengths, ragged_dim
from tcgemm.ops.operands import products
from tcgemm.ops.operators import LINEAR


def _refuse(name, argument, what, mend):
    raise RuntimeError(f"tcgemm.{name}: {argument} {what}, but x is a jagged NestedTensor; {mend}.")


def _rows_of(name, argument, tensor, x):
    """The tensor for all rows of x: the values of one with the same lengths, or one row."""
    ragged = ragged_dim(x)
    if isinstance(tensor, NestedTensor):
        if tensor.dim() != x.dim() or tensor.shape[ragged] != x.shape[ragged]:
            _refuse(name, argument, "has other lengths", "pass one made from x's offsets")
        return tensor.values()
    if isinstance(tensor, torch.Tensor) and tensor.dim() > 1 and tensor.numel() > 1:
        shape = tuple(tensor.shape)
        _refuse(name, argument, f"is dense, of shape {shape}", "pass a NestedTensor, or a vector")
    return tensor


def linear(
    function: Callable[..., Any],
    name: str,
    x: torch.Tensor,
    weight: Any,
    bias: torch.Tensor | None,
    *,
    rows: Iterable[str] = (),
    **options: Any,
) -> Any:
    """function(x.values(), weight, bias, **options) for a jagged x, as a NestedTensor.

    rows: the options that vary along the rows of x.
    """
    if ragged_dim(x) == x.dim() - 1:
        raise RuntimeError(
            f"tcgemm.{name}: the ragged dimension of x is its last, along which a product sums; "
            "pass x.transpose(...) with the features last."
        )
    for argument in rows:
        options[argument] = _rows_of(name, argument, options[argument], x)
    result = function(x.values(), weight, bias, **options)
    if isinstance(result, tuple):  # with amax
        return _like(x, result[0]), result[1]
    return _like(x, result)


def _like(x, values):
    shortest, longest = known_lengths(x)
    return torch.nested.nested_tensor_from_jagged(
        values, x.offsets(), x.lengths(), ragged_dim(x), shortest, longest
    )


def _multiply(function, op, a, b, c, bias, residual, out, epilogue, scales, amax):
    """The product of a jagged x, if it is linear."""
    if op is not LINEAR or out is not None or not isinstance(a, NestedTensor):
        return NotImplemented
    options = op.keywords(epilogue) | scales.keywords() | {"residual": residual}
    if amax is not False:
        options["amax"] = amax
    rows = [name for name in ("residual", "scale_a", "zero_a") if name in options]
    return linear(function, op.name, a, b, bias, rows=rows, **options)


products[NestedTensor] = _multiply
