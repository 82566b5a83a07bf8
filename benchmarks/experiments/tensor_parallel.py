"""The set tensor_parallel: an MLP in two processes, with torch's layers and with tcgemm's.

    y = down(gelu(up(x)))    up is column-parallel, down is row-parallel; bf16

Each process has a GPU and half of both weights, and all of x. A forward has one all-reduce, of y;
a backward has a second one, of x.grad. A sample is some steps between two CUDA events; the slower
process counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from torch.multiprocessing.spawn import start_processes

import tcgemm
from benchmarks.experiments.layers import DTYPE, LayerStep, forward
from benchmarks.experiments.side_by_side import Build, SideBySide, Step, waited_us
from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
from tcgemm.measure import timing
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.run import Conditions

PROCESSES = 2
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
CALLS = {"cpu": 2, "cuda": 40}  # steps of a sample
BASELINE = "torch"
# Name -> options of swap_linear; None: nothing is swapped.
VARIANTS: dict[str, dict[str, Any] | None] = {
    BASELINE: None,
    "Linear": {"to": tcgemm.nn.Linear},
    "QuantLinear e4m3": {"to": tcgemm.nn.QuantLinear, "dtype": torch.float8_e4m3fn},
    "QuantLinear int8": {"to": tcgemm.nn.QuantLinear, "dtype": torch.int8},
}
TASKS = {"forward": tuple(VARIANTS), "train": (BASELINE, "Linear")}
SIZES = {"tokens": 8192, "hidden": 4096, "intermediate": 14336}
SMALL = {"tokens": 32, "hidden": 64, "intermediate": 128}


def mlp(variant: str, sizes: Row, mesh: Any, device: torch.device) -> torch.nn.Module:
    """The half of a process; all variants have the weights of one seed."""
    torch.manual_seed(0)
    wide, options = sizes["intermediate"], {"bias": False, "device": device, "dtype": DTYPE}
    up = torch.nn.Linear(sizes["hidden"], wide, **options)
    down = torch.nn.Linear(wide, sizes["hidden"], **options)
    model = torch.nn.Sequential(up, torch.nn.GELU("tanh"), down)
    swap = VARIANTS[variant]
    if swap is not None:
        tcgemm.swap_linear(model, **swap)  # the report holds the old weights: it is dropped
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def slowest_us(step: Step, device: torch.device) -> list[float]:
    """One sample: the microseconds of a step in the slower process."""
    calls = CALLS[device.type]
    dist.barrier()
    if device.type == "cuda":
        us = timing.events_us(lambda: [step(0) for _ in range(calls)]) / calls
    else:
        us = statistics.fmean(waited_us(step, device=device, calls=calls))
    slowest = torch.tensor(us, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [float(slowest)]


class TensorParallel(SideBySide):
    """The job of a task. It starts the processes; the first one writes the rows."""

    def __init__(self, task: str, sizes: Row, repetitions: int) -> None:
        self.task, self.sizes = task, sizes
        case = {"set": "tensor_parallel", "task": task, "processes": PROCESSES, **sizes}
        name, options = f"tensor_parallel {task}", {"captured": False}
        super().__init__(
            name, case, TASKS[task], self.build_on, (BASELINE,), repetitions, **options
        )

    def build_on(self, device: torch.device) -> Build:
        """What builds the step of a variant, in one of the processes."""
        mesh = init_device_mesh(device.type, (PROCESSES,))
        torch.manual_seed(1)
        x = torch.randn(self.sizes["tokens"], self.sizes["hidden"], dtype=DTYPE, device=device)
        expected = forward(mlp(BASELINE, self.sizes, mesh, device), x)
        learns = self.task == "train"
        return lambda name: LayerStep(
            mlp(name, self.sizes, mesh, device), x, expected, learns=learns
        )

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
        group = f"file://{folder}/group"
        dist.init_process_group(BACKENDS[kind], group, rank=rank, world_size=PROCESSES)
        rows = self.rows(Conditions(device, 0.0), lambda step: slowest_us(step, device))
        if rank == 0:
            (Path(folder) / "rows.json").write_text(json.dumps(rows))
        dist.destroy_process_group()
        # A thread of gloo may still hold a tensor. It aborts the process if Python ends meanwhile.
        os._exit(0)


def jobs(options: argparse.Namespace) -> list[TensorParallel]:
    """A job for each task."""
    sizes = SMALL if options.max_size else SIZES
    return [TensorParallel(task, sizes, options.repetitions) for task in TASKS]
