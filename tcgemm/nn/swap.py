"""The exchange of a model's linear layers for tcgemm's."""

import itertools
from typing import Any

import torch

from tcgemm import dtypes
from tcgemm.nn import fast_path, sharing
from tcgemm.nn.coverage import Coverage
from tcgemm.nn.exchange import EXCHANGES, LAYERS, Exchange, layer_of
from tcgemm.nn.linear import Linear
from tcgemm.nn.report import Step, SwapReport
from tcgemm.nn.selection import Selection, Selector

__all__ = ["SwapReport", "swap_linear"]

_FSDP = {"FSDPModule", "FullyShardedDataParallel"}


def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = None,
    *,
    skip: Selection | None = None,
    to: type[torch.nn.Module] = Linear,
    shared: bool = False,
    **options: Any,
) -> SwapReport:
    """Makes every torch.nn.Linear in `model` a tcgemm layer, and says which and why not.

    The modules stay the same objects with another class: hooks, training flags and references from
    elsewhere are untouched, and `model` itself may be a Linear. The report's `undo()` takes
    everything back. Only exact torch.nn.Linear modules are swapped: a subclass has a forward, or a
    meaning, of its own.

    Arguments:
        model (torch.nn.Module): swapped in place.
        filter_fn: what is to be swapped: a function of (module, name) that returns a bool, a name,
            a glob pattern such as "*.mlp.*", or a list of names and patterns. The name of a module
            stands for all layers in it. Default: every layer.
        skip: what is to stay, in the same forms, such as skip="lm_head".
        to: the class of the new layers.
            tcgemm.nn.Linear: Parameters stay the same, so that optimizers go on. It also takes
            transformers' Conv1D (tcgemm.nn.Conv1D) and the projections of
            torch.nn.MultiheadAttention (tcgemm.nn.MultiheadAttention). Option: prepare (its parts
            of float32 weights in eval mode).
            tcgemm.nn.QuantLinear: weights become buffers of 8 bits. Options: those of
            QuantLinear.from_linear, dtype and granularity.
            tcgemm.nn.SparseLinear24: biases, and with learns=True weights, stay the same
            Parameters. Options: those of SparseLinear24.from_linear, method, learns, refresh_every
            and gradient.
            The last two also take tcgemm.nn.Linear layers, and QuantLinear takes Conv1D
            (tcgemm.nn.QuantConv1D).
            torch.nn.Linear: the way back for all of tcgemm's layers, without a report. Weights of
            8 bits are dequantised to the option dtype (default: the bias's), sparse ones become
            dense.
        shared (bool): True swaps a layer also where that separates its weight from modules that
            share it, such as a tied embedding. By default such a layer is skipped.

    In torch.nn.TransformerEncoder with a swapped layer torch's fast path for inference is switched
    off, because it calls no layer; undo() switches it on again.

    Raises RuntimeError if `model` is no module, if `to` or an option is none of these, and if a
    name or pattern matches no layer. An error leaves the model as it was.

    Example:
        >>> report = tcgemm.swap_linear(model, skip=lambda module, name: name == "head")
        >>> print(report)  # doctest: +SKIP
        >>> report.undo()
        >>> int8 = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype=torch.int8)
        >>> int8.undo()
    """
    exchanges = _exchanges(model, to, options)
    modules = _layers(model, to, exchanges)
    order = {name: index for index, (name, _) in enumerate(modules)}
    names = [name for name, _ in _layers(model, None, list(itertools.chain(*EXCHANGES.values())))]
    selectors = [
        Selector(argument, given, names)
        for argument, given in (("filter_fn", filter_fn), ("skip", skip))
        if given is not None
    ]
    owners = {} if shared else sharing.owners(model)
    coverage = Coverage(model)
    holders = _Holders(model)
    report = SwapReport(_after_undo=lambda: fast_path.update(model))
    try:
        # An output projection goes back before the attention that calls it.
        for name, module in reversed(modules) if to is torch.nn.Linear else modules:
            found, why_not = _exchange_of(module, to, exchanges, holders)
            for selector in selectors:
                why_not = why_not or selector.why_not(module, name)
            if why_not is None:
                state = found.state(module, **options)
                why_not = None if shared else sharing.why_cut(module, name, state, owners)
            if why_not is None:
                report._steps.append(_replace(name, module, found, state, holders))
                report.swapped.append(name)
            else:
                report.skipped[name] = why_not
        if report.swapped and next(model.parameters(), None) is None:
            first = modules[min(order[name] for name in report.swapped)][1]
            if add := LAYERS[layer_of(first)].without_parameters:
                add(first)
        fast_path.update(model)
    except BaseException:
        report.undo()
        raise
    report.swapped.sort(key=order.get)
    report.skipped = dict(sorted(report.skipped.items(), key=lambda item: order[item[0]]))
    report.reached, report.weights, report.not_reached = coverage.count()
    return report


class _Holders:
    """The modules around others that decide whether these can be swapped."""

    def __init__(self, model: torch.nn.Module):
        self.attention: dict[int, tuple[str, torch.nn.Module]] = {}  # by id of its out_proj
        self.sharding: dict[int, str] = {}  # class of FSDP, by id of all modules in it
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.MultiheadAttention):
                self.attention[id(module.out_proj)] = (name, module)
            if {base.__name__ for base in type(module).__mro__} & _FSDP:
                kind = type(module).__name__
                self.sharding |= dict.fromkeys((id(each) for each in module.modules()), kind)


def _exchanges(model, to, options) -> list[Exchange]:
    """Those of `to`; raises where an argument is of the wrong kind."""
    if not isinstance(model, torch.nn.Module):
        raise RuntimeError(
            f"tcgemm.swap_linear: model is a {type(model).__name__}, but a torch.nn.Module is "
            "expected; pass the module that holds the layers, or torch.nn.ModuleList(layers)."
        )
    found = EXCHANGES.get(to, []) if isinstance(to, type) else []
    if not found or not options.keys() <= set(found[0].options):
        there = (
            f"{_name(each)} with {', '.join(exchanges[0].options)}"
            for each, exchanges in EXCHANGES.items()
        )
        raise RuntimeError(
            f"tcgemm.swap_linear: to is {_name(to) if isinstance(to, type) else repr(to)} with "
            f"options {sorted(options)}, but there are {'; '.join(there)}."
        )
    return found


def _layers(model, to, exchanges) -> list[tuple[str, torch.nn.Module]]:
    """(name, module) of all modules that the exchanges take, and of all layers of tcgemm's."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if layer_of(module)
        or (to is not torch.nn.Linear and any(each.source.includes(module) for each in exchanges))
    ]


def _exchange_of(module, to, exchanges, holders) -> tuple[Exchange | None, str | None]:
    """The exchange that takes this module, or why there is none."""
    kind, layer = type(module), layer_of(module)
    if layer and (layer is to or LAYERS[layer].to is to):
        return None, f"is a {_name(layer)} already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return None, "is parametrized"
    if kind.__name__.startswith("FSDP") and id(module) in holders.sharding:
        return None, f"is sharded, as a {kind.__name__}; swap before fully_shard"
    found = next((each for each in exchanges if each.source.exactly(module)), None)
    if found is None and kind is layer and LAYERS[layer].replaceable:
        found = exchanges[0]
    if found is None:
        source = next((each.source for each in exchanges if each.source.includes(module)), None)
        if source is None:
            return None, f"is a {_name(layer)}, which {_name(to)} does not replace"
        return None, f"is a subclass of {source.name} ({kind.__name__})"
    if "forward" in vars(module):
        return None, "has a forward of its own"
    if "_parameters" in found.names and id(module) in holders.sharding:
        return None, f"is sharded, in a {holders.sharding[id(module)]}; swap before that is made"
    if to is torch.nn.Linear:
        return found, found.why_not(module)
    name, holder = holders.attention.get(id(module), ("", None))
    if holder is not None and not layer_of(holder):
        return None, f"is read, not called, by {name or 'the model'}, a {type(holder).__name__}"
    return found, _why_not_tensors(module, found) or found.why_not(module)


def _why_not_tensors(module, found) -> str | None:
    """The reason where the weights are of a kind that no layer of tcgemm takes."""
    tensors = [each for each in module._parameters.values() if each is not None]
    if isinstance(getattr(module, "weight", None), torch.Tensor):
        tensors.append(module.weight)
    if not tensors:
        return "has no weight"
    for tensor in tensors:
        kind, converted = type(tensor), "_parameters" in found.names
        if kind.__name__ == "DTensor":
            if converted:
                return "has weights of DTensor; swap before fully_shard or parallelize_module"
        elif not _behaves_as_plain(kind) and (
            converted or not kind.__module__.startswith("tcgemm")
        ):
            library = kind.__module__.split(".")[0]
            return f"has weights of {kind.__name__}, a tensor subclass of {library}"
        if tensor.device.type not in (*dtypes.DEVICES, "meta"):
            devices = " and ".join(dtypes.DEVICES)
            return f"is on {tensor.device.type}; there are products on {devices}"
    return None


def _behaves_as_plain(kind: type[torch.Tensor]) -> bool:
    """Does no class between this one and torch's own define what operators do with it?"""
    own = set(kind.__mro__) - set(torch.nn.Parameter.__mro__)
    hooks = {"__torch_dispatch__", "__torch_function__"}
    return kind.__name__ == "FakeTensor" or not any(hooks & vars(base).keys() for base in own)


def _replace(name, module, found, state, holders) -> Step:
    """Changes a module's class and attributes; returns the step that changes them back."""
    before = type(module)
    after = found.layer
    if found.becomes:
        after = found.becomes(module, id(module) in holders.attention)
    leaving = LAYERS.get(before)
    names, caches = (leaving.names, leaving.caches) if leaving else ((), ())
    kept = {name: vars(module)[name] for name in (*found.names, *names) if name in vars(module)}
    kept |= dict.fromkeys(caches)
    _forget(module, (*names, *found.names))
    vars(module).update(state)
    module.__class__ = after

    def undo():
        tensors = (*module.parameters(), *module.buffers())
        _forget(module, (*names, *found.names))
        vars(module).update(kept)
        if "_parameters" in kept:
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(tensors[0].device)
        module.__class__ = before

    return Step(name, module, after, undo)


def _forget(module, names):
    for name in names:
        vars(module).pop(name, None)


def _name(kind: type) -> str:
    library = kind.__module__.split(".")[0]
    return f"{library}.nn.{kind.__name__}" if library in ("tcgemm", "torch") else kind.__name__
