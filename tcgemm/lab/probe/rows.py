"""The instructions that a GPU's probe measures, and their names in records and published tables."""

from __future__ import annotations

from dataclasses import replace

from tcgemm import emulate
from tcgemm.emulate import ptx
from tcgemm.emulate.product import GPU_OF
from tcgemm.emulate.table import Instruction

TARGETS = {"Turing": "sm_75", "Ampere": "sm_80", "Ada": "sm_89", "Hopper": "sm_90a"}
QUADS = 4  # products of an m8n8k4 of float16, one for each pair of quads of the warp

# FMA a clock and SM of dense operands, where all products of an architecture have the same rate.
PEAKS = {
    "Ampere": {"f16": 1024, "bf16": 1024, "tf32": 512, "f64": 64, "s8": 2048, "s4": 4096},
    "Hopper": {"f16": 2048, "bf16": 2048, "tf32": 1024, "f64": 128, "s8": 4096, "e4m3": 4096},
}
PEAKS["Ampere"] |= {"b1": 16384}
PEAKS["Hopper"] |= {"b1": 32768}
SAME = {"u8": "s8", "u4": "s4", "e5m2": "e4m3"}


def of_gpu(arch: str) -> list[Instruction]:
    """The instructions that ptxas takes for an architecture.

    m8n8k4 of float16 is among them: it has no tensor-core instruction from 8.0 on.
    """
    rows = emulate.instructions(arch)
    if arch in ("Ampere", "Ada", "Hopper"):
        volta = [row for row in emulate.instructions("Volta") if is_volta(row)]
        rows += [replace(row, arch=arch, is_native=False, opcode_count=0) for row in volta]
    return rows


def arch_of(capability: tuple[int, int]) -> str:
    """The architecture of a compute capability; ValueError where the table has none."""
    major, minor = capability
    arch = GPU_OF.get(10 * major + minor)
    if arch not in TARGETS:
        raise ValueError(
            f"The probe knows no instructions of compute capability {major}.{minor}; it knows "
            f"those of {', '.join(TARGETS)}."
        )
    return arch


def is_volta(mma: Instruction) -> bool:
    """True for mma.m8n8k4 of float16, whose warp has four products."""
    return mma.family == "mma" and mma.input == "f16" and mma.shape[2] == 4


def counts(mma: Instruction) -> tuple[int, int, int]:
    """The registers of a, b and the result in a lane."""
    if is_volta(mma):
        return 2, 2, 8 if mma.accumulator == "f32" else 4
    return ptx.counts(mma)


def fma(mma: Instruction, n: int | None = None) -> int:
    """The products and sums of an instruction, with the zeros of a sparse a."""
    m, largest, k = mma.shape
    return m * (n or largest) * k * (QUADS if is_volta(mma) else 1)


def peak(mma: Instruction) -> int | None:
    """FMA a clock and SM of the tensor cores, or None where that is not the same on all GPUs."""
    rate = PEAKS.get(mma.arch, {}).get(SAME.get(mma.input, mma.input))
    return rate and rate * (2 if mma.is_sparse else 1)


def shape(mma: Instruction, n: int | None = None) -> str:
    """ "m16n8k16"."""
    return f"m{mma.shape[0]}n{n or mma.shape[1]}k{mma.shape[2]}"


def label(mma: Instruction, n: int | None = None) -> str:
    """The name of a record: "mma f16 f16 f32 m16n8k16"."""
    words = [mma.family, mma.input, mma.input_b, mma.accumulator, shape(mma, n)]
    operation = ptx.operation_of(mma)
    return " ".join([*words, operation[1:]] if operation else words)


def by_label(arch: str) -> dict[str, Instruction]:
    """Name of a record's row -> the instruction."""
    return {label(row): row for row in of_gpu(arch)}


def published(row: str) -> str | None:
    """The name of a record's row in published tables: "f16 f32 m16n8k16"."""
    _, a, b, result, size, *operation = row.split()
    return f"{a} {result} {size}" if a == b and operation != ["xor.popc"] else None


def select(arch: str, families: tuple[str, ...], text: str | None) -> list[Instruction]:
    """The rows of some families; `text` is a type, a shape or a part of a name.

    Without it, types are not mixed, and u8 and e5m2 are left out: s8 and e4m3 stand for them.
    ValueError: there is no such row.
    """
    rows = [row for row in of_gpu(arch) if row.family in families]
    if text is None:
        return [row for row in rows if row.input == row.input_b and row.input not in ("u8", "e5m2")]
    names = [row for row in rows if text in (row.input, row.name, label(row))]
    selection = names or [row for row in rows if text in row.name or text in label(row)]
    if not selection:
        types = ", ".join(dict.fromkeys(row.input for row in rows))
        if not rows:
            raise ValueError(f"{arch} has no {' and no '.join(families)}.")
        raise ValueError(
            f"row is {text!r}, which is in no name of {' and '.join(families)} on {arch}; "
            f"expected a type ({types}), a shape such as {shape(rows[0])}, or a name such as "
            f"{rows[0].name}."
        )
    return selection
