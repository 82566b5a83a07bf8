"""The lines of Python and C++ that tests run: pytest-cov, and gcov's counters read by gcovr.

    make coverage                                  build/coverage/lib first, then all tests
    make coverage COVERAGE_TESTS=tests/plan

Pages with every line are build/coverage/python/index.html and build/coverage/cpp/index.html. C++ is
the CPU build: planner, operators and CPU kernels.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OBJECTS = ROOT / "build/cpu-coverage"
PAGES = ROOT / "build/coverage"
# They measure time and memory, of which counting takes its share.
NOT_HERE = ("tests/cpu/test_speed.py", "tests/repo/test_import.py")


def run(*command: str, **environ: str) -> int:
    """In the checkout, with this interpreter."""
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **environ}
    ).returncode


def main() -> int:
    for counters in OBJECTS.rglob("*.gcda"):
        counters.unlink()  # of an earlier run; a new one would add to them
    for name in ("python", "cpp"):
        shutil.rmtree(PAGES / name, ignore_errors=True)
    (PAGES / "cpp").mkdir(parents=True)
    failed = run(
        *("pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu"),
        *("--cov", "--cov-report=term:skip-covered", f"--cov-report=html:{PAGES}/python"),
        *(f"--deselect={name}" for name in NOT_HERE),
        *(sys.argv[1:] or ["tests"]),
        TCGEMM_LIBRARY=str(PAGES / "lib/tcgemm/libtcgemm.so"),
        COVERAGE_FILE=str(PAGES / "python.data"),
    )
    failed |= run(
        # A line of a template counts once, however many instances it has.
        *("gcovr", "--root", ".", "--filter", "csrc/", "--merge-lines"),
        *(
            "--sort",
            "uncovered-percent",
            "--txt",
            "-",
            "--html-nested",
            f"{PAGES}/cpp/index.html",
            str(OBJECTS),
        ),
    )
    print(f"Pages: {PAGES.relative_to(ROOT)}/python/index.html, cpp/index.html")
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
