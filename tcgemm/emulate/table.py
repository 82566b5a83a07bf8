"""The table of instructions with the arithmetic of each GPU, as the library has it."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from tcgemm.emulate import lab_library

GPUS = ("Volta", "Turing", "Ampere", "Ada", "Hopper")
METHODS = ("blocks", "two halves", "FMA chain", "integer", "XOR and count")
ROUNDINGS = ("FP32, toward zero", "14 bits, toward zero", "FP16, to nearest even")
# The values of 4-bit elements, which have a byte each.
RANGES = {"s4": (-8, 7), "u4": (0, 15)}


class Arithmetic(ctypes.Structure):
    """tcgemm::emulate::Arithmetic of csrc/emulate/models.h."""

    _fields_ = [
        ("method", ctypes.c_int32),
        ("products", ctypes.c_int32),
        ("fraction_bits", ctypes.c_int32),
        ("lowest_exponent", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
    ]


class _Row(ctypes.Structure):
    """InstructionRow of csrc/emulate/library.cpp."""

    _fields_ = [
        *((name, ctypes.c_char_p) for name in ("gpu", "family", "input", "input_b")),
        *((name, ctypes.c_char_p) for name in ("accumulator", "evidence", "bit_operation")),
        ("opcode", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("opcode_count", "native", "native_from")),
        ("native_to", ctypes.c_int32),
        *((name, ctypes.c_int32) for name in ("m", "n", "k", "sparse", "in_kernels")),
        *((name, ctypes.c_int32) for name in ("type_a", "type_b", "type_c")),
        ("arithmetic", Arithmetic),
    ]


@dataclass(frozen=True)
class Instruction:
    """A tensor-core instruction on one generation of GPUs, and how that adds its products.

    The accumulator and `products` products are added at once: each addend is cut toward zero to
    `fraction_bits` bits below the largest exponent, and the exact sum is converted (`rounding`).
    An instruction with more products makes several such sums (docs/numerics/tensor-cores.md).
    """

    name: str  # "wgmma.m64nNk16.f32.f16.f16": family, shape, types of the result, a and b
    arch: str  # "Volta", "Turing", "Ampere", "Ada" or "Hopper"
    family: str  # "mma", "mma.sp", "wgmma", "wgmma.sp" or "wmma"
    shape: tuple[int, int, int]  # m, n, k; n is the largest one of WGMMA
    input: str  # the type of a: "f16", "s4", "b1"
    input_b: str
    accumulator: str
    method: str  # one of METHODS; "two halves" is FP8 that was widened to FP16
    products: int  # that are added at once; 0 for an FMA chain and for integers
    fraction_bits: int
    lowest_exponent: int | None  # the largest exponent counts at least as this
    rounding: str | None  # of the sum: one of ROUNDINGS
    in_kernels: bool  # tcgemm's kernels use it
    evidence: str  # "recorded" (of an H200), "compared" (on a GPU), "published" or "assumed"
    opcode: str  # of the tensor-core instructions that ptxas makes of it: "HMMA"
    opcode_count: int  # of them
    is_native: bool  # there are no others beside them; else ptxas emulates the instruction
    native_from: int  # compute capability times 10 from which on it is native
    native_to: int  # the last one; 0: there is no later one without it

    @property
    def stored(self) -> int:
        """Elements of a along k that one instruction reads; half of k where a is sparse."""
        return self.shape[2] // 2 if self.is_sparse else self.shape[2]

    @property
    def group(self) -> int:
        """Positions of a sparse a in a group, of which half are stored."""
        return 2 if self.input == "tf32" else 4

    @property
    def pair(self) -> int:
        """Stored elements of a sparse a that have one position: two of 4 bits, else one."""
        return 2 if self.input in RANGES else 1

    @property
    def is_sparse(self) -> bool:
        return self.family.endswith(".sp")


_NO_LOWEST = -1000  # kNoLowestExponent


def _instruction(row: _Row) -> Instruction:
    family = row.family.decode().replace("mma.sync", "mma")
    a, b, accumulator = row.input.decode(), row.input_b.decode(), row.accumulator.decode()
    n = "N" if family.startswith("wgmma") else row.n
    operation = row.bit_operation.decode()
    suffix = f".{operation}" if operation else ""
    sums = row.arithmetic
    has_blocks = METHODS[sums.method] in ("blocks", "two halves")
    return Instruction(
        name=f"{family}.m{row.m}n{n}k{row.k}.{accumulator}.{a}.{b}{suffix}",
        arch=row.gpu.decode(),
        family=family,
        shape=(row.m, row.n, row.k),
        input=a,
        input_b=b,
        accumulator=accumulator,
        method=METHODS[sums.method],
        products=sums.products,
        fraction_bits=sums.fraction_bits,
        lowest_exponent=sums.lowest_exponent if sums.lowest_exponent > _NO_LOWEST else None,
        rounding=ROUNDINGS[sums.rounding] if has_blocks else None,
        in_kernels=bool(row.in_kernels),
        evidence=row.evidence.decode(),
        opcode=row.opcode.decode(),
        opcode_count=row.opcode_count,
        is_native=bool(row.native),
        native_from=row.native_from,
        native_to=row.native_to,
    )


@functools.cache
def rows() -> dict[tuple[str, str], tuple[Instruction, _Row]]:
    """(architecture, name of the instruction) -> the instruction, and the library's row."""
    read = lab_library.function("instruction", _Row)
    result = {}
    for gpu in range(len(GPUS)):
        index, answer = 0, 0
        while answer >= 0:
            row = _Row()
            answer = read(index, gpu, ctypes.byref(row))
            if answer > 0:
                instruction = _instruction(row)
                result[instruction.arch, instruction.name] = instruction, row
            index += 1
    return result


def check_arch(arch: str) -> str:
    """The name of an architecture as the table has it."""
    names = {name.lower(): name for name in GPUS}
    if not isinstance(arch, str) or arch.lower() not in names:
        raise ValueError(f"arch is {arch!r}; expected one of {', '.join(GPUS)}.")
    return names[arch.lower()]


def instructions(arch: str | None = None) -> list[Instruction]:
    """Lists the tensor-core instructions whose arithmetic is known.

    Example:
        >>> [row.products for row in tcgemm.emulate.instructions("Hopper")
        ...  if row.name == "wgmma.m64nNk32.f32.e4m3.e4m3"]
        [32]

    Arguments:
        arch: "Volta", "Turing", "Ampere", "Ada" or "Hopper"; None lists all instructions.

    Raises:
        ValueError: There is no such architecture.
        ImportError: The library of the emulator is not there.
    """
    archs = GPUS if arch is None else (check_arch(arch),)
    return [instruction for instruction, _ in rows().values() if instruction.arch in archs]
