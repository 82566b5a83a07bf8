"""tcgemm.compare of a model: its linear layers one by one, and its forward as a whole.

    eval mode -> forward -> swap_linear -> forward that records every layer's input -> undo
    forward and swapped forward in alternating slices, undone after each
    one row for each distinct layer: random weights and inputs of its shape, past the cache

The model is as before afterwards, also if something raises: classes, weights, training flags,
buffers, hooks, and torch's random state.
"""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import tcgemm
from tcgemm.measure import machine, timing
from tcgemm.measure.compare.layers import Layer, LayerWork, record
from tcgemm.measure.compare.measure import measured
from tcgemm.measure.compare.request import COMPARE
from tcgemm.measure.compare.result import Comparison
from tcgemm.measure.results import EMPTY, Row, busy
from tcgemm.measure.work import METHOD
from tcgemm.nn import Linear, PackedLinear, QuantLinear, SparseLinear24
from tcgemm.nn.exchange import layer_of, name_of

WEIGHTS_AS_BUFFERS = (QuantLinear, PackedLinear, SparseLinear24)  # which no forward changes
OF_MODELS = ("filter_fn", "skip", "shared")  # options of swap_linear that no single layer has
ROUNDS = 4  # of the whole forward, each with one slice before the swap and one after it


def compare_model(
    model: torch.nn.Module,
    example_input: Any,
    *,
    to: type[torch.nn.Module],
    options: dict[str, Any],
    against: Any,
    seconds: float | None,
    progress: Any,
) -> Comparison:
    """tcgemm.compare with a model. options: the options of swap_linear."""
    if to is torch.nn.Linear:
        raise COMPARE.refuse(
            "to is torch.nn.Linear, which is what tcgemm is compared with; pass "
            "tcgemm.nn.Linear, QuantLinear or SparseLinear24."
        )
    functions, progress = COMPARE.baselines(against), COMPARE.progress(progress)
    keywords = example_input if isinstance(example_input, Mapping) else {}
    positional = () if isinstance(example_input, Mapping) else example_input
    if not isinstance(positional, tuple | list):
        positional = (positional,)
    forward = functools.partial(model, *positional, **keywords)
    device, gpus = _devices(model)
    seconds = COMPARE.seconds(seconds, device)
    swap = functools.partial(tcgemm.swap_linear, model, to=to, **options)
    ours = [(name, module) for name, module in model.named_modules() if layer_of(module)]
    kinds = {name: name_of(type(module)) for name, module in ours}
    with machine.current(device):
        with _kept(model, device), torch.no_grad():
            progress(f"forward of {type(model).__name__}, before and after the swap")
            layers, report, difference = _layers(model, forward, swap)
            if kinds and not report.swapped:
                raise _swapped_already(kinds)
            before, after = _forward_times(forward, swap, gpus, seconds)
        layers.sort(key=lambda layer: -len(layer.calls) * layer.case.flops)
        of_layers = {name: value for name, value in options.items() if name not in OF_MODELS}
        work = functools.partial(LayerWork, to=to, options=of_layers)
        swapped = [layer for layer in layers if not layer.why_not]
        name = "linear" if to is Linear else to.__name__
        jobs = [(functools.partial(work, layer), layer.head(name)) for layer in swapped]
        others = [
            layer.head(name) | EMPTY | {"why": f"not swapped: {layer.why_not}"}
            for layer in layers
            if layer.why_not
        ]
        facts = machine.facts(device) | {"method": METHOD}
        facts["model"] = {
            "name": type(model).__name__,
            "to": f"{to.__module__}.{to.__qualname__}",
            "before_us": round(before.us, 3),
            "before_iqr_us": round(before.iqr_us, 3),
            "after_us": round(after.us, 3),
            "after_iqr_us": round(after.iqr_us, 3),
            "speedup": round(before.us / after.us, 4),
            "difference": difference,
            "tcgemm_before": len(kinds),
            **busy((before, after)),
            "coverage": report.coverage(),
            "swapped": len(report.swapped),
            "skipped": dict(report.skipped),
        }

        def result(rows: list[Row]) -> Comparison:
            return Comparison([*rows, *others], facts)

        common = {"device": device, "seconds": seconds, "progress": progress}
        return measured(jobs, functions, **common, result=result)


def _swapped_already(kinds: Mapping[str, str]) -> RuntimeError:
    """The error for a model with nothing left to swap. kinds: name -> class of its layers."""
    name, kind = next(iter(kinds.items()))
    return COMPARE.refuse(
        f"there is nothing to swap, and {len(kinds)} layers of the model are tcgemm's already "
        f"({name or 'the model'} is a {kind}), so that no time would be torch's; pass the model as "
        "it was before: undo() of the swap's report, or tcgemm.swap_linear(model, "
        "to=torch.nn.Linear), takes a swap back."
    )


def _devices(model: torch.nn.Module) -> tuple[torch.device, set[torch.device]]:
    """The device of the model's first tensor, and every GPU that it is on."""
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors:
        raise COMPARE.refuse("the model has no weights, so that there is nothing to compare.")
    device = tensors[0].device
    if device.type not in ("cpu", "cuda"):
        raise COMPARE.refuse(
            f"the model is on {device}, but is run on a CPU or a GPU; move it with model.to(...)."
        )
    return device, {tensor.device for tensor in tensors if tensor.is_cuda}


@contextlib.contextmanager
def _kept(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """eval mode; afterwards training flags, buffers and torch's random state are as before."""
    flags = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, _values(buffer))
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
                    if values is not None and not torch.equal(buffer, values):
                        buffer.copy_(values)


def _values(buffer: torch.Tensor) -> torch.Tensor | None:
    """A copy of an ordinary tensor. Classes of other libraries need not have clone and equal."""
    plain = type(buffer) is torch.Tensor and buffer.layout is torch.strided
    return buffer.detach().clone() if plain else None


def _layers(
    model: torch.nn.Module, forward: Callable[[], Any], swap: Callable[[], Any]
) -> tuple[list[Layer], Any, float]:
    """(the distinct layers that a forward calls, the swap's report, how far its outputs are)."""
    before = _tensors(forward())
    layers: dict[Any, Layer] = {}
    report = swap()
    hooks = []
    try:
        for name, reason in (dict.fromkeys(report.swapped, "") | report.skipped).items():
            hook = functools.partial(record, layers, name, reason)
            module = model.get_submodule(name)
            hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        with _eager():
            after = _tensors(forward())
    finally:
        for hook in hooks:
            hook.remove()
        report.undo()
    pairs = zip(before, after, strict=False)
    return list(layers.values()), report, max((_apart(*pair) for pair in pairs), default=0.0)


def _eager() -> Any:
    """A block in which functions under torch.compile run in eager mode, where hooks count calls."""
    if "torch._dynamo" in sys.modules:  # else nothing is compiled
        return torch.compiler.set_stance("force_eager")
    return contextlib.nullcontext()


def _tensors(output: Any) -> list[torch.Tensor]:
    """The floating-point tensors of a model's output."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, tuple | list):
        return [tensor for item in output for tensor in _tensors(item)]
    return []


def _apart(result: torch.Tensor, baseline: torch.Tensor) -> float:
    """|baseline - result| over |result|, in the Frobenius norm."""
    result, baseline = result.float(), baseline.float()
    norm = float(result.norm())
    return float(f"{float((baseline - result).norm()) / norm:.3g}") if norm else 0.0


def _forward_times(
    forward: Callable[[], Any], swap: Callable[[], Any], gpus: set[torch.device], seconds: float
) -> tuple[timing.Timing, timing.Timing]:
    """Microseconds of a forward with the host's part: (before the swap, after it)."""
    samples: dict[bool, list[timing.Sample]] = {False: [], True: []}
    for index in range(ROUNDS):
        for swapped in (index % 2 == 1, index % 2 == 0):
            report = swap() if swapped else None
            try:
                samples[swapped] += _forward_slice(forward, gpus, seconds / ROUNDS)
            finally:
                if report is not None:
                    report.undo()
    before, after = map(timing.Timing.of, samples.values())
    return before, after


def _forward_slice(
    forward: Callable[[], Any], gpus: set[torch.device], seconds: float
) -> list[timing.Sample]:
    """The times of forwards that follow one another for `seconds`, after one to warm up."""

    def run() -> None:
        forward()
        for gpu in gpus:
            torch.cuda.synchronize(gpu)

    run()
    samples, begin = [], time.perf_counter()
    while not samples or time.perf_counter() - begin < seconds:
        samples.append(timing.wall_clock(run))
    return samples
