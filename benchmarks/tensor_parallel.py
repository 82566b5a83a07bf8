"""The time of a tensor-parallel MLP in two processes, with torch's layers and with tcgemm's.

    python -m benchmarks tensor_parallel --out benchmarks/results/tensor_parallel/h100.json

    torch              torch.nn.Linear
    Linear             tcgemm.nn.Linear, by swap_linear
    QuantLinear e4m3   8-bit weights, a scale for each row; the forward alone
    QuantLinear int8

    y = down(gelu(up(x)))    up is column-parallel, down is row-parallel; bf16

Each process has a GPU and half of both weights, and all of x. A forward has one all-reduce, of
y; a training step is a forward, a backward with a second all-reduce, of x.grad, and a step of SGD.

The variants alternate in rounds of one run, after a round that does not count, and every other
round has the reverse order. A round has one sample of each variant: some calls between two CUDA
events, the slower process counts. A row has the median of the samples, the lowest and the highest,
and the same of the ratios of each round. Without two GPUs the command shows the stored results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import tcgemm
from benchmarks import RESULTS, medians
from benchmarks.models.variants import difference
from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
from tcgemm.measure import command_line, machine, results_file, telemetry

FOLDER = RESULTS / "tensor_parallel"
PROCESSES = 2
DTYPE = torch.bfloat16
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
BASELINE = "torch"
# Name -> options of swap_linear; None: nothing is swapped.
VARIANTS: dict[str, dict[str, Any] | None] = {
    BASELINE: None,
    "Linear": {"to": tcgemm.nn.Linear},
    "QuantLinear e4m3": {"to": tcgemm.nn.QuantLinear, "dtype": torch.float8_e4m3fn},
    "QuantLinear int8": {"to": tcgemm.nn.QuantLinear, "dtype": torch.int8},
}
TASKS = {"forward": tuple(VARIANTS), "training": (BASELINE, "Linear")}
METHOD = (
    "variants in alternating rounds after a warm-up round; the slower process counts; medians, "
    "lowest and highest of the samples and of the ratios of a round"
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Rows of x, and the widths of the MLP."""

    tokens: int = 8192
    hidden: int = 4096
    intermediate: int = 14336


class Mlp(torch.nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        super().__init__()
        options: dict[str, Any] = {"bias": False, "device": device, "dtype": DTYPE}
        self.up = torch.nn.Linear(sizes.hidden, sizes.intermediate, **options)
        self.down = torch.nn.Linear(sizes.intermediate, sizes.hidden, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """y of the shape of x."""
        return self.down(torch.nn.functional.gelu(self.up(x), approximate="tanh"))


def model_of(variant: str, sizes: Sizes, mesh: Any, device: torch.device) -> Mlp:
    """The half of a process; all variants have the weights of one seed."""
    torch.manual_seed(0)
    model = Mlp(sizes, device)
    options = VARIANTS[variant]
    if options is not None:
        tcgemm.swap_linear(model, **options)  # the report holds the old weights: it is dropped
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def forward(model: Mlp, x: torch.Tensor) -> torch.Tensor:
    """y, after its all-reduce: torch keeps the memory of a result that nobody waits for."""
    with torch.no_grad():
        y = model(x)
    return y.wait() if isinstance(y, AsyncCollectiveTensor) else y


def work(task: str, model: Mlp, x: torch.Tensor) -> Callable[[], Any]:
    """One forward, or one training step."""
    if task == "forward":
        return lambda: forward(model, x)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = x.clone().requires_grad_()
    gradient = torch.ones_like(x)

    def step() -> None:
        x.grad = None
        optimizer.zero_grad()
        model(x).backward(gradient)
        optimizer.step()

    return step


def seconds(call: Callable[[], Any], calls: int, device: torch.device) -> float:
    """The time of some calls, from the first kernel to the end of the last one."""
    if device.type == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3


def slowest(value: float, device: torch.device) -> float:
    """The largest value of all processes."""
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def samples(
    works: dict[str, Callable[[], Any]], rounds: int, ms: float, device: torch.device
) -> dict[str, list[float]]:
    """{variant: microseconds of one call in each round}."""
    calls = {}
    for name, call in works.items():
        seconds(call, 2, device)  # libraries allocate their workspaces
        call_time = slowest(seconds(call, 2, device) / 2, device)
        calls[name] = max(1, math.ceil(ms / 1e3 / call_time))  # the same in every process
    result: dict[str, list[float]] = {name: [] for name in works}
    for index in range(rounds + 1):
        for name in list(works)[:: -1 if index % 2 else 1]:
            dist.barrier()
            elapsed = slowest(seconds(works[name], calls[name], device), device)
            if index:
                result[name].append(elapsed / calls[name] * 1e6)
    return result


def rows_of(
    task: str, sizes: Sizes, rounds: int, ms: float, mesh: Any, device: torch.device
) -> list[Row]:
    """A row for each variant of a task."""
    torch.manual_seed(1)
    x = torch.randn(sizes.tokens, sizes.hidden, dtype=DTYPE, device=device)
    models = {name: model_of(name, sizes, mesh, device) for name in TASKS[task]}
    results = {name: forward(model, x) for name, model in models.items()}
    far = {name: difference(results[BASELINE], result) for name, result in results.items()}
    works = {name: work(task, model, x) for name, model in models.items()}
    reader = telemetry.open_reader(device) if mesh.get_local_rank() == 0 else None
    with telemetry.Sampler(reader) as sampler:
        times = samples(works, rounds, ms, device)
    rows = []
    for name, values in times.items():
        ratios = [base / own for base, own in zip(times[BASELINE], values, strict=True)]
        rows.append(
            {
                "variant": name,
                "task": task,
                "us": medians.three(values, 2),
                "ratio": medians.three(ratios, 4),
                "rounds": rounds,
                "difference": far[name],
                "clock_mhz": sampler.clock_mhz,
                "power_w": sampler.power_w,
            }
        )
    return rows


def measure(rank: int, folder: str, kind: str, sizes: Sizes, rounds: int, ms: float) -> None:
    """What a process does; the first one writes rows and header into the folder."""
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        BACKENDS[kind], init_method=f"file://{folder}/group", rank=rank, world_size=PROCESSES
    )
    mesh = init_device_mesh(kind, (PROCESSES,))
    rows = [row for task in TASKS for row in rows_of(task, sizes, rounds, ms, mesh, device)]
    if rank == 0:
        header = machine.facts(device) | {"processes": PROCESSES, "backend": BACKENDS[kind]}
        header |= {"method": METHOD, "dtype": str(DTYPE).removeprefix("torch."), **asdict(sizes)}
        (Path(folder) / "results.json").write_text(json.dumps({"header": header, "rows": rows}))
    dist.destroy_process_group()
    # A thread of gloo may still hold a tensor. It aborts the process if Python ends meanwhile.
    os._exit(0)


def lines(results: dict[str, Any]) -> list[str]:
    """The results in words."""
    header = results["header"]
    result = [
        f"{header['gpu']}, {header['processes']} processes, {header['backend']}: hidden "
        f"{header['hidden']}, intermediate {header['intermediate']}, {header['tokens']} tokens, "
        f"{header['dtype']}"
    ]
    for row in results["rows"]:
        result.append(f"{row['variant']:18} {row['task']:8} {medians.text(row, BASELINE)}")
    return result


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line.parser("benchmarks tensor_parallel", __doc__)
    parser.add_argument("--out", type=Path, help="the file of results; without it only a table")
    parser.add_argument("--device", choices=BACKENDS, default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--commit", help="the measured commit, if git does not know it")
    parser.add_argument("--rounds", type=int, default=12, help="samples of a variant (12)")
    parser.add_argument("--ms", type=float, default=100.0, help="time of a sample (100)")
    parser.add_argument("--stored", type=Path, default=FOLDER, help="the folder of stored results")
    for name, size in asdict(Sizes()).items():
        parser.add_argument(f"--{name}", type=int, default=size)
    options = parser.parse_args(argv)
    for name in asdict(Sizes()):
        if getattr(options, name) < 32 or getattr(options, name) % 32:
            parser.error(
                f"--{name} is {getattr(options, name)}, but it must be a positive multiple of 32, "
                "as 8-bit products of halves need; round it up."
            )
    if options.rounds < 1 or options.ms <= 0:
        parser.error(
            f"--rounds is {options.rounds} and --ms {options.ms:g}, but both must be positive."
        )
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    sizes = Sizes(**{name: getattr(options, name) for name in asdict(Sizes())})
    count = torch.cuda.device_count()
    if options.device == "cuda" and count < PROCESSES:
        print(
            f"This measures an MLP of {sizes.hidden} and {sizes.intermediate} features with "
            f"{sizes.tokens} tokens on {PROCESSES} GPUs, and torch finds {count} here. Stored "
            "results:"
        )
        medians.show_stored(options.stored, lines)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        arguments = (folder, options.device, sizes, options.rounds, options.ms)
        torch.multiprocessing.spawn(measure, arguments, nprocs=PROCESSES)
        results = json.loads((Path(folder) / "results.json").read_text())
    results["header"]["commit"] = options.commit or results_file.commit()
    print("\n".join(lines(results)))
    if options.out:
        results_file.write(options.out, results)
    return 0
