"""Builds the operator library by a ninja file of its own.

    csrc/{ops,plan,cpu,launch,kernels}/  --ninja-->  tcgemm/libtcgemm.so      no Python, any torch
    csrc/{emulate,lab}/                  --ninja-->  tcgemm/libtcgemm_lab.so  no torch either

Why not torch's CUDAExtension: it has no flags per file (wgmma code exists for sm_90a alone, fp8 for
sm_89 and later, all else also for sm_80), it links Python, and it wants a GPU or an architecture
list. The ninja file follows headers (-MD) and flags, so that only what changed is compiled again.

docs/environment.md lists the environment variables that are read here.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # pip runs this file from a folder that is not on the path
import setup_toolchain as toolchain  # noqa: E402
from setup_toolchain import escape, shell  # noqa: E402

toolchain.check_setuptools()
from setuptools import Command, Extension, setup  # noqa: E402
from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402
from setuptools.command.build import build  # noqa: E402
from setuptools.command.build_ext import build_ext  # noqa: E402
from setuptools.command.build_py import build_py  # noqa: E402
from setuptools.command.egg_info import egg_info  # noqa: E402

VERSION = re.search(r'"(.+)"', (ROOT / "tcgemm/version.py").read_text().split("=")[1]).group(1)
LIBRARY = "tcgemm.libtcgemm"
LAB = "tcgemm.libtcgemm_lab"  # loaded on first use; TCGEMM_BUILD_LAB=0 leaves it out
LAB_FOLDERS = ("csrc/emulate/", "csrc/lab/")  # the second one needs CUDA
# What a wheel has of other folders, and where: the modules named here look in both places.
PACKED = (
    ("csrc/lab", "tcgemm/lab/ladder/csrc", (".cu", ".cuh", ".h")),  # tcgemm/lab/ladder/sources.py
    ("benchmarks/notebooks", "tcgemm/notebooks", (".ipynb",)),  # tcgemm/cli/notebooks.py
    ("benchmarks/results", "tcgemm/measure/recorded", (".json",)),  # tcgemm/measure/results.py
)
HOME = "https://github.com/tcgemm/tcgemm"
PLATFORM = "manylinux_2_34_x86_64"
# The user's torch brings these; the library must use that copy.
TORCHS_LIBRARIES = ("libtorch*", "libc10*", "libshm*", "libcuda*", "libgomp*")
TORCH_TARGET = "0x020b000000000000"  # LibTorch stable ABI of 2.11: one file for every later torch
EXPORTS = "csrc/exports.map"
LAB_EXPORTS = "csrc/emulate/exports.map"
CXX_FLAGS = "-std=c++20 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -ffp-contract=off".split()
CXX_FLAGS.append("-Werror=switch")  # a switch without a default names each enumerator
# What a build type adds to g++'s flags; of several -O the last one counts. _GLIBCXX_ASSERTIONS
# checks the indices of containers. nvcc keeps -O3 and gets no -G in a debug build: in code that is
# not optimised ptxas ignores setmaxnreg and serialises wgmma, and the build refuses such a kernel.
BUILD_TYPES = {
    "release": [],
    "debug": "-Og -g -D_GLIBCXX_ASSERTIONS".split(),
    "coverage": "-Og -g --coverage -fprofile-update=atomic".split(),
}
SANITIZER_FLAGS = (
    "-O1 -g -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer -fno-sanitize-recover=undefined"
).split()
NVCC_FLAGS = (
    "-std=c++20 -O3 --expt-relaxed-constexpr -Xptxas=-v -Xfatbin=-compress-all "
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall"
).split()


@dataclass(frozen=True)
class Config:
    """Everything that decides what is built."""

    cuda: bool
    reason: str
    torch: toolchain.Torch
    toolkit: toolchain.Toolkit | None
    arches: tuple[str, ...]
    kernels: str
    sample: bool  # of the kernels: is_sample in csrc/catalog.h
    cxx: str
    sanitize: str  # sanitizers of g++, as -fsanitize takes them: "address,undefined"
    build_type: str = "release"

    @property
    def folder(self) -> Path:
        """Of the objects; a subset of the kernels does not evict the objects of the full build."""
        name = "cuda" if self.cuda else "cpu"
        default = tuple(toolchain.parse_arches(toolchain.DEFAULT_ARCHES))
        if self.cuda and (self.arches != default or self.kernels):
            text = ";".join((*self.arches, self.kernels))
            name += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
        if self.cuda and self.sample:
            name += "-sample"
        if (compiler := Path(shlex.split(self.cxx)[0]).name) != "g++":
            name += "-" + compiler
        if self.build_type != "release":
            name += "-" + self.build_type
        if self.sanitize:
            name += "-" + self.sanitize.replace(",", "-")
        if "pip-build-env" in str(self.torch.folder):
            name += "-isolated"
        return Path("build") / name

    @property
    def product(self) -> Path:
        return self.folder / "libtcgemm.so"

    @property
    def lab(self) -> Path:
        return self.folder / "libtcgemm_lab.so"


def find_config() -> Config:
    toolchain.check_platform()
    torch = toolchain.find_torch()
    toolkit, reasons = toolchain.find_toolkit(torch.cuda, sys.path, dict(os.environ))
    gpus = toolchain.seen_gpus()
    arches, reason = toolchain.choose_arches(os.environ, gpus, torch.cuda, toolkit, reasons)
    config = Config(
        cuda=bool(arches),
        reason=reason,
        torch=torch,
        toolkit=toolkit if arches else None,
        arches=tuple(arches),
        kernels=os.environ.get("TCGEMM_KERNELS", ""),
        sample=False,
        cxx=toolchain.find_tool("CXX", "g++", "sudo apt-get install g++"),
        sanitize=os.environ.get("TCGEMM_SANITIZE", ""),
        build_type=find_build_type(os.environ.get("TCGEMM_BUILD_TYPE", "")),
    )
    has_all = (ROOT / config.product).is_file()
    sample = toolchain.choose_sample(os.environ.get("TCGEMM_SAMPLE", ""), gpus, has_all)
    return dataclasses.replace(config, sample=sample)


def find_build_type(text: str) -> str:
    if text and text not in BUILD_TYPES:
        raise RuntimeError(
            f"TCGEMM_BUILD_TYPE is {text!r}; expected one of {', '.join(BUILD_TYPES)}."
        )
    return text or "release"


def sources(*folders: str) -> list[str]:
    """Every C++ and CUDA source under these folders, relative to the checkout."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(str(p.relative_to(ROOT)) for p in paths if p.suffix in (".cpp", ".cu"))


def library_sources(config: Config) -> list[str]:
    """All of csrc but the lab, and the units; a CPU build leaves out what needs CUDA."""
    cuda = () if config.cuda else ("csrc/kernels/", "csrc/launch/", "csrc/ops/register/cuda")
    others = (*LAB_FOLDERS, *cuda, *toolchain.UNIT_FILES)
    files = [name for name in sources("csrc") if not name.startswith(others)]
    return [*(units(config) if config.cuda else ()), *files]


def units(config: Config) -> dict[str, list[str]]:
    return toolchain.list_units((*shlex.split(config.cxx), *macros(config)))


def lab_sources(config: Config) -> list[str]:
    """The sources of the lab; in a CPU build the emulator alone."""
    folders = LAB_FOLDERS if config.cuda else LAB_FOLDERS[:1]
    return sources(*folders) if builds_lab() else []


def builds_lab() -> bool:
    return os.environ.get("TCGEMM_BUILD_LAB", "1") != "0"


def macros(config: Config, source: str = "") -> list[str]:
    values = {
        "TCGEMM_VERSION": f'"{VERSION}"',
        "TCGEMM_CUDA": int(config.cuda),
        "TCGEMM_KERNELS": f'"{config.kernels}"',
        "TCGEMM_ARCHES": f'"{",".join(config.arches)}"',
        "TORCH_TARGET_VERSION": TORCH_TARGET,
    }
    if config.toolkit:
        values["TCGEMM_NVCC"] = f'"{config.toolkit.version}"'
    if config.sample:
        values["TCGEMM_SAMPLE"] = 1
    of_unit = units(config).get(source, []) if source else []
    return [f"-D{name}={value}" for name, value in values.items()] + of_unit


def cxx_command(config: Config, source: str) -> list[str]:
    """g++ for one file. Only ops/ sees torch's headers, so the layering holds by construction."""
    command = [*shlex.split(config.cxx), *CXX_FLAGS, *macros(config), "-Icsrc"]
    command += BUILD_TYPES[config.build_type]
    if config.sanitize:
        command += [f"-fsanitize={config.sanitize}", *SANITIZER_FLAGS]
    elif config.build_type == "release" and source.startswith(("csrc/cpu/", *LAB_FOLDERS)):
        command.append("-O3")
    if source.startswith("csrc/ops/"):
        include = config.torch.folder / "include"
        command += ["-isystem", str(include)]
        command += ["-isystem", str(include / "torch/csrc/api/include")]
    if config.toolkit and source.startswith(("csrc/ops/", "csrc/launch/")):
        command += ["-isystem", str(config.toolkit.home / "include")]
    return command


def nvcc_command(config: Config, source: str) -> list[str]:
    """nvcc for one file, with the architectures that it has code for."""
    toolkit = config.toolkit
    command = [str(toolkit.nvcc), *NVCC_FLAGS]
    command += ["-ccbin", shlex.split(config.cxx)[0], *macros(config, source), "-Icsrc"]
    if tuple(int(part) for part in toolkit.version.split(".")[:2]) >= (12, 8):
        command.append("-compress-mode=size")
    if config.build_type == "debug":
        command += ["-g", "-lineinfo"]  # of host code, and the lines of device code
    arches = toolchain.file_arches(source, config.arches)
    return command + [toolchain.gencode(arch) for arch in arches]


def clang_command(config: Config, source: str) -> list[str]:
    """What clangd reads for a file of nvcc, whose own flags clang does not know.

    clangd 22 reads the headers of CUDA 13, and 19 does not. It marks the asm constraint "C" of
    ptx/wgmma.cuh, which only nvcc knows.
    """
    command = ["clang++", "-x", "cuda", "-std=c++20", f"--cuda-path={config.toolkit.home}"]
    arch = toolchain.file_arches(source, config.arches)[0].split("+")[0].split("@")[0]
    command += [f"--cuda-gpu-arch=sm_{arch.replace('.', '')}", "-nocudalib"]
    command.append("-Wno-unknown-cuda-version")
    return [*command, *macros(config, source), "-Icsrc"]


def write_compile_commands(config: Config) -> None:
    """compile_commands.json, from which clangd and clang-tidy learn each file's flags."""
    entries = []
    for source in library_sources(config) + lab_sources(config):
        command = clang_command if source.endswith(".cu") else cxx_command
        file = toolchain.file_of(source)
        arguments = [*command(config, source), "-c", file]
        entries.append({"directory": str(ROOT), "file": file, "arguments": arguments})
    fresh = ROOT / config.folder / "compile_commands.json"
    fresh.write_text(json.dumps(entries, indent=1) + "\n")
    os.replace(fresh, ROOT / "compile_commands.json")


def link_command(config: Config) -> tuple[list[str], list[str]]:
    """What stands before and after the objects of the operators' library."""
    before = link_start(config)
    # Nothing is exported: registration runs when the file is loaded, and cudart and the templates
    # of libstdc++ must not meet another copy. libstdc++ stands before torch, since libtorch_cpu
    # exports templates of it that a later torch need not have.
    after = [f"-Wl,--version-script={EXPORTS}", "-Wl,--no-undefined", "-lstdc++"]
    after += [f"-L{config.torch.folder / 'lib'}", "-Wl,--no-as-needed"]
    after += ["-ltorch", "-ltorch_cpu", "-lc10", "-Wl,--as-needed"]
    return before, [*after, *cudart(config), "-lpthread"]


def cudart(config: Config) -> list[str]:
    if not config.toolkit:
        return []
    return [f"-L{config.toolkit.library_dir}", "-lcudart_static", "-lrt", "-ldl"]


def link_start(config: Config) -> list[str]:
    before = [*shlex.split(config.cxx), "-shared"]
    if config.sanitize:
        before.append(f"-fsanitize={config.sanitize}")
        if "undefined" in config.sanitize:
            # Beside a shared libasan, a shared libubsan would not write to its log_path.
            before.append("-static-libubsan")
    elif config.build_type == "release":
        before.append("-s")  # only the others need the names of functions and lines
    if config.build_type == "coverage":
        before.append("--coverage")
    return before


def object_file(config: Config, source: str) -> Path:
    return config.folder / "obj" / (str(Path(source).relative_to("csrc")) + ".o")


def ninja_text(config: Config) -> str:
    """The ninja file, what takes longest first; nvcc runs under the wrapper that reads ptxas."""
    compile_flags = "-MD -MF $out.d -c $in -o $out"
    wrapper = shell([sys.executable, "setup_toolchain.py"])
    follow = ["  depfile = $out.d", "  deps = gcc", "  description = $out"]
    lines = [
        f"builddir = {escape(config.folder)}",
        *("rule cpp", f"  command = $cmd {compile_flags}", *follow),
        *("rule cu", f"  command = {wrapper} $out $cmd {compile_flags}", *follow),
        *("rule link", "  command = $before $in -o $out $after", "  description = $out"),
    ]
    files = library_sources(config)
    for source in sorted(files + lab_sources(config), key=toolchain.compile_rank):
        rule = source.rsplit(".", 1)[1]
        command = nvcc_command if rule == "cu" else cxx_command
        target, file = object_file(config, source), toolchain.file_of(source)
        lines.append(f"build {escape(target)}: {rule} {escape(file)}")
        lines.append(f"  cmd = {shell(command(config, source))}")
    objects = " ".join(escape(object_file(config, source)) for source in files)
    before, after = link_command(config)
    lines.append(f"build {escape(config.product)}: link {objects} | {EXPORTS}")
    lines += [f"  before = {shell(before)}", f"  after = {shell(after)}"]
    if builds_lab():
        objects = " ".join(escape(object_file(config, source)) for source in lab_sources(config))
        lines.append(f"build {escape(config.lab)}: link {objects} | {LAB_EXPORTS}")
        lines.append(f"  before = {shell(link_start(config))}")
        flags = [f"-Wl,--version-script={LAB_EXPORTS}", "-Wl,--no-undefined"]
        lines.append(f"  after = {shell([*flags, *cudart(config), '-lpthread'])}")
    return "\n".join(lines) + "\n"


def run_ninja(config: Config) -> Path:
    """Brings the library up to date. Builds of one checkout wait for one another."""
    (ROOT / config.folder).mkdir(parents=True, exist_ok=True)
    script = config.folder / "build.ninja"
    import fcntl  # only where check_platform lets a build begin: Windows has no such module

    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
    with open(ROOT / config.folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (ROOT / script).write_text(ninja_text(config))
        if not config.sanitize and config.build_type != "coverage":
            write_compile_commands(config)
        products = [config.product, config.lab] if builds_lab() else [config.product]
        command = [toolchain.find_ninja(), "-f", str(script), "-j", jobs, *map(str, products)]
        process = subprocess.run(command, cwd=ROOT)
    if process.returncode:
        raise RuntimeError(f"{config.product} was not built: the compiler's messages stand above.")
    return ROOT / config.product


def build_library(config: Config) -> Path:
    if prebuilt := os.environ.get("TCGEMM_PREBUILT"):
        print(f"tcgemm: the library is {prebuilt}, nothing is compiled (TCGEMM_PREBUILT)")
        return Path(prebuilt)
    print(f"tcgemm: {'CUDA' if config.cuda else 'CPU'} build ({config.reason})")
    print(f"tcgemm: torch {config.torch.version} in {config.torch.folder}")
    if config.cuda:
        print(f"tcgemm: architectures {', '.join(config.arches)}")
        if "9.0a" not in config.arches:
            print("tcgemm: 9.0a is not among them, so no wgmma kernel is built")
    else:
        say_no_cuda_kernel(config.reason)
    if config.kernels:
        print(f"tcgemm: only the kernels that match {config.kernels!r}")
    if config.cuda and config.sample:
        print("tcgemm: a sample of the kernels (TCGEMM_SAMPLE); `make build` builds all of them")
    if config.build_type == "debug":
        print("tcgemm: debug build; `make build` without DEBUG=1 brings the release build back")
    library = run_ninja(config)
    for source in library_sources(config):
        report = ROOT / f"{object_file(config, source)}.ptxas"
        if report.is_file():
            for line in toolchain.check_ptxas(report.read_text())[1]:
                print(f"tcgemm: {line}")
    print(f"tcgemm: {config.product}, {library.stat().st_size / 1e6:.1f} MB")
    return library


def say_no_cuda_kernel(reason: str) -> None:
    """As the last line of all, behind the lines of the wheel."""
    sentence = (
        f"tcgemm: no CUDA kernel was built ({reason}); `TCGEMM_CUDA=1 pip install .` builds them, "
        "and in a checkout `make build`"
    )
    atexit.register(print, sentence, flush=True)


def lab_beside(product: Path) -> Path:
    """The lab's library in the folder of the operators' one."""
    lab = product.with_name("libtcgemm_lab.so")
    if not lab.is_file():
        raise RuntimeError(
            f"{lab} is not there; TCGEMM_BUILD_LAB=0 packs {product.name} without it."
        )
    return lab


def has_cuda() -> bool:
    """Whether the library that is packed has CUDA kernels."""
    if prebuilt := os.environ.get("TCGEMM_PREBUILT"):
        return b"\0.nv_fatbin\0" in Path(prebuilt).read_bytes()
    return find_config().cuda


def long_description() -> str:
    """README.md with links that work on PyPI, where no other file of the checkout is.

    GitHub serves an SVG as a picture when it is asked to sanitise it.
    """
    text = (ROOT / "README.md").read_text()
    relative = r"\]\((?!\w+:|#)([^)\s]+)\)"
    text = re.sub("(!\\[[^]]*)" + relative, rf"\1]({HOME}/raw/main/\2?sanitize=true)", text)
    return re.sub(relative, rf"]({HOME}/blob/main/\1)", text)


class Build(build):
    """build without what an earlier build left: a module that was deleted is not packed again."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildPy(build_py):
    """build_py that packs files of other folders."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for folder, place, suffixes in PACKED:
            toolchain.copy_files(ROOT / folder, Path(self.build_lib) / place, suffixes)


class BuildExt(build_ext):
    """build_ext whose extension, the library, comes from ninja."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def run(self) -> None:
        os.chdir(ROOT)
        self.config = find_config()
        super().run()

    def build_extensions(self) -> None:
        """One run of ninja for both libraries."""
        product = build_library(self.config)
        for extension in self.extensions:
            file = Path(self.get_ext_fullpath(extension.name))
            toolchain.install(product if extension.name == LIBRARY else lab_beside(product), file)


class EggInfo(egg_info):
    """egg_info that calls a CPU wheel 0.1.0+cpu, so that no cache takes it for the one for CUDA."""

    def finalize_options(self) -> None:
        of_build = {"bdist_wheel", "dist_info", "editable_wheel"}
        if of_build & set(self.distribution.commands) and not has_cuda():
            self.tag_build = "+cpu"
        super().finalize_options()


class BdistWheel(bdist_wheel):
    """One wheel for every Python: the library knows none."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]

    def run(self) -> None:
        super().run()
        _, _, wheel = self.distribution.dist_files[-1]
        print(f"tcgemm: wrote {wheel}. pip install {wheel} installs it.")


class ManylinuxWheel(Command):
    """Gives a wheel the manylinux tag, after a check that its library needs nothing newer."""

    user_options = [
        ("wheel=", None, "the wheel of bdist_wheel"),
        ("dist-dir=", None, "where the wheel with the tag goes"),
    ]

    def initialize_options(self) -> None:
        self.wheel = ""
        self.dist_dir = "dist"

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        toolchain.repair_wheel(self.wheel, PLATFORM, self.dist_dir, TORCHS_LIBRARIES)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # in order with ninja's lines, in a pipe too
    try:
        setup(
            ext_modules=[Extension(name, []) for name in (LIBRARY, LAB)[: 1 + builds_lab()]],
            long_description=long_description(),
            long_description_content_type="text/markdown",
            cmdclass={
                "build": Build,
                "build_ext": BuildExt,
                "build_py": BuildPy,
                "bdist_wheel": BdistWheel,
                "egg_info": EggInfo,
                "manylinux_wheel": ManylinuxWheel,
            },
        )
    except RuntimeError as error:  # a missing torch, compiler or file: a sentence, no traceback
        sys.exit(f"tcgemm: {error}")
