"""The exchange of a model's linear layers for tcgemm's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tcgemm import dtypes
from tcgemm.nn.linear import Linear, _on_gpu
from tcgemm.nn.quant_linear import QuantLinear
from tcgemm.nn.sparse_linear import DTYPES as SPARSE
from tcgemm.nn.sparse_linear import SparseLinear24
from tcgemm.ops import functional
from tcgemm.quant import linear as quantized


@dataclass
class SwapReport:
    """What swap_linear did: names of modules in the model; "" is the model itself.

    After a swap to QuantLinear or SparseLinear24 the report holds the weights that undo() puts
    back: the memory is free when the report is gone.
    """

    swapped: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    _undo: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Makes every swapped module what it was before; a second time does nothing."""
        for undo in self._undo:
            undo()
        self._undo.clear()

    def __str__(self) -> str:
        lines = [f"{len(self.swapped)} swapped, {len(self.skipped)} skipped"]
        lines += [f"  swapped  {name or '(the model)'}" for name in self.swapped]
        lines += [
            f"  skipped  {name or '(the model)'}: {why}" for name, why in self.skipped.items()
        ]
        return "\n".join(lines)


# The layers that there are to swap in, and what they are made with.
OPTIONS = {
    Linear: {"prepare"},
    QuantLinear: {"dtype", "granularity"},
    SparseLinear24: {"method", "learns", "refresh_every", "gradient"},
}


def swap_linear(
    model: torch.nn.Module,
    filter_fn: Callable[[torch.nn.Module, str], bool] | None = None,
    *,
    to: type[torch.nn.Module] = Linear,
    **options: Any,
) -> SwapReport:
    """Makes every torch.nn.Linear in `model` a tcgemm layer, and says which and why not.

    The modules stay the same objects with another class: hooks, training flags and references from
    elsewhere are untouched, and `model` itself may be a Linear. `filter_fn(module, name)` returns
    False for a layer that is to stay. The report's `undo()` takes everything back. Only exact
    torch.nn.Linear modules are swapped: a subclass has a forward, or a meaning, of its own.

    to: tcgemm.nn.Linear, whose Parameters stay the same, so that optimizers go on, and whose option
    is prepare (its parts of float32 weights in eval mode). Or tcgemm.nn.QuantLinear, whose weights
    become buffers of 8 bits, and whose options are those of QuantLinear.from_linear, dtype and
    granularity; or tcgemm.nn.SparseLinear24, with the options of SparseLinear24.from_dense,
    method, learns, refresh_every and gradient: biases, and with learns=True weights, stay the same
    Parameters. These two also take tcgemm.nn.Linear layers.

    Raises RuntimeError if `to` or an option is none of these.

    Example:
        >>> report = tcgemm.swap_linear(model, filter_fn=lambda module, name: name != "head")
        >>> print(report)  # doctest: +SKIP
        >>> report.undo()
        >>> int8 = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype=torch.int8)
        >>> int8.undo()
    """
    if to not in OPTIONS or not options.keys() <= OPTIONS[to]:
        there = (f"tcgemm.nn.{kind.__name__} with {', '.join(OPTIONS[kind])}" for kind in OPTIONS)
        raise RuntimeError(
            f"tcgemm.swap_linear: to is {to!r} with options {sorted(options)}, but there are "
            f"{'; '.join(there)}."
        )
    report = SwapReport()
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Linear, to)):
            continue
        why_not = _why_not(module, to)
        if why_not is None and filter_fn is not None and not filter_fn(module, name):
            why_not = "filter_fn said no"
        if why_not is not None:
            report.skipped[name] = why_not
            continue
        try:
            report._undo.append(_turn(module, to, options))
        except Exception:
            report.undo()
            raise
        report.swapped.append(name)
    return report


# What a layer has in vars() that a torch.nn.Linear has not, or otherwise.
_LINEAR = ("prepare", *Linear._OWN)
_MADE = {
    QuantLinear: (
        QuantLinear.from_linear,
        ("_parameters", "_buffers", "granularity", "activation"),
    ),
    SparseLinear24: (
        SparseLinear24.from_dense,
        (
            *("_parameters", "_buffers", "_non_persistent_buffers_set", "activation", "method"),
            *("learns", "gradient", "refresh_every", "_seen", "_changes"),
        ),
    ),
}


def _forget(module, names):
    for name in names:
        vars(module).pop(name, None)


def _turn(module, to, options) -> Callable[[], None]:
    """Changes a module's class, and its tensors where `to` has others; returns the way back."""
    before = type(module)
    kept, names = {}, ()
    if to in _MADE:
        make, names = _MADE[to]
        layer = vars(make(module, **options))
        layer["_parameters"] |= {  # the same objects, so that optimizers go on
            name: module._parameters[name] for name in layer["_parameters"]
        }
        if before is Linear:
            module._drop()
        kept = {name: vars(module)[name] for name in names + _LINEAR if name in vars(module)}
        _forget(module, _LINEAR)
        vars(module).update({name: layer[name] for name in names})
    else:
        vars(module).update(options)
        Linear._drop(module)
    module.__class__ = to

    def undo():
        if type(module) is not to:  # exchanged meanwhile
            return
        if to in _MADE:
            device = module.weight.device
            _forget(module, (*names, "_ready"))
            vars(module).update(kept)
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(device)
        else:
            _forget(module, _LINEAR)
        module.__class__ = before

    return undo


def _why_not(module: torch.nn.Module, to: type) -> str | None:
    if type(module) is to:
        return f"is a tcgemm.nn.{to.__name__} already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "is parametrized"
    if type(module) not in (torch.nn.Linear, Linear):
        return f"is a subclass of torch.nn.Linear ({type(module).__name__})"
    if "forward" in vars(module):
        return "has a forward of its own"
    device, dtype = module.weight.device.type, module.weight.dtype
    if device not in (*dtypes.DEVICES, "meta"):
        return f"is on {device}; there are products on {' and '.join(dtypes.DEVICES)}"
    if to in _MADE:
        return _why_not_made(module, *_SOURCES[to])
    if dtype not in dtypes.DIFFERENTIABLE:
        names = ", ".join(str(each) for each in dtypes.DIFFERENTIABLE)
        return f"has weights of {dtype} on {device}; there are {names}"
    return _why_not_multiplied(module.weight)


def _why_not_multiplied(weight: torch.Tensor) -> str | None:
    """The planner's sentence where this GPU has no kernel for the weight's dtype and the precision
    in force; autocast would cast it first."""
    if type(weight) is not torch.nn.Parameter or not _on_gpu(weight):
        return None
    if torch.is_autocast_enabled("cuda"):
        return None
    try:
        functional.check_layout(weight, weight.t())
    except RuntimeError as error:
        return str(error)
    return None


_SOURCES = {QuantLinear: (quantized.SOURCES, "quantised"), SparseLinear24: (SPARSE, "pruned")}


def _why_not_made(module: torch.nn.Linear, sources, done: str) -> str | None:
    if module.weight.dtype not in sources:
        names = ", ".join(str(each) for each in sources)
        return f"has weights of {module.weight.dtype}; those of {names} are {done}"
    if "weight" not in module._parameters:
        return "has a weight that is computed from others, as pruning does"
    return None
