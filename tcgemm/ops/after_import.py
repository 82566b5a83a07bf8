"""Runs a function once a module has been imported, by whoever imports it.

Some registrations belong to modules of torch whose import takes long: torch.utils.flop_counter
imports triton, which takes 60 ms, torch.distributed.tensor takes 0.9 s, inductor two seconds.
`import tcgemm` leaves them alone and registers when the user imports them.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Finder(MetaPathFinder):
    """Finds a module by the other finders, and calls functions once it has been executed."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.functions: list[Callable[[ModuleType], None]] = []
        self.asking = False  # the other finders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.module or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                for function in self.functions:
                    function(module)

            spec.loader.exec_module = exec_module
        return spec


def _waiting(name: str) -> _Finder | None:
    """The finder that waits for this module, or None."""
    finders = (finder for finder in sys.meta_path if isinstance(finder, _Finder))
    return next((finder for finder in finders if finder.module == name), None)


def after_import(name: str, function: Callable[[ModuleType], None]) -> None:
    """Calls the function with the module of this name: now if it is imported, else when it is."""
    if name in sys.modules:
        function(sys.modules[name])
        return
    finder = _waiting(name)
    if finder is None:
        finder = _Finder(name)
        sys.meta_path.insert(0, finder)
    finder.functions.append(function)


def cancel(name: str, function: Callable[[ModuleType], None]) -> None:
    """Takes a call of after_import back, if the module has not been imported since."""
    finder = _waiting(name)
    if finder is None or function not in finder.functions:
        return
    finder.functions.remove(function)
    if not finder.functions:
        sys.meta_path.remove(finder)
