"""Breaks the code on purpose, one fault after another, and demands that tests find each.

    python tests/support/planted_faults.py host [NAME...]                     host code and Python
    python tests/support/planted_faults.py build [NAME...] --out FOLDER       kernels: compiles
    python tests/support/planted_faults.py gpu [NAME...] --libraries FOLDER   kernels: on a GPU

tests/data/planted_faults.toml lists the faults and the tests of each. They are planted in
build/faults, a copy of the checkout's tracked files, or of those of a commit with --revision REV.
The tests must pass without the fault, and at least one must fail with it.

`build` needs nvcc, not a GPU. It writes FOLDER/NAME.so for each fault and FOLDER/right.so without
one, with the kernels of all faults. `gpu` takes the checkout's tests, on compute capability 9.0.
"""

import argparse
import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/data/planted_faults.toml"
COPY = ROOT / "build/faults"
RIGHT = "right"  # the library without a fault
Run = subprocess.CompletedProcess[str]


class Fault(NamedTuple):
    """A table of the list."""

    name: str
    file: str
    old: str
    new: str
    wrong: str
    tests: list[str]
    kernels: str = ""  # TCGEMM_KERNELS; "" for a fault that no kernel has

    def edit(self, text: str) -> str:
        """The text of the file with the fault."""
        if text.count(self.old) != 1:
            raise SystemExit(
                f"{self.name}: the old text stands {text.count(self.old)} times in {self.file}, "
                f"but it must stand there once; change {LIST.relative_to(ROOT)}."
            )
        return text.replace(self.old, self.new)


def faults() -> list[Fault]:
    """All faults of the list."""
    return [Fault(name, **table) for name, table in tomllib.loads(LIST.read_text()).items()]


def tracked(revision: str | None) -> dict[str, bytes]:
    """Name -> content of the files of a commit, or of the checkout's tracked files as they are."""
    command = ["git", "archive", revision] if revision else ["git", "ls-files", "-z"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    if not revision:
        paths = [ROOT / name for name in said.decode().split("\0") if name]
        return {str(p.relative_to(ROOT)): p.read_bytes() for p in paths if p.is_file()}
    with tarfile.open(fileobj=io.BytesIO(said)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive if each.isfile()}


def write(name: str, content: bytes) -> None:
    """Into the copy. A file that is equal stays as it is, so that ninja does not compile it."""
    path = COPY / name
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_files(revision: str | None) -> None:
    """The copy has these files, and in its folder build what earlier runs have compiled."""
    files = tracked(revision)
    for path in COPY.rglob("*"):
        name = str(path.relative_to(COPY))
        if path.is_file() and not name.startswith("build/") and name not in files:
            path.unlink()
    for name, content in files.items():
        write(name, content)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """While the fault is in the copy."""
    right = (COPY / fault.file).read_bytes()
    write(fault.file, fault.edit(right.decode()).encode())
    try:
        yield
    finally:
        write(fault.file, right)


def build(**options: str) -> Path:
    """The operator library of the copy as it is now."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "build/lib"]
    environ = os.environ | {"TCGEMM_PREBUILT": ""} | options
    done = subprocess.run(command, cwd=COPY, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}{COPY} was not built.")
    return COPY / "build/lib/tcgemm/libtcgemm.so"


def run_tests(fault: Fault, folder: Path, **options: str) -> Run:
    """The fault's tests, up to the first failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, cwd=folder, env=os.environ | options, **out)


def report(fault: Fault, right: Run, spoiled: Run) -> bool:
    """Prints the row of a fault. Is it found, by tests that pass without it?"""
    sums = [(run.stdout.splitlines() or ["no output"])[-1] for run in (right, spoiled)]
    passes = right.returncode == 0 and " passed" in sums[0]
    found = passes and spoiled.returncode == 1 and " failed" in sums[1]
    print(f"{'found' if found else 'NOT FOUND':10}{fault.name:50}{' -> '.join(sums)}", flush=True)
    if not found:
        print(*(spoiled if passes else right).stdout.splitlines()[-25:], sep="\n", flush=True)
    return found


def check_host(chosen: list[Fault], given: argparse.Namespace) -> bool:
    """Plants, builds and tests in the copy. Are all found?"""

    def tested(fault: Fault) -> Run:
        library = build(TCGEMM_CUDA="0", TCGEMM_BUILD_LAB="1", TCGEMM_KERNELS="")
        lab = str(library.with_name("libtcgemm_lab.so"))
        return run_tests(fault, COPY, TCGEMM_LIBRARY=str(library), TCGEMM_LAB_LIBRARY=lab)

    copy_files(given.revision)
    found = []
    for fault, right in [(fault, tested(fault)) for fault in chosen]:
        with planted(fault):
            spoiled = tested(fault)
        found.append(report(fault, right, spoiled))
    return all(found)


def build_kernels(chosen: list[Fault], given: argparse.Namespace) -> bool:
    """Compiles the library without a fault, and that of each fault."""
    options = {"TCGEMM_CUDA": "1", "TCGEMM_BUILD_LAB": "0"}
    options["TORCH_CUDA_ARCH_LIST"] = os.environ.get("TORCH_CUDA_ARCH_LIST") or "9.0a"
    options["TCGEMM_KERNELS"] = ",".join({fault.kernels: "" for fault in faults() if fault.kernels})

    def keep(name: str) -> None:
        shutil.copy2(build(**options), given.out / f"{name}.so")
        print(f"{given.out / name}.so", flush=True)

    copy_files(given.revision)
    given.out.mkdir(parents=True, exist_ok=True)
    keep(RIGHT)
    for fault in chosen:
        with planted(fault):
            keep(fault.name)
    return True


def check_gpu(chosen: list[Fault], given: argparse.Namespace) -> bool:
    """Tests the libraries of `build`. Are all found?"""

    def tested(fault: Fault, name: str) -> Run:
        library = (given.out / f"{name}.so").resolve(strict=True)
        return run_tests(fault, ROOT, TCGEMM_LIBRARY=str(library), TCGEMM_REQUIRE_GPU="1")

    found = [report(each, tested(each, RIGHT), tested(each, each.name)) for each in chosen]
    return all(found)


ACTIONS = {"host": check_host, "build": build_kernels, "gpu": check_gpu}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=ACTIONS)
    parser.add_argument("names", nargs="*", help="of faults; none: all")
    parser.add_argument("--revision", help="a commit, in place of the checkout's files")
    parser.add_argument("--out", "--libraries", type=Path, default=ROOT / "build/fault_libraries")
    given = parser.parse_intermixed_args()
    known = {each.name: each for each in faults() if bool(each.kernels) is (given.what != "host")}
    if unknown := set(given.names) - known.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in given.names or known]
    COPY.mkdir(parents=True, exist_ok=True)
    with open(COPY.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs would mix their faults in the copy
        return int(not ACTIONS[given.what](chosen, given))


if __name__ == "__main__":
    sys.exit(main())
