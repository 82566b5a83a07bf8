"""Gives inductor the pass of fold.py while a tcgemm.use is active.

Importing inductor takes two seconds, so this module does not. If inductor is not there yet, the
pass waits until torch.compile imports its settings.
"""

import importlib
from typing import Any

from tcgemm.ops._torch_private import INDUCTOR_CONFIG
from tcgemm.ops.after_import import after_import, cancel

_OPTION = "post_grad_custom_pre_pass"
_PASS = "tcgemm.override.fold"  # imports parts of torch that `import torch` does not


class _State:
    config: Any = None  # inductor's settings, while they hold our pass
    own: Any = None  # our pass, which knows the one that they held before


def _set(config: Any) -> None:
    fold = importlib.import_module(_PASS)
    _State.config, _State.own = config, fold.FoldPass(getattr(config, _OPTION))
    setattr(config, _OPTION, _State.own)


def install() -> None:
    """Sets the pass, now or as soon as inductor is there."""
    after_import(INDUCTOR_CONFIG, _set)


def remove() -> None:
    """Takes the pass back, unless somebody else has set another one since."""
    cancel(INDUCTOR_CONFIG, _set)
    config = _State.config
    if config is not None and getattr(config, _OPTION) is _State.own:
        setattr(config, _OPTION, _State.own.before)
    _State.config = _State.own = None
