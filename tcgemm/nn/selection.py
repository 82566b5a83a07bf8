"""The arguments filter_fn and skip of swap_linear: a callable, names, or glob patterns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import torch

Selection = Callable[[torch.nn.Module, str], bool] | str | Iterable[str]

_REASONS = {  # the reasons of a function, and of patterns
    "filter_fn": ("filter_fn is false for it", "filter_fn does not name it"),
    "skip": ("skip is true for it", "skip names it"),
}


class Selector:
    """One of the arguments. `names` has the names of all layers, for the error about a pattern that
    matches none."""

    argument: str
    function: Callable[[torch.nn.Module, str], object] | None  # None: there are patterns
    patterns: tuple[str, ...]

    def __init__(self, argument: str, selection: Selection, names: list[str]) -> None:
        self.argument, self.function, self.patterns = argument, None, ()
        if isinstance(selection, str):
            self.patterns = (selection,)
        elif isinstance(selection, (torch.nn.Module, type)):
            raise RuntimeError(_expected(argument, selection))
        elif callable(selection):
            _check_signature(argument, selection)
            self.function = selection
        elif isinstance(selection, Iterable):
            self.patterns = tuple(selection)
        else:
            raise RuntimeError(_expected(argument, selection))
        for pattern in self.patterns:
            if not isinstance(pattern, str):
                raise RuntimeError(_expected(argument, selection))
            if not any(_matches(pattern, name) for name in names):
                raise RuntimeError(_unmatched(argument, pattern, names))

    def why_not(self, module: torch.nn.Module, name: str) -> str | None:
        """The reason if the argument excludes the module, else None."""
        selected = self._selects(module, name)
        if selected is (self.argument == "filter_fn"):
            return None
        return _REASONS[self.argument][self.function is None]

    def _selects(self, module: torch.nn.Module, name: str) -> bool:
        if self.function is None:
            return any(_matches(pattern, name) for pattern in self.patterns)
        try:
            return bool(self.function(module, name))
        except AttributeError as error:
            raise RuntimeError(
                f"tcgemm.swap_linear: {self.argument} failed for {name!r}, a "
                f"{type(module).__name__}: {error}. It is called for attention modules and "
                "transformers' Conv1D as well as for linear layers; write "
                'getattr(module, "out_features", 0), or check the class or the name first.'
            ) from error


def _matches(pattern: str, name: str) -> bool:
    """Does the pattern match the name of the module, or of a module that contains it?"""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))


def _check_signature(argument: str, function: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins have none
        return
    try:
        signature.bind(None, "")
    except TypeError as error:
        raise RuntimeError(
            f"tcgemm.swap_linear: {argument} is called with (module, name), but takes "
            f"{signature}: {error}; write it as lambda module, name: ..."
        ) from error


def _expected(argument: str, value: object) -> str:
    hint = ""
    if isinstance(value, type) and issubclass(value, torch.nn.Module):
        hint = f", or to={value.__name__} if layers of that class are wanted"
    return (
        f"tcgemm.swap_linear: {argument} is {value!r}, but it must be a function of (module, "
        f'name), a name, a glob pattern such as "*.mlp.*", or a list of names and patterns; pass '
        f"one of these{hint}."
    )


def _unmatched(argument: str, pattern: str, names: list[str]) -> str:
    some = ", ".join(repr(name) for name in names[:6]) + (", ..." if names[6:] else "")
    return (
        f"tcgemm.swap_linear: {argument} has {pattern!r}, but no layer has that name, and no "
        f"module that contains one; the layers are {some or 'none'}. Patterns match whole names: "
        "'*' stands for any text."
    )
