"""Tools for testing and timing GEMMs. The demo, the benchmarks and the tests use them.

operands.py   random operands in each layout, and enough sets of them to leave the cache
numerics.py   error bounds against float64, exact checks on integers, unit roundoffs
baseline.py   the calls of torch and cuSPARSELt that tcgemm is compared with
timing.py     kernel time from CUDA graphs, and host time
telemetry.py  SM clock and power while a measurement runs
machine.py    the GPU, the driver and the versions that a measurement belongs to
amx.py        keeps torch from AMX instructions that a virtual machine forbids

numerics.py needs numpy; `import tcgemm.testing` alone does not.
"""

from tcgemm.ops.functional import explain


def kernel_name(a, b, **options) -> str:
    """The name of the kernel that matmul(a, b, ...) runs on a GPU, or "cpu" if it launches none.

    The arguments are those of tcgemm.explain.
    """
    return explain(a, b, **options).kernel or "cpu"
