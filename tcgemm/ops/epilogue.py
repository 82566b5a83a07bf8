"""The epilogue of one call: what happens to a @ b besides the product itself.

    value = act(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
            + residual
    out = value * scale_out, rounded to out_dtype

Its terms are in three groups, and every list of them is derived from these tables:

    ADDENDS     tensors with a derivative; they are passed beside a and b
    Scales      tensors without a derivative
    Epilogue    options that are no tensors
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tcgemm import dtypes

ADDENDS = ("c", "bias", "residual")
TENSORS = ("a", "b", *ADDENDS)
# The tensors of the operators explain and check_layout after a and b, in the order of their schema.
DESCRIBED = ("bias", "residual", "scale_a", "scale_b", "c", "zero_a", "zero_b", "scale_out")


class Scales(NamedTuple):
    """The tensors of a call that have no derivative."""

    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    zero_a: torch.Tensor | None = None
    zero_b: torch.Tensor | None = None
    scale_out: torch.Tensor | None = None

    def keywords(self) -> dict[str, torch.Tensor]:
        """The tensors that there are, by name."""
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}


class Epilogue(NamedTuple):
    """The options of a call that are no tensors."""

    activation: str | None = None
    alpha: float = 1.0
    beta: float = 1.0
    out_dtype: torch.dtype | None = None
    acc_dtype: torch.dtype | None = None
    precision: str | None = None
    batch_invariant: bool = False
    constant_b: bool = False  # no kernel that may still run writes b; only layers say so
    one_slice: bool = False  # a batch-invariant product has one slice of k

    def of_gradient(self, out_dtype: torch.dtype | None, sums_rows: bool) -> Epilogue:
        """The options of a product in the derivatives: alpha, precision and batch_invariant.

        sums_rows: its k are the rows of the first operand. With batch_invariant it has one slice,
        so that rows of zeros after the last do not change it.
        """
        if self is DEFAULT and out_dtype is None:
            return self
        precision, invariant = self.precision, self.batch_invariant
        one_slice = invariant and sums_rows
        fields = (None, self.alpha, 1.0, out_dtype, None, precision, invariant, False, one_slice)
        return DEFAULT if fields == DEFAULT else _new(Epilogue, fields)

    def with_precision(self, precision: str | None) -> Epilogue:
        """The same options with another precision."""
        if self.precision is precision:
            return self
        return _new(Epilogue, (*self[:5], precision, *self[6:]))

    def keywords(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name: every keyword costs host time."""
        activation, alpha, beta, out_dtype, acc_dtype, precision, *flags = self
        batch_invariant, constant_b, one_slice = flags
        keywords: dict[str, Any] = {}
        if activation is not None:
            keywords["activation"] = activation
        if alpha != 1.0:
            keywords["alpha"] = alpha
        if beta != 1.0:
            keywords["beta"] = beta
        if out_dtype is not None:
            keywords["out_dtype"] = out_dtype
        if acc_dtype is not None:
            keywords["acc_dtype"] = acc_dtype
        if precision is not None:
            keywords["precision"] = precision
        if batch_invariant is not False:
            keywords["batch_invariant"] = batch_invariant
        if constant_b:
            keywords["constant_b"] = True
        if one_slice:
            keywords["one_slice"] = True
        return keywords


DEFAULT = Epilogue()
NO_SCALES = Scales()
_new = tuple.__new__  # Epilogue(...) takes 0.2 us


def shared(epilogue: Epilogue) -> Epilogue:
    """The same options. All calls with the default options share one object.

    A name of a dtype becomes the dtype; another word stays, and the operator refuses it.
    """
    if epilogue == DEFAULT:
        return DEFAULT
    if type(epilogue.out_dtype) is str or type(epilogue.acc_dtype) is str:
        out_dtype, acc_dtype = dtypes.named(epilogue.out_dtype), dtypes.named(epilogue.acc_dtype)
        return epilogue._replace(out_dtype=out_dtype, acc_dtype=acc_dtype)
    return epilogue
