"""Tools for testing and timing GEMMs. The demo, the benchmarks and the tests use them.

operands.py   random operands in each layout, and enough sets of them to leave the cache
numerics.py   error bounds against float64, exact checks on integers, unit roundoffs
baseline.py   the calls of torch and cuSPARSELt that tcgemm is compared with
timing.py     kernel time from CUDA graphs, and host time
telemetry.py  SM clock and power while a measurement runs
amx.py        keeps torch from AMX instructions that a virtual machine forbids

numerics.py needs numpy; `import tcgemm.testing` alone does not.
"""

import re


def kernel_name(text):
    """The name of the kernel in a text of `tcgemm.explain`, or "cpu" if it names none.

    This is the only place that reads explain's text. The planner's fields are an alternative, but
    they come from the optional catalog module, which a measurement must not need.
    """
    found = re.search(r"^\s*kernel\b[\s:=]*(\S+)", text, re.MULTILINE | re.IGNORECASE)
    return found.group(1).rstrip(",;") if found else "cpu"
