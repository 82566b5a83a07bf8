"""tcgemm.compare of a model: its linear layers one by one, and its forward as a whole.

    eval mode -> forward -> swap_linear -> forward that records every layer's input -> undo
    forward and swapped forward in alternating slices, undone after each
    one row for each distinct layer: random weights and inputs of its shape, past the cache

The model is as before afterwards, also if something raises: classes, weights, training flags,
buffers, hooks, and torch's random state.
"""

import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import tcgemm
from tcgemm import dtypes
from tcgemm.bench.case import Case
from tcgemm.bench.workloads import BUDGET, Workload
from tcgemm.comparison import measure, request
from tcgemm.comparison.result import Comparison
from tcgemm.comparison.shapes import progress_of, run
from tcgemm.nn import Linear, QuantLinear, SparseLinear24
from tcgemm.testing import machine, numerics

NAMES = {row.torch: row.name for row in dtypes.TABLE}
WEIGHTS_AS_BUFFERS = (QuantLinear, SparseLinear24)  # which no forward changes
ROUNDS = 4  # of the whole forward, each with one slice before the swap and one after it


@dataclass
class Layer:
    """A distinct layer of the model: its product, and how often one forward computes it."""

    case: Case
    device: torch.device
    why_not: str = ""  # swap_linear's reason, if it left the layer as it was
    names: dict[str, None] = field(default_factory=dict)
    count: int = 0

    def head(self, function: str) -> dict[str, Any]:
        """The fields of its row. function: the product, or the layer that replaces it."""
        why = f"not swapped: {self.why_not}" if self.why_not else ""
        found = {"count": self.count, "layers": list(self.names), "why": why}
        return measure.head(self.case) | {"function": function} | found


class LayerWork(Workload):
    """A layer before and after the swap, on random data: torch's linear, and the layer itself."""

    def __init__(self, layer: Layer, to: type[torch.nn.Module], options: dict[str, Any]):
        super().__init__(layer.case, layer.device)
        self.swapped = [self._swapped(weight, to, options) for weight in self.weights]
        self.rounds_as_torch = to is Linear  # 8-bit and 2:4 weights are others

    def _swapped(self, weight, to, options) -> torch.nn.Module:
        linear = torch.nn.Linear(self.case.k, self.case.n, self.bias is not None, device="meta")
        linear.weight = torch.nn.Parameter(weight, requires_grad=False)
        if self.bias is not None:
            linear.bias = torch.nn.Parameter(self.bias, requires_grad=False)
        report = tcgemm.swap_linear(linear.eval(), to=to, **options)
        for why in report.skipped.values():
            raise RuntimeError(why)
        return linear

    @property
    def plan(self):
        found = super().plan
        return found if self.rounds_as_torch else found._replace(kernel="", why="")

    def call_tcgemm(self, index, keep=True):
        return self.swapped[index](self.operands.a[index])

    def check(self):
        """(max_error_ratio, None); None for layers whose weights are not those of the model."""
        if not self.rounds_as_torch:
            return None, None
        ratio = numerics.error_ratio(
            *(self.call_tcgemm(0), *self.multiplied()),
            accumulation=self.case.accumulation,
            dtype=self.case.dtype,
            budget=BUDGET[self.device.type],
            bias=self.bias,
        )
        return ratio, None


def compare_model(
    model: torch.nn.Module,
    example_input: Any,
    *,
    to: type[torch.nn.Module],
    filter_fn: Any,
    options: dict[str, Any],
    against: Any,
    seconds: float | None,
    progress: Any,
) -> Comparison:
    """tcgemm.compare with a model."""
    functions, progress = request.baselines_of(against), progress_of(progress)
    forward = functools.partial(_forward, model, *_arguments(example_input))
    device = _device(model)
    seconds = request.seconds_of(seconds, device)
    swap = functools.partial(tcgemm.swap_linear, model, filter_fn, to=to, **options)
    with machine.current(device):
        with _kept(model, device), torch.no_grad():
            progress(f"forward of {type(model).__name__}, before and after the swap")
            layers, report, difference = _layers(model, forward, swap)
            before, after = _forward_times(forward, swap, device, seconds)
        layers.sort(key=lambda layer: -layer.count * layer.case.flops)
        work = functools.partial(LayerWork, to=to, options=options)
        swapped = [layer for layer in layers if not layer.why_not]
        name = "linear" if to is Linear else to.__name__
        jobs = [(functools.partial(work, layer), layer.head(name)) for layer in swapped]
        rows = run(jobs, functions, device=device, seconds=seconds, progress=progress)
        rows += [layer.head(name) for layer in layers if layer.why_not]
        facts = machine.facts(device) | {"method": measure.METHOD}
    facts["model"] = {
        "name": type(model).__name__,
        "to": f"{to.__module__}.{to.__qualname__}",
        "before_us": round(before, 3),
        "after_us": round(after, 3),
        "speedup": round(before / after, 4),
        "difference": difference,
        "swapped": len(report.swapped),
        "skipped": dict(report.skipped),
    }
    return Comparison(rows, facts)


def _arguments(example_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional, keyword) arguments of the model's forward."""
    if isinstance(example_input, Mapping):
        return (), dict(example_input)
    if isinstance(example_input, tuple | list):
        return tuple(example_input), {}
    return (example_input,), {}


def _forward(model, positional, keywords):
    return model(*positional, **keywords)


def _device(model: torch.nn.Module) -> torch.device:
    """The device of the model's first tensor."""
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors:
        raise request.refuse("the model has no weights, so that there is nothing to compare.")
    device = tensors[0].device
    if device.type not in ("cpu", "cuda"):
        raise request.refuse(
            f"the model is on {device}, but is run on a CPU or a GPU; move it with model.to(...)."
        )
    return device


@contextlib.contextmanager
def _kept(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """eval mode; afterwards training flags, buffers and torch's random state are as before."""
    flags = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        if not isinstance(module, WEIGHTS_AS_BUFFERS)
        for name, buffer in module.named_buffers(recurse=False)
    ]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            model.eval()
            yield
        finally:
            for module, training in flags:
                module.training = training
            with torch.no_grad():
                for module, name, buffer, values in buffers:
                    if getattr(module, name, None) is not buffer:
                        setattr(module, name, buffer)
                    if not torch.equal(buffer, values):
                        buffer.copy_(values)


def _layers(model, forward, swap) -> tuple[list[Layer], Any, float]:
    """(the distinct layers that a forward calls, the swap's report, how far its outputs are)."""
    before = _tensors(forward())
    found: dict[Any, Layer] = {}
    report = swap()
    names = dict.fromkeys(report.swapped, "") | report.skipped
    hooks = []
    try:
        for name, why_not in names.items():
            module = model.get_submodule(name)
            if hasattr(module, "in_features") and hasattr(module, "out_features"):
                record = functools.partial(_record, found, name, why_not)
                hooks.append(module.register_forward_pre_hook(record, with_kwargs=True))
        with _eager():
            after = _tensors(forward())
    finally:
        for hook in hooks:
            hook.remove()
        report.undo()
    pairs = zip(before, after, strict=False)
    return list(found.values()), report, max((_apart(*pair) for pair in pairs), default=0.0)


def _eager():
    """A block in which functions under torch.compile run in eager mode, where hooks count calls."""
    if "torch._dynamo" in sys.modules:  # else nothing is compiled
        return torch.compiler.set_stance("force_eager")
    return contextlib.nullcontext()


def _record(found, name, why_not, module, arguments, keywords) -> None:
    """Counts a call of a layer, by its shape."""
    x = next(iter([*arguments, *keywords.values()]), None)
    k, n = module.in_features, module.out_features
    if not isinstance(x, torch.Tensor) or not x.numel() or not k or not n:
        return
    dtype = x.dtype
    if torch.is_autocast_enabled(x.device.type) and dtype.is_floating_point:
        dtype = torch.get_autocast_dtype(x.device.type)
    tf32 = dtype is torch.float32 and x.is_cuda and torch.backends.cuda.matmul.allow_tf32
    dtype = "tf32" if tf32 else NAMES.get(dtype, str(dtype))
    bias = getattr(module, "bias", None) is not None
    case = Case(*("linear", dtype, "TN", x.numel() // k, n, k), epilogue="bias" if bias else "none")
    layer = found.setdefault((case, x.device, why_not), Layer(case, x.device, why_not))
    layer.names[name] = None
    layer.count += 1


def _tensors(output: Any) -> list[torch.Tensor]:
    """The floating-point tensors of a model's output."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, tuple | list):
        return [tensor for item in output for tensor in _tensors(item)]
    return []


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """|other - one| over |one|, in the Frobenius norm."""
    one, other = one.float(), other.float()
    norm = float(one.norm())
    return float(f"{float((other - one).norm()) / norm:.3g}") if norm else 0.0


def _forward_times(
    forward: Callable[[], Any], swap: Callable[[], Any], device: torch.device, seconds: float
) -> tuple[float, float]:
    """Median microseconds of a forward with the host's part: (before the swap, after it)."""
    samples: dict[bool, list[float]] = {False: [], True: []}
    for index in range(ROUNDS):
        for swapped in (index % 2 == 1, index % 2 == 0):
            report = swap() if swapped else None
            try:
                samples[swapped] += _forward_slice(forward, device, seconds / ROUNDS)
            finally:
                if report is not None:
                    report.undo()
    return statistics.median(samples[False]), statistics.median(samples[True])


def _forward_slice(forward, device: torch.device, seconds: float) -> list[float]:
    """Microseconds of forwards that follow one another for `seconds`, after one to warm up."""

    def timed() -> float:
        start = time.perf_counter()
        forward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - start) * 1e6

    timed()
    samples, begin = [], time.perf_counter()
    while not samples or time.perf_counter() - begin < seconds:
        samples.append(timed())
    return samples
