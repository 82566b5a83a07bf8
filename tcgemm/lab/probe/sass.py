"""The machine code of a cubin, by nvdisasm: the opcodes of a loop, and of what it calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import torch

PACKAGES = Path(torch.__path__[0]).resolve().parent
FOLDERS = (
    Path("/usr/local/cuda/bin"),
    PACKAGES / "nvidia/cu13/bin",
    PACKAGES / "triton/backends/nvidia/bin",
)
# Opcodes of the tensor cores: HMMA.16816.F32, DMMA.8x8x4, HGMMA.64x256x16.F32.
TENSOR = re.compile(r"[A-Z]*MMA\b")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_\w+|\$\w[\w$]*|[\w$]*\$[\w$]+):")


def tool(name: str) -> str | None:
    """The path of "ptxas" or "nvdisasm": on the PATH, of the CUDA toolkit or of a pip package."""
    folders = (folder / name for folder in FOLDERS)
    return shutil.which(name) or next((str(path) for path in folders if path.is_file()), None)


def assemble(text: str, target: str, verbose: bool = False) -> tuple[bytes, str]:
    """(the cubin that ptxas makes of PTX text, what it said). RuntimeError: there is no ptxas, or
    it refuses the text.
    """
    ptxas = tool("ptxas")
    if ptxas is None:
        raise RuntimeError("There is no ptxas; install the CUDA toolkit or triton.")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "probe.ptx", Path(folder) / "probe.cubin"
        source.write_text(text)
        command = [ptxas, f"-arch={target}", str(source), "-o", str(cubin)]
        process = subprocess.run(
            [*command, *["-v"] * verbose], capture_output=True, text=True, timeout=300
        )
        if process.returncode:
            raise RuntimeError(f"ptxas refuses the kernel: {process.stderr[:400]}")
        return cubin.read_bytes(), process.stderr


def disassemble(cubin: bytes) -> str | None:
    """The text of nvdisasm, or None without it."""
    nvdisasm = tool("nvdisasm")
    if nvdisasm is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        process = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True)
    return process.stdout or None


Line = tuple[str, str]  # opcode and operands, or "label" and its name


def lines_of(text: str, entry: str) -> list[Line]:
    """The instructions and labels of an entry."""
    start = re.search(rf"^\s*\.section\s+\.text\.{re.escape(entry)},.*$", text, re.MULTILINE)
    if start is None:
        raise ValueError(f"The machine code has no entry {entry!r}.")
    section = re.split(r"^\s*\.section\s", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    lines: list[Line] = []
    for line in section.splitlines():
        if label := LABEL.match(line):
            lines.append(("label", label[1]))
        elif instruction := INSTRUCTION.search(line):
            lines.append((instruction[1], instruction[2]))
    return lines


def _goal(operands: str) -> str | None:
    match = re.search(r"`\(([^)]+)\)", operands)
    return match and match[1]


def loop(text: str, entry: str) -> Counter[str]:
    """How often each opcode stands in the last loop of an entry, with the functions it calls.

    ValueError: there is no loop.
    """
    lines = lines_of(text, entry)
    labels = {name: index for index, (kind, name) in enumerate(lines) if kind == "label"}
    bodies = []
    end = next(i for i, (opcode, _) in enumerate(lines) if opcode == "EXIT")
    for index, (opcode, operands) in enumerate(lines[:end]):
        first = labels.get(_goal(operands) or "", index) if opcode.startswith("BRA") else index
        if index - first > 2:  # a branch to itself fills the end of the code
            bodies.append(lines[first:index])
    if not bodies:
        raise ValueError(f"The entry {entry!r} has no loop.")
    counts: Counter[str] = Counter()
    for opcode, operands in bodies[-1]:
        if opcode == "label":
            continue
        counts[opcode] += 1
        goal = _goal(operands)
        if opcode.startswith("CALL") and goal in labels:
            counts += _function(lines[labels[goal] + 1 :])
        elif opcode.startswith("CALL") and goal:  # the linker puts a function into its own section
            counts += _function(lines_of(text, goal))
    return counts


def _function(lines: list[Line]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for opcode, _ in lines:
        if opcode != "label":
            counts[opcode] += 1
        if opcode.startswith("RET"):
            break
    return counts


def tensor(counts: Counter[str]) -> dict[str, int]:
    """The opcodes of the tensor cores."""
    return {opcode: count for opcode, count in counts.items() if TENSOR.match(opcode.split(".")[0])}


def of_opcode(counts: Counter[str], opcode: str) -> dict[str, int]:
    """The opcodes that are one, with any modifiers: of "LDS" also "LDS.128"."""
    return {name: count for name, count in counts.items() if name.split(".")[0] == opcode}


def between_clocks(text: str, entry: str) -> list[str]:
    """The opcodes between the first two reads of the clock of an entry."""
    lines = [line for line in lines_of(text, entry) if line[0] != "label"]
    reads = [i for i, (_, operands) in enumerate(lines) if "SR_CLOCK" in operands]
    if len(reads) < 2:
        raise ValueError(f"The entry {entry!r} reads the clock {len(reads)} times.")
    return [opcode for opcode, _ in lines[reads[0] + 1 : reads[1]]]
