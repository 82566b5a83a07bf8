"""A pass over inductor's graphs: a product becomes one operator with its epilogue.

    product -> (reshape) -> + bias, + c -> activation -> (reshape) -> + residual

A node is folded if it has one user and if shapes and dtype allow it. Inductor has decomposed the
activations by then, so the pass looks for what torch's own decompositions make of them.
"""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg

from tcgemm import dtypes
from tcgemm.ops._torch_private import (
    compiles_ahead_of_time,
    graph_pass_class,
    inductor_decompositions,
    without_modes,
)
from tcgemm.ops.activations import ACTIVATIONS
from tcgemm.override.compiled import product
from tcgemm.override.kernels import state
from tcgemm.override.policy import Policy
from tcgemm.override.product import Product

_aten = torch.ops.aten
_FLOATS = frozenset(dtypes.DIFFERENTIABLE)
_PRODUCTS: dict[Any, int] = {  # the position of the first operand
    _aten.mm.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.baddbmm.default: 1,
}
_RESHAPES = (_aten.reshape.default, _aten.view.default)
_FILES = sorted(Path(__file__).parent.glob("*.py"))


def _decomposed(function: Callable[..., Any], dtype: torch.dtype) -> Graph:
    with without_modes(), torch.no_grad():
        traced = make_fx(lambda x: function(x), decomposition_table=inductor_decompositions())
        graph_module = traced(torch.empty(2, 2, dtype=dtype, device="cpu"))
    graph_module.graph.eliminate_dead_code()
    return graph_module.graph


@functools.cache
def patterns_of(dtype: torch.dtype) -> dict[str | None, Graph]:
    """The activations as inductor decomposes them."""
    return {name: _decomposed(row.function, dtype) for name, row in ACTIVATIONS.items()}


def match(pattern: Graph, start: Node) -> Node | None:
    """The node that computes the pattern of `start`, if nothing else reads what is in between."""
    mapping: dict[Node, Node] = {}
    last = start
    for node in pattern.nodes:
        if node.op == "placeholder":
            mapping[node] = start
        elif node.op == "call_function":
            args, kwargs = map_arg((node.args, node.kwargs), mapping.__getitem__)
            readers = mapping[node.all_input_nodes[0]].users
            folds = [
                user
                for user in readers
                if user.target is node.target and (user.args, user.kwargs) == (args, kwargs)
            ]
            if len(folds) != 1:
                return None
            mapping[node] = last = folds[0]
    inside = set(mapping.values())
    if any(not inside.issuperset(node.users) for node in inside - {last}):
        return None
    return last


def _value(node: Any) -> torch.Tensor:
    return node.meta["val"]


def _same_shape(x: Any, y: Any) -> bool:
    return len(x) == len(y) and all(
        statically_known_true(i == j) for i, j in zip(x, y, strict=True)
    )


class _Fold:
    """One product, and what is folded into it so far."""

    def __init__(self, node: Node) -> None:
        first = _PRODUCTS[node.target]
        self.last, self.shape = node, _value(node).shape
        self.a, self.b = node.args[first : first + 2]
        self.tensors: dict[str, Node | None] = dict.fromkeys(("c", "bias", "residual"))
        factors: dict[str, Any] = dict(node.kwargs)  # alpha and beta
        self.options: dict[str, Any] = {
            name: float(factor) for name, factor in factors.items() if factor != 1
        }
        self.reshaped: dict[str, list[int]] = {}  # the sizes that an addend has to get
        self.sizes: Any = None  # the sizes that a reshape gives the result, as in the graph
        if first:
            addend: Any = node.args[0]
            row = _same_shape(_value(addend).shape, self.shape[-1:])
            self.tensors["bias" if row and "beta" not in self.options else "c"] = addend

    def extend(self) -> bool:
        """Folds the next node, or the next activation. Is there one?"""
        current, sizes = self.last, self.sizes
        while len(current.users) == 1 and next(iter(current.users)).target in _RESHAPES:
            current = next(iter(current.users))
            sizes = current.args[1]
        if self._activation(current) or self._addend(current):
            self.sizes = sizes
            return True
        return False

    def _activation(self, current: Node) -> bool:
        if "activation" in self.options or self.tensors["residual"] is not None:
            return False
        for name, pattern in patterns_of(_value(current).dtype).items():
            last = match(pattern, current)
            if last is not None:
                self.options["activation"], self.last = name, last
                return True
        return False

    def _addend(self, current: Node) -> bool:
        """Takes x + current, where x is a row, or has the shape of the result."""
        add = next(iter(current.users)) if len(current.users) == 1 else None
        if add is None or add.target is not _aten.add.Tensor or add.kwargs:
            return False
        addend = next((argument for argument in add.args if argument is not current), None)
        if not isinstance(addend, Node) or not isinstance(addend.meta.get("val"), torch.Tensor):
            return False
        value, shape = _value(addend), _value(current).shape
        if value.dtype is not _value(current).dtype or value.device != _value(current).device:
            return False
        name = self._free(value, shape)
        if name is None:
            return False
        if name != "bias" and not _same_shape(shape, self.shape):
            sizes = [size if isinstance(size, int) else -1 for size in self.shape]
            if sizes.count(-1) > 1:  # reshape finds one size by itself
                return False
            self.reshaped[name] = sizes
        self.tensors[name], self.last = addend, add
        return True

    def _free(self, value: torch.Tensor, shape: Any) -> str | None:
        """The term that takes an addend, if it is free."""
        before = "activation" not in self.options and self.tensors["residual"] is None
        row = _same_shape(value.shape, shape[-1:]) and _same_shape(shape[-1:], self.shape[-1:])
        if before and row and self.tensors["bias"] is None:
            return "bias"
        if not _same_shape(value.shape, shape):
            return None
        if before and self.tensors["c"] is None:
            return "c"
        return "residual" if self.tensors["residual"] is None else None

    def replace(self) -> None:
        """Puts one call of the operator in the place of the folded nodes."""
        graph = self.last.graph
        with graph.inserting_before(self.last):
            for name, sizes in self.reshaped.items():
                self.tensors[name] = _call(graph, _aten.reshape.default, self.tensors[name], sizes)
            addends = self.tensors.values()
            result = _call(graph, product, self.a, self.b, *addends, **self.options)
            if self.sizes is not None:
                result = _call(graph, _aten.reshape.default, result, self.sizes)
        self.last.replace_all_uses_with(result)
        graph.erase_node(self.last)


def _call(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node with its fake result, which the passes that follow read."""
    node = graph.call_function(target, args, kwargs)
    values = map_arg(args, _value)
    with values[0].fake_mode:
        node.meta["val"] = target(*values, **kwargs)
    return node


def is_taken(node: Node, policy: Policy) -> bool:
    """Does tcgemm take this product, as far as is known before it runs?"""
    if node.op != "call_function" or node.target not in _PRODUCTS:
        return False
    first = _PRODUCTS[node.target]
    if not all(isinstance(factor, int | float) for factor in node.kwargs.values()):
        return False
    a, b = map(_value, node.args[first : first + 2])
    if a.dtype not in _FLOATS or a.device.type not in dtypes.DEVICES:
        return False
    if policy.why_not_dtype(a.dtype) is not None or node.kwargs.get("alpha") == 0:
        return False
    numbers = (*a.shape, *a.stride(), *b.shape, *b.stride())
    if not all(isinstance(number, int) for number in numbers):
        return True  # the call decides
    return 0 not in (*a.shape, *b.shape) and policy.why_not(Product("", a, b)) is None


@graph_pass_class().register  # inductor asks for the uuid of its own class's passes
class FoldPass:
    """The pass, as inductor takes it. It asks which tcgemm.use is active when it runs."""

    def __init__(self, before: Any) -> None:
        self.before = before  # a pass that somebody else has set

    def __call__(self, graph: Graph) -> None:
        if self.before is not None:
            self.before(graph)
        choices = state.choices
        if choices is None or compiles_ahead_of_time():
            return
        for node in list(graph.nodes):
            if is_taken(node, choices.policy):
                fold = _Fold(node)
                while fold.extend():
                    pass
                fold.replace()
        graph.eliminate_dead_code()

    def uuid(self) -> Any:
        """A key for caches of compiled code: the sources, the choice, and the other pass."""
        other = None
        if self.before is not None:
            other = self.before.uuid() if isinstance(self.before, graph_pass_class()) else None
            if other is None:
                return None
        text = repr([file.read_text() for file in _FILES])
        text += "" if state.choices is None else state.choices.policy.key()
        return hashlib.sha256(text.encode()).hexdigest(), other
