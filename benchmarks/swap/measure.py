"""The speed and the memory of a Llama-like model before and after tcgemm.swap_linear.

    python -m benchmarks swap --out benchmarks/results/swap/h200.json

    torch              torch.nn.Linear, bf16
    Linear             tcgemm.nn.Linear, bf16
    QuantLinear e4m3   8-bit weights, a scale for each row; the head stays torch's
    QuantLinear int8
    SparseLinear24     2:4 sparse bf16 weights; the head stays torch's

One forward of 1, 16 and 2048 tokens without a cache, in two modes:

    graph    in a CUDA graph: the time of the GPU
    eager    called from Python, with a synchronisation after each forward: host time included

The models alternate in slices of one process after a warm-up slice. A row has the median and the
interquartile range. `weight_bytes` is the memory that a model holds, `peak_bytes` what a forward of
the longest input takes besides. `python -m benchmarks pictures` draws the file.
"""

import argparse
import copy
import dataclasses
import functools
import gc
from pathlib import Path
from typing import Any

import torch

import tcgemm
from benchmarks.models import waiting
from benchmarks.models.stack import Decoder, Sizes, build
from benchmarks.models.variants import BASELINE, SWAPS, difference
from tcgemm.measure import command_line, machine, results_file, telemetry, timing

DTYPE = torch.bfloat16
TOKENS = (1, 16, 2048)
# Name -> options of swap_linear; None: nothing is swapped.
VARIANTS: dict[str, dict[str, Any] | None] = {BASELINE: None, **SWAPS}
METHOD = (
    "one forward without a cache, random weights and tokens; models in alternating slices after a "
    "warm-up slice, medians with interquartile ranges"
)


def swapped(base: Decoder, options: dict[str, Any] | None) -> Decoder:
    """A copy of the model with its layers swapped."""
    model = copy.deepcopy(base)
    if options is not None:
        tcgemm.swap_linear(model, **options)  # the report holds the old weights: it is dropped
    return model


def held_bytes(model: torch.nn.Module) -> int:
    """The bytes of the parameters and buffers of a model on the CPU."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.nbytes for tensor in tensors)


def models(sizes: Sizes, device: torch.device) -> tuple[dict[str, Decoder], dict[str, int]]:
    """({variant: model}, {variant: bytes that it holds})."""
    base = build(sizes, device, DTYPE)
    result, sizes_of = {}, {}
    for name, options in VARIANTS.items():
        before = _allocated(device)
        result[name] = swapped(base, options)
        after = _allocated(device)
        sizes_of[name] = held_bytes(result[name]) if after is None else after - before
    return result, sizes_of


def _allocated(device: torch.device) -> int | None:
    gc.collect()
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def peak_bytes(model: Decoder, ids: torch.Tensor) -> int | None:
    """The most memory that a forward takes beside the weights; None on the CPU."""
    if not ids.is_cuda:
        return None
    model(ids)  # libraries allocate their workspaces in the first call
    before = torch.cuda.memory_allocated(ids.device)
    torch.cuda.reset_peak_memory_stats(ids.device)
    model(ids)
    return torch.cuda.max_memory_allocated(ids.device) - before


def rows_of(
    nets: dict[str, Decoder], ids: torch.Tensor, mode: str, ms: float
) -> list[dict[str, Any]]:
    """One row for each variant: the forward of these tokens."""
    sampler = telemetry.Sampler(telemetry.open_reader(ids.device))
    calls: dict[str, waiting.Call] = {
        name: functools.partial(lambda model, _: model(ids), model) for name, model in nets.items()
    }
    if mode == "graph":
        timings = timing.measure(calls, 1, device=ids.device, min_ms=ms, sampler=sampler)
    else:
        timings = waiting.eager(calls, ids.device, ms, sampler)
    return [
        {
            "variant": name,
            "tokens": ids.shape[1],
            "mode": mode,
            "us": round(sample.us, 2),
            "iqr_us": round(sample.iqr_us, 2),
            "samples": sample.samples,
            "ratio": float(f"{timings[BASELINE].us / sample.us:.4g}"),
            "clock_mhz": sampler.clock_mhz,
            "power_w": sampler.power_w,
        }
        for name, sample in timings.items()
    ]


def measure(
    sizes: Sizes, tokens: tuple[int, ...], device: torch.device, ms: float
) -> dict[str, Any]:
    """The content of the file of results."""
    modes = ("graph", "eager") if device.type == "cuda" else ("eager",)
    with machine.current(device), torch.no_grad():
        nets, weight_bytes = models(sizes, device)
        inputs = [torch.randint(sizes.vocabulary, (1, count), device=device) for count in tokens]
        expected = nets[BASELINE](inputs[-1])
        variants = [
            {
                "variant": name,
                "weight_bytes": weight_bytes[name],
                "peak_bytes": peak_bytes(model, inputs[-1]),
                "difference": difference(expected, model(inputs[-1])),
            }
            for name, model in nets.items()
        ]
        rows = [row for mode in modes for ids in inputs for row in rows_of(nets, ids, mode, ms)]
    weights = sum(parameter.numel() for parameter in nets[BASELINE].parameters())
    header = machine.facts(device) | {
        "method": METHOD,
        "dtype": str(DTYPE).removeprefix("torch."),
        "model": dataclasses.asdict(sizes) | {"weights": weights},
    }
    return {"header": header, "variants": variants, "rows": rows}


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line.parser("benchmarks swap", __doc__)
    parser.add_argument("--out", type=Path, help="the file of results; without it only a table")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--commit", help="the measured commit, if git does not know it")
    parser.add_argument("--ms", type=float, default=500.0, help="time per model and row (500)")
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)), help="lengths of the input")
    for field in dataclasses.fields(Sizes):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    options = parser.parse_args(argv)
    options.device = options.device or command_line.default_device()
    options.tokens = tuple(sorted(int(count) for count in options.tokens.split(",")))
    if options.tokens[-1] > options.positions:
        parser.error(f"--tokens {options.tokens[-1]}: --positions is {options.positions}.")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    sizes = Sizes(**{x.name: getattr(options, x.name) for x in dataclasses.fields(Sizes)})
    results = measure(sizes, options.tokens, torch.device(options.device), options.ms)
    results["header"]["commit"] = options.commit or results_file.commit()
    for variant in results["variants"]:
        size, far = variant["weight_bytes"] / 1e9, variant["difference"]
        print(f"{variant['variant']:18} {size:7.3f} GB, output differs by {far:g}")
    for row in results["rows"]:
        text = f"{row['us']:10.1f} us +- {row['iqr_us']:.1f}, {row['ratio']:.2f} x torch's speed"
        print(f"{row['variant']:18} {row['mode']:6} {row['tokens']:5} tokens {text}")
    if options.out:
        results_file.write(options.out, results)
    return 0
