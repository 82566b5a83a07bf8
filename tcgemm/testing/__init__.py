"""Tools for testing and timing GEMMs. The demo, the benchmarks and the tests use them.

operands.py   random operands in each layout, and enough sets of them to leave the cache
numerics.py   error bounds against float64, exact checks on integers, unit roundoffs
baseline.py   the calls of torch and cuSPARSELt that tcgemm is compared with
timing.py     kernel time from CUDA graphs, and host time
telemetry.py  SM clock and power while a measurement runs
machine.py    the GPU, the driver and the versions that a measurement belongs to
amx.py        keeps torch from AMX instructions that a virtual machine forbids
command_line.py  what the command lines share

numerics.py checks float64 with numpy; nothing else here needs it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from tcgemm.ops.explanation import explain
from tcgemm.ops.prepared import Prepared
from tcgemm.packed import PackedWeight


class Plan(NamedTuple):
    """The kernel that a product runs on a GPU, and why it is this one."""

    kernel: str  # "cpu" if the product launches no kernel
    why: str


def plan(a: Tensor, b: Tensor | Prepared | PackedWeight, **options: Any) -> Plan:
    """Returns the plan of matmul(a, b, ...) on a GPU. The options are tcgemm.explain's.

    Example:
        >>> from tcgemm import testing
        >>> a = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
        >>> testing.plan(a, a.t(), device="H200").kernel.startswith("sm90")
        True
    """
    explanation = explain(a, b, **options)
    return Plan(explanation.kernel or "cpu", explanation.why or "")


def kernel_name(a: Tensor, b: Tensor | Prepared | PackedWeight, **options: Any) -> str:
    """Returns the name of the kernel that plan(a, b, ...) chooses."""
    return plan(a, b, **options).kernel
