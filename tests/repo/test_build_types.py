"""Build types, sanitizers and compilers: what each adds, and that none evicts another's objects."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import ROOT

sys.path.insert(0, str(ROOT))
import setup
import setup_toolchain as toolchain

CPU = setup.Config(
    cuda=False,
    reason="",
    torch=toolchain.Torch(Path("/torch"), "2.11.0", None),
    toolkit=None,
    arches=(),
    kernels="",
    sample=False,
    cxx="g++",
    sanitize="",
)
CUDA = dataclasses.replace(
    CPU,
    cuda=True,
    toolkit=toolchain.Toolkit(Path("/cuda"), "13.0.88", "PATH"),
    arches=("8.0", "8.0+PTX", "8.9", "9.0a"),
)
DENSE = "csrc/cpu/dense.cpp"
HOPPER = "csrc/kernels/sm90/instances/sm90a_dense_bf16_TN.cu"


def variants() -> dict[str, setup.Config]:
    return {
        "plain": CPU,
        "debug": dataclasses.replace(CPU, build_type="debug"),
        "coverage": dataclasses.replace(CPU, build_type="coverage"),
        "sanitizers": dataclasses.replace(CPU, sanitize="address,undefined"),
        "clang": dataclasses.replace(CPU, cxx="clang++ -Werror"),
        "cuda": CUDA,
        "cuda debug": dataclasses.replace(CUDA, build_type="debug"),
        "cuda sample": dataclasses.replace(CUDA, sample=True),
    }


def test_each_variant_has_a_folder_of_its_own():
    folders = {name: config.folder for name, config in variants().items()}
    assert len(set(folders.values())) == len(folders), folders
    assert folders["plain"] == Path("build/cpu")


def test_the_lab_of_a_cpu_build_is_the_emulator(monkeypatch):
    """A CUDA build has the ladders, too; TCGEMM_BUILD_LAB=0 leaves out both."""
    monkeypatch.delenv("TCGEMM_BUILD_LAB", raising=False)
    emulator, ladders = (
        sorted(
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).iterdir()
            if path.suffix in (".cpp", ".cu")
        )
        for folder in ("csrc/emulate", "csrc/lab")
    )
    assert setup.lab_sources(CPU) == emulator and len(emulator) >= 4
    assert sorted(setup.lab_sources(CUDA)) == sorted(emulator + ladders)
    monkeypatch.setenv("TCGEMM_BUILD_LAB", "0")
    assert setup.lab_sources(CPU) == setup.lab_sources(CUDA) == []
    for config in (CPU, CUDA):  # the operators' library has none of them
        assert not set(setup.library_sources(config)) & {*emulator, *ladders}


def test_release_build_is_optimised_and_stripped():
    command = setup.cxx_command(CPU, DENSE)
    assert [flag for flag in command if flag.startswith("-O")] == ["-O2", "-O3"]
    assert "-g" not in command
    assert "-s" in setup.link_command(CPU)[0]


def test_debug_build_keeps_symbols_and_the_code_of_kernels():
    config = variants()["cuda debug"]
    command = setup.cxx_command(config, DENSE)
    assert [flag for flag in command if flag.startswith("-O")][-1] == "-Og"
    assert {"-g", "-D_GLIBCXX_ASSERTIONS"} <= set(command)
    assert "-s" not in setup.link_command(variants()["debug"])[0]
    release, debug = (setup.nvcc_command(c, HOPPER) for c in (CUDA, config))
    assert set(debug) - set(release) == {"-g", "-lineinfo"}
    assert "-G" not in debug  # wgmma would be serialised


def test_a_unit_is_compiled_by_the_file_that_has_its_mainloop():
    for source, macros in setup.units(CUDA).items():
        text = (ROOT / toolchain.file_of(source)).read_text()
        assert f"defined({macros[1].removeprefix('-D')})" in text, source
        assert set(macros) <= set(setup.nvcc_command(CUDA, source))


def test_a_build_of_some_kernels_has_their_units_alone():
    def units(**changes: object) -> list[str]:
        return [Path(source).stem for source in setup.units(dataclasses.replace(CUDA, **changes))]

    assert units(kernels="sm80_s8_,gemv_sparse") == ["sm80_dense_int8", "sm80_sparse_int8"]
    assert not [unit for unit in units(arches=("8.0",)) if not unit.startswith("sm80_")]
    assert setup.library_sources(CUDA)[: len(units())] == list(setup.units(CUDA))


def test_a_sample_has_each_mainloop_and_type():
    """Its units are wider: the name of each unit of the whole build begins with one of theirs."""
    sampled = dataclasses.replace(CUDA, sample=True)
    sample, every = ({Path(unit).stem for unit in setup.units(c)} for c in (sampled, CUDA))
    assert len(sample) < len(every)
    assert not [unit for unit in every if not unit.startswith(tuple(sample))]
    assert not [unit for unit in sample if not any(one.startswith(unit) for one in every)]
    assert "-DTCGEMM_SAMPLE=1" in setup.macros(sampled)


def test_the_slowest_files_are_compiled_first():
    files = setup.library_sources(CUDA)
    order = sorted(files, key=toolchain.compile_rank)
    slow = [file for file in files if file.endswith(toolchain.SLOWEST)]
    assert set(order[: len(slow)]) == set(slow)
    assert all(any(file.endswith(end) for file in slow) for end in toolchain.SLOWEST)


def test_unknown_build_type_is_named():
    assert setup.find_build_type("") == "release"
    with pytest.raises(RuntimeError, match="'fast'; expected one of release, debug, coverage"):
        setup.find_build_type("fast")


def test_compile_commands_name_every_file(tmp_path, monkeypatch):
    """clangd reads them: nvcc's own flags, which clang refuses, are left out."""
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "library_sources", lambda config: [DENSE, HOPPER])
    monkeypatch.setattr(setup, "units", lambda config: {HOPPER: []})
    (tmp_path / CUDA.folder).mkdir(parents=True)
    setup.write_compile_commands(CUDA)
    entries = json.loads((tmp_path / "compile_commands.json").read_text())
    assert [entry["file"] for entry in entries] == [DENSE, "csrc/kernels/sm90/instances.cu"]
    assert {entry["directory"] for entry in entries} == {str(tmp_path)}
    assert entries[0]["arguments"][0] == "g++"
    hopper = entries[1]["arguments"]
    assert {"--cuda-path=/cuda", "--cuda-gpu-arch=sm_90a", "-std=c++20", "-Icsrc"} <= set(hopper)
    assert not [flag for flag in hopper if flag.startswith(("-Xptxas", "-gencode", "-ccbin"))]


# g++ accepts these files, clang refused or misread them: target pragmas, captures of lambdas.
FOR_CLANG = ("csrc/cpu/avx2.cpp", "csrc/cpu/avx512.cpp", "csrc/cpu/cpu_features.cpp")


@pytest.mark.parametrize("source", FOR_CLANG)
def test_clang_compiles_the_instruction_sets(source, tmp_path):
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed (sudo apt-get install clang)")
    command = setup.cxx_command(variants()["clang"], source)
    command += ["-O0", "-c", source, "-o", str(tmp_path / "object.o")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
