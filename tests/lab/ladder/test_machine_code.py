"""The machine code of the steps: tensor instructions, copies, spills, and where the stores are."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys

import pytest
import torch

from tcgemm import _library
from tcgemm.emulate import lab_library
from tcgemm.lab.ladder import conflicts, hgemm_tile, machine_code, sources
from tcgemm.lab.probe import sass

from support.source_tree import ROOT

sys.path.insert(0, str(ROOT))
import setup_toolchain as toolchain


def has_kernels() -> bool:
    return (
        lab_library.path().is_file() and b"tcgemm_lab_ladder\0" in lab_library.path().read_bytes()
    )


built = pytest.mark.skipif(
    not (has_kernels() and sass.tool("cuobjdump")),
    reason="needs cuobjdump" if has_kernels() else _library.no_cuda_kernel(),
)
TARGETS = ("sm_80", "sm_90")


@functools.cache
def kernels(step, target="sm_90"):
    result = machine_code.of(step, target)
    if result is None:
        build = _library.rebuild("TORCH_CUDA_ARCH_LIST=all ")
        pytest.skip(f"no code for {target} was built; this builds it: {build}")
    return result


def tensor(kernel):
    """The opcodes of the tensor cores in a kernel."""
    return {opcode for opcode in kernel.opcodes if re.match(r"[A-Z]MMA\b", opcode)}


@built
@pytest.mark.parametrize("step", sources.names())
def test_no_kernel_uses_local_memory(step):
    result = kernels(step)
    assert result
    for kernel in result:
        assert (kernel.local_bytes, kernel.spills) == (0, 0), kernel.name
        assert 16 <= kernel.registers <= 255


DMMA = {"sm_80": "DMMA.884", "sm_90": "DMMA.8x8x4"}
F64 = ["001_1_single", "001_2_row", "001_3_blocks", "001_4_tile", "001_5_shared_a"]
F64 += ["001_6_shared_ab"]
EXPECTED = {
    "": ["002_0_naive", "002_1_block", "002_2_thread", "002_3_thread2d"],
    "HMMA.16816.F32": [
        *("002_4_wmma", "002_5_warp_tile", "002_6_edges"),
        *("004_1_0", "004_1_1", "004_2_0", "004_2_1", "004_3_0", "004_3_1"),
    ],
    "HMMA.16816.F32.BF16": ["003_baseline", "003_pipeline", "003_permuted", "003_both"],
    "HMMA.1688.F16": ["000_hgemm"],
    "HMMA.1684.F32.TF32": ["001_tf32"],
}


@built
@pytest.mark.parametrize("opcode", EXPECTED)
def test_tensor_instructions(opcode):
    for step in EXPECTED[opcode]:
        for kernel in kernels(step):
            assert tensor(kernel) == ({opcode} if opcode else set()), kernel.name
            assert kernel.loop[opcode or "FFMA"] > 0


@built
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("step", F64)
def test_float64_wmma_is_one_instruction(step, target):
    for kernel in kernels(step, target):
        assert tensor(kernel) == {DMMA[target]}
        assert kernel.loop[DMMA[target]] > 0 or step == "001_1_single"


@built
def test_the_peak_has_the_two_float64_instructions():
    small, large = sorted(kernels("001_peak"), key=lambda kernel: kernel.name)
    assert (small.name, tensor(small)) == ("multiply_001_peak", {"DMMA.8x8x4"})
    assert (large.name, tensor(large)) == ("multiply_001_peak_sm90", {"DMMA.16x8x16"})
    (empty,) = (entry for entry in kernels("001_peak", "sm_80") if entry.name == large.name)
    assert not tensor(empty)


@built
def test_sums_of_the_shapes_and_outside():
    for kernel in kernels("001_f16"):
        short = {"half": "F16", "float": "F32"}[kernel.arguments[2]]
        assert tensor(kernel) == {f"HMMA.16816.{short}"}
    shapes = sorted(kernel.arguments[:2] for kernel in kernels("001_f16"))
    assert shapes == sorted(2 * [(8, 32), (16, 16), (32, 8)])
    outside = {kernel.arguments: kernel for kernel in kernels("004_3_2_outside")}
    assert tensor(outside["float",]) == {"HMMA.16816.F32"}
    assert tensor(outside["uint32",]) == {"HMMA.16816.F16"}
    assert min(kernel.loop["FADD"] for kernel in outside.values()) == 4 * 4 * 4


@built
def test_only_pipelines_copy_asynchronously():
    copies = {step: kernels(step)[0].counts for step in sources.names() if step[:3] in "003 004"}
    for step, counts in copies.items():
        pipeline = step in ("003_pipeline", "003_both") or step.startswith("004_3")
        assert ("LDGSTS" in counts) is pipeline, step
        assert ("STS" in counts and "LDG" in counts) is not pipeline, step
        assert ("LDSM" in counts) is not step.startswith("004_1"), step
        assert counts["BAR"] >= 1


@built
@pytest.mark.parametrize("step", conflicts.STEPS)
def test_accesses_have_the_widths_of_the_computed_conflicts(step):
    """ "LDS.128 a" stands for LDS.128; float64 fragments are read by generic loads."""
    function, ranges = conflicts.STEPS[step]
    names = [name.split()[0] for name in function(*(values[0] for values in ranges))]
    doubles = step.startswith("001")
    expected = {"ldmatrix": r"LDSM\.", "cp.async": r"LDGSTS\.", "STS.128": r"STS\.128$"}
    expected |= {"STS": r"STS\.64$" if doubles else r"STS$", "STS.U16": r"STS\.U16$"}
    expected |= {"LDS": r"LD\.E\.64$" if doubles else r"LDS$", "LDS.128": r"LDS\.128$"}
    for kernel in kernels(step):
        patterns = [expected[name] for name in names]
        if kernel.arguments and kernel.arguments[-1] == 1 and step == "000_hgemm":
            patterns[1:] = [r"LDSM\."] * 2
        for pattern in patterns:
            assert any(re.match(pattern, opcode) for opcode in kernel.loop), (kernel.name, pattern)
        assert any(re.match(r"LDS\.", opcode) for opcode in kernel.loop) is ("LDS.128" in names)


# The stores of 000.


@built
@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_keeps_no_distance_between_the_stores(target):
    code = {kernel.arguments: kernel for kernel in kernels("000_hgemm", target)}
    assert set(code) == {tuple(tile) for tile in hgemm_tile.TILES}
    for number, tile in enumerate(hgemm_tile.TILES):
        spacing = machine_code.store_spacing(number, target)
        assert spacing is not None
        copies = (tile.m + tile.n) * tile.k // 8 // tile.threads
        assert sum(spacing.values()) == copies - 1
        assert tile.distance == 0 or tile.distance not in spacing, (number, spacing)
        loop = code[tuple(tile)].loop
        assert (loop["STS.128"], loop["LDG.E.128"]) == (copies, copies)
        assert loop["HMMA.1688.F16"] == tile.warp_m // 16 * tile.warp_n // 8 * tile.k // 8
        reads = tile.k // 8 * (tile.warp_m + tile.warp_n) // 8
        assert loop["LDSM.16.M88.4" if tile.ldmatrix else "LDS"] == reads // (3 * tile.ldmatrix + 1)


def test_an_unknown_tile_or_step_is_named():
    with pytest.raises(ValueError, match="number is 11; 000_hgemm has the tiles 0 to 10"):
        machine_code.store_spacing(11)
    with pytest.raises(ValueError, match="step is '005'"):
        machine_code.of("005")


# A cuobjdump that is not there, and what it prints.


def test_without_cuobjdump_or_library_there_is_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(sass, "tool", lambda _: None)
    assert machine_code.of("004_1_0") is None
    assert machine_code.store_spacing(0) is None
    monkeypatch.undo()
    monkeypatch.setenv("TCGEMM_LAB_LIBRARY", str(tmp_path / "none.so"))
    assert machine_code.of("004_1_0") is None


NAME = "_ZN6tcgemm6ladder12multiply_000INS0_9HgemmTileI{}EEEvPK6__halfS6_PS4_ii"
TILE = NAME.format(
    "".join(
        f"L{'i' if i not in (5, 7) else 'b'}{value}E" for i, value in enumerate(hgemm_tile.TILES[0])
    )
)
SASS = """
	code for sm_90
		Function : {name}
        /*0000*/                   MOV R1, c[0x0][0x28] ;    /* 0x00000a0000017a02 */
        /*0010*/              @!P0 BRA 0xc0 ;
        /*0020*/                   STS.128 [R2], R4 ;
        /*0030*/                   HMMA.1688.F16 R4, R8, R0.reuse, R4 ;
        /*0040*/                   HMMA.1688.F16 R4, R8, R0, R4 ;
        /*0050*/                   STS.128 [R2+0x10], R4 ;
        /*0060*/                   STS.128 [R2+0x20], R4 ;
        /*0070*/                   HMMA.1688.F16 R4, R8, R0, R4 ;
        /*0080*/               @P1 EXIT ;
        /*0090*/               @P0 BRA 0x20 ;
        /*00a0*/                   STL [R1], R4 ;
        /*00b0*/                   EXIT ;
        /*00c0*/                   BRA 0x10 ;
        /*00d0*/                   BRA 0xd0;
"""
USAGE = """
Fatbin elf code:
================
arch = sm_90a
Resource usage:
 Common:
  GLOBAL:0
 Function {name}:
  REG:40 STACK:8 SHARED:512 LOCAL:0 CONSTANT[0]:384 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


@pytest.fixture
def written(monkeypatch):
    """cuobjdump says what stands above."""

    def say(*flags):
        return USAGE.format(name=TILE) if flags[0] == "-res-usage" else SASS.format(name=TILE)

    monkeypatch.setattr(machine_code, "_cuobjdump", say)


def test_a_listing_is_read(written):
    (kernel,) = machine_code.of("000_hgemm")
    assert (kernel.name, kernel.arguments) == ("multiply_000", tuple(hgemm_tile.TILES[0]))
    assert (kernel.registers, kernel.local_bytes, kernel.shared_bytes) == (40, 8, 512)
    assert kernel.spills == 1
    assert kernel.counts == {"HMMA": 3, "STS": 3}
    assert kernel.opcodes["STS.128"] == 3 and kernel.opcodes["EXIT"] == 2
    assert machine_code.store_spacing(0) == {0: 1, 2: 1}
    assert machine_code.of("000_hgemm", "sm_80") is None
    assert machine_code.of("004_1_0") is None
    assert machine_code.store_spacing(1) is None


# A build without CUDA, where nvcc is.


@pytest.mark.skipif(has_kernels(), reason="the build has compiled the ladders")
@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.nightly), "sm_90a"])
def test_nvcc_compiles_the_ladders(arch, tmp_path):
    toolkit, _ = toolchain.find_toolkit(torch.version.cuda, sys.path, dict(os.environ))
    if toolkit is None:
        pytest.skip("needs nvcc")
    files = sorted((ROOT / "csrc/lab").glob("*.cu"))
    command = [toolkit.nvcc, "-cubin", f"-arch={arch}", "-std=c++20", "-O3", "-Xptxas=-v"]
    command += ["--expt-relaxed-constexpr", "-I", ROOT / "csrc"]
    command += ["--threads", "2", "-odir", tmp_path / arch]
    (tmp_path / arch).mkdir()
    process = subprocess.run([*command, *files], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[:2000]
    text = process.stdout + process.stderr
    assert toolchain.check_ptxas(text) == ([], [])  # it reports spilled registers
    assert text.count("Compiling entry function") == text.count(f"for '{arch}'") > len(files)
    assert {path.stem for path in (tmp_path / arch).iterdir()} == {file.stem for file in files}
