"""The time of a training step with tcgemm.nn.Float8Linear beside tcgemm.nn.Linear, in bf16.

    python -m benchmarks float8 --out benchmarks/results/float8/h200.json

    Linear      tcgemm.nn.Linear
    current     tcgemm.nn.Float8Linear, by swap_linear
    delayed     the same with scaling="delayed"

A step is a forward, a backward with the gradient of x, and a step of SGD. It is measured with one
layer and with a stack of four, where every other layer has the features the other way round.

    graph    in a CUDA graph: the time of the GPU
    eager    called from Python and waited for: host time included

The variants alternate in slices of one process after a warm-up slice. A row has the median of some
repetitions, the lowest and the highest, and the same of their ratios. Without a GPU the command
shows the stored results.
"""

from __future__ import annotations

import argparse
import copy
import re
from pathlib import Path
from typing import Any

import torch

import tcgemm
from benchmarks import RESULTS, medians
from benchmarks.models import waiting
from benchmarks.models.variants import difference
from tcgemm.measure import command_line, machine, protocol, results_file, telemetry, timing

FOLDER = RESULTS / "float8"
DTYPE = torch.bfloat16
BASELINE = "Linear"
# Name -> options of swap_linear; None: nothing is swapped.
VARIANTS: dict[str, dict[str, Any] | None] = {
    BASELINE: None,
    "current": {"to": tcgemm.nn.Float8Linear},
    "delayed": {"to": tcgemm.nn.Float8Linear, "scaling": "delayed"},
}
SIZES = ("4096x4096", "4096x14336")
LAYERS = (1, 4)
MODES = {"cuda": ("graph", "eager"), "cpu": ("eager",)}
METHOD = (
    "forward, backward and a step of SGD; variants in alternating slices after a warm-up slice; "
    "medians, lowest and highest of the repetitions and of their ratios"
)
Row = dict[str, Any]


class Step:
    """A training step of a model; a call is one step."""

    def __init__(self, model: torch.nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> None:
        self.model, self.gradient = model, gradient
        self.x = x.clone().requires_grad_()
        # A step takes the same time at every rate. At 0 the products stay as in the first step.
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def __call__(self, _: int) -> None:
        self.x.grad = None
        self.optimizer.zero_grad()
        self.model(self.x).backward(self.gradient)
        self.optimizer.step()


def features(size: str) -> tuple[int, int]:
    """(in_features, out_features) of "4096x14336"."""
    first, second = map(int, size.split("x"))
    return first, second


def models(size: str, layers: int, device: torch.device) -> dict[str, torch.nn.Module]:
    """{variant: the stack}; all variants have the weights of one seed."""
    torch.manual_seed(0)
    pair = features(size)
    options: dict[str, Any] = {"bias": False, "device": device, "dtype": DTYPE}
    shapes = [pair[:: -1 if index % 2 else 1] for index in range(layers)]
    base = torch.nn.Sequential(*(tcgemm.nn.Linear(*shape, **options) for shape in shapes))
    result: dict[str, torch.nn.Module] = {}
    for name, swap in VARIANTS.items():
        result[name] = copy.deepcopy(base)
        if swap is not None:
            tcgemm.swap_linear(result[name], **swap)
    return result


def rows_of(
    size: str, layers: int, tokens: int, repetitions: int, ms: float, device: torch.device
) -> list[Row]:
    """A row for each mode and variant of a stack."""
    nets = models(size, layers, device)
    options: dict[str, Any] = {"dtype": DTYPE, "device": device}
    x = torch.randn(tokens, features(size)[0], **options)
    with torch.no_grad():
        results = {name: model(x) for name, model in nets.items()}
    far = {name: difference(results[BASELINE], result) for name, result in results.items()}
    steps = {name: Step(model, x, torch.randn_like(results[name])) for name, model in nets.items()}
    return [
        {
            "size": size,
            "layers": layers,
            "mode": mode,
            "variant": name,
            **numbers,
            "difference": far[name],
        }
        for mode in MODES[device.type]
        for name, numbers in measurements(mode, steps, repetitions, ms, device).items()
    ]


def measurements(
    mode: str, steps: dict[str, Step], repetitions: int, ms: float, device: torch.device
) -> dict[str, Row]:
    """{variant: times, ratios, clock and power}."""
    sampler = telemetry.Sampler(telemetry.open_reader(device))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repetitions):
        if mode == "graph":
            timings = timing.measure(steps, 1, device=device, min_ms=ms, sampler=sampler)
        else:
            timings = waiting.eager(steps, device, ms, sampler)
        for name, sample in timings.items():
            times[name].append(sample.us)
    return {
        name: {
            "us": medians.three(sample, 2),
            "ratio": medians.three(
                [base / own for base, own in zip(times[BASELINE], sample, strict=True)], 4
            ),
            "repetitions": repetitions,
            "clock_mhz": sampler.clock_mhz,
            "power_w": sampler.power_w,
        }
        for name, sample in times.items()
    }


def lines(results: medians.Results) -> list[str]:
    """The results in words."""
    header = results["header"]
    result = [f"{header['gpu']}: training step, {header['tokens']} tokens, {header['dtype']}"]
    for row in results["rows"]:
        place = f"{row['layers']} x {row['size']:11} {row['mode']:5} {row['variant']:8}"
        result.append(f"{place} {medians.text(row, BASELINE)}")
    return result


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line.parser("benchmarks float8", __doc__)
    parser.add_argument("--out", type=Path, help="the file of results; without it only a table")
    parser.add_argument("--device", choices=MODES, default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--commit", help="the measured commit, if git does not know it")
    parser.add_argument("--ms", type=float, default=150.0, help="of a variant and repetition (150)")
    parser.add_argument(
        "--repetitions", type=int, default=protocol.REPETITIONS, help="(%(default)s)"
    )
    parser.add_argument("--tokens", type=int, default=8192, help="rows of x (%(default)s)")
    parser.add_argument("--sizes", default=",".join(SIZES), help="features (%(default)s)")
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)), help="(%(default)s)")
    parser.add_argument("--stored", type=Path, default=FOLDER, help="the folder of stored results")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*(,[1-9]\d*x[1-9]\d*)*", options.sizes):
        parser.error(
            f"--sizes is {options.sizes}, but it must have in_features and out_features; pass "
            "them as 4096x14336, with commas between sizes."
        )
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", options.layers):
        parser.error(f"--layers is {options.layers}, but it must have numbers of layers; pass 1,4.")
    if min(options.tokens, options.repetitions) < 1 or options.ms <= 0:
        parser.error(
            f"--tokens is {options.tokens}, --repetitions {options.repetitions} and --ms "
            f"{options.ms:g}, but all must be positive."
        )
    options.sizes, options.layers = options.sizes.split(","), options.layers.split(",")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("This measures training steps on a GPU, and torch finds none here. Stored results:")
        medians.show_stored(options.stored, lines)
        return 0
    device = torch.device(options.device)
    header = machine.facts(device) | {"method": METHOD, "tokens": options.tokens}
    header |= {"dtype": str(DTYPE).removeprefix("torch.")}
    header |= {"commit": options.commit or results_file.commit()}
    rows = []
    with machine.current(device):
        for size in options.sizes:
            for layers in map(int, options.layers):
                rest = (options.tokens, options.repetitions, options.ms, device)
                rows += rows_of(size, layers, *rest)
    results = {"header": header, "rows": rows}
    print("\n".join(lines(results)))
    if options.out:
        results_file.write(options.out, results)
    return 0
