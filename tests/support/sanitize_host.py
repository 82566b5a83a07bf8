"""The host code under AddressSanitizer and UndefinedBehaviorSanitizer: random calls, then tests.

    make sanitize-host                    build/asan, then this file
    make sanitize-host CASES=20000 SEED=7
                                          more random calls
    make sanitize-host CASES=0 SANITIZE_TESTS=tests/operands/sparse
                                          other tests; CASES=0 leaves out the calls

The libraries are the CPU build: planner, operators, CPU kernels and the emulator. A report ends the
process that made it. Reports are collected in build/asan/log, and one is enough to fail the run,
also where a test expected an error.

Leaks are looked for in a process of their own, which calls every operator. torch and Python leave
thousands of blocks to the operating system, and naming them takes minutes. So LeakSanitizer is off
while they are imported, it names no functions, and only a block that libtcgemm.so asked for counts.
`addr2line -Cfe build/asan/tcgemm/libtcgemm.so ADDRESS` names the lines of a leak.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build/asan/tcgemm/libtcgemm.so"
LOG = ROOT / "build/asan/log"
REPORT = r"ERROR: AddressSanitizer|runtime error:|AddressSanitizer:DEADLYSIGNAL"
NO_LEAKS = "LeakSanitizer has encountered a fatal error"
# It measures the memory of the process, which grows while AddressSanitizer keeps freed blocks.
NOT_HERE = "tests/plan/test_explain.py::test_explain_leaks_no_memory"
# Both functions belong to the sanitizer, which is loaded first of all.
LEAKS = """
import ctypes, sys
process = ctypes.CDLL(None)
process.__lsan_disable()
sys.path[:0] = ["tests", "."]
from support import fuzz
process.__lsan_enable()
sys.argv[1:] = ["--kind", "operators", "--cases", sys.argv[1], "--seed", sys.argv[2]]
sys.exit(fuzz.main())
"""


def runtime(name: str) -> str:
    """A library of g++ that stands before all others in the process."""
    command = ["g++", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def environment(library: Path, log: Path, leaks: bool) -> dict[str, str]:
    """The real __cxa_throw has to be loaded before the sanitizer asks for it: libstdc++."""
    options = f"halt_on_error=1:log_path={log}/report"
    return {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libstdc++.so')}",
        "ASAN_OPTIONS": f"{options}:detect_leaks={int(leaks)}:allocator_may_return_null=1"
        f":symbolize={int(not leaks)}",
        "UBSAN_OPTIONS": f"{options}:print_stacktrace=1",
        # The exit status of every report: 0 where torch's leaks would fail each run.
        "LSAN_OPTIONS": f"exitcode={0 if leaks else 1}",
        "TCGEMM_LIBRARY": str(library),
        "TCGEMM_LAB_LIBRARY": str(library.with_name("libtcgemm_lab.so")),
    }


def can_find_leaks(log: Path) -> bool:
    """LeakSanitizer attaches to its own process, which a container or a debugger can forbid."""
    program = [sys.executable, "-c", "pass"]
    process = subprocess.run(program, env=environment(LIBRARY, log, True), capture_output=True)
    output = process.stderr.decode() + "".join(path.read_text() for path in log.glob("report.*"))
    for path in log.glob("report.*"):
        path.unlink()
    return process.returncode == 0 and NO_LEAKS not in output


def leaks_of_ours(text: str) -> list[str]:
    """The leaks whose stack goes through libtcgemm.so."""
    leaks = re.findall(r"^\w+ leak of .*\n(?: +#.*\n)+", text, flags=re.MULTILINE)
    return [leak for leak in leaks if "libtcgemm.so" in leak]


def reports(log: Path) -> list[str]:
    """The texts in the folder that say something about libtcgemm.so."""
    texts = []
    for path in sorted(log.glob("report.*")):
        text = path.read_text(errors="replace")
        if re.search(REPORT, text):
            texts.append(text)
        texts += leaks_of_ours(text)
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="300", help="random calls of each kind")
    parser.add_argument("--seed", default="0")
    parser.add_argument("tests", nargs="*", help="files and folders of tests")
    arguments = parser.parse_args()
    shutil.rmtree(LOG, ignore_errors=True)
    LOG.mkdir(parents=True)
    leaks = can_find_leaks(LOG)
    if not leaks:
        print("This machine does not let LeakSanitizer run: leaks are not looked for.")
    runs = []  # (command, whether leaks are looked for)
    if arguments.cases != "0":
        options = ("--cases", arguments.cases, "--seed", arguments.seed)
        runs.append(([sys.executable, "tests/support/fuzz.py", *options], False))
        if leaks:
            runs.append(([sys.executable, "-c", LEAKS, arguments.cases, arguments.seed], True))
    if arguments.tests:
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        options = ("-m", "not gpu and not slow", "--deselect", NOT_HERE, *arguments.tests)
        runs.append(([*pytest, *options], False))
    failed = False
    for command, with_leaks in runs:
        process = subprocess.run(command, cwd=ROOT, env=environment(LIBRARY, LOG, with_leaks))
        failed |= process.returncode != 0
    texts = reports(LOG)
    for text in texts:
        print(text)
    print(f"{len(texts)} reports of sanitizers in {LOG.relative_to(ROOT)}")
    return int(failed or bool(texts))


if __name__ == "__main__":
    sys.exit(main())
