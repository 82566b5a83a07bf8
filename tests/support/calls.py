"""Which operators a test runs."""

import collections

from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """`rows` has what `note` says of each operator that runs: a list. By default its name."""

    def __init__(self, note=lambda func, args, kwargs: [str(func)]):
        super().__init__()
        self.note, self.rows = note, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.rows += self.note(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class Counter(Recorder):
    """Counts the calls of tcgemm's operators by name; `others` counts all other operators."""

    def __init__(self):
        super().__init__(self.count_call)
        self.calls = collections.Counter()
        self.others = collections.Counter()

    def count_call(self, func, args, kwargs):
        is_tcgemm = func.namespace == "tcgemm"
        (self.calls if is_tcgemm else self.others)[func._opname] += 1
        return []

    @property
    def count(self):
        return self.calls.total()
