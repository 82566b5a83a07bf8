"""ptxas knows every instruction of the table, with these shapes, types and numbers of registers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tcgemm import emulate
from tcgemm.emulate import ptx

PTXAS = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
ARCHITECTURES = {"Turing": "sm_75", "Ampere": "sm_80", "Ada": "sm_89", "Hopper": "sm_90a"}

pytestmark = pytest.mark.skipif(not Path(PTXAS).is_file(), reason="needs ptxas")


def text(known):
    """The instruction in PTX."""
    result = known.accumulator
    if known.family.startswith("wgmma"):
        sums = ptx.registers(ptx.kind_of(result), ptx.count(16 * 8, result))  # a warp's, n = 8
        types = f"{known.input}.{known.input_b}{ptx.operation_of(known)}"
        form = known.family.replace("wgmma", "wgmma.mma_async")
        line = f"{form}.sync.aligned.m64n8k{known.shape[2]}.{result}.{types} {sums}, %rd0, %rd1"
        line += ", %meta, 0x0" if known.is_sparse else ""
        scales = "" if result == "s32" else ", 1, 1" + ", 0, 0" * (ptx.BITS[known.input] == 16)
        return f"{line}, p{scales};"
    kinds = (known.input, known.input_b, result)
    lists = zip(map(ptx.kind_of, kinds), ptx.counts(known), strict=True)
    a, b, sums = (ptx.registers(kind, number) for kind, number in lists)
    return ptx.instruction(known, a, b, sums, sums)


def errors(lines, target, folder):
    """The lines that ptxas refuses, each with its message."""
    head = [".version 8.7", f".target {target}", ".address_size 64", ".visible .entry k() {"]
    head += [f".reg .{kind} %{name}<33>;" for kind, name in (("b32", "r"), ("f32", "f"))]
    head += [".reg .f64 %d<33>;", ".reg .b64 %rd<2>;", ".reg .pred p;", ".reg .b32 %meta;"]
    source = folder / "instructions.ptx"
    source.write_text("\n".join([*head, *lines, "ret;", "}"]))
    command = [PTXAS, f"-arch={target}", str(source), "-o", str(folder / "instructions.cubin")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = [
        lines[int(number) - len(head) - 1] + said
        for number, said in re.findall(r"line (\d+); error\s*(: .*)", run.stdout + run.stderr)
    ]
    return found or ([run.stderr] if run.returncode else [])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_assembler_knows_the_instructions(arch, tmp_path):
    lines = [text(known) for known in emulate.instructions(arch)]
    assert errors(lines, ARCHITECTURES[arch], tmp_path) == []


@pytest.mark.parametrize("older, newer", [("Turing", "Ampere"), ("Ampere", "Hopper")])
def test_an_older_gpu_lacks_the_others(older, newer, tmp_path):
    """So the check above can fail, and no architecture of the table is too new."""
    names = {known.name for known in emulate.instructions(older)}
    others = [known for known in emulate.instructions(newer) if known.name not in names]
    lines = [text(known) for known in others]
    refused = {line.split(";")[0] + ";" for line in errors(lines, ARCHITECTURES[older], tmp_path)}
    assert len(lines) > 20 and refused == set(lines)
