"""The machine code of the probe's kernels: nothing leaves the loops, and nothing stands between."""

import re

import pytest

from tcgemm import emulate
from tcgemm.lab.probe import kernels_memory, kernels_mma, kernels_wgmma, rows, sass

from support.samples import some

TARGETS = {arch: rows.TARGETS[arch] for arch in ("Ampere", "Ada", "Hopper")}
SOME = (
    "mma.m16n8k8.f16.f16.f16",
    "mma.m16n8k16.f64.f64.f64",
    "mma.m16n8k32.f32.e4m3.e4m3",
    "mma.m16n8k64.s32.s4.s4",
    "mma.m8n8k32.s32.u4.u4",
    "mma.m16n8k256.s32.b1.b1.xor.popc",
    "mma.m8n8k4.f32.f16.f16",
    "mma.sp.m16n8k64.f32.e4m3.e4m3",
    "mma.sp.m16n8k32.f32.f16.f16",
    "wmma.m16n16k16.f32.f16.f16",
    "wmma.m16n16k8.f32.tf32.tf32",
    "wmma.m8n8k4.f64.f64.f64",
)

pytestmark = pytest.mark.skipif(
    not (sass.tool("ptxas") and sass.tool("nvdisasm")), reason="needs ptxas and nvdisasm"
)


def loops(mma, target, ilps):
    """{entry: opcodes of its loop} of all modules of an instruction; nothing is spilled."""
    result = {}
    for text, entries in kernels_mma.modules(mma, target, ilps):
        cubin, output = sass.assemble(text, target, verbose=True)
        assert not re.search(r"[1-9]\d* bytes spill", output), (mma.name, output)
        machine_code = sass.disassemble(cubin)
        result |= {entry: sass.loop(machine_code, entry) for entry in entries}
    return result


def check(mma, target, ilps):
    for entry, counts in loops(mma, target, ilps).items():
        tensor, ilp = sass.tensor(counts), int(entry[-1])
        assert sum(tensor.values()) == ilp * mma.opcode_count, (mma.name, entry, tensor)
        assert {opcode.split(".")[0] for opcode in tensor} <= {mma.opcode}, (mma.name, tensor)
        if mma.is_native and entry[0] == "c":  # counting, the branch, and the warp's sync
            extra = counts.total() - sum(tensor.values()) - counts["NOP"]
            if mma.opcode == "QMMA":  # ptxas puts one of these behind each on 8.9
                extra -= counts["UIADD3"]
            assert extra <= 5, (mma.name, entry, counts)
        elif not mma.is_native:
            assert counts.total() > 2 * sum(tensor.values()) + 3, (mma.name, entry, counts)


@some("arch", TARGETS, ["Hopper"])
def test_loops_have_their_instructions(arch):
    for mma in rows.of_gpu(arch):
        if mma.name in SOME:
            check(mma, TARGETS[arch], (1, 2, 6))


@pytest.mark.nightly
@pytest.mark.parametrize("arch", TARGETS)
def test_loops_of_every_instruction(arch):
    selection = [row for row in rows.of_gpu(arch) if not row.family.startswith("wgmma")]
    for mma in selection:
        check(mma, TARGETS[arch], (1, 5) if mma.input == mma.input_b else (1,))
    assert len(selection) > 80


def test_what_is_emulated():
    """Facts of ptxas: FP8, s4 and XOR on 9.0, m8n8k4 from 8.0 on, and TF32 wmma by four m16n8k4."""
    by_name = {row.name: row for row in rows.of_gpu("Hopper")}
    emulated = {row.input for row in by_name.values() if not row.is_native}
    assert emulated == {"e4m3", "e5m2", "s4", "u4", "b1", "f16"}
    assert {name for name, row in by_name.items() if row.input == "f16" and not row.is_native} == {
        "mma.m8n8k4.f32.f16.f16",
        "mma.m8n8k4.f16.f16.f16",
    }
    counts = loops(by_name["mma.m16n8k32.f32.e4m3.e4m3"], "sm_90a", (1,))["c1"]
    assert counts["HMMA.16816.F32"] == 2 and counts["FADD"] == 4
    assert counts["F2FP.F16.E4M3.UNPACK_B"] == 12  # all operands, in each body
    counts = loops(by_name["wmma.m16n16k8.f32.tf32.tf32"], "sm_90a", (1,))["c1"]
    assert counts["HMMA.1684.F32.TF32"] == 4
    counts = loops(by_name["wmma.m8n8k4.f64.f64.f64"], "sm_90a", (1,))["c1"]
    assert counts["DMMA.8x8x4"] == 1
    ranges = {
        (row.native_from, row.native_to) for row in emulate.instructions() if row.input == "s4"
    }
    assert ranges == {(75, 89), (80, 89)}


def test_operands_that_stay_would_leave_the_loop():
    """The trap that the unknown zero avoids: without it ptxas moves conversions out."""
    mma = next(row for row in rows.of_gpu("Hopper") if row.name == "mma.m16n8k32.f32.e4m3.e4m3")
    ((text, _),) = kernels_mma.modules(mma, "sm_90a", (1,))
    text = re.sub(r"^add\.u32 %[ab]\d+, %[ab]\d+, %z;$", "", text, flags=re.MULTILINE)
    counts = sass.loop(sass.disassemble(sass.assemble(text, "sm_90a")[0]), "c1")
    assert counts["F2FP.F16.E4M3.UNPACK_B"] == 0


def test_wgmma_is_not_serialised():
    for name in (
        "wgmma.m64nNk16.f32.f16.f16",
        "wgmma.m64nNk32.s32.s8.s8",
        "wgmma.m64nNk8.f32.tf32.tf32",
        "wgmma.sp.m64nNk64.f32.e4m3.e4m3",
        "wgmma.m64nNk256.s32.b1.b1.and.popc",
    ):
        mma = next(row for row in rows.of_gpu("Hopper") if row.name == name)
        text, entries = kernels_wgmma.module(mma, "sm_90a", (8, 256) if "f16" in name else (256,))
        cubin, output = sass.assemble(text, "sm_90a", verbose=True)
        assert "C75" not in output and not re.search(r"[1-9]\d* bytes spill", output), output
        machine_code = sass.disassemble(cubin)
        for entry in entries:
            counts = sass.loop(machine_code, entry)
            depth = int(entry.split("_")[2])
            assert sum(sass.tensor(counts).values()) == depth, (name, entry)
            assert {opcode.split(".")[0] for opcode in sass.tensor(counts)} == {mma.opcode}
            assert counts["WARPGROUP.DEPBAR.LE"] == 1 and counts["WARPGROUP.ARRIVE"] == 1


@pytest.mark.parametrize("arch", TARGETS)
def test_shared_loops(arch):
    ilps = (1, 3, 8)
    cubin, _ = sass.assemble(kernels_memory.shared_module(TARGETS[arch], ilps=ilps), TARGETS[arch])
    machine_code = sass.disassemble(cubin)
    for name, access in kernels_memory.ACCESSES.items():
        for ilp in ilps:
            counts = sass.loop(machine_code, kernels_memory.entry_name(name, ilp))
            memory = {op: count for op, count in counts.items() if op.startswith(("LDS", "ST"))}
            assert list(memory.values()) == [ilp], (name, memory)
            assert next(iter(memory)).split(".")[0] == access.sass
            width = {1: "", 2: "2", 4: "4"}[access.registers]
            if access.sass != "LDSM":
                width = {1: "", 2: "64", 4: "128"}[access.registers]
            assert next(iter(memory)).endswith(width)
            assert counts.total() - ilp - counts["NOP"] <= 5


@pytest.mark.parametrize("arch", TARGETS)
def test_nothing_but_accesses_between_the_clocks(arch):
    machine_code = sass.disassemble(
        sass.assemble(kernels_memory.cpi_module(TARGETS[arch]), TARGETS[arch])[0]
    )
    for space in kernels_memory.SPACES:
        for width in kernels_memory.WIDTHS:
            count = kernels_memory.number(space, width)
            assert count == 128 or (space != "STS" and count * width // 32 == 192)
            name = kernels_memory.cpi_name(space, width, count)
            opcodes = sass.between_clocks(machine_code, name)
            opcode = space.split()[0]
            accesses = [word for word in opcodes if word.split(".")[0] == opcode]
            assert len(accesses) == count and len(opcodes) - count <= 4, (name, opcodes)
            assert all((str(width) in word.split(".")) == (width > 32) for word in accesses)
            if space == "LDG L2":
                assert all("STRONG.GPU" in word for word in accesses)  # .cg reads past L1


def test_bandwidth_loops():
    machine_code = sass.disassemble(
        sass.assemble(kernels_memory.bandwidth_module("sm_80"), "sm_80")[0]
    )
    expected = {"read": (8, 0), "write": (0, 8), "copy": (8, 8), "dram_copy": (1, 1)}
    assert expected.keys() == kernels_memory.MOVERS.keys()
    for name, (loads, stores) in expected.items():
        counts = sass.loop(machine_code, name)
        count = {"LDG": 0, "STG": 0}
        for opcode, number in counts.items():
            if ".128" in opcode:
                count[opcode.split(".")[0]] += number
        assert count == {"LDG": loads, "STG": stores}


def test_a_function_in_a_section_of_its_own_is_counted():
    """Where the linker puts a function that the loop calls; ptxas leaves it behind the entry."""
    section = (
        '\t.section\t.text.emulated,"ax"\n'
        "        /*0000*/                   IMMA.16816.S8.S8 R4, R4.ROW, R8.COL, R4 ;\n"
        "        /*0010*/                   RET.ABS.NODEC R2 `(k) ;\n"
        "        /*0020*/                   IMMA.16816.S8.S8 R4, R4.ROW, R8.COL, R4 ;\n"
    )
    entry = (
        '\t.section\t.text.k,"ax"\n.L_x_0:\n'
        "        /*0000*/                   MOV R1, R2 ;\n"
        "        /*0010*/                   CALL.ABS.NOINC `(emulated) ;\n"
        "        /*0020*/                   NOP ;\n"
        "        /*0030*/                   BRA `(.L_x_0) ;\n"
        "        /*0040*/                   EXIT ;\n"
    )
    assert sass.tensor(sass.loop(section + entry, "k")) == {"IMMA.16816.S8.S8": 1}
    with pytest.raises(ValueError, match="no entry 'emulated'"):
        sass.loop(entry, "k")


def test_sentences_without_what_is_sought(monkeypatch):
    machine_code = '\t.section\t.text.k,"ax"\n        /*0000*/                   EXIT ;\n'
    with pytest.raises(ValueError, match="no entry 'c1'"):
        sass.loop(machine_code, "c1")
    with pytest.raises(ValueError, match="'k' has no loop"):
        sass.loop(machine_code, "k")
    with pytest.raises(ValueError, match="reads the clock 0 times"):
        sass.between_clocks(machine_code, "k")
    with pytest.raises(RuntimeError, match="ptxas refuses the kernel"):
        sass.assemble(".version 8.7\n.target sm_80\nnonsense", "sm_80")
    monkeypatch.setattr(sass, "tool", lambda name: None)
    assert sass.disassemble(b"") is None
    with pytest.raises(RuntimeError, match="There is no ptxas"):
        sass.assemble("", "sm_80")
