"""Which operators a test runs."""

import collections

from torch.utils._python_dispatch import TorchDispatchMode

from tcgemm.ops.operators import CONSTANT_LINEAR, ConstantScaled
from tcgemm.sparse import fast_path


class Counter(TorchDispatchMode):
    """Counts the calls of tcgemm's operators by name; `others` has those of all other operators."""

    def __init__(self):
        super().__init__()
        self.calls = collections.Counter()
        self.others = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ours = func.namespace == "tcgemm"
        (self.calls if ours else self.others)[func._schema.name.split("::")[1]] += 1
        return func(*args, **(kwargs or {}))

    @property
    def count(self):
        return self.calls.total()


def early_calls(monkeypatch):
    """A list that gets the name of each operator that a layer calls with a constant weight. Sparse
    layers count if they are prepared after this."""
    called = []

    def count(holder, name, operator):
        function = getattr(holder, name)

        def call(*args, **kwargs):
            called.append(operator)
            return function(*args, **kwargs)

        monkeypatch.setattr(holder, name, call)

    count(CONSTANT_LINEAR, "kernel", "_constant_linear")
    count(ConstantScaled, "run", "_constant_scaled_mm")
    count(fast_path, "constant_scaled_mm", "_constant_scaled_mm")
    count(fast_path, "constant_linear24", "_constant_linear24")
    return called
