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


class Scales(NamedTuple):
    """The tensors of a call that have no derivative."""

    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    zero_a: torch.Tensor | None = None
    zero_b: torch.Tensor | None = None
    scale_out: torch.Tensor | None = None


class Epilogue(NamedTuple):
    """The options of a call that are no tensors."""

    activation: str | None = None
    alpha: float = 1.0
    beta: float = 1.0
    out_dtype: torch.dtype | None = None
    acc_dtype: torch.dtype | None = None
    precision: str | None = None
    batch_invariant: bool = False

    def with_precision(self, precision: str | None) -> Epilogue:
        """The same options with another precision."""
        if self.precision is precision:
            return self
        return _new(Epilogue, (*self[:5], precision, self.batch_invariant))

    def keywords(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name: every keyword costs host time."""
        return {
            name: value
            for name, value, default in zip(self._fields, self, DEFAULT, strict=True)
            if value != default
        }


DEFAULT = Epilogue()
NO_SCALES = Scales()
_new = tuple.__new__  # Epilogue(...) calls Python code, which takes 0.2 us


def epilogue_of(
    activation: str | None,
    alpha: float,
    beta: float,
    out_dtype: torch.dtype | str | None,
    acc_dtype: torch.dtype | str | None,
    precision: str | None,
    batch_invariant: bool = False,
) -> Epilogue:
    """The Epilogue with these options. All calls with the default options share one object.

    A name of a dtype becomes the dtype; another word stays, and the operator refuses it.
    """
    if (
        activation is out_dtype is acc_dtype is precision is None
        and alpha == beta == 1.0
        and batch_invariant is False
    ):
        return DEFAULT
    if type(out_dtype) is str:
        out_dtype = dtypes.named(out_dtype)
    if type(acc_dtype) is str:
        acc_dtype = dtypes.named(acc_dtype)
    options = (activation, alpha, beta, out_dtype, acc_dtype, precision, batch_invariant)
    return _new(Epilogue, options)
