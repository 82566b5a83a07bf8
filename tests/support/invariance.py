"""Which products of a call are batch-invariant, in eager mode and in compiled graphs."""

import torch
from torch._functorch.aot_autograd import make_boxed_func
from torch.utils._python_dispatch import TorchDispatchMode


def is_product(target):
    """Is it an operator of tcgemm that multiplies, and not one of the passes beside it?"""
    return "tcgemm" in str(target) and "precision" in {
        argument.name for argument in target._schema.arguments
    }


class Recorder(TorchDispatchMode):
    """Records the products that run, and whether they were asked to be batch-invariant."""

    def __init__(self):
        super().__init__()
        self.products = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if is_product(func):
            self.products.append((kwargs or {}).get("batch_invariant", False))
        return func(*args, **(kwargs or {}))


def recorded(function):
    with Recorder() as recorder:
        function()
    return recorder.products


class Compiled:
    """A compiled function, and the products of its graphs."""

    def __init__(self, function):
        from torch._dynamo.backends.common import aot_autograd

        self.products = []
        backend = aot_autograd(fw_compiler=self.note, bw_compiler=self.note)
        self.function = torch.compile(function, backend=backend, fullgraph=True)

    def note(self, graph, _):
        for node in graph.graph.nodes:
            if is_product(node.target):
                self.products.append(node.kwargs.get("batch_invariant", False))
        return make_boxed_func(graph.forward)

    def run(self, *operands):
        """The products of the graphs that this call and its backward compile."""
        self.products.clear()
        self.function(*operands).sum().backward()
        return list(self.products)
