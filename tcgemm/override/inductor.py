"""Gives inductor the pass of fold.py while a tcgemm.use is active.

Importing inductor takes two seconds, so this module does not. If inductor is not there yet, a
finder on sys.meta_path waits until torch.compile imports its settings.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from typing import Any

from tcgemm.ops._torch_private import INDUCTOR_CONFIG

_OPTION = "post_grad_custom_pre_pass"
_PASS = "tcgemm.override.fold"  # imports parts of torch that `import torch` does not


class _Watch(importlib.abc.MetaPathFinder):
    """Calls install() once the settings of inductor are imported."""

    _searching = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != INDUCTOR_CONFIG or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _set(module)

            spec.loader.exec_module = exec_module
        return spec


class _State:
    watch: _Watch | None = None
    config: Any = None  # inductor's settings, while they hold our pass
    before: Any = None  # the pass that they held before
    own: Any = None


def _set(config: Any) -> None:
    fold = importlib.import_module(_PASS)
    _State.config, _State.before = config, getattr(config, _OPTION)
    _State.own = fold.new_pass(_State.before)
    setattr(config, _OPTION, _State.own)


def install() -> None:
    """Sets the pass, now or as soon as inductor is there."""
    config = sys.modules.get(INDUCTOR_CONFIG)
    if config is not None:
        _set(config)
        return
    _State.watch = _Watch()
    sys.meta_path.insert(0, _State.watch)


def remove() -> None:
    """Takes the pass back, unless somebody else has set another one since."""
    if _State.watch in sys.meta_path:
        sys.meta_path.remove(_State.watch)
    config = _State.config
    if config is not None and getattr(config, _OPTION) is _State.own:
        setattr(config, _OPTION, _State.before)
    _State.watch = _State.config = _State.before = _State.own = None
