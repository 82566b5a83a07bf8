"""DTensor, which only its users pay for: to import it takes 0.9 s.

The sharding rules of the products (sharding.py) are registered when somebody imports
torch.distributed.tensor: without it there is no DTensor. An entry of sys.meta_path waits for that
import, and goes when it comes.
"""

import importlib
import sys
from importlib.machinery import PathFinder

_NAME = "torch.distributed.tensor"
_RULES = "tcgemm.ops.sharding"


class _Finder:
    """Finds torch.distributed.tensor as Python does, and registers the rules after it has run."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != _NAME or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                importlib.import_module(_RULES)

            spec.loader.exec_module = exec_module
        return spec


def is_dtensor(value) -> bool:
    module = sys.modules.get(_NAME)
    return module is not None and isinstance(value, module.DTensor)


def joins_rows(tensor) -> bool:
    """Can the dimensions before the last one be viewed as one? Those of a DTensor that is sharded
    along the second or a later one of them cannot."""
    if not is_dtensor(tensor):
        return True
    return not any(0 < getattr(each, "dim", 0) < tensor.dim() - 1 for each in tensor.placements)


def full_tensor(tensor):
    """The whole of a DTensor, which every rank has to ask for; other tensors as they are."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor


def register():
    """Registers the sharding rules, now or when torch.distributed.tensor is imported."""
    if _NAME in sys.modules:
        importlib.import_module(_RULES)
    else:
        sys.meta_path.insert(0, _Finder)


register()
