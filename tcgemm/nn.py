"""torch.nn.Linear on tcgemm's products, and the exchange of a model's linear layers for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tcgemm import dense, dtypes, precision, quantized
from tcgemm.quant_linear import QuantLinear

__all__ = ["Linear", "QuantLinear", "SwapReport", "swap_linear"]


class Linear(torch.nn.Linear):
    """torch.nn.Linear with an optional fused activation: act(x @ weight.t() + bias).

    Arguments, initialisation and state_dict are torch.nn.Linear's; `activation` is "relu", "gelu",
    "gelu_tanh", "silu" or None. x (..., in_features) -> (..., out_features). Errors and dtypes are
    tcgemm.linear's.

    Example:
        >>> layer = tcgemm.nn.Linear(32, 48, activation="gelu")
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])
    """

    activation: str | None = None  # of the class, for a module that swap_linear or pickle made

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        activation: str | None = None,
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return dense.linear(input, self.weight, self.bias, activation=self.activation)

    def extra_repr(self) -> str:
        activation = "" if self.activation is None else f", activation={self.activation}"
        return super().extra_repr() + activation


@dataclass
class SwapReport:
    """What swap_linear did: names of modules in the model; "" is the model itself.

    After a swap to QuantLinear the report holds the weights that undo() puts back: the memory is
    free when the report is gone.
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

    to: tcgemm.nn.Linear, whose Parameters stay the same, so that optimizers go on; or
    tcgemm.nn.QuantLinear, which also takes tcgemm.nn.Linear layers, and whose weights become
    buffers of 8 bits. `options` are then those of QuantLinear.from_linear: dtype, granularity.

    Raises RuntimeError if `to` or an option is none of these.

    Example:
        >>> report = tcgemm.swap_linear(model, filter_fn=lambda module, name: name != "head")
        >>> print(report)  # doctest: +SKIP
        >>> report.undo()
        >>> int8 = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype=torch.int8)
        >>> int8.undo()
    """
    if to not in (Linear, QuantLinear) or (to is Linear and options):
        raise RuntimeError(
            f"tcgemm.swap_linear: to is {to!r} with options {sorted(options)}, but there are "
            "tcgemm.nn.Linear, without options, and tcgemm.nn.QuantLinear with dtype and "
            "granularity."
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
        report._undo.append(_turn(module, to, options))
        report.swapped.append(name)
    return report


# What a QuantLinear has in vars() that a Linear has not, or otherwise.
_QUANTISED = ("_parameters", "_buffers", "granularity", "activation")


def _turn(module, to, options) -> Callable[[], None]:
    """Changes a module's class, and its tensors where `to` has others; returns the way back."""
    before = type(module)
    kept = {}
    if to is QuantLinear:
        layer = vars(QuantLinear.from_linear(module, **options))
        kept = {name: vars(module)[name] for name in _QUANTISED if name in vars(module)}
        vars(module).update({name: layer[name] for name in _QUANTISED})
    module.__class__ = to

    def undo():
        if type(module) is not to:  # exchanged meanwhile
            return
        if to is QuantLinear:
            device = module.weight.device
            for name in _QUANTISED:
                del vars(module)[name]
            vars(module).update(kept)
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(device)
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
    if to is QuantLinear:
        return _why_not_quantised(module, dtype)
    if dtype not in dtypes.DIFFERENTIABLE:
        names = ", ".join(str(each) for each in dtypes.DIFFERENTIABLE)
        return f"has weights of {dtype} on {device}; there are {names}"
    exact = device == "cuda" and dtype is torch.float32 and precision.default() == "highest"
    if exact and not torch.is_autocast_enabled(device):
        return (
            'has weights of torch.float32 on cuda, and the precision is "highest"; it is swapped '
            'after torch.set_float32_matmul_precision("high"), or inside torch.autocast'
        )
    return None


def _why_not_quantised(module: torch.nn.Linear, dtype: torch.dtype) -> str | None:
    if dtype not in quantized.SOURCES:
        names = ", ".join(str(each) for each in quantized.SOURCES)
        return f"has weights of {dtype}; those of {names} are quantised"
    if "weight" not in module._parameters:
        return "has a weight that is computed from others, as pruning does"
    return None
