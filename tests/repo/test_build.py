"""The build's decisions, what it says when it refuses, and what the library needs to load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tcgemm import _library, info
from tcgemm.emulate import lab_library

from support import programs

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import setup_toolchain as toolchain  # noqa: E402

LIBRARY = _library.path()
LIMIT = 24e6
LAB_LIMIT = 6e6

CLEAN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5cleanPf' for 'sm_90a'
ptxas info    : Function properties for _Z5cleanPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
ptxas info    : Compile time = 2.063 ms
"""
SERIALIZED = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to insufficient register resources for the wgmma pipeline in the function "
    "'_Z5cleanPf'\n"
)
IGNORED = (
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to "
    "determine register count at entry.\n"
)
INJECTED = (
    "ptxas info    : (C7519) warpgroup.arrive is injected in around line 44 by compiler to allow "
    "use of registers in GMMA in function '_Z5cleanPf'\n"
)


def spilling(stores: int, loads: int) -> str:
    return CLEAN.replace("0 bytes spill stores", f"{stores} bytes spill stores").replace(
        "0 bytes spill loads", f"{loads} bytes spill loads"
    )


def dynamic_symbols() -> list[tuple[str, str]]:
    """(kind, name) of each dynamic symbol; the name keeps its version, as in free@GLIBC_2.2.5."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed (sudo apt-get install binutils)")
    text = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True).stdout
    return [tuple(line.split()[-2:]) for line in text.splitlines()]


# The library.


def test_undefined_symbols_are_torchs_stable_interface():
    undefined = [name for kind, name in dynamic_symbols() if kind in "Uw"]
    versioned = re.compile(r"@(GLIBC|GLIBCXX|CXXABI|GCC)_")
    loader = ("_ITM_", "__gmon_start__", "__cxa_finalize")
    foreign = [
        name
        for name in undefined
        if not versioned.search(name) and not name.startswith(("aoti_torch_", "torch_", *loader))
    ]
    assert not foreign
    assert any(name.startswith("aoti_torch_") for name in undefined)


def test_library_needs_no_dispatcher_of_one_version():
    assert not [name for _, name in dynamic_symbols() if name.startswith("torch_call_dispatcher")]


def test_library_needs_neither_python_nor_a_driver():
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed (sudo apt-get install binutils)")
    text = subprocess.run(["objdump", "-p", LIBRARY], capture_output=True, text=True, check=True)
    libraries = re.findall(r"NEEDED\s+(\S+)", text.stdout)
    assert libraries
    assert not [name for name in libraries if re.match(r"lib(cuda|cudart|python|c10_cuda)", name)]
    assert not [n for kind, n in dynamic_symbols() if kind == "U" and re.match(r"_?Py|cu[A-Z]", n)]


def test_library_exports_nothing():
    assert not [name for kind, name in dynamic_symbols() if kind in "TDBRWVui"]


@pytest.mark.parametrize(("path", "limit"), [(LIBRARY, LIMIT), (lab_library.path(), LAB_LIMIT)])
def test_library_is_small(path, limit):
    if not path.is_file():
        pytest.skip(f"{path.name} is not built: TCGEMM_BUILD_LAB=0")
    if b".debug_info" in path.read_bytes():
        pytest.skip("the library has debug information: make build DEBUG=1")
    assert path.stat().st_size <= limit


# Where nvcc comes from.


def fake_nvcc(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release x, V{version}'\n")
    nvcc.chmod(0o755)
    return home


def test_nvcc_order_is_cuda_home_then_pip_then_path(tmp_path):
    home = fake_nvcc(tmp_path / "home", "13.0.88")
    fake_nvcc(tmp_path / "site/nvidia/cu13", "13.0.89")
    path = fake_nvcc(tmp_path / "system", "13.0.90")
    environ = {"CUDA_HOME": str(home), "PATH": str(path / "bin")}
    search = [str(tmp_path / "site")]
    assert toolchain.find_toolkit("13.0", search, environ)[0].version == "13.0.88"
    del environ["CUDA_HOME"]
    assert toolchain.find_toolkit("13.0", search, environ)[0].version == "13.0.89"
    toolkit = toolchain.find_toolkit("13.0", [], environ)[0]
    assert (toolkit.version, toolkit.origin) == ("13.0.90", "PATH")


def test_nvcc_of_another_major_version_is_refused(tmp_path):
    old = fake_nvcc(tmp_path / "old", "12.4.131")
    toolkit, reasons = toolchain.find_toolkit("13.0", [], {"CUDA_HOME": str(old), "PATH": ""})
    assert toolkit is None or toolkit.origin == "default folder"
    assert reasons[0] == (
        f"{old}/bin/nvcc (CUDA_HOME) is CUDA 12.4.131, but torch was built with CUDA 13.0: "
        "a compiler of major version 13 is needed; "
        'pip install "cuda-toolkit[nvcc,crt,nvvm,cccl,cudart]" brings it.'
    )


def test_toolkit_without_the_static_runtime_is_named(tmp_path):
    home = fake_nvcc(tmp_path, "13.0.88")
    with pytest.raises(RuntimeError, match=r"has no libcudart_static\.a; install the whole"):
        _ = toolchain.Toolkit(home, "13.0.88", "PATH").library_dir


# CUDA or CPU.

TOOLKIT = toolchain.Toolkit(Path("/toolkit"), "13.0.88", "pip")
ALL = ["8.0", "8.0+PTX", "8.9", "9.0a"]


@pytest.mark.parametrize(
    ("force", "words", "gpus", "arches", "start"),
    [
        ("", "", [], [], "no GPU is seen"),
        ("", "", ["9.0"], ["9.0a"], "for this machine's GPUs"),
        ("", "", ["8.0", "8.6"], ["8.0"], "for this machine's GPUs"),
        ("", "", ["8.6", "8.9"], ["8.0", "8.9"], "for this machine's GPUs"),
        ("", "", ["12.0"], ["8.0", "8.0+PTX"], "for this machine's GPUs"),
        ("", "", ["7.5"], [], "no kernel runs on this machine's GPUs"),
        ("", "", ["7.5", "9.0"], ["9.0a"], "for this machine's GPUs"),
        ("1", "", [], ALL, "TCGEMM_CUDA=1"),
        ("1", "", ["9.0"], ["9.0a"], "for this machine's GPUs"),
        ("1", "8.0", ["9.0"], ["8.0"], "TORCH_CUDA_ARCH_LIST=8.0"),
        ("", "all", ["9.0"], ALL, "TORCH_CUDA_ARCH_LIST=all"),
        ("", "9.0", [], ["9.0a"], "TORCH_CUDA_ARCH_LIST=9.0"),
        ("0", "all", ["9.0"], [], "TCGEMM_CUDA=0"),
    ],
)
def test_what_is_built(force, words, gpus, arches, start):
    environ = {"TCGEMM_CUDA": force, "TORCH_CUDA_ARCH_LIST": words}
    result, reason = toolchain.choose_arches(environ, gpus, "13.0", TOOLKIT, [])
    assert result == arches and reason.startswith(start)


@pytest.mark.parametrize(
    ("word", "gpus", "has_all", "sample"),
    [
        ("", [], False, False),
        ("0", [], False, False),
        ("1", ["9.0"], True, True),
        ("auto", [], False, True),
        ("auto", [], True, False),  # `make build` was here: its objects are brought up to date
        ("auto", ["9.0"], False, False),
    ],
)
def test_a_sample_is_for_tests_without_a_gpu(word, gpus, has_all, sample):
    assert toolchain.choose_sample(word, gpus, has_all) is sample


def test_another_word_for_a_sample_is_refused():
    with pytest.raises(RuntimeError, match="TCGEMM_SAMPLE is 'yes'; expected 0, 1 or auto"):
        toolchain.choose_sample("yes", [], False)


@pytest.mark.parametrize("words", ["", "all"])
def test_without_a_compiler_or_cuda_in_torch_the_cpu_alone_is_built(words):
    environ = {"TORCH_CUDA_ARCH_LIST": words}
    assert toolchain.choose_arches(environ, ["9.0"], "13.0", None, [])[0] == []
    assert toolchain.choose_arches(environ, ["9.0"], None, TOOLKIT, [])[0] == []
    forced = {"TCGEMM_CUDA": "1", **environ}
    assert toolchain.choose_arches(forced, [], None, TOOLKIT, [])[0] == ALL


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [
        ("win32", "AMD64", "tcgemm builds on Linux alone, but this is win32; install it in WSL 2"),
        ("darwin", "arm64", "tcgemm builds on Linux alone, but this is darwin"),
        ("linux", "aarch64", "tcgemm builds on x86_64 alone, but this machine is aarch64"),
    ],
)
def test_a_platform_without_a_build_is_named(system, machine, words):
    toolchain.check_platform("linux", "x86_64")
    with pytest.raises(RuntimeError, match=words):
        toolchain.check_platform(system, machine)


def test_forced_cuda_build_without_nvcc_says_why():
    forced = {"TCGEMM_CUDA": "1"}
    with pytest.raises(RuntimeError, match="TCGEMM_CUDA=1 asks for the CUDA kernels, but no nvcc"):
        toolchain.choose_arches(forced, [], "13.0", None, [])
    with pytest.raises(RuntimeError, match="is CUDA 12"):
        reasons = ["/old/bin/nvcc (PATH) is CUDA 12.4.131, but"]
        toolchain.choose_arches(forced, [], "13.0", None, reasons)
    with pytest.raises(RuntimeError, match="TCGEMM_CUDA is 'yes'; expected 0"):
        toolchain.choose_arches({"TCGEMM_CUDA": "yes"}, [], "13.0", TOOLKIT, [])


@pytest.mark.parametrize("gpu", ["8.0", "8.6", "8.9", "9.0", "10.0", "12.1"])
def test_a_gpu_runs_the_same_code_of_its_own_build_and_of_everything(gpu):
    """So it has the same plans and results."""
    default, _ = toolchain.choose_arches({}, [gpu], "13.0", TOOLKIT, [])

    def code(arches):
        return info.code(int(gpu.replace(".", "")), ",".join(arches))

    assert code(default) == code(ALL) != "none"
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.cu")]
    for source in [*files, "csrc/kernels/sm80/instances/sm89_dense_fp8.cu"]:
        lists = [toolchain.file_arches(source, tuple(arches)) for arches in (default, ALL)]
        codes = {code(arches) if arches else "none" for arches in lists}
        assert len(codes) == 1, source


def test_a_build_without_kernels_says_so_last():
    code = "import setup; setup.say_no_cuda_kernel('no GPU is seen'); print('a wheel')"
    process = programs.run(code, cwd=ROOT)
    assert process.stdout.splitlines()[-1] == (
        "tcgemm: no CUDA kernel was built (no GPU is seen); `TCGEMM_CUDA=1 pip install .` builds "
        "them, and in a checkout `make build`"
    )


@pytest.mark.parametrize("venv", [True, False])
def test_make_demo_builds_the_default_and_keeps_what_is_there(tmp_path, venv):
    """A stub in place of Python writes down how the build is called."""
    stub = tmp_path / (".venv/bin/python" if venv else "python")
    stub.parent.mkdir(parents=True, exist_ok=True)
    stub.write_text(
        f'#!/bin/sh\necho "list=$TORCH_CUDA_ARCH_LIST $@" >> {tmp_path}/calls\n'
        'case "$1" in setup.py) touch tcgemm/libtcgemm.so ;; esac\n'
    )
    stub.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tcgemm").mkdir()
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "TORCH_CUDA"))}
    # -o: the packages of .venv are there.
    files = ["-o", ".venv/demo-1", "-o", ".venv/all-1"]
    options = [*files, "TORCH=1", "PYTHON="] if venv else [f"PYTHON={stub}"]

    def calls(*targets, **variables):
        (tmp_path / "calls").unlink(missing_ok=True)
        command = ["make", "-s", *targets, *options]
        subprocess.run(command, cwd=tmp_path, env={**environ, **variables}, check=True)
        return (tmp_path / "calls").read_text().splitlines()

    build = "setup.py -q build_ext --inplace"
    demo = "list= -m tcgemm demo"
    assert calls("demo") == [f"list= {build}", demo]
    assert calls("demo") == [demo]  # the library that is there stays
    assert calls("build") == [f"list=all {build}"]
    assert calls("build", TORCH_CUDA_ARCH_LIST="9.0") == [f"list=9.0 {build}"]
    assert all(line.startswith("list=all ") for line in calls("wheel"))
    (tmp_path / "tcgemm/libtcgemm.so").unlink()
    assert calls("test")[0] == f"list=all {build}"


# Architectures.


@pytest.mark.parametrize(
    ("text", "arches"),
    [
        ("8.0+PTX;9.0a", ["8.0", "8.0+PTX", "9.0a"]),
        ("8.0 9.0a", ["8.0", "9.0a"]),
        ("8.0;8.0+PTX", ["8.0", "8.0+PTX"]),
        ("8.0@9.0", ["8.0@9.0"]),
        ("8.9@9.0", ["8.9@9.0"]),
        (toolchain.DEFAULT_ARCHES, ["8.0", "8.0+PTX", "8.9", "9.0a"]),
        ("8.6 9.0 10.0+PTX", ["8.6", "9.0a", "10.0", "10.0+PTX"]),
    ],
)
def test_architecture_list(text, arches):
    assert toolchain.parse_arches(text) == arches


@pytest.mark.parametrize("text", ["Hopper", "8", "8.0;;x", "80"])
def test_unknown_architecture_is_named(text):
    with pytest.raises(RuntimeError, match="which is no architecture; expected entries such as"):
        toolchain.parse_arches(text)


def test_architecture_without_the_instructions_is_refused():
    with pytest.raises(RuntimeError, match=r"names 7\.5, but the kernels need compute cap"):
        toolchain.parse_arches("7.5;8.0")


def test_gencode():
    assert toolchain.gencode("8.0") == "-gencode=arch=compute_80,code=sm_80"
    assert toolchain.gencode("8.0+PTX") == "-gencode=arch=compute_80,code=compute_80"
    assert toolchain.gencode("8.0@9.0") == "-gencode=arch=compute_80,code=sm_90"
    assert toolchain.gencode("8.9@9.0") == "-gencode=arch=compute_89,code=sm_90"
    assert toolchain.gencode("9.0a") == "-gencode=arch=compute_90a,code=sm_90a"


@pytest.mark.parametrize(
    ("text", "sm80", "fp8", "converts"),
    [
        (
            toolchain.DEFAULT_ARCHES,
            ("8.0", "8.0+PTX", "9.0a"),
            ("8.9", "9.0a"),
            ("8.0", "8.0+PTX", "8.9", "9.0a"),
        ),
        ("8.9@9.0", ("8.9@9.0",), ("8.9@9.0",), ("8.9@9.0",)),
        ("8.0@9.0", ("8.0@9.0",), (), ("8.0@9.0",)),
        ("8.6 8.9", ("8.6", "8.9"), ("8.9",), ("8.6", "8.9")),
        ("8.9+PTX", *[("8.9", "8.9+PTX")] * 3),
    ],
)
def test_a_file_is_compiled_for_what_has_its_instructions(text, sm80, fp8, converts):
    arches = tuple(toolchain.parse_arches(text))

    def of(source: str) -> tuple[str, ...]:
        return toolchain.file_arches(f"csrc/kernels/{source}", arches)

    assert of("sm80/instances/sm80_dense_f16.cu") == of("sm80/instances/sm80_packed.cu") == sm80
    assert of("sm80/instances/sm89_dense_fp8.cu") == fp8
    assert of("passes/quantize.cu") == of("passes/add_slices.cu") == converts
    assert of("passes/repack.cu") == of("sparse/prune.cu") == sm80
    assert of("sm90/instances/sm90a_gemv.cu") == ("9.0a",)


# The report of ptxas.


def test_clean_report_passes():
    assert toolchain.check_ptxas(CLEAN) == ([], [])


@pytest.mark.parametrize(("line", "code"), [(SERIALIZED, "C7510"), (IGNORED, "C7508")])
def test_silent_loss_of_speed_fails(line, code):
    failures, notes = toolchain.check_ptxas(CLEAN + line)
    assert len(failures) == 1
    assert failures[0].startswith(f"ptxas {code}: Potential Performance Loss")
    assert not notes


def test_injected_wait_is_reported():
    failures, notes = toolchain.check_ptxas(CLEAN + INJECTED + INJECTED)
    assert not failures
    assert len(notes) == 1


@pytest.mark.parametrize(("stores", "loads"), [(132, 0), (0, 260)])
def test_large_spill_fails(stores, loads):
    failures, notes = toolchain.check_ptxas(spilling(stores, loads))
    assert len(failures) == 1
    assert f"{stores} bytes stored, {loads} bytes loaded; the limits are 128 and 256" in failures[0]
    assert "clean" in failures[0]
    assert "sm_90a" in failures[0]
    assert not notes


@pytest.mark.parametrize("part", toolchain.MORE_SPILLS)
def test_some_kernels_may_spill_more(part):
    stored, loaded = toolchain.MORE_SPILLS[part].values()
    log = spilling(stored, loaded).replace("clean", part)
    assert not toolchain.check_ptxas(CLEAN + log)[0]
    for spilled in ((stored + 4, 0), (0, loaded + 4)):
        log = spilling(*spilled).replace("clean", part)
        assert f"the limits are {stored} and {loaded}" in toolchain.check_ptxas(CLEAN + log)[0][0]


def test_small_spill_is_reported():
    failures, notes = toolchain.check_ptxas(spilling(64, 8))
    assert not failures
    assert len(notes) == 1


def test_gate_removes_the_object_of_a_slow_kernel(tmp_path, capfd):
    report = tmp_path / "report"
    report.write_text(SERIALIZED)
    target = tmp_path / "kernel.o"
    target.write_text("")
    command = [sys.executable, str(ROOT / "setup_toolchain.py"), str(target), "cat", str(report)]
    assert subprocess.run(command).returncode == 1
    assert not target.exists()
    assert "ptxas C7510" in capfd.readouterr().out
    report.write_text(CLEAN)
    target.write_text("")
    assert subprocess.run(command).returncode == 0
    assert target.exists()
    assert capfd.readouterr().out == ""


def test_setup_ends_in_a_sentence_where_it_cannot_build(tmp_path):
    """Old setuptools, and an environment without torch: neither ends in a traceback."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "setuptools.py").write_text('__version__ = "65.5.0"')
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'torch' else found(name, *rest)\n"
    )
    sentences = {
        "old": "tcgemm: setup.py needs setuptools 77 or later",
        "without": "tcgemm: torch is not installed for",
    }
    for folder, sentence in sentences.items():
        process = subprocess.run(
            [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(tmp_path / folder)},
            capture_output=True,
            text=True,
        )
        assert process.returncode == 1 and "Traceback" not in process.stderr
        assert sentence in process.stderr.splitlines()[-1]
