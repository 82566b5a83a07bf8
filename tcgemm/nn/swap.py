"""The exchange of a model's linear layers for tcgemm's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tcgemm import dtypes
from tcgemm.nn.exchange import EXCHANGES, Exchange
from tcgemm.nn.linear import Linear


@dataclass
class SwapReport:
    """The result of swap_linear, by names of modules in the model; "" is the model itself.

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
    granularity; or tcgemm.nn.SparseLinear24, with the options of SparseLinear24.from_linear,
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
    exchange = EXCHANGES.get(to)
    if exchange is None or not options.keys() <= set(exchange.options):
        there = (
            f"tcgemm.nn.{each.layer.__name__} with {', '.join(each.options)}"
            for each in EXCHANGES.values()
        )
        raise RuntimeError(
            f"tcgemm.swap_linear: to is {to!r} with options {sorted(options)}, but there are "
            f"{'; '.join(there)}."
        )
    report = SwapReport()
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Linear, to)):
            continue
        why_not = _why_not(module, exchange)
        if why_not is None and filter_fn is not None and not filter_fn(module, name):
            why_not = "filter_fn said no"
        if why_not is not None:
            report.skipped[name] = why_not
            continue
        try:
            report._undo.append(_replace(module, exchange, options))
        except Exception:
            report.undo()
            raise
        report.swapped.append(name)
    return report


def _replace(module, exchange, options) -> Callable[[], None]:
    """Changes a module's class and attributes; returns the function that changes them back."""
    before = type(module)
    leaving = EXCHANGES.get(before)
    names, caches = (leaving.names, leaving.caches) if leaving else ((), ())
    state = exchange.state(module, **options)
    kept = {name: vars(module)[name] for name in (*exchange.names, *names) if name in vars(module)}
    kept |= dict.fromkeys(caches)
    _forget(module, names)
    vars(module).update(state)
    module.__class__ = exchange.layer

    def undo():
        if type(module) is not exchange.layer:  # replaced by yet another layer
            return
        device = module.weight.device
        _forget(module, exchange.names)
        vars(module).update(kept)
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(device)
        module.__class__ = before

    return undo


def _forget(module, names):
    for name in names:
        vars(module).pop(name, None)


def _why_not(module: torch.nn.Module, exchange: Exchange) -> str | None:
    if type(module) is exchange.layer:
        return f"is a tcgemm.nn.{exchange.layer.__name__} already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "is parametrized"
    known = EXCHANGES.get(type(module))
    if type(module) is not torch.nn.Linear and not (known and known.replaceable):
        return f"is a subclass of torch.nn.Linear ({type(module).__name__})"
    if "forward" in vars(module):
        return "has a forward of its own"
    device = module.weight.device.type
    if device not in (*dtypes.DEVICES, "meta"):
        return f"is on {device}; there are products on {' and '.join(dtypes.DEVICES)}"
    return exchange.why_not(module)
