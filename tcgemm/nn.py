"""torch.nn.Linear on tcgemm's products, and the exchange of a model's linear layers for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tcgemm import dense, dtypes, precision, quantized
from tcgemm.prepared import capturing
from tcgemm.prepared import prepare as prepare_weight
from tcgemm.quant_linear import QuantLinear
from tcgemm.sparse_linear import DTYPES as SPARSE
from tcgemm.sparse_linear import SparseLinear24

__all__ = ["Linear", "QuantLinear", "SparseLinear24", "SwapReport", "swap_linear"]

_compiling = torch.compiler.is_compiling
_transforms_active = torch._C._are_functorch_transforms_active


def _exporting():
    """To a program, which will have weights of its own. Traced by torch.compile, torch's function
    says that everything is exported."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def _on_gpu(weight):
    return weight.is_cuda


def _multiplies_parts(input, weight):
    """Can parts of the weight that were made before serve this call? Tensors that stand in for a
    Parameter (of DataParallel, parametrizations, DTensor) come and go with the call."""
    return (
        type(weight) is torch.nn.Parameter
        and _on_gpu(weight)
        and weight.dtype is torch.float32
        and isinstance(input, torch.Tensor)
        and input.dtype is torch.float32
        and not torch.is_autocast_enabled("cuda")
        and precision.default() == "highest"
        and (_compiling() or not _transforms_active())
    )


class Linear(torch.nn.Linear):
    """torch.nn.Linear with an optional fused activation: act(x @ weight.t() + bias).

    Arguments, initialisation and state_dict are torch.nn.Linear's; `activation` is "relu", "gelu",
    "gelu_tanh", "silu" or None. x (..., in_features) -> (..., out_features). Errors and dtypes are
    tcgemm.linear's.

    In eval mode a float32 weight on a GPU is prepared (tcgemm.prepare) by the first call of
    precision "highest", and its parts are kept for the next: 1 to 1.5 times the weight's memory
    beside it (up to 2.5 times while they are made), and one wait for the GPU. `prepared` is what is
    kept, or None. It is dropped by train(), by moves and conversions, and when the weight is
    another one or was changed in place; of a weight that changes between calls parts are made when
    it stays the same for two. It is in no state_dict, copy or pickle. Gradients are as without it.

    Under autocast, torch.func, torch.export and other precisions nothing is made or used. While a
    CUDA graph is captured or a function compiled nothing is made, but what is there is used: call
    the layer once before. A compiled function notices that the weight has changed; a captured graph
    does not, so capture again. `prepare=False`, as an argument or an attribute, switches all this
    off: do so where graphs are replayed with new weights, and where weights are written in eval
    mode through `weight.data`, which nothing can notice (or call train() and eval() after that).

    Example:
        >>> layer = tcgemm.nn.Linear(32, 48, activation="gelu")
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])
    """

    # Of the class, for a module that swap_linear or pickle made.
    activation: str | None = None
    prepare: bool = True
    _prepared = None
    _changed = None  # the weight's version when a call found it changed
    _captured = None  # parts that a CUDA graph reads, whatever becomes of the weight
    _OWN = ("_prepared", "_changed", "_captured")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        activation: str | None = None,
        prepare: bool = True,
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.prepare = prepare
        self._drop()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight, word = self.weight, None
        if self.prepare and not self.training and _multiplies_parts(input, weight):
            weight, word = self._kept(weight) or weight, "highest"
        return dense.linear(input, weight, self.bias, activation=self.activation, precision=word)

    @property
    def prepared(self):
        """The tcgemm.Prepared that eval mode keeps, or None."""
        return self._prepared

    def _kept(self, weight):
        """What is kept of the weight, or made now; None where neither can be."""
        if _exporting():
            return None
        kept = self._prepared
        recorded = not _compiling() and capturing(weight)
        if kept is not None and kept.weight is weight and kept.watch.fresh:
            if recorded:
                self._captured = kept
            return kept
        if recorded or _compiling() or weight.is_inference():
            return None
        if kept is not None or self._changed not in (None, weight._version):
            self._prepared, self._changed = None, weight._version
            return None
        self._prepared, self._changed = prepare_weight(weight), None
        return self._prepared

    def _drop(self, names=_OWN):
        """Of the module itself, so that compiled functions see it when parts are there."""
        for name in names:
            vars(self)[name] = None

    def train(self, mode: bool = True):
        if mode:
            self._drop(self._OWN[:2])
        return super().train(mode)

    def _apply(self, fn, recurse=True):
        self._drop()
        return super()._apply(fn, recurse)

    def __getstate__(self):
        return vars(self) | dict.fromkeys(self._OWN)

    def extra_repr(self) -> str:
        activation = "" if self.activation is None else f", activation={self.activation}"
        return super().extra_repr() + activation + ("" if self.prepare else ", prepare=False")


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
        dense.check_layout(weight, weight.t())
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
