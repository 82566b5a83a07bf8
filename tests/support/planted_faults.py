"""Breaks the code on purpose, one fault after another, and demands that tests find each.

    python tests/support/planted_faults.py host [NAME...]                     host code and Python
    python tests/support/planted_faults.py build [NAME...] --out FOLDER       kernels: compiles
    python tests/support/planted_faults.py gpu [NAME...] --libraries FOLDER   kernels: on a GPU

tests/data/planted_faults.toml lists the faults and the tests of each. They are planted in
build/faults, a copy of the tracked files of the checkout, or of a commit with --revision REV.
The tests must pass without the fault, and with it at least one must fail, or not end: a kernel that
waits for bytes that nobody sends is found too.

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
LIMIT = 60  # seconds of a fault's tests, which take a few without it
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


def tracked_files(revision: str | None) -> dict[str, bytes]:
    """Name -> content of the files of a commit, or of the checkout's tracked files as they are."""
    command = ["git", "archive", revision] if revision else ["git", "ls-files", "-z"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    if not revision:
        paths = [ROOT / name for name in output.decode().split("\0") if name]
        return {str(p.relative_to(ROOT)): p.read_bytes() for p in paths if p.is_file()}
    with tarfile.open(fileobj=io.BytesIO(output)) as archive:
        return {file.name: archive.extractfile(file).read() for file in archive if file.isfile()}


def write(name: str, content: bytes) -> None:
    """Into the copy. A file that is equal stays as it is, so that ninja does not compile it."""
    path = COPY / name
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_files(revision: str | None) -> None:
    """The copy has these files, and in its folder build what earlier runs have compiled."""
    files = tracked_files(revision)
    for path in COPY.rglob("*"):
        name = str(path.relative_to(COPY))
        if path.is_file() and not name.startswith("build/") and name not in files:
            path.unlink()
    for name, content in files.items():
        write(name, content)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """While the fault is in the copy."""
    content = (COPY / fault.file).read_bytes()
    write(fault.file, fault.edit(content.decode()).encode())
    try:
        yield
    finally:
        write(fault.file, content)


def build(**options: str) -> Path:
    """The operator library of the copy as it is now."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "build/lib"]
    environ = os.environ | {"TCGEMM_PREBUILT": ""} | options
    process = subprocess.run(command, cwd=COPY, env=environ, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{process.stdout}{process.stderr}{COPY} was not built.")
    return COPY / "build/lib/tcgemm/libtcgemm.so"


def run_tests(fault: Fault, folder: Path, **options: str) -> Run:
    """The fault's tests, up to the first failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environ = os.environ | options
    try:
        return subprocess.run(command, cwd=folder, env=environ, timeout=LIMIT, **out)
    except subprocess.TimeoutExpired:
        return Run(command, 1, f"1 failed: the tests did not end in {LIMIT} s")


def report(fault: Fault, clean: Run, spoiled: Run) -> bool:
    """Prints the row of a fault. Is it found, by tests that pass without it?"""
    sums = [(run.stdout.splitlines() or ["no output"])[-1] for run in (clean, spoiled)]
    passes = clean.returncode == 0 and " passed" in sums[0]
    is_found = passes and spoiled.returncode == 1 and " failed" in sums[1]
    word = "found" if is_found else "NOT FOUND"
    print(f"{word:10}{fault.name:50}{' -> '.join(sums)}", flush=True)
    if not is_found:
        print(*(spoiled if passes else clean).stdout.splitlines()[-25:], sep="\n", flush=True)
    return is_found


def check_host(selection: list[Fault], arguments: argparse.Namespace) -> bool:
    """Plants, builds and tests in the copy. Are all found?"""

    def tested(fault: Fault) -> Run:
        library = build(TCGEMM_CUDA="0", TCGEMM_BUILD_LAB="1", TCGEMM_KERNELS="")
        lab = str(library.with_name("libtcgemm_lab.so"))
        return run_tests(fault, COPY, TCGEMM_LIBRARY=str(library), TCGEMM_LAB_LIBRARY=lab)

    copy_files(arguments.revision)
    results = []
    for fault, clean in [(fault, tested(fault)) for fault in selection]:
        with planted(fault):
            spoiled = tested(fault)
        results.append(report(fault, clean, spoiled))
    return all(results)


def build_kernels(selection: list[Fault], arguments: argparse.Namespace) -> bool:
    """Compiles a library without a fault, and a library with each fault."""
    options = {"TCGEMM_CUDA": "1", "TCGEMM_BUILD_LAB": "0"}
    options["TORCH_CUDA_ARCH_LIST"] = os.environ.get("TORCH_CUDA_ARCH_LIST") or "9.0a"
    options["TCGEMM_KERNELS"] = ",".join({fault.kernels: "" for fault in faults() if fault.kernels})

    def keep(name: str) -> None:
        shutil.copy2(build(**options), arguments.out / f"{name}.so")
        print(f"{arguments.out / name}.so", flush=True)

    copy_files(arguments.revision)
    arguments.out.mkdir(parents=True, exist_ok=True)
    keep(RIGHT)
    for fault in selection:
        with planted(fault):
            keep(fault.name)
    return True


def check_gpu(selection: list[Fault], arguments: argparse.Namespace) -> bool:
    """Tests the libraries of `build`. Are all found?"""

    def tested(fault: Fault, name: str) -> Run:
        library = (arguments.out / f"{name}.so").resolve(strict=True)
        return run_tests(fault, ROOT, TCGEMM_LIBRARY=str(library), TCGEMM_REQUIRE_GPU="1")

    results = [report(f, tested(f, RIGHT), tested(f, f.name)) for f in selection]
    return all(results)


ACTIONS = {"host": check_host, "build": build_kernels, "gpu": check_gpu}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=ACTIONS)
    parser.add_argument("names", nargs="*", help="of faults; none: all")
    parser.add_argument("--revision", help="a commit, in place of the checkout's files")
    parser.add_argument("--out", "--libraries", type=Path, default=ROOT / "build/fault_libraries")
    arguments = parser.parse_intermixed_args()
    of_kernels = arguments.what != "host"
    table = {fault.name: fault for fault in faults() if bool(fault.kernels) is of_kernels}
    if names := set(arguments.names) - table.keys():
        parser.error(f"no such fault: {', '.join(sorted(names))}")
    selection = [table[name] for name in arguments.names or table]
    COPY.mkdir(parents=True, exist_ok=True)
    with open(COPY.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs would mix their faults in the copy
        return int(not ACTIONS[arguments.what](selection, arguments))


if __name__ == "__main__":
    sys.exit(main())
