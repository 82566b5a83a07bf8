"""`make sanitize-host` sees the faults of a small library in the place of the real one."""

import shutil
import subprocess
import sys

import pytest

from support import programs, sanitize_host
from support.source_tree import ROOT

sys.path.insert(0, str(ROOT))
import setup

SOURCE = """
static char* volatile kept;
extern "C" {
int overflow(int n) { kept = new char[n]; return kept[n]; }
int signed_overflow(int n) { return 2147483647 + n; }
int leak(int n) { kept = new char[1000 * n]; kept = nullptr; return 0; }
int nothing(int n) { return n; }
}
"""
EXPORTS = "{ global: overflow; signed_overflow; leak; nothing; local: *; };"
PROGRAM = "import ctypes, sys; getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(8)"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed (sudo apt-get install g++)")
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.cpp").write_text(SOURCE)
    (folder / "exports.map").write_text(EXPORTS)
    flags = ["-shared", "-fPIC"]
    flags += ["-fsanitize=address,undefined", *setup.SANITIZER_FLAGS]
    flags += ["-static-libubsan", "-Wl,--version-script=exports.map"]
    command = ["g++", *flags, "faults.cpp", "-o", "libtcgemm.so"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if "cannot find" in process.stderr:
        pytest.skip(f"g++ has no sanitizers here: {process.stderr}")
    assert process.returncode == 0, process.stderr
    return folder / "libtcgemm.so"


@pytest.mark.parametrize(
    ("function", "report"),
    [
        ("overflow", "heap-buffer-overflow"),
        ("signed_overflow", "signed integer overflow"),
        ("leak", "Direct leak of 8000 byte"),
        ("nothing", None),
    ],
)
def test_fault_is_reported(library, tmp_path, function, report):
    leaks = function in ("leak", "nothing")
    if leaks and not sanitize_host.can_find_leaks(tmp_path):
        pytest.skip("this machine does not let LeakSanitizer run")
    environ = sanitize_host.environment(library, tmp_path, leaks)
    process = programs.run(PROGRAM, library, function, env=environ)
    assert (process.returncode != 0) == (report is not None and not leaks), process.stderr
    reports = sanitize_host.reports(tmp_path)
    assert len(reports) == (report is not None)
    assert report is None or report in reports[0]
