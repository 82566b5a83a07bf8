"""The set tensor_parallel: an MLP in two processes, with torch's layers and with tcgemm's.

    y = down(gelu(up(x)))    up is column-parallel, down is row-parallel; bf16

Each process has a GPU and half of both weights, and all of x. A forward has one all-reduce, of y;
a backward has a second one, of x.grad. A sample is some steps, as many in both processes; the
slower process counts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from torch.multiprocessing.spawn import start_processes

import tcgemm
from benchmarks.experiments.side_by_side import Build, SideBySide, Step, difference
from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
from tcgemm.measure import telemetry
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.run import Conditions
from tcgemm.measure.timing import Timing

DTYPE = torch.bfloat16
PROCESSES = 2
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
ROUNDS, CALLS = 5, {"cpu": 2, "cuda": 40}  # samples, steps of a sample
# Name -> options of swap_linear; None: nothing is swapped.
VARIANTS: dict[str, dict[str, Any] | None] = {
    "torch": None,
    "Linear": {"to": tcgemm.nn.Linear},
    "QuantLinear e4m3": {"to": tcgemm.nn.QuantLinear, "dtype": torch.float8_e4m3fn},
    "QuantLinear int8": {"to": tcgemm.nn.QuantLinear, "dtype": torch.int8},
}
TASKS = {"forward": tuple(VARIANTS), "train": ("torch", "Linear")}
SIZES = {"tokens": 8192, "hidden": 4096, "intermediate": 14336}
SMALL = {"tokens": 32, "hidden": 64, "intermediate": 128}


def mlp(variant: str, sizes: Row, device: torch.device) -> torch.nn.Module:
    """The half of a process; all variants have the weights of one seed."""
    torch.manual_seed(0)
    wide, options = sizes["intermediate"], {"bias": False, "device": device, "dtype": DTYPE}
    up = torch.nn.Linear(sizes["hidden"], wide, **options)
    down = torch.nn.Linear(wide, sizes["hidden"], **options)
    model = torch.nn.Sequential(up, torch.nn.GELU("tanh"), down)
    swap = VARIANTS[variant]
    if swap is not None:
        tcgemm.swap_linear(model, **swap)  # the report holds the old weights: it is dropped
    mesh = init_device_mesh(device.type, (PROCESSES,))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


@torch.no_grad()
def forward(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The result, after its all-reduce: torch keeps the memory of one that nobody waits for."""
    result = model(x)
    return result.wait() if isinstance(result, AsyncCollectiveTensor) else result


class MlpStep(Step):
    """A forward, or a training step: forward, backward with the gradient of x, and SGD."""

    def __init__(
        self, model: torch.nn.Module, x: torch.Tensor, expected: torch.Tensor, *, learns: bool
    ) -> None:
        """expected: the result of torch's layers."""
        self.model, self.x = model, x.clone().requires_grad_(learns)
        self.far = difference(expected, forward(model, x))
        self.gradient = torch.randn_like(expected)
        # A step takes the same time at every rate. At 0 the products stay as in the first step.
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0) if learns else None

    def __call__(self, index: int) -> None:
        """One step."""
        if self.optimizer is None:
            forward(self.model, self.x)
            return
        self.x.grad = None
        self.optimizer.zero_grad()
        self.model(self.x).backward(self.gradient)
        self.optimizer.step()

    def facts(self) -> Row:
        """How far the result is from that of torch's layers."""
        return {"difference": self.far}


def slowest_us(step: Step, device: torch.device) -> float:
    """The microseconds of a step in the slower process."""
    calls = CALLS[device.type]
    dist.barrier()
    start = time.perf_counter()
    for index in range(calls):
        step(index)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    slowest = torch.tensor((time.perf_counter() - start) * 1e6 / calls, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


class TensorParallel(SideBySide):
    """The job of a task. It starts the processes; the first one writes the rows."""

    def __init__(self, task: str, sizes: Row, repetitions: int) -> None:
        self.task, self.sizes = task, sizes
        case = {"set": "tensor_parallel", "task": task, "processes": PROCESSES, **sizes}
        name = f"tensor_parallel {task}"
        super().__init__(name, case, TASKS[task], self.build_on, repetitions, captured=False)

    def build_on(self, device: torch.device) -> Build:
        """What builds the step of a variant, in one of the processes."""
        torch.manual_seed(1)
        x = torch.randn(self.sizes["tokens"], self.sizes["hidden"], dtype=DTYPE, device=device)
        learns = self.task == "train"
        expected = forward(mlp("torch", self.sizes, device), x)
        return lambda name: MlpStep(mlp(name, self.sizes, device), x, expected, learns=learns)

    def timings(
        self,
        steps: Mapping[str, Step],
        graph: bool,
        conditions: Conditions,
        sampler: telemetry.Sampler,
        refusals: dict[str, str],
    ) -> dict[str, Timing]:
        """The time of each step in the slower process."""
        samples: dict[str, list[float]] = {name: [] for name in steps}
        with sampler:
            for index in range(ROUNDS):
                for name in sorted(steps, reverse=index % 2 == 1):
                    samples[name].append(slowest_us(steps[name], conditions.device))
        return {name: Timing.of(us[1:]) for name, us in samples.items()}  # one to warm up

    def measure(self, conditions: Conditions, aims: Aims, earlier: Row | None) -> list[Row]:
        """The rows. RuntimeError: there are too few GPUs."""
        kind, found = conditions.device.type, torch.cuda.device_count()
        if kind == "cuda" and found < PROCESSES:
            raise RuntimeError(f"an MLP on {PROCESSES} GPUs is measured, but torch finds {found}.")
        with tempfile.TemporaryDirectory() as folder:
            start_processes(self.process, (folder, kind), nprocs=PROCESSES)
            return json.loads((Path(folder) / "rows.json").read_text())

    def process(self, rank: int, folder: str, kind: str) -> None:
        """What a process does."""
        device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(device)
        else:
            torch.set_num_threads(1)
        backend, group = BACKENDS[kind], f"file://{folder}/group"
        dist.init_process_group(backend, group, rank=rank, world_size=PROCESSES)
        rows = self.rows(Conditions(device, 0.0))
        if rank == 0:
            (Path(folder) / "rows.json").write_text(json.dumps(rows))
        dist.destroy_process_group()
        # A thread of gloo may still hold a tensor. It aborts the process if Python ends meanwhile.
        os._exit(0)


def jobs(options: argparse.Namespace) -> list[TensorParallel]:
    """A job for each task."""
    sizes = SMALL if options.max_size else SIZES
    return [TensorParallel(task, sizes, options.repetitions) for task in TASKS]
