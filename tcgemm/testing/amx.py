"""Keeps torch's own CPU products alive on machines that advertise AMX but forbid it.

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
SECONDS = 120  # that the child may take; torch's import is most of its time
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
    """True if Linux lists the features with which oneDNN takes its bf16 code for AMX."""
    if not CPUINFO.is_file():
        return False
    flags = set(CPUINFO.read_text().split())
    return {"amx_tile", "amx_bf16"} <= flags


@functools.cache
def linear_ends_with_sigill(command: tuple[str, ...]) -> bool:
    """Runs torch's bf16 linear in a child process, once a process."""
    try:
        child = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == -signal.SIGILL


def avoid_forbidden_amx() -> str:
    """Sets ONEDNN_MAX_CPU_ISA where AMX ends a process; returns a sentence about it, or "".

    The user's own value stands, and a CPU that does not advertise AMX costs no child process.
    Children inherit the variable.
    """
    if VARIABLE in os.environ or not advertises_amx():
        return ""
    if not linear_ends_with_sigill((sys.executable, "-c", LINEAR)):
        return ""
    os.environ[VARIABLE] = WITHOUT_AMX
    return SENTENCE
