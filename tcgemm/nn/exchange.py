"""The exchanges of swap_linear: the options of each layer, and the modules that it can replace.

The module that defines a layer registers its Exchange here. swap.py uses nothing else of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear


class Source(NamedTuple):
    """The modules that an Exchange takes: one class, of torch or of another library."""

    name: str
    includes: Callable[[torch.nn.Module], bool]  # Is it of the class, or of a subclass?
    exactly: Callable[[torch.nn.Module], bool]  # Is it of the class itself?


def name_of(kind: type) -> str:
    """The name of a class in reasons and errors."""
    library = kind.__module__.split(".")[0]
    return f"{library}.nn.{kind.__name__}" if library in ("tcgemm", "torch") else kind.__name__


def source_of(kind: type[torch.nn.Module], *same: type[torch.nn.Module]) -> Source:
    """The modules of a class. The subclasses in `same` count as the class itself."""
    return Source(
        name_of(kind),
        lambda module: isinstance(module, kind),
        lambda module: type(module) in (kind, *same),
    )


# The output projection of torch.nn.MultiheadAttention has a class that differs in its name alone.
LINEAR = source_of(torch.nn.Linear, NonDynamicallyQuantizableLinear)


class Exchange(NamedTuple):
    """How a torch.nn.Linear, or a module of another Source, becomes a layer in place.

    The object stays the same and gets another class.
    """

    layer: type[torch.nn.Module]
    options: tuple[str, ...]  # the options of swap_linear for this layer
    # Attributes of the layer that a torch.nn.Linear does not have, or has with other values.
    names: tuple[str, ...]
    state: Callable[..., dict[str, Any]]  # (module, **options) -> values for `names`
    # (module, **options) -> the reason why the layer cannot replace the module
    why_not: Callable[..., str | None]
    caches: tuple[str, ...] = ()  # the `names` that are dropped when the layer is replaced
    source: Source = LINEAR
    to: type[torch.nn.Module] | None = None  # the value of swap_linear's `to`; None: the layer
    # (module, is it the out_proj of an attention?) -> its new class; None: the layer
    becomes: Callable[[Any, bool], type] | None = None


EXCHANGES: dict[type[torch.nn.Module], list[Exchange]] = {}  # by the value of swap_linear's `to`
LAYERS: dict[type[torch.nn.Module], Exchange] = {}  # by the layer


def register(exchange: Exchange) -> None:
    """Makes an Exchange known to swap_linear."""
    EXCHANGES.setdefault(exchange.to or exchange.layer, []).append(exchange)
    if exchange.layer.__module__.startswith("tcgemm."):
        LAYERS[exchange.layer] = exchange


def layer_of(module: torch.nn.Module) -> type[torch.nn.Module] | None:
    """The layer of tcgemm that is the class of the module, or a base of it; else None."""
    return next((base for base in type(module).__mro__ if base in LAYERS), None)


def converted(layer: Any, names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """The `state` of an Exchange that takes the attributes `names` of what from_linear makes."""

    def state(module: torch.nn.Module, **options: Any) -> dict[str, Any]:
        attributes = vars(layer.from_linear(module, **options))
        return {name: attributes[name] for name in names}

    return state


def why_not_converted(module: Any, dtypes: Sequence[torch.dtype], action: str) -> str | None:
    """The reason why a module cannot become a layer that stores its weight in another form.

    `action` is the word for the conversion, and `dtypes` are the dtypes of weights that have one.
    """
    if module.weight.dtype not in dtypes:
        names = ", ".join(str(dtype) for dtype in dtypes)
        return f"has weights of {module.weight.dtype}; only weights of {names} are {action}"
    if "weight" not in module._parameters:
        return "has a weight that is computed from other tensors, as by torch.nn.utils.prune"
    return None
