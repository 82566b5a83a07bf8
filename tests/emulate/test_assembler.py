"""ptxas knows every instruction of the table, with these shapes, types and numbers of registers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tcgemm import emulate

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s32": 32}
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
KINDS = {"f32": "f", "f64": "d"}  # other types are in registers %r of 32 bits
PTXAS = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
ARCHITECTURES = {"Turing": "sm_75", "Ampere": "sm_80", "Ada": "sm_89", "Hopper": "sm_90a"}

pytestmark = pytest.mark.skipif(not Path(PTXAS).is_file(), reason="needs ptxas")


def registers(elements, element_type):
    """The registers of one of 32 lanes: `elements` is the size of the matrix."""
    kind = KINDS.get(element_type, "r")
    count = elements * BITS[element_type] // 32 // (64 if kind == "d" else 32)
    return "{" + ", ".join(f"%{kind}{i}" for i in range(count)) + "}"


def text(known):
    """The instruction in PTX."""
    m, n, k = known.shape
    result, types = known.accumulator, f"{known.input}.{known.input_b}"
    operation = "".join(re.findall(r"\.(?:and|xor)\.popc", known.name))
    if known.family.startswith("wgmma"):
        sums = registers(16 * 8, result)  # of one warp and n = 8
        form = known.family.replace("wgmma", "wgmma.mma_async")
        line = f"{form}.sync.aligned.m64n8k{k}.{result}.{types}{operation} {sums}, %rd0, %rd1"
        line += ", %r0, 0x0" if known.is_sparse else ""
        scales = "" if result == "s32" else ", 1, 1" + ", 0, 0" * (BITS[known.input] == 16)
        return f"{line}, p{scales};"
    sums = registers(m * n, result)
    if known.family == "wmma":
        a, b = registers(m * k, known.input), registers(n * k, known.input_b)
        if known.input == "f16":  # these fragments have each element twice or more often
            a = b = registers(16 * 32, "f16")
            types = f"{result}.{result}"
        else:
            types = f"{result}.{types}.{result}"
        form = f"wmma.mma{operation}.sync.aligned.row.col.m{m}n{n}k{k}.{types}"
        return f"{form} {sums}, {a}, {b}, {sums};"
    a, b = registers(m * known.stored, known.input), registers(n * k, known.input_b)
    form = "mma.sp::ordered_metadata" if known.is_sparse else "mma"
    line = f"{form}.sync.aligned.m{m}n{n}k{k}.row.col.{result}.{types}.{result}{operation}"
    return f"{line} {sums}, {a}, {b}, {sums}{', %r0, 0x0' if known.is_sparse else ''};"


def errors(lines, target, folder):
    """The lines that ptxas refuses, each with its message."""
    head = [".version 9.0", f".target {target}", ".address_size 64", ".visible .entry k() {"]
    head += [f".reg .{kind} %{name}<33>;" for kind, name in (("b32", "r"), ("f32", "f"))]
    head += [".reg .f64 %d<33>;", ".reg .b64 %rd<2>;", ".reg .pred p;"]
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
