"""torch.nn.Linear on tcgemm's products, and the exchange of a model's linear layers for it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tcgemm import dense, dtypes


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
    """What swap_linear did: names of modules in the model; "" is the model itself."""

    swapped: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    _modules: list[torch.nn.Module] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Makes every swapped module a torch.nn.Linear again; a second time does nothing."""
        for module in self._modules:
            if type(module) is Linear:
                module.__class__ = torch.nn.Linear
        self._modules.clear()

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
) -> SwapReport:
    """Makes every torch.nn.Linear in `model` a tcgemm.nn.Linear, and says which and why not.

    The modules stay the same objects with another class: Parameters, hooks, training flags,
    optimizers and references from elsewhere are untouched, and `model` itself may be a Linear.
    `filter_fn(module, name)` returns False for a layer that is to stay. The report's `undo()` takes
    everything back. Only exact torch.nn.Linear modules are swapped: a subclass has a forward, or a
    meaning, of its own.

    Example:
        >>> report = tcgemm.swap_linear(model, filter_fn=lambda module, name: name != "head")
        >>> print(report)  # doctest: +SKIP
        >>> report.undo()
    """
    report = SwapReport()
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        why_not = _why_not(module)
        if why_not is None and filter_fn is not None and not filter_fn(module, name):
            why_not = "filter_fn said no"
        if why_not is not None:
            report.skipped[name] = why_not
            continue
        module.__class__ = Linear
        report.swapped.append(name)
        report._modules.append(module)
    return report


def _why_not(module: torch.nn.Linear) -> str | None:
    if type(module) is Linear:
        return "is a tcgemm.nn.Linear already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "is parametrized"
    if type(module) is not torch.nn.Linear:
        return f"is a subclass of torch.nn.Linear ({type(module).__name__})"
    if "forward" in vars(module):
        return "has a forward of its own"
    device, dtype = module.weight.device.type, module.weight.dtype
    if device not in (*dtypes.DEVICES, "meta"):
        return f"is on {device}; there are products on {' and '.join(dtypes.DEVICES)}"
    autocast = device == "cuda" and dtype is torch.float32 and torch.is_autocast_enabled(device)
    supported = dtypes.supported("cpu" if device == "meta" else device)
    if dtype not in supported and not autocast:
        names = ", ".join(str(each) for each in supported)
        hint = "; inside torch.autocast float32 is swapped too" if device == "cuda" else ""
        return f"has weights of {dtype} on {device}; there are {names}{hint}"
    return None
