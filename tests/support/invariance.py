"""Which products of a call are batch-invariant, in eager mode and in compiled graphs."""

import torch
from torch._functorch.aot_autograd import make_boxed_func

from support.calls import Recorder


def is_product(target):
    """Is it an operator of tcgemm that multiplies, and not one of the passes beside it?"""
    return "tcgemm" in str(target) and "precision" in {
        argument.name for argument in target._schema.arguments
    }


def note(func, args, kwargs):
    return [kwargs.get("batch_invariant", False)] if is_product(func) else []


def recorded(function):
    """Was each product that runs asked to be batch-invariant?"""
    with Recorder(note) as recorder:
        function()
    return recorder.rows


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
