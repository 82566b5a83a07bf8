"""The Conv1D of transformers (GPT-2 and others), a linear layer whose weight is (in, out)."""

from __future__ import annotations

from typing import Any

import torch

from tcgemm.nn import exchange
from tcgemm.nn.constant import ConstantWeights
from tcgemm.nn.layer import Loading
from tcgemm.nn.linear import Linear
from tcgemm.nn.quant_linear import QuantLinear
from tcgemm.operands.quant.linear import SOURCES
from tcgemm.ops import functional
from tcgemm.ops.arguments import check_flag


class Conv1D(ConstantWeights):
    """transformers.pytorch_utils.Conv1D computed by tcgemm: x @ weight + bias.

    Example:
        >>> layer = tcgemm.nn.Conv1D(48, 32)
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])

    Arguments, initialisation, attributes and state_dict are as in transformers, which need not
    be installed. tcgemm.swap_linear makes such layers of the Conv1D layers in a model. Dtypes and
    errors are the same as for tcgemm.linear.

    Arguments:
        nf (int): the number of output features.
        nx (int): the number of input features.
        batch_invariant, constant_weights (bool): as for tcgemm.nn.Linear.

    Shapes: x (..., nx) -> (..., nf); weight (nx, nf), bias (nf,).
    """

    nf: int
    nx: int
    weight: torch.nn.Parameter
    bias: torch.nn.Parameter
    original: type[torch.nn.Module] | None = None  # the class that swap_linear found
    batch_invariant: bool = False

    def __init__(
        self, nf: int, nx: int, *, batch_invariant: bool = False, constant_weights: bool = False
    ) -> None:
        super().__init__()
        check_flag("nn.Conv1D", "batch_invariant", batch_invariant)
        self.nf, self.nx = nf, nx
        self.batch_invariant = batch_invariant
        self.constant_weights = constant_weights
        self.weight = torch.nn.Parameter(torch.empty(nx, nf, device=None))
        self.bias = torch.nn.Parameter(torch.zeros(nf, device=None))
        torch.nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        options: dict[str, Any] = {"batch_invariant": self.batch_invariant}
        if self._constant is not None and self._is_constant():
            options["constant_b"] = True
        return functional.linear(x, self.weight.t(), self.bias, **options)

    def _product(self, rows: int) -> Any:
        return self.weight.new_empty(rows, self.nx), self.weight, {}

    def extra_repr(self) -> str:
        names = ("batch_invariant", "constant_weights")
        words = "".join(f", {name}=True" for name in names if getattr(self, name))
        return f"nf={self.nf}, nx={self.nx}{words}"


class QuantConv1D(QuantLinear):
    """A QuantLinear in the place of a Conv1D: tcgemm.swap_linear makes it.

    Example:
        >>> model = torch.nn.Sequential(tcgemm.nn.Conv1D(48, 32))
        >>> report = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
        >>> type(model[0]).__name__, model[0](torch.randn(10, 32)).shape
        ('QuantConv1D', torch.Size([10, 48]))

    Its state_dict is the one of a QuantLinear, with weight (nf, nx). load_state_dict also takes the
    state_dict of the Conv1D, with weight (nx, nf).
    """

    original: type[torch.nn.Module] | None = None  # the class that swap_linear found

    def _before_load(self, loading: Loading) -> None:
        key = loading.prefix + "weight"
        weight = loading.state.get(key)
        if isinstance(weight, torch.Tensor) and weight.dtype in SOURCES and weight.dim() == 2:
            loading.state[key] = weight.t()
        super()._before_load(loading)


def _is_theirs(kind: type) -> bool:
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")


def _original(module: Any) -> dict[str, Any]:
    return {"original": type(module) if _is_theirs(type(module)) else module.original}


def _state(module: Any, prepare: bool = True, batch_invariant: bool = False) -> dict[str, Any]:
    return {**_original(module), "batch_invariant": batch_invariant}


def _quantised(module: Any, **options: Any) -> dict[str, Any]:
    nx, nf = module.weight.shape
    invariant = getattr(module, "batch_invariant", False)
    linear = Linear(nx, nf, device="meta", batch_invariant=invariant)
    linear.weight, linear.bias = torch.nn.Parameter(module.weight.detach().t()), module.bias
    state = exchange.LAYERS[QuantLinear].state(linear, **options)
    return {**state, "in_features": nx, "out_features": nf, **_original(module)}


CONV1D = exchange.Source(
    "transformers' Conv1D",
    lambda module: any(_is_theirs(base) for base in type(module).__mro__),
    lambda module: _is_theirs(type(module)),
)
CONV1D_OR_OURS = CONV1D._replace(
    includes=lambda module: CONV1D.includes(module) or isinstance(module, Conv1D),
    exactly=lambda module: CONV1D.exactly(module) or type(module) is Conv1D,
)

exchange.register(
    exchange.Exchange(
        layer=Conv1D,
        options=exchange.LAYERS[Linear].options,
        names=("original", "batch_invariant"),
        state=_state,
        why_not=exchange.LAYERS[Linear].why_not,
        source=CONV1D,
        to=Linear,
    )
)
exchange.register(
    exchange.Exchange(
        layer=QuantConv1D,
        options=exchange.LAYERS[QuantLinear].options,
        names=(*exchange.LAYERS[QuantLinear].names, "in_features", "out_features", "original"),
        state=_quantised,
        why_not=exchange.LAYERS[QuantLinear].why_not,
        source=CONV1D_OR_OURS,
        to=QuantLinear,
    )
)
