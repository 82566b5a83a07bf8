"""Refused memory: the error of an operator as the one that torch raises.

The operators raise RuntimeError, since the library knows no Python. Its text begins with torch's
message. Eager calls raise torch.OutOfMemoryError in its place where CUDA memory was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

_CUDA = "CUDA out of memory."
_CPU = "DefaultCPUAllocator: can't allocate memory"
_compiling = torch.compiler.is_compiling


def refused(error: BaseException) -> RuntimeError | None:
    """The error to raise for one that says that memory was refused; None for any other error."""
    if isinstance(error, torch.OutOfMemoryError):
        return error
    text = str(error)
    if text.startswith(_CUDA):
        return torch.OutOfMemoryError(text)
    return error if isinstance(error, RuntimeError) and _CPU in text else None


def raise_typed(error: RuntimeError) -> NoReturn:
    """Raises an error of an operator: as torch's if memory was refused, else as it is."""
    other = refused(error)
    if other is None or other is error:
        raise error
    raise other from None


def eager(op: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls an operator and raises torch's error for refused memory."""

    def call(*arguments: Any, **options: Any) -> Any:
        if _compiling():
            return op(*arguments, **options)
        try:
            return op(*arguments, **options)
        except RuntimeError as error:
            raise_typed(error)

    return call
