"""What a measurement needs, shared by `python -m tcgemm demo` and the scripts in benchmarks/:

operands.py   random operands in each layout, enough sets of them to run past the cache
timing.py     kernel time (CUDA graphs, rivals interleaved) and host time
rival.py      torch's product of each dtype
telemetry.py  clock and power while a measurement runs
accuracy.py   the error of a result against float64, in units of its bound
"""

import re


def kernel_name(text):
    """The kernel that `tcgemm.explain` names, or 'cpu' where its text names none."""
    found = re.search(r"^\s*kernel\b[\s:=]*(\S+)", text, re.MULTILINE | re.IGNORECASE)
    return found.group(1).rstrip(",;") if found else "cpu"
