"""Products with packed weights beside products with weights of 16 bits, and torch's int4 product.

    weights rotated past L2 -> one CUDA graph a candidate -> medians and quartiles in microseconds

Every shape is N x K of the weight. The candidates alternate within one process.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import tcgemm
from tcgemm.measure import command_line, machine, results_file, telemetry, timing

SHAPES = ((28672, 4096), (4096, 14336), (4096, 4096))
# {format: (group size, rows of x)}
FORMATS: dict[str, tuple[int | None, tuple[int, ...]]] = {
    "int4": (128, (1, 4, 16, 32, 64, 128, 512, 2048, 8192)),
    "int8": (None, (1, 16)),
    "e4m3": (None, (1, 16)),
    "nf4": (64, (1, 16)),
    "mxfp4": (32, (1, 16)),
}
PACKS = 15
ROTATED = 150e6  # bytes of weights, beyond the 50 MB of L2


def weights(bytes_of_one: int) -> int:
    """How many weights the calls rotate over."""
    return max(2, math.ceil(ROTATED / bytes_of_one))


def torch_int4(n: int, k: int, group: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weights of torch's int4 product: codes, and scales with zeros."""
    result = []
    for _ in range(count):
        codes = torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.int32)
        scales = 0.01 * torch.randn(k // group, n, 2, device="cuda", dtype=torch.bfloat16)
        result.append((torch._convert_weight_to_int4pack(codes.to(torch.uint8), 8), scales))
    return result


def time_calls(calls: Mapping[str, Callable[[int], Any]], sets: int, ms: float) -> dict[str, Any]:
    """The fields of a row: quartiles and medians of each call, the clock and the power."""
    sampler = telemetry.Sampler(telemetry.open_reader("cuda"))
    timings = timing.measure(calls, sets, device="cuda", min_ms=ms, sampler=sampler)
    return {
        "us": {
            name: [round(sample.low_us, 2), round(sample.us, 2), round(sample.high_us, 2)]
            for name, sample in timings.items()
        },
        "clock_mhz": sampler.clock_mhz,
        "power_w": sampler.power_w,
    }


def measure(format: str, n: int, k: int, ms: float) -> list[dict[str, Any]]:
    """A row for each number of rows of x."""
    group, row_counts = FORMATS[format]
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    packed = [tcgemm.pack_weight(w, format, group)]
    for _ in range(weights(packed[0].arranged().nbytes) - 1):
        packed.append(copy.deepcopy(packed[0]))
    dense = [w.clone() for _ in range(weights(w.nbytes))]
    pairs = torch_int4(n, k, 128, len(packed)) if format == "int4" else []
    for weight in packed:
        weight.arranged()
    rows = []
    for m in row_counts:
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        calls: dict[str, tuple[Any, int]] = {
            "packed": (lambda i, x=x, out=out: tcgemm.linear(x, packed[i], out=out), len(packed)),
            "tcgemm": (lambda i, x=x, out=out: tcgemm.linear(x, dense[i], out=out), len(dense)),
            "torch": (lambda i, x=x, out=out: torch.mm(x, dense[i].t(), out=out), len(dense)),
        }
        if pairs and m <= 128:
            calls["torch int4"] = (
                lambda i, x=x: torch._weight_int4pack_mm(x, pairs[i][0], 128, pairs[i][1]),
                len(pairs),
            )
        sets = math.lcm(*(count for _, count in calls.values()))
        candidates = {
            name: lambda i, call=call, count=count: call(i % count)
            for name, (call, count) in calls.items()
        }
        bytes_moved = packed[0].arranged().nbytes + x.nbytes + out.nbytes
        rows.append(
            {
                "format": format,
                "group_size": group,
                "m": m,
                "n": n,
                "k": k,
                "bytes": bytes_moved,
                **time_calls(candidates, min(sets, 64), ms),
            }
        )
        print(line(rows[-1]), flush=True)
    return rows


def pack_times() -> dict[str, float]:
    """Milliseconds of pack_weight for a bf16 weight of 8192 x 8192: the median of PACKS calls."""
    w = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    buffer = torch.empty(int(ROTATED), device="cuda", dtype=torch.uint8)
    result = {}
    for format, method in (*((format_name, "nearest") for format_name in FORMATS), ("int4", "mse")):
        samples = []
        for _ in range(PACKS):
            buffer.zero_()  # w leaves L2
            torch.cuda._sleep(200_000)  # the call is enqueued before the first event
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            tcgemm.pack_weight(w, format, FORMATS[format][0], method=method)
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end))
        result[f"{format} {method}"] = round(statistics.median(samples), 4)
    return result


def line(row: dict[str, Any]) -> str:
    own = row["us"]["packed"][1]
    ratios = (f"x {name} {times[1] / own:.2f}" for name, times in row["us"].items())
    place = f"{row['format']:6}{row['m']:5} x {row['n']} x {row['k']}"
    return f"{place:28}{own:9.2f} us  " + "  ".join(list(ratios)[1:])


def summary(rows: list[dict[str, Any]]) -> str:
    """Geometric means over the shapes: x the speed of each other candidate, and the bytes of the
    operands a second, in TB/s, of the largest weight.
    """
    lines = [f"{'format':8}{'m':>6}  x torch  x tcgemm  x torch int4  TB/s"]
    for format, m in dict.fromkeys((row["format"], row["m"]) for row in rows):
        alike = [row for row in rows if (row["format"], row["m"]) == (format, m)]
        cells = []
        for name, width in (("torch", 9), ("tcgemm", 10), ("torch int4", 14)):
            ratios = [
                row["us"][name][1] / row["us"]["packed"][1] for row in alike if name in row["us"]
            ]
            mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
            cells.append(f"{mean:>{width}}")
        largest = max(alike, key=lambda row: row["n"] * row["k"])
        rate = largest["bytes"] / largest["us"]["packed"][1] / 1e6
        lines.append(f"{format:8}{m:6}{''.join(cells)}{rate:6.2f}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("benchmarks packed", __doc__)
    parser.add_argument("--out", type=Path, help="the file of results; without it only a table")
    parser.add_argument("--commit", help="the measured commit")
    parser.add_argument("--ms", type=float, default=60.0, help="of a candidate (60)")
    parser.add_argument("--formats", default=",".join(FORMATS), help="(%(default)s)")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("torch finds no CUDA GPU, and packed weights are measured on one.")
        return 1
    torch.manual_seed(0)
    rows = [
        row
        for format in options.formats.split(",")
        for n, k in SHAPES
        for row in measure(format, n, k, options.ms)
    ]
    print(summary(rows))
    packing = pack_times()
    print("pack_weight of 8192 x 8192:", ", ".join(f"{k} {v} ms" for k, v in packing.items()))
    if options.out:
        header = {**machine.facts("cuda"), "commit": options.commit, "ms": options.ms}
        content = {"header": header, "rows": rows, "pack_ms": packing}
        results_file.write(options.out, content)
    return 0
