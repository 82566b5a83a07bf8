"""The cost of `import tcgemm` where torch is imported already."""

import json
import os
import subprocess
import sys

from support import programs

# Measured in a process of its own: this one has imported torch._dynamo long ago.
PROGRAM = """
import json, resource, sys, time
cpu = time.process_time()
import torch
of_torch = time.process_time() - cpu

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

known, memory, cpu = set(sys.modules), resident(), time.process_time()
import tcgemm
print(json.dumps({
    "seconds": time.process_time() - cpu,
    "of_torch": of_torch,
    "bytes": resident() - memory,
    "modules": sorted({name.split(".")[0] for name in set(sys.modules) - known}),
    "dynamo": "torch._dynamo" in sys.modules,
}))
"""


def cost():
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    result = programs.run(PROGRAM, check=True, env=environment)
    return json.loads(result.stdout)


def cheap(runs):
    """At most 6.25 MiB, and 0.1 s or, on a slow machine, 8 % of what torch's own import takes."""
    seconds, of_torch, memory = (
        min(run[name] for run in runs) for name in ("seconds", "of_torch", "bytes")
    )
    return seconds <= max(0.1, 0.08 * of_torch) and memory <= 6.25 * 2**20


def test_import_is_cheap():
    cost()  # compiles the modules, as pip does when it installs a wheel
    runs = [cost()]
    assert not runs[0]["dynamo"], "tcgemm imports torch._dynamo, which takes a second and 100 MB"
    while not cheap(runs) and len(runs) < 4:  # other processes may disturb some of them
        runs.append(cost())
    assert cheap(runs), runs


def test_python_without_docstrings():
    """python -OO drops asserts and docstrings, of which some are put together at import."""
    program = (
        "import torch, tcgemm; x = torch.ones(3, 4, requires_grad=True); "
        "tcgemm.mm(x, x.t(), bias=torch.ones(3)).sum().backward(); print(x.grad[0, 0].item())"
    )
    command = [sys.executable, "-OO", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.stdout, result.returncode) == ("6.0\n", 0), result.stderr
