"""Keeps torch's CPU products from AMX on machines that advertise it but forbid it.

Some virtual machines list AMX among the features of the CPU and refuse its instructions. oneDNN,
which computes torch's bf16 linear on the CPU, trusts the list, and the process ends with SIGILL.
ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 keeps oneDNN from AMX. oneDNN reads the variable at its first
use and not when torch is imported, so `avoid_forbidden_amx` must run before the first product of
torch. tcgemm's own CPU kernels have no AMX code and need none of this.

A lower value, such as AVX512_CORE, also keeps oneDNN from VNNI. torch asks the CPU for VNNI and not
oneDNN, so it goes on calling oneDNN for int8 products, and their 16-bit intermediate sums saturate.
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

VARIABLE = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_BF16"  # every CPU with AMX has these instructions
CPUINFO = Path("/proc/cpuinfo")
SECONDS = 120  # the limit of the child process; it spends most of its time in torch's import
LINEAR = """
import torch
for size in (64, 512):  # oneDNN chooses its code by size
    ones = torch.ones(size, size, dtype=torch.bfloat16)
    torch.nn.functional.linear(ones, ones)
"""
SENTENCE = (
    f"This machine advertises AMX but forbids it: {VARIABLE}={WITHOUT_AMX} is set, so that torch's "
    "bf16 products on the CPU do not end with SIGILL."
)


def advertises_amx() -> bool:
    """Does Linux list the features for which oneDNN chooses its bf16 code with AMX?"""
    if not CPUINFO.is_file():
        return False
    flags = set(CPUINFO.read_text().split())
    return {"amx_tile", "amx_bf16"} <= flags


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
    if VARIABLE in os.environ or not advertises_amx():
        return ""
    if not linear_ends_with_sigill((sys.executable, "-c", LINEAR)):
        return ""
    os.environ[VARIABLE] = WITHOUT_AMX
    return SENTENCE
