"""Tables of functions by operator, in which tensor subclasses look up what torch calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
Register = Callable[..., Callable[[Function], Function]]  # operators -> a decorator


def registers_in(table: dict[Any, Function]) -> Register:
    """The decorator of functions for `table`; its arguments are the operators of the function."""

    def implements(*operators: Any) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            table.update(dict.fromkeys(operators, function))
            return function

        return register

    return implements
