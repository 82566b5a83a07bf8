"""Tools for testing and timing GEMMs. The demo, the benchmarks and the tests use them.

operands.py   random operands in each layout, and enough sets of them to leave the cache
numerics.py   error bounds against float64, exact checks on integers, unit roundoffs
baseline.py   the calls of torch and cuSPARSELt that tcgemm is compared with
timing.py     kernel time from CUDA graphs, and host time
telemetry.py  SM clock and power while a measurement runs
machine.py    the GPU, the driver and the versions that a measurement belongs to
amx.py        keeps torch from AMX instructions that a virtual machine forbids

numerics.py checks float64 with numpy; nothing else here needs it.
"""

from typing import NamedTuple

from tcgemm.ops.explanation import explain


class Plan(NamedTuple):
    """The kernel that a product runs on a GPU, or "cpu" if it launches none, and why this one."""

    kernel: str
    why: str


def plan(a, b, **options) -> Plan:
    """The plan of matmul(a, b, ...) on a GPU. The arguments are those of tcgemm.explain."""
    found = explain(a, b, **options)
    return Plan(found.kernel or "cpu", found.why or "")


def kernel_name(a, b, **options) -> str:
    """The kernel of plan(a, b, ...)."""
    return plan(a, b, **options).kernel
