"""The set rates: what a machine can do, and how far a measurement of it repeats.

    mm            products of tcgemm and of torch; without a graph, the host time of a call
    copy, read    bytes a second of the memory, and of L2 where source and copy fit into it
    launch        one small kernel in a CUDA graph

Copies, reads and launches are timed twice, as two candidates: the ratio to itself is 1 but for the
noise of the timer. csrc/core/device.h needs the rates of a GPU; docs/dev/devices.md says how they
enter it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tcgemm.measure import machine, results, telemetry, timing, work
from tcgemm.measure.case import Case
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.run import Conditions, Job, Product

SET = "rates"
PRODUCTS = (  # dtype, M = N = K, in a graph?
    *(("bf16", size, True) for size in (512, 1024, 2048, 4096, 8192)),
    ("f64", 4096, True),
    ("bf16", 64, False),
)
MEMORY_BYTES = 4 << 30  # far more than L2 holds
L2_BYTES = (4 << 20, 8 << 20, 12 << 20, 16 << 20)  # source and copy both fit into L2


@dataclass
class Load:
    """The job of a copy, a read or a launch. bytes: of the source."""

    function: str
    bytes: int = 0

    @property
    def name(self) -> str:
        """The job in a few words."""
        return f"{SET} {self.function} {self.bytes or ''}"

    def cases(self, device: torch.device) -> list[Row]:
        """The case of its row."""
        size = {"bytes": self.bytes} if self.bytes else {}
        graph = device.type == "cuda"
        return [{"set": SET, "function": self.function, "graph": graph} | size]

    def plan(self, gpu: str) -> str:
        """A load has no plan."""
        return "timed twice"

    def call_on(self, device: torch.device) -> Callable[[], Any]:
        """The load."""
        source = torch.randn(max(1, self.bytes // 4), device=device)
        target = torch.empty_like(source)
        calls = {
            "copy": lambda: target.copy_(source),
            "read": source.sum,
            "launch": lambda: source.add_(1),
        }
        return calls[self.function]

    def measure(self, conditions: Conditions, aims: Aims, earlier: Row | None) -> list[Row]:
        """Its row. Bytes read and bytes written both count."""
        device, sampler = conditions.device, telemetry.Sampler(conditions.device)
        load = self.call_on(device)
        calls = {name: lambda index: load() for name in ("first", "second")}
        common = {"device": device, "min_ms": conditions.ms, "sampler": sampler}
        first, second = timing.measure(calls, 1, **common).values()
        row = self.cases(device)[0] | results.EMPTY | work.times(first, {"itself": second})
        row |= sampler.fields() | {"date": machine.now()}
        if self.bytes:
            moved = self.bytes * (2 if self.function == "copy" else 1)
            row["gbps"] = results.figures(moved / first.us / 1e3)
        else:
            row["facts"] = properties(device)
        return [row]


def properties(device: torch.device) -> Row:
    """What the driver reports of a GPU; nothing of the CPU."""
    if device.type != "cuda":
        return {}
    found = torch.cuda.get_device_properties(device)
    return {
        "compute_capability": 10 * found.major + found.minor,
        "multiprocessors": found.multi_processor_count,
        "l2_bytes": found.L2_cache_size,
        "shared_bytes": found.shared_memory_per_block_optin,
    }


def jobs(options: argparse.Namespace) -> list[Job]:
    """The jobs; --max-size limits the products, and 4 GiB to as many MiB."""
    cases = [
        Case("mm", dtype, "TN", size, size, size, graph=graph, set=SET)
        for dtype, size, graph in PRODUCTS
    ]
    if options.max_size:
        cases = list(dict.fromkeys(case.limited(options.max_size) for case in cases))
    memory = options.max_size << 20 if options.max_size else MEMORY_BYTES
    loads = [Load("copy", memory), Load("read", memory)]
    loads += [Load("copy", size) for size in L2_BYTES]
    return [*map(Product, cases), *loads, Load("launch")]
