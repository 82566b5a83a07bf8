"""Nsight Compute: where it is found, what it is asked, what it writes, and how it refuses.

There is no ncu here. A program of the same name writes the CSV of ncu 2025.3 with made-up numbers.
"""

from __future__ import annotations

import sys

import pytest

from tcgemm.lab.ladder import stalls

START = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
START += '"Block Size","Grid Size","Device","CC"'
UNITS = ["inst"] * 9 + ["", "", "", "inst", "%"]
NUMBERS = ["2.25", "0.5", "1.75", "10.5", "0", "0.25", "3", "0.125", "0.0625"]
NAMES = [
    "void tcgemm::ladder::multiply_004_3_0<(int)3>(const __half *, const __half *, float *, int)",
    "tcgemm::ladder::multiply_004_2_0(const __half *, const __half *, float *, int, int)",
]


def listing(kernels, counts, metrics=stalls.METRICS):
    """The log file of ncu: its own lines, a header, units, a row a launch."""
    lines = ["==PROF== Connected to process 4711 (/usr/bin/python3.11)"]
    for index, kernel in enumerate(kernels):
        name = kernel.split("::")[-1].split("<")[0].split("(")[0]
        lines.append(f'==PROF== Profiling "{name}" - {index}: 0%....50%....100% - 8 passes')
    lines.append("==PROF== Disconnected from process 4711")
    lines.append(",".join([START, *(f'"{metric}"' for metric in metrics)]))
    lines.append(",".join(11 * ['""'] + [f'"{unit}"' for unit in UNITS[: len(metrics)]]))
    for index, (kernel, values) in enumerate(zip(kernels, counts, strict=True)):
        start = f'"{index}","4711","python3.11","127.0.0.1","{kernel}","1","7",'
        start += '"(256, 1, 1)","(64, 64, 1)","0","9.0"'
        lines.append(",".join([start, *(f'"{value}"' for value in values)]))
    return "\n".join(lines) + "\n"


COUNTS = [
    [*NUMBERS, "1,048,576", "0", "2,097,152.5", "n/a", "47.25"],
    [*NUMBERS[::-1], "12", "34", "56", "78", ""],
]
TABLE = listing(NAMES, COUNTS)


def test_a_listing_is_read():
    (first, counts), (second, other_counts) = stalls.parse(TABLE)
    assert (first, second) == ("004_3_0", "004_2_0")
    assert list(counts["stalls"]) == list(stalls.REASONS)
    assert counts["stalls"]["long_scoreboard"] == 2.25
    assert counts["stalls"]["mio_throttle"] == 10.5
    assert counts["stalls"]["lg_throttle"] == 0
    assert other_counts["stalls"]["dispatch_stall"] == 2.25
    del counts["stalls"], other_counts["stalls"]
    assert counts == {  # without the metric that is n/a
        "shared_load_conflicts": 1048576,
        "shared_store_conflicts": 0,
        "shared_load_wavefronts": 2097152.5,
        "tensor_percent": 47.25,
    }
    assert other_counts["tensor_instructions"] == 78 and "tensor_percent" not in other_counts


def test_kernels_of_others_are_left_out():
    names = ["void at::native::vectorized_elementwise_kernel<4>(int)", *NAMES]
    table = listing(names, [COUNTS[0], *COUNTS])
    assert [kernel for kernel, _ in stalls.parse(table)] == ["004_3_0", "004_2_0"]
    assert stalls.parse("==PROF== Connected to process 1\n==WARNING== No kernels\n") == []


def test_launches_get_their_variants():
    output = "launched\t004_3_0\t3 stages\nrefused\t004_3_1\tno\tbecause\nlaunched\t004_2_0\t\n"
    launches = stalls.launches(output)
    assert launches == [("004_3_0", "3 stages"), ("004_2_0", "")]
    pairs = stalls.pair(launches, stalls.parse(TABLE))
    assert list(pairs) == launches
    assert pairs["004_3_0", "3 stages"]["stalls"]["barrier"] == 1.75
    for step, kernel in (
        ("000_hgemm", "000"),
        ("001_5_shared_a", "001_5"),
        ("001_peak", "001_peak_sm90"),
        ("002_0_naive", "002_0"),
    ):
        assert stalls.pair([(step, "")], [(kernel, {})]) == {(step, ""): {}}


@pytest.mark.parametrize(
    ("launches", "sentence"),
    [
        ([], "0 kernels were launched, but Nsight Compute measured 2"),
        ([("004_3_0", "3 stages")], "1 kernels were launched, but Nsight Compute measured 2"),
        ([("004_3_0", "3 stages"), ("004_2_1", "")], "004_2_1 .* measured multiply_004_2_0"),
        ([("004_2_0", ""), ("004_3_0", "3 stages")], "004_2_0 .* measured multiply_004_3_0"),
    ],
)
def test_other_kernels_than_those_launched_are_refused(launches, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        stalls.pair(launches, stalls.parse(TABLE))


@pytest.mark.parametrize(
    ("status", "output", "sentence"),
    [
        (
            1,
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0. For instructions ...\n",
            r"ERR_NVGPUCTRPERM\); run the command as root, or load the driver with",
        ),
        (
            1,
            "==PROF== Connected to process 1\nTraceback (most recent call last):\n"
            "ValueError: torch finds no CUDA GPU.\n"
            "==ERROR== The application returned an error code (1).\n",
            r"status 1: ValueError: torch finds no CUDA GPU\.$",
        ),
        (
            2,
            "launched\t004_1_0\t\n==ERROR== Failed to prepare the kernel.\n",
            "status 2: ==ERROR== Failed to prepare the kernel",
        ),
        (0, "==ERROR== Cuda driver is too old.\n", "status 0: ==ERROR== Cuda driver is too old"),
        (9, "", "status 9: it said nothing"),
    ],
)
def test_refusals_are_one_sentence(status, output, sentence):
    with pytest.raises(RuntimeError, match=sentence) as error:
        stalls.check(status, output)
    assert "\n" not in str(error.value)


def test_success_is_no_refusal():
    stalls.check(0, TABLE + "==WARNING== Found outstanding GPU clock reset.\n")


# A program in place of ncu.

PROGRAM = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
option = lambda name: arguments[arguments.index(name) + 1]
metrics = option("--metrics").split(",")
child = arguments[arguments.index("--metrics") + 2 :]
assert arguments[:3] == ["--csv", "--page", "raw"] and os.environ["LC_ALL"] == "C"
log = open(option("--log-file"), "w")
unknown = [metric for metric in metrics if metric == {unknown!r}]
if unknown:
    log.write("==ERROR== Failed to find metric " + unknown[0] + "\\n")
    sys.exit(1)
done = subprocess.run(child)
table = {table!r}
log.write(table)
sys.exit(done.returncode)
"""
LAUNCH = """
import sys
assert sys.argv[1:] == ["004", "512"], sys.argv
print("launched\\t004_3_0\\t3 stages")
print("launched\\t004_2_0\\t")
"""


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Writes such a program and a module of launches."""
    (tmp_path / "launches.py").write_text(LAUNCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(table, unknown=""):
        program = tmp_path / "ncu"
        program.write_text(PROGRAM.format(python=sys.executable, table=table, unknown=unknown))
        program.chmod(0o755)

    return write


def test_measure_runs_the_launches_under_ncu(put):
    put(TABLE)
    results = stalls.measure("004", 512, "launches")
    assert list(results) == [("004_3_0", "3 stages"), ("004_2_0", "")]
    assert results["004_2_0", ""]["shared_load_conflicts"] == 12


def test_a_metric_that_a_gpu_lacks_is_left_out(put):
    lacking = stalls.COUNTS["tensor_instructions"]
    at = stalls.METRICS.index(lacking)
    metrics = [metric for metric in stalls.METRICS if metric != lacking]
    put(listing(NAMES, [row[:at] + row[at + 1 :] for row in COUNTS], metrics), lacking)
    results = stalls.measure("004", 512, "launches")
    assert results["004_3_0", "3 stages"]["tensor_percent"] == 47.25
    assert "tensor_instructions" not in results["004_2_0", ""]


def test_a_child_that_fails_is_named(put, tmp_path):
    put(TABLE)
    (tmp_path / "launches.py").write_text('raise ValueError("torch finds no CUDA GPU.")')
    with pytest.raises(RuntimeError, match=r"status 1: ValueError: torch finds no CUDA GPU\.$"):
        stalls.measure("004", 512, "launches")


# Where ncu is.


def test_ncu_is_searched_on_path_then_in_the_toolkit_then_by_version(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(stalls, "TOOLKIT", tmp_path / "cuda")
    monkeypatch.setattr(stalls, "VERSIONS", tmp_path / "versions")
    assert stalls.find_ncu() is None
    with pytest.raises(
        RuntimeError, match=r"ncu is neither on PATH nor in .*cuda nor in .*version"
    ):
        stalls.measure("004", 512)
    for folder in ("versions/2024.3.2", "versions/2025.10.0", "versions/2025.9.1"):
        put_program(tmp_path / folder)
    assert stalls.find_ncu() == str(tmp_path / "versions/2025.10.0/ncu")
    newest = put_program(tmp_path / "versions/2026.1.0")
    assert stalls.find_ncu() == newest
    put_program(tmp_path / "versions/2023.1.0")
    assert stalls.find_ncu() == newest
    toolkit = put_program(tmp_path / "cuda")
    assert stalls.find_ncu() == toolkit
    on_path = put_program(tmp_path / "bin")
    assert stalls.find_ncu() == on_path


def put_program(folder):
    """Puts a program into a folder; its path."""
    folder.mkdir(parents=True)
    (folder / "ncu").write_text("#!/bin/sh\n")
    (folder / "ncu").chmod(0o755)
    return str(folder / "ncu")
