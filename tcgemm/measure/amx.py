"""Keeps torch's CPU products from AMX on machines that advertise it but forbid it.

Some virtual machines list AMX among the features of the CPU and refuse its instructions. oneDNN,
which computes torch's bf16 linear on the CPU, trusts the list, and the process ends with SIGILL.
ONEDNN_MAX_CPU_ISA keeps oneDNN from AMX. oneDNN reads the variable at its first use, so
`avoid_forbidden_amx` must run before the first product of torch. tcgemm's kernels have no AMX code.

The value is the highest one below AMX that the CPU has, because torch asks the CPU and not oneDNN
what it may call. AVX512_CORE_BF16 keeps oneDNN from AVX512-FP16, without which it has no fp8
products, and torch._scaled_mm fails. AVX512_CORE also keeps it from VNNI, and the 16-bit sums of
torch's int8 products saturate.
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

VARIABLE = "ONEDNN_MAX_CPU_ISA"
CPUINFO = Path("/proc/cpuinfo")
SECONDS = 120  # the limit of the child process; it spends most of its time in torch's import
LINEAR = """
import torch
for size in (64, 512):  # oneDNN chooses its code by size
    ones = torch.ones(size, size, dtype=torch.bfloat16)
    torch.nn.functional.linear(ones, ones)
"""


def features() -> set[str]:
    """The words of /proc/cpuinfo, the features of the CPU among them."""
    return set(CPUINFO.read_text().split()) if CPUINFO.is_file() else set()


def without_amx() -> str:
    """The value of ONEDNN_MAX_CPU_ISA that takes nothing but AMX from oneDNN. Every CPU with AMX
    has AVX512_CORE_BF16."""
    return f"AVX512_CORE_{'FP16' if 'avx512_fp16' in features() else 'BF16'}"


@functools.cache
def linear_ends_with_sigill(command: tuple[str, ...]) -> bool:
    """Does torch's bf16 linear end a child process with SIGILL? The answer is kept."""
    try:
        child = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == -signal.SIGILL


def avoid_forbidden_amx() -> str:
    """Sets ONEDNN_MAX_CPU_ISA where AMX ends a process; returns a sentence about it, or "".

    A value that the user has set stays. On a CPU that does not advertise AMX no child process is
    started. Child processes inherit the variable.
    """
    if VARIABLE in os.environ or not {"amx_tile", "amx_bf16"} <= features():
        return ""
    if not linear_ends_with_sigill((sys.executable, "-c", LINEAR)):
        return ""
    os.environ[VARIABLE] = without_amx()
    return (
        f"This machine advertises AMX but forbids it: {VARIABLE}={os.environ[VARIABLE]} is set, so "
        "that torch's bf16 products on the CPU do not end with SIGILL."
    )
