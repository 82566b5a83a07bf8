"""ptxas knows every instruction of the table, with these shapes, types and numbers of registers."""

import re
import subprocess

import pytest

from tcgemm import emulate
from tcgemm.emulate import ptx
from tcgemm.lab.probe import sass
from tcgemm.lab.probe.rows import TARGETS

PTXAS = sass.tool("ptxas")

pytestmark = pytest.mark.skipif(PTXAS is None, reason="needs ptxas")


def text(mma):
    """The instruction in PTX."""
    result = mma.accumulator
    if mma.family.startswith("wgmma"):
        sums = ptx.registers(ptx.kind_of(result), ptx.count(16 * 8, result))  # a warp's, n = 8
        types = f"{mma.input}.{mma.input_b}{ptx.operation_of(mma)}"
        form = mma.family.replace("wgmma", "wgmma.mma_async")
        line = f"{form}.sync.aligned.m64n8k{mma.shape[2]}.{result}.{types} {sums}, %rd0, %rd1"
        line += ", %meta, 0x0" if mma.is_sparse else ""
        scales = "" if result == "s32" else ", 1, 1" + ", 0, 0" * (ptx.BITS[mma.input] == 16)
        return f"{line}, p{scales};"
    kinds = (mma.input, mma.input_b, result)
    lists = zip(map(ptx.kind_of, kinds), ptx.counts(mma), strict=True)
    a, b, sums = (ptx.registers(kind, number) for kind, number in lists)
    return ptx.instruction(mma, a, b, sums, sums)


def errors(lines, target, folder):
    """The lines that ptxas refuses, each with its message."""
    head = [".version 8.7", f".target {target}", ".address_size 64", ".visible .entry k() {"]
    head += [f".reg .{kind} %{name}<33>;" for kind, name in (("b32", "r"), ("f32", "f"))]
    head += [".reg .f64 %d<33>;", ".reg .b64 %rd<2>;", ".reg .pred p;", ".reg .b32 %meta;"]
    source = folder / "instructions.ptx"
    source.write_text("\n".join([*head, *lines, "ret;", "}"]))
    command = [PTXAS, f"-arch={target}", str(source), "-o", str(folder / "instructions.cubin")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    result = [
        lines[int(number) - len(head) - 1] + message
        for number, message in re.findall(r"line (\d+); error\s*(: .*)", run.stdout + run.stderr)
    ]
    return result or ([run.stderr] if run.returncode else [])


@pytest.mark.parametrize("arch", TARGETS)
def test_the_assembler_knows_the_instructions(arch, tmp_path):
    lines = [text(mma) for mma in emulate.instructions(arch)]
    assert errors(lines, TARGETS[arch], tmp_path) == []


@pytest.mark.parametrize("older, newer", [("Turing", "Ampere"), ("Ampere", "Hopper")])
def test_an_older_gpu_lacks_the_others(older, newer, tmp_path):
    """So the check above can fail, and no architecture of the table is too new."""
    names = {mma.name for mma in emulate.instructions(older)}
    newest = [mma for mma in emulate.instructions(newer) if mma.name not in names]
    lines = [text(mma) for mma in newest]
    refusals = {line.split(";")[0] + ";" for line in errors(lines, TARGETS[older], tmp_path)}
    assert len(lines) > 20 and refusals == set(lines)
