"""The bandwidth of device memory and of L2: reads, writes and copies, timed by CUDA events."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm import _driver
from tcgemm.lab.probe import kernels_memory
from tcgemm.measure import timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tcgemm.lab.probe.session import Session

CHUNK = 512 * 1024  # bytes of a block
LEAST = 1 << 30  # bytes of a buffer in device memory, so that a launch is long
REPEATED = 5
BLOCKS = 4  # of an SM: 2048 threads


class Traffic(NamedTuple):
    """A launch: a buffer of `chunk` bytes a block, or one for all, and how often it is moved."""

    kernel: str  # of kernels_memory.MOVERS
    bytes: int  # of the buffer
    blocks: int
    chunk: int
    stride: int
    passes: int

    @property
    def bytes_moved(self) -> int:
        """Bytes that are read and written."""
        return self.blocks * self.chunk * self.passes * (2 if self.mover.kind == "copy" else 1)

    @property
    def mover(self) -> kernels_memory.Mover:
        """The kernel."""
        return kernels_memory.MOVERS[self.kernel]


ROWS = (
    *(f"DRAM {kind}" for kind in kernels_memory.COPIES),
    "L2 read, one 512 KB",
    *(f"L2 {kind}" for kind in kernels_memory.COPIES),
)


def traffic(row: str, l2: int, processors: int) -> Traffic:
    """The launch of a row on a GPU with so many bytes of L2 and SMs."""
    kind = row.split(",")[0].split()[1]
    if row.startswith("DRAM"):
        kernel = "dram_copy" if kind == "copy" else kind
        chunk = kernels_memory.MOVERS[kernel].step if kind == "copy" else CHUNK
        blocks = max(4 * l2, LEAST) // chunk
        return Traffic(kernel, blocks * chunk, blocks, chunk, chunk, 1)
    if row.endswith("512 KB"):
        return Traffic(kind, CHUNK, BLOCKS * processors, CHUNK, 0, 16)
    chunk = kernels_memory.MOVERS[kind].step
    half = l2 // (4 if kind == "copy" else 2)  # a copy has two buffers
    blocks = max(1, min(BLOCKS * processors, half // chunk))
    return Traffic(kind, blocks * chunk, blocks, chunk, chunk, 64)


def measure(session: Session, row: str, _options: object) -> Iterator[dict[str, Any]]:
    """The record of a row, in 10^9 bytes a second; a copy counts what it reads and writes."""
    gpu = torch.cuda.get_device_properties()
    plan = traffic(row, gpu.L2_cache_size, gpu.multi_processor_count)
    source, goal = (torch.ones(plan.bytes // 4, device=session.data.device) for _ in range(2))
    module = session.module(kernels_memory.bandwidth_module(session.target))
    entry = _driver.function(module.handle, plan.kernel)
    arguments = (source, goal, plan.chunk, plan.stride, plan.passes)
    ms = _ms(lambda: _driver.launch(entry, plan.blocks, plan.mover.threads, arguments))
    module.close()
    record = {
        "group": "bandwidth",
        "row": row,
        "mode": "chip",
        "bytes": plan.bytes,
        "moved": plan.bytes_moved,
        "ms": ms,
        "rate": plan.bytes_moved / ms / 1e6,
        "unit": "GB/s",
    }
    if row == "DRAM copy":
        record["torch_rate"] = 2 * plan.bytes / _ms(lambda: goal.copy_(source)) / 1e6
    yield record


def _ms(call: Callable[[], object]) -> float:
    """The median of some calls in milliseconds, after one that does not count."""
    return statistics.median([timing.events_us(call) for _ in range(REPEATED + 1)][1:]) / 1e3
