"""The linear layers of a model: how a forward calls them, and one of them on random data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

import tcgemm
from tcgemm import dtypes
from tcgemm.measure import Plan
from tcgemm.measure.case import Case
from tcgemm.measure.timing import Timing
from tcgemm.measure.work import Checks, case_fields
from tcgemm.measure.workloads import Workload
from tcgemm.nn import Float8Linear, Linear, PackedLinear, QuantLinear, SparseLinear24
from tcgemm.typing import Layout


@dataclass
class Layer:
    """A distinct layer of the model: its product, and how often one forward computes it."""

    case: Case
    device: torch.device
    why_not: str = ""  # swap_linear's reason, if it left the layer as it was
    calls: list[str] = field(default_factory=list)  # the layer's name for each

    def head(self, function: str) -> dict[str, Any]:
        """The fields of its row. function: the product, or the layer that replaces it."""
        calls = {"count": len(self.calls), "layers": list(dict.fromkeys(self.calls))}
        return case_fields(self.case, self.device) | {"function": function} | calls


class LayerWork(Workload):
    """A layer before and after the swap, on random data: torch's linear, and the layer itself."""

    rounds_as_torch: bool
    swapped: torch.nn.ModuleList
    b: Sequence[torch.Tensor]

    def __init__(self, layer: Layer, to: type[torch.nn.Module], options: dict[str, Any]):
        super().__init__(layer.case, layer.device)
        self.rounds_as_torch = to is Linear  # 8-bit and 2:4 weights are others
        self.swapped = torch.nn.ModuleList(self._linear(weight) for weight in self.weights).eval()
        swap: Any = tcgemm.swap_linear  # the options of any `to`
        report = swap(self.swapped, to=to, shared=True, **options)  # share the bias
        for reason in report.skipped.values():
            raise RuntimeError(reason)
        for index in range(self.sets):  # the first call prepares a weight, but not in a capture
            self.call_tcgemm(index)
        prepared = getattr(self.swapped[0], "prepared", None)
        if prepared is not None:  # plan_on asks for it
            self.b = [prepared.t()]

    def _linear(self, weight: Any) -> torch.nn.Linear:
        linear = torch.nn.Linear(self.case.k, self.case.n, self.bias is not None, device="meta")
        linear.weight = torch.nn.Parameter(weight, requires_grad=False)
        if self.bias is not None:
            linear.bias = torch.nn.Parameter(self.bias, requires_grad=False)
        return linear

    @property
    def plan(self) -> Plan:
        """The kernel and the reason for it; empty for a layer of another kind than torch's."""
        return super().plan if self.rounds_as_torch else Plan("", "")

    @property
    def bytes(self) -> int | None:
        """Bytes of memory traffic; None for a layer of another kind than torch's."""
        return super().bytes if self.rounds_as_torch else None

    def call_tcgemm(self, index: int) -> torch.Tensor:
        """Calls the swapped layer with the weights and the input of one set."""
        return self.swapped[index](self.operands.a[index])

    def facts(self, timings: Mapping[str, Timing]) -> dict[str, Any]:
        """The form of the weight, where the swap gave it another one."""
        form = _form_of(self.swapped[0])
        return {"weight": form} if form else {}

    def check(self) -> Checks:
        """(max_error_ratio, None); None for layers with other weights than the model's."""
        if not self.rounds_as_torch:
            return None, None
        return self.error_ratio(self.call_tcgemm(0)), None


def _form_of(layer: torch.nn.Module) -> str:
    """The dtype or format in which a layer multiplies its weight; "" for that of its input."""
    if isinstance(layer, PackedLinear):
        return layer.format
    if isinstance(layer, QuantLinear):
        return dtypes.NAMES[layer.dtype]
    if isinstance(layer, Float8Linear):
        return dtypes.NAMES[torch.float8_e4m3fn]
    return "2:4" if isinstance(layer, SparseLinear24) else ""


class Product(NamedTuple):
    """A product of x (..., K) that a layer computes."""

    x: torch.Tensor
    n: int
    bias: bool
    layout: Layout = "TN"
    part: str = ""  # of the layer's name


def record(
    layers: dict[Any, Layer],
    name: str,
    reason: str,
    module: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> None:
    """A hook before a layer's forward: counts its products by their shapes."""
    for product in _products(module, arguments, keywords):
        x, dtype = product.x, product.x.dtype
        if not x.numel() or not product.n:
            continue
        if torch.is_autocast_enabled(x.device.type) and dtype.is_floating_point:
            dtype = torch.get_autocast_dtype(x.device.type)
        tf32 = dtype is torch.float32 and x.is_cuda and torch.backends.cuda.matmul.allow_tf32
        name_of_dtype = "tf32" if tf32 else dtypes.NAMES.get(dtype, str(dtype))
        size = (x.numel() // x.shape[-1], product.n, x.shape[-1])
        epilogue = "bias" if product.bias else "none"
        case = Case("linear", name_of_dtype, product.layout, *size, epilogue=epilogue)
        layer = layers.setdefault((case, x.device, reason), Layer(case, x.device, reason))
        layer.calls.append(name + product.part)


def _products(
    module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Iterator[Product]:
    """The products of a linear layer, of transformers' Conv1D, or of attention's inputs."""
    x = next(iter([*arguments, *keywords.values()]), None)
    if isinstance(module, tcgemm.nn.MultiheadAttention):  # out_proj is a layer of its own
        yield from _projections(module, *arguments, **keywords)
    elif isinstance(x, torch.Tensor) and hasattr(module, "out_features"):
        yield Product(x, module.out_features, module.bias is not None)
    elif isinstance(x, torch.Tensor) and hasattr(module, "nf"):
        yield Product(x, module.nf, module.bias is not None, "NN")


def _projections(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any
) -> Iterator[Product]:
    """As tcgemm.nn.MultiheadAttention computes them: inputs that are one tensor in one product."""
    size, bias = module.embed_dim, module.in_proj_bias is not None
    groups = [(query, size), (key, size), (value, size)]
    if module.in_proj_weight is not None and key is value:
        groups = [(query, 3 * size)] if query is key else [(query, size), (key, 2 * size)]
    for x, n in groups:
        yield Product(x, n, bias, part=".in_proj")
