"""The exchange of a model's linear layers for layers of tcgemm."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from tcgemm import dtypes
from tcgemm.nn import fast_path, sharing
from tcgemm.nn.constant import ConstantWeight
from tcgemm.nn.coverage import Coverage
from tcgemm.nn.described import describe
from tcgemm.nn.exchange import EXCHANGES, LAYERS, Exchange, layer_of, name_of
from tcgemm.nn.layer import FLAGS
from tcgemm.nn.linear import Linear
from tcgemm.nn.report import Step, SwapReport
from tcgemm.nn.selection import Selection, Selector
from tcgemm.nn.stored_weight import StoredWeight
from tcgemm.ops.arguments import check_flag
from tcgemm.ops.kept import KeptForm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tcgemm.nn.float8_linear import Float8Linear
    from tcgemm.nn.packed_linear import PackedLinear
    from tcgemm.nn.quant_linear import QuantLinear
    from tcgemm.nn.sparse_linear import SparseLinear24
    from tcgemm.typing import (
        Float8Precision,
        Float8Scaling,
        PackedFormat,
        PackMethod,
        SparseGradient,
        WeightGranularity,
    )

__all__ = ["SwapReport", "swap_linear"]

_FSDP = {"FSDPModule", "FullyShardedDataParallel"}


@overload
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = ...,
    *,
    skip: Selection | None = ...,
    to: type[Linear] = ...,
    shared: bool = ...,
    constant_weights: bool = ...,
    prepare: bool = ...,
    batch_invariant: bool = ...,
) -> SwapReport: ...
@overload
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = ...,
    *,
    skip: Selection | None = ...,
    to: type[QuantLinear],
    shared: bool = ...,
    constant_weights: bool = ...,
    dtype: torch.dtype | str = ...,
    granularity: WeightGranularity = ...,
    batch_invariant: bool = ...,
) -> SwapReport: ...
@overload
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = ...,
    *,
    skip: Selection | None = ...,
    to: type[PackedLinear],
    shared: bool = ...,
    constant_weights: bool = ...,
    format: PackedFormat = ...,
    group_size: int | Literal["default"] | None = ...,
    method: PackMethod = ...,
    zero_points: bool = ...,
    scale_dtype: torch.dtype | str | None = ...,
    table: torch.Tensor | Sequence[float] | None = ...,
    batch_invariant: bool = ...,
) -> SwapReport: ...
@overload
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = ...,
    *,
    skip: Selection | None = ...,
    to: type[Float8Linear],
    shared: bool = ...,
    constant_weights: bool = ...,
    scaling: Float8Scaling = ...,
    history: int = ...,
    precision: Float8Precision | None = ...,
) -> SwapReport: ...
@overload
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = ...,
    *,
    skip: Selection | None = ...,
    to: type[SparseLinear24],
    shared: bool = ...,
    constant_weights: bool = ...,
    method: Literal["magnitude", "transposable"] = ...,
    learns: bool = ...,
    refresh_every: int = ...,
    gradient: SparseGradient = ...,
    batch_invariant: bool = ...,
) -> SwapReport: ...
@overload
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = ...,
    *,
    skip: Selection | None = ...,
    to: type[torch.nn.Linear],
    shared: bool = ...,
    dtype: torch.dtype | str | None = ...,
) -> SwapReport: ...
def swap_linear(
    model: torch.nn.Module,
    filter_fn: Selection | None = None,
    *,
    skip: Selection | None = None,
    to: type[torch.nn.Module] = Linear,
    shared: bool = False,
    constant_weights: bool = False,
    **options: Any,
) -> SwapReport:
    """Makes every torch.nn.Linear in `model` a layer of tcgemm, and reports what it did.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
        >>> report = tcgemm.swap_linear(model, skip="1")
        >>> report.swapped, report.skipped
        (['0'], {'1': 'skip names it'})
        >>> report.undo()
        >>> int8 = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype=torch.int8)
        >>> type(model[0]).__name__
        'QuantLinear'
        >>> int8.undo()

    The modules stay the same objects and get another class: hooks, training flags and references
    to the modules stay valid, and `model` itself may be a Linear. undo() of the report takes the
    swap back. A subclass of torch.nn.Linear is not swapped, because its forward may differ.

    Arguments:
        model (torch.nn.Module): is changed in place.
        filter_fn: the layers to swap: a function of (module, name) that returns a bool, a name, a
            glob pattern such as "*.mlp.*", or a list of names and patterns. The name of a module
            stands for all layers in it. Default: every layer.
        skip: the layers to leave as they are, in the same forms, such as skip="lm_head".
        to: the class of the new layers.

            - tcgemm.nn.Linear: Parameters stay the same objects, so an optimizer still has them.
              Conv1D of transformers becomes tcgemm.nn.Conv1D, and torch.nn.MultiheadAttention
              becomes tcgemm.nn.MultiheadAttention. Options: prepare and batch_invariant, as of
              tcgemm.nn.Linear.
            - tcgemm.nn.QuantLinear: weights become 8-bit buffers. Layers of tcgemm.nn.Linear are
              swapped too, and Conv1D becomes tcgemm.nn.QuantConv1D. Options: dtype, granularity and
              batch_invariant, as of QuantLinear.from_linear.
            - tcgemm.nn.PackedLinear: weights become buffers of 4 or 8 bits an element. Layers of
              tcgemm.nn.Linear are swapped too, and layers whose inputs groups do not divide are
              skipped. Options: format, group_size, method, zero_points, scale_dtype, table and
              batch_invariant, as of PackedLinear.from_linear.
            - tcgemm.nn.Float8Linear: Parameters stay the same objects. Layers of tcgemm.nn.Linear
              are swapped too. Options: scaling, history and precision, as of the layer.
            - tcgemm.nn.SparseLinear24: biases stay the same Parameters, and with learns=True the
              weights too. Layers of tcgemm.nn.Linear are swapped too. Options: method, learns,
              refresh_every, gradient and batch_invariant, as of SparseLinear24.from_linear.
            - torch.nn.Linear: all layers of tcgemm go back, without a report of their swap. Weights
              of 8 and 4 bits are dequantised to the option dtype (default: the bias's dtype), and
              sparse weights become dense.

        constant_weights (bool): True says that nobody writes the weights while the layers run, so
            that kernels load them early: see tcgemm.constant_weights. The report says what it
            gains.
        shared (bool): True also swaps layers that share a Parameter with other modules, such as a
            tied embedding, and would lose it. By default such a layer is skipped.

    torch.nn.TransformerEncoder and its layers have a fast path for inference, which calls no layer.
    It is switched off where a layer was swapped. undo() switches it on again.

    Raises RuntimeError if `model` is no module, if `to` or an option is none of these, or if a name
    or pattern matches no layer. The model is unchanged after an error.
    """
    exchanges = _exchanges(model, to, options)
    modules = _layers(model, exchanges)
    names = [name for name, _ in _layers(model, itertools.chain(*EXCHANGES.values()))]
    selections: Any = {"filter_fn": filter_fn, "skip": skip}
    selectors = [
        Selector(argument, selection, names)
        for argument, selection in selections.items()
        if selection is not None
    ]
    owners = {} if shared else sharing.owners(model)
    coverage = Coverage(model)
    holders = _Holders(model)
    check_flag("swap_linear", "constant_weights", constant_weights)
    if constant_weights and to is torch.nn.Linear:
        raise RuntimeError(
            "tcgemm.swap_linear: constant_weights is True, but torch.nn.Linear has no such option; "
            "leave it out."
        )

    def after() -> None:
        fast_path.update(model)
        describe(model)

    report = SwapReport(_after_undo=after)
    # On the way back, an output projection comes before the attention that calls it.
    backwards = to is torch.nn.Linear
    try:
        for name, module in reversed(modules) if backwards else modules:
            exchange, why_not = _exchange_of(module, to, exchanges, holders, options)
            for selector in selectors:
                why_not = why_not or selector.why_not(module, name)
            state: dict[str, Any] = {}
            if why_not is None:
                state = exchange.state(module, **options)
                why_not = None if shared else sharing.why_cut(module, name, state, owners)
            if why_not is None:
                if to is not torch.nn.Linear:
                    is_constant = constant_weights or getattr(module, "constant_weights", False)
                    state["_constant"] = ConstantWeight() if is_constant else None
                report._steps.append(_replace(name, module, exchange, state, holders))
                report.swapped.append(name)
            else:
                report.skipped[name] = why_not
        if report._steps and next(model.parameters(), None) is None:
            first = report._steps[0].module
            if isinstance(first, StoredWeight):
                first.add_placeholder()
        after()
    except BaseException:
        report.undo()
        raise
    if backwards:
        report.swapped.reverse()
        report.skipped = dict(reversed(report.skipped.items()))
    report.reached, report.weights, report.not_reached = coverage.count()
    return report


class _Holders:
    """The modules that contain other modules and decide whether these can be swapped."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.attention: dict[int, tuple[str, torch.nn.Module]] = {}  # by the id of its out_proj
        self.sharding: dict[int, str] = {}  # the class of FSDP, by the id of each module in it
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.MultiheadAttention):
                self.attention[id(module.out_proj)] = (name, module)
            if {base.__name__ for base in type(module).__mro__} & _FSDP:
                kind = type(module).__name__
                self.sharding |= dict.fromkeys((id(child) for child in module.modules()), kind)


def _exchanges(model: object, to: object, options: dict[str, Any]) -> list[Exchange]:
    """The exchanges of `to`. Raises RuntimeError if an argument has the wrong type."""
    if not isinstance(model, torch.nn.Module):
        raise RuntimeError(
            f"tcgemm.swap_linear: model is a {type(model).__name__}, but it must be a "
            "torch.nn.Module; pass the module that has the layers, or torch.nn.ModuleList(layers)."
        )
    exchanges_of = EXCHANGES.get(to, []) if isinstance(to, type) else []
    if not exchanges_of or not options.keys() <= set(exchanges_of[0].options):
        there = (
            f"{name_of(layer)} with {', '.join(exchanges[0].options)}"
            for layer, exchanges in EXCHANGES.items()
        )
        raise RuntimeError(
            f"tcgemm.swap_linear: to is {name_of(to) if isinstance(to, type) else repr(to)} with "
            f"options {sorted(options)}, but there are {'; '.join(there)}; pass one of these."
        )
    for name in options.keys() & set(FLAGS):
        check_flag("swap_linear", name, options[name])
    return exchanges_of


def _layers(
    model: torch.nn.Module, exchanges: Iterable[Exchange]
) -> list[tuple[str, torch.nn.Module]]:
    """(name, module) of all modules that the exchanges take, and of all layers of tcgemm."""
    sources = [exchange.source for exchange in exchanges]
    return [
        (name, module)
        for name, module in model.named_modules()
        if layer_of(module) or any(source.includes(module) for source in sources)
    ]


def _exchange_of(
    module: Any,
    to: type,
    exchanges: Sequence[Exchange],
    holders: _Holders,
    options: dict[str, Any],
) -> tuple[Any, str | None]:
    """(the exchange that takes this module or None, the reason why it stays or None)."""
    kind, layer = type(module), layer_of(module)
    if layer and (layer is to or LAYERS[layer].to is to):
        return None, f"is a {name_of(layer)} already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return None, "is parametrized"
    if kind.__name__.startswith("FSDP") and id(module) in holders.sharding:
        return None, f"is sharded, as a {kind.__name__}; swap before fully_shard"
    candidates = [exchange for exchange in exchanges if exchange.source.includes(module)]
    exchange = next((one for one in candidates if one.source.exactly(module)), None)
    if exchange is None and kind is Linear:
        exchange = exchanges[0]
    if exchange is None and candidates:
        return None, f"is a subclass of {candidates[0].source.name} ({kind.__name__})"
    if exchange is None:
        return None, f"is a {name_of(layer or kind)}, which {name_of(to)} does not replace"
    if "forward" in vars(module):
        return None, "has a forward of its own"
    if "_parameters" in exchange.names and id(module) in holders.sharding:
        return None, f"is sharded in a {holders.sharding[id(module)]}; swap before it is sharded"
    if to is torch.nn.Linear:
        return exchange, exchange.why_not(module, **options)
    name, holder = holders.attention.get(id(module), ("", None))
    if holder is not None and not layer_of(holder):
        owner = f"{name or 'the model'}, a {type(holder).__name__}"
        return None, f"is not called by {owner}, which reads its weight"
    why_not = _why_not_tensors(module, exchange) or exchange.why_not(module, **options)
    return exchange, why_not


def _why_not_tensors(module: Any, exchange: Exchange) -> str | None:
    """The reason if the weights are tensors that no layer of tcgemm takes."""
    tensors = [tensor for tensor in module._parameters.values() if tensor is not None]
    if isinstance(getattr(module, "weight", None), torch.Tensor):
        tensors.append(module.weight)
    if not tensors:
        return "has no weight"
    for tensor in tensors:
        kind, converted = type(tensor), "_parameters" in exchange.names
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
            return f"is on {tensor.device.type}; tcgemm computes on {devices}"
    return None


def _behaves_as_plain(kind: type[torch.Tensor]) -> bool:
    """Is there no class between this one and torch's own that changes what operators do?"""
    own = set(kind.__mro__) - set(torch.nn.Parameter.__mro__)
    hooks = {"__torch_dispatch__", "__torch_function__"}
    return kind.__name__ == "FakeTensor" or not any(hooks & vars(base).keys() for base in own)


def _replace(
    name: str, module: Any, exchange: Exchange, state: dict[str, Any], holders: _Holders
) -> Step:
    """Changes a module's class and attributes; returns the step that changes them back."""
    before, after = type(module), exchange.layer
    if exchange.becomes:
        after = exchange.becomes(module, id(module) in holders.attention)
    leaving = LAYERS.get(before)
    names, caches = (leaving.names, leaving.caches) if leaving else ((), ())
    names += (*exchange.names, "_constant")
    attributes = {name: vars(module)[name] for name in names if name in vars(module)}
    attributes |= dict.fromkeys(caches)

    def become(kind: type, attributes: dict[str, Any]) -> None:
        form = vars(module).get("_form")
        for name in names:
            vars(module).pop(name, None)
        vars(module).update(attributes)
        module.__class__ = kind
        if form is not None and form.is_in_graphs:  # they may be replayed
            own = vars(module).get("_form") or KeptForm()
            own.hold(form)
            vars(module)["_form"] = own

    def undo() -> None:
        tensors = (*module.parameters(), *module.buffers())
        become(before, attributes)
        if "_parameters" in attributes:
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(tensors[0].device)

    become(after, state)
    return Step(name, module, after, undo)
