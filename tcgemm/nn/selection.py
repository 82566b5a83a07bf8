"""The arguments filter_fn and skip of swap_linear: a callable, names, or glob patterns."""

import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import torch

Selection = Callable[[torch.nn.Module, str], bool] | str | Iterable[str]


_REASONS = {  # of a function, of patterns
    "filter_fn": ("filter_fn said no", "filter_fn does not name it"),
    "skip": ("skip said yes", "skip names it"),
}


class Selector:
    """One of the arguments; `names` are those of all layers, for patterns that match none."""

    def __init__(self, argument: str, given: Selection, names: list[str]):
        self.argument, self.given, self.patterns = argument, given, None
        if isinstance(given, str):
            self.patterns = (given,)
        elif isinstance(given, (torch.nn.Module, type)):
            raise RuntimeError(_expected(argument, given))
        elif callable(given):
            _check_signature(argument, given)
        elif isinstance(given, Iterable):
            self.patterns = tuple(given)
        if self.patterns is None and not callable(given):
            raise RuntimeError(_expected(argument, given))
        for pattern in self.patterns or ():
            if not isinstance(pattern, str):
                raise RuntimeError(_expected(argument, given))
            if not any(_matches(pattern, name) for name in names):
                raise RuntimeError(_unmatched(argument, pattern, names))

    def why_not(self, module: torch.nn.Module, name: str) -> str | None:
        """The reason where the argument says that the module stays."""
        selected = self._selects(module, name)
        if selected is (self.argument == "filter_fn"):
            return None
        return _REASONS[self.argument][self.patterns is not None]

    def _selects(self, module, name) -> bool:
        if self.patterns is not None:
            return any(_matches(pattern, name) for pattern in self.patterns)
        try:
            return bool(self.given(module, name))
        except AttributeError as error:
            raise RuntimeError(
                f"tcgemm.swap_linear: {self.argument} failed for {name!r}, a "
                f"{type(module).__name__}: {error}. It is called for attention modules and "
                "transformers' Conv1D as well as for linear layers; write "
                'getattr(module, "out_features", 0), or tell them apart by isinstance or name.'
            ) from error


def _matches(pattern: str, name: str) -> bool:
    """Does the pattern match the module's name, or that of a module around it?"""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))


def _check_signature(argument: str, function: Callable) -> None:
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


def _expected(argument: str, given: object) -> str:
    hint = ""
    if isinstance(given, type) and issubclass(given, torch.nn.Module):
        hint = f", or to={given.__name__} if layers of that class are wanted"
    return (
        f"tcgemm.swap_linear: {argument} is {given!r}, but it is a function of (module, name), a "
        f'name or a glob pattern such as "*.mlp.*", or a list of these; pass one of them{hint}.'
    )


def _unmatched(argument: str, pattern: str, names: list[str]) -> str:
    some = ", ".join(repr(name) for name in names[:6]) + (", ..." if names[6:] else "")
    return (
        f"tcgemm.swap_linear: {argument} has {pattern!r}, but no layer has that name, and no "
        f"module around one; the layers are {some or 'none'}. Patterns match whole names: '*' "
        "stands for any part."
    )
