"""Which operators a test runs."""

import collections

from torch.utils._python_dispatch import TorchDispatchMode


class Counter(TorchDispatchMode):
    """Counts the calls of tcgemm's operators by name; `others` counts all other operators."""

    def __init__(self):
        super().__init__()
        self.calls = collections.Counter()
        self.others = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        is_tcgemm = func.namespace == "tcgemm"
        (self.calls if is_tcgemm else self.others)[func._schema.name.split("::")[1]] += 1
        return func(*args, **(kwargs or {}))

    @property
    def count(self):
        return self.calls.total()
