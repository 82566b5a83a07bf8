"""Each layer tells swap_linear its options, which modules it can replace, and what it changes.

The module that defines a layer registers one Exchange for it; swap.py reads nothing else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

# torch.nn.MultiheadAttention's output projection is of a class that differs by its name alone.
_LINEAR = (torch.nn.Linear, NonDynamicallyQuantizableLinear)


class Source(NamedTuple):
    """The modules that an Exchange takes: those of one class, of whichever library."""

    name: str
    includes: Callable[[torch.nn.Module], bool]  # the class or a subclass of it
    exactly: Callable[[torch.nn.Module], bool]  # the class itself


LINEAR = Source(
    "torch.nn.Linear",
    lambda module: isinstance(module, torch.nn.Linear),
    lambda module: type(module) in _LINEAR,
)


class Exchange(NamedTuple):
    """How a torch.nn.Linear, or a module of another Source, becomes a layer in place: same object,
    other class."""

    layer: type[torch.nn.Module]
    options: tuple[str, ...]  # of swap_linear, for this layer
    names: tuple[
        str, ...
    ]  # attributes that the layer has, and torch.nn.Linear has not or otherwise
    state: Callable[..., dict[str, Any]]  # (module, **options) -> values for `names`
    why_not: Callable[[torch.nn.Module], str | None]  # why the layer cannot replace this module
    caches: tuple[str, ...] = ()  # those of `names` that are dropped when the layer is replaced
    replaceable: bool = False  # other layers take a module of this class as well
    source: Source = LINEAR
    to: type[torch.nn.Module] | None = None  # the value of swap_linear's `to`; None: the layer
    # (module, is it the out_proj of an attention) -> its new class, where that is not the layer
    becomes: Callable[[torch.nn.Module, bool], type] | None = None
    # Called with the first layer of a swap that leaves the model without a Parameter.
    without_parameters: Callable[[torch.nn.Module], None] | None = None


EXCHANGES: dict[type[torch.nn.Module], list[Exchange]] = {}  # by the value of swap_linear's `to`
LAYERS: dict[type[torch.nn.Module], Exchange] = {}  # by the layer


def register(exchange: Exchange) -> None:
    EXCHANGES.setdefault(exchange.to or exchange.layer, []).append(exchange)
    if exchange.layer.__module__.startswith("tcgemm."):
        LAYERS[exchange.layer] = exchange


def layer_of(module: torch.nn.Module) -> type[torch.nn.Module] | None:
    """The class of tcgemm that a module is of, or derives from."""
    return next((base for base in type(module).__mro__ if base in LAYERS), None)


def check_linear(layer: str, linear) -> None:
    """Raises TypeError where a layer is to be made of something else than a torch.nn.Linear."""
    if not isinstance(linear, torch.nn.Linear):
        raise TypeError(
            f"{layer}.from_linear: linear must be a torch.nn.Linear, but is "
            f"{type(linear).__name__}; pass one layer, or a model to tcgemm.swap_linear."
        )


def state_of(layer: torch.nn.Module, module: torch.nn.Module, names: tuple[str, ...]) -> dict:
    """The attributes of a new layer, with the module's own Parameters, so that optimizers go on."""
    state = {name: vars(layer)[name] for name in names}
    state["_parameters"] |= {name: module._parameters[name] for name in state["_parameters"]}
    return state


def why_not_converted(module: torch.nn.Module, dtypes, done: str) -> str | None:
    """The reason for layers that store the weight in another form, which is `done` to dtypes."""
    if module.weight.dtype not in dtypes:
        names = ", ".join(str(each) for each in dtypes)
        return f"has weights of {module.weight.dtype}; those of {names} are {done}"
    if "weight" not in module._parameters:
        return "has a weight that is computed from others, as pruning does"
    return None
