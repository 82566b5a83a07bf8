"""What the warps of a ladder wait for, measured by Nsight Compute in a process of its own.

ncu launches a kernel several times to measure it, so its times say nothing;
tcgemm.lab.ladder.measure measures them without ncu.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOOLKIT = Path("/usr/local/cuda/bin")
VERSIONS = Path("/opt/nvidia/nsight-compute")  # with a folder for each version
REASONS = (
    *("long_scoreboard", "short_scoreboard", "barrier", "mio_throttle", "lg_throttle"),
    *("math_pipe_throttle", "wait", "not_selected", "dispatch_stall"),
)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
# What a launch gets beside its stalls.
COUNTS = {
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "tensor_instructions": "sm__inst_executed_pipe_tensor.sum",
    "tensor_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
}
METRICS = (*(STALL.format(reason) for reason in REASONS), *COUNTS.values())
KERNEL = re.compile(r"\bmultiply_(00\w+)")  # kernels of the ladders; torch's are not measured
UNKNOWN = re.compile(r"Failed to find metric (?:regex:\^?)?([\w.]+)")

Launch = tuple[str, str]  # the step, and the label of its variant
Measured = dict[str, Any]


def find_ncu() -> str | None:
    """The path of ncu: on PATH, of the CUDA toolkit, or of the newest Nsight Compute."""

    def version(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.parent.name)]

    places = (TOOLKIT / "ncu", *sorted(VERSIONS.glob("*/ncu"), key=version, reverse=True))
    return shutil.which("ncu") or next((str(path) for path in places if path.is_file()), None)


def measure(
    document: str, size: int, launch_module: str = "tcgemm.lab.ladder.launch"
) -> dict[Launch, Measured]:
    """{(step, label of its variant): what Nsight Compute measured of one launch}.

    "stalls" has warp cycles an issued instruction by reason. The others are the sums of a launch,
    and "tensor_percent" of the cycles in which an SM is active. A metric that this GPU does not
    have is left out.

    Arguments:
        document: "004".
        size: M = N = K.
        launch_module: a module that launches each variant once, and prints for each, in this
            order, "launched", the step and the label with tabs between them.

    Raises:
        RuntimeError: There is no ncu, it may not measure, or the launches fail.
    """
    ncu = find_ncu()
    if ncu is None:
        raise RuntimeError(
            f"Nsight Compute's ncu is neither on PATH nor in {TOOLKIT} nor in {VERSIONS}; install "
            "Nsight Compute, or measure without stalls."
        )
    child = [sys.executable, "-m", launch_module, document, str(size)]
    status, output, errors, table = _run(ncu, METRICS, child)
    if unknown := set(UNKNOWN.findall(errors)):
        metrics = [metric for metric in METRICS if metric not in unknown]
        status, output, errors, table = _run(ncu, metrics, child)
    check(status, errors)
    return pair(launches(output), parse(table))


def _run(ncu: str, metrics: Sequence[str], child: list[str]) -> tuple[int, str, str, str]:
    """(the exit status, what the child printed, what ncu and the child said, ncu's CSV)."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"  # apart from what the child prints
        options = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        options += ["--kernel-name", "regex:multiply_00", "--metrics", ",".join(metrics)]
        # ncu keeps a lock in TMPDIR, which may be another user's; C numbers have a decimal point.
        environ = {**os.environ, "TMPDIR": folder, "LC_ALL": "C"}
        command = [ncu, *options, *child]
        process = subprocess.run(command, capture_output=True, text=True, env=environ)
        table = log.read_text() if log.is_file() else ""
    return process.returncode, process.stdout, table + process.stdout + process.stderr, table


def check(status: int, text: str) -> None:
    """RuntimeError with one sentence if ncu or its child failed."""
    if "ERR_NVGPUCTRPERM" in text:
        raise RuntimeError(
            "Nsight Compute may not read the counters of this GPU (ERR_NVGPUCTRPERM); run the "
            "command as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    if status or errors:
        prefixes = ("==", '"', "launched\t", "refused\t")
        messages = [line for line in lines if not line.startswith(prefixes)]
        reason = next(iter((messages[-1:] if status else []) + errors), "it said nothing")
        raise RuntimeError(f"Nsight Compute ended with the status {status}: {reason}")


def launches(output: str) -> list[Launch]:
    """The launches that the child named, in their order."""
    lines = [line.split("\t") for line in output.splitlines()]
    return [(line[1], line[2]) for line in lines if line[0] == "launched" and len(line) > 2]


def parse(table: str) -> list[tuple[str, Measured]]:
    """(the name of a kernel without "multiply_", what ncu measured of it), in their order.

    The CSV has ncu's own lines before it (==PROF==), and a row of units below its header.
    """
    lines = [line for line in table.splitlines() if line.startswith('"')]
    rows = []
    for row in csv.DictReader(lines):
        name = KERNEL.search(row.get("Kernel Name") or "")
        if name:  # the row of units has none
            rows.append((name[1], _measured(row)))
    return rows


def _measured(row: dict[str, str]) -> Measured:
    def kept(metrics: dict[str, str]) -> dict[str, float]:
        numbers = {name: _number(row.get(metric)) for name, metric in metrics.items()}
        return {name: number for name, number in numbers.items() if number is not None}

    return {"stalls": kept({reason: STALL.format(reason) for reason in REASONS}), **kept(COUNTS)}


def _number(text: str | None) -> float | None:
    """A number, perhaps with thousands separators; None for "n/a" or nothing."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def pair(pairs: list[Launch], measured: list[tuple[str, Measured]]) -> dict[Launch, Measured]:
    """The measurement of each launch; RuntimeError if other kernels were measured."""
    kernels = [kernel for kernel, _ in measured]
    if not pairs or len(pairs) != len(measured):
        raise RuntimeError(
            f"{len(pairs)} kernels were launched, but Nsight Compute measured {len(measured)}."
        )
    for (step, label), kernel in zip(pairs, kernels, strict=True):
        if step != kernel.removesuffix("_sm90") and not step.startswith(f"{kernel}_"):
            raise RuntimeError(
                f"{step} {label} was launched, but Nsight Compute measured multiply_{kernel}."
            )
    return {launch: result for launch, (_, result) in zip(pairs, measured, strict=True)}
