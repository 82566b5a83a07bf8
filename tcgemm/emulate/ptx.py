"""The PTX text of the instructions of the table, and where a lane has its elements.

An mma.sync instruction of m16n8 or m8n8 has one layout for all types (PTX ISA 9.7.14.5): a register
of 32 bits holds e = 32 / bits consecutive elements along k (of float64 a register of 64 bits holds
one). With lane = 4 g + t,

    a, register i    row g + 8 (i % rows), k = e t + 4 e (i / rows)      rows: 2 of m16, 1 of m8
    b, register i    column g, k = e t + 4 e i
    c and d          row g + 8 i, columns 2 t and 2 t + 1; a register of float16 holds both
"""

from __future__ import annotations

from tcgemm.emulate.table import Instruction

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s32": 32}
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
KINDS = {"f32": "f", "f64": "d"}  # names of registers; other types are in %r, of 32 bits


def kind_of(element_type: str) -> str:
    """The name of the registers of a type: "f" for f32, "d" for f64, "r" for the others."""
    return KINDS.get(element_type, "r")


def count(elements: int, element_type: str) -> int:
    """The registers in one of 32 lanes for a matrix with so many elements."""
    return elements * BITS[element_type] // 32 // (64 if kind_of(element_type) == "d" else 32)


def counts(mma: Instruction) -> tuple[int, int, int]:
    """The registers of a, b and the result in a lane."""
    m, n, k = mma.shape
    result = count(m * n, mma.accumulator)
    if mma.family == "wmma" and mma.input == "f16":
        return 8, 8, result  # these fragments have each element twice or more often
    return count(m * mma.stored, mma.input), count(n * k, mma.input_b), result


def registers(prefix: str, number: int) -> str:
    """ "{%r0, %r1}"."""
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(number)) + "}"


def instruction(mma: Instruction, a: str, b: str, c: str, d: str, selector: int = 0) -> str:
    """The line of an mma, mma.sp or wmma instruction; a sparse one reads its metadata from %meta.

    a, b, c and d are lists of registers. The selector says which lanes have the metadata.
    """
    m, n, k = mma.shape
    result, types = mma.accumulator, f"{mma.input}.{mma.input_b}"
    operation = operation_of(mma)
    if mma.family == "wmma":
        is_f16 = mma.input == "f16"
        types = f"{result}.{result}" if is_f16 else f"{result}.{types}.{result}"
        form = f"wmma.mma{operation}.sync.aligned.row.col.m{m}n{n}k{k}.{types}"
        return f"{form} {d}, {a}, {b}, {c};"
    form = "mma.sp::ordered_metadata" if mma.is_sparse else "mma"
    line = f"{form}.sync.aligned.m{m}n{n}k{k}.row.col.{result}.{types}.{result}{operation}"
    return f"{line} {d}, {a}, {b}, {c}{f', %meta, {selector:#x}' if mma.is_sparse else ''};"


def group_instruction(mma: Instruction, n: int, d: str, a: str, b: str, selector: int = 0) -> str:
    """The line of a wgmma instruction with n columns that adds to d, where %yes is true.

    a is a list of registers or a descriptor, b a descriptor; a sparse one reads %meta of the lanes
    that the selector names.
    """
    types = f"{mma.accumulator}.{mma.input}.{mma.input_b}{operation_of(mma)}"
    form = mma.family.replace("wgmma", "wgmma.mma_async")
    tail = "" if mma.accumulator == "s32" else ", 1, 1"  # the signs of a and b
    if BITS[mma.input] == 16:  # a and b are K-major; a list of registers has no order
        tail += ", 0" if a.startswith("{") else ", 0, 0"
    metadata = f", %meta, {selector:#x}" if mma.is_sparse else ""
    line = f"{form}.sync.aligned.m64n{n}k{mma.shape[2]}.{types} {d}, {a}, {b}{metadata}, %yes"
    return f"{line}{tail};"


def operation_of(mma: Instruction) -> str:
    """ ".and.popc" or ".xor.popc" of one-bit operands, else nothing."""
    return next((f".{x}.popc" for x in ("and", "xor") if mma.name.endswith(f"{x}.popc")), "")
