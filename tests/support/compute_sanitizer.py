"""memcheck and racecheck of compute-sanitizer over tests/support/sanitize.py, on a GPU.

    make sanitize                           families of the Makefile
    make sanitize FAMILIES="e4m3 s8"        families whose names have one of these words

The program comes from the toolkit of nvcc (pip: the extra `dev` of pyproject.toml) or from PATH.
In the families "split", which the Makefile leaves out, racecheck reports a race that is
none: the head of sanitize.py says why.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import setup_toolchain as toolchain  # noqa: E402

PROGRAM = "compute-sanitizer"


def find(search: list[str], environ: dict[str, str]) -> str:
    """The program beside nvcc, or in PATH."""
    toolkit, _ = toolchain.find_toolkit(torch.version.cuda, search, environ)
    beside = toolkit.home / "bin" / PROGRAM if toolkit else None
    if beside and beside.is_file():
        return str(beside)
    if path := shutil.which(PROGRAM, path=environ.get("PATH", "")):
        return path
    raise SystemExit(
        f"tcgemm: {PROGRAM} was not found beside nvcc or in PATH; "
        "pip install 'cuda-toolkit[sanitizer]' brings it."
    )


def main() -> int:
    program = find(sys.path, dict(os.environ))
    if not torch.cuda.is_available():
        raise SystemExit(f"tcgemm: {PROGRAM} needs a GPU, and torch finds none.")
    script = [sys.executable, str(ROOT / "tests/support/sanitize.py"), *sys.argv[1:]]
    failed = False
    for tool in ("memcheck", "racecheck"):
        print(f"{tool}: {' '.join(sys.argv[1:]) or 'every family'}", flush=True)
        command = [program, "--tool", tool, "--error-exitcode", "1", *script]
        # memcheck knows the ends of allocations, so each tensor has one of its own.
        environ = dict(os.environ, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        failed |= subprocess.run(command, cwd=ROOT, env=environ).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
