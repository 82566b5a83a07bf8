"""Runs mma.sync instructions on the GPU of this machine, from PTX that the driver compiles.

A warp multiplies one pair of tiles. torch arranges the elements in the order of the lanes and their
registers (tcgemm/emulate/ptx.py), so that the kernel only loads, multiplies and stores:

    a (.., M, K) -> tiles (P, m, k) -> registers (P, count, 32 lanes) -> mma.sync -> the way back

Every result is compared with the emulator's, bit for bit, and differences are counted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tcgemm import _driver, emulate
from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.emulate.product import GPU_OF
from tcgemm.numerics.machine import Machine

if TYPE_CHECKING:
    import ctypes

    from torch import Tensor

    from tcgemm.emulate import Instruction

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LANES = 32
# The suffix and the bytes of registers, by the kind that ptx.kind_of() names.
FORMS = {"r": ("b32", 4), "f": ("f32", 4), "d": ("f64", 8)}
DEVICE = "cuda"


def kernel(mma: Instruction, target: str, selector: int = 0) -> str:
    """A PTX module whose entry `run` multiplies the tiles of block x: d = a * b + d.

    Of a sparse instruction it has a fourth argument, a word of metadata for each tile and lane.
    The selector says which lanes the instruction reads it from.
    """
    counts = dict(zip("abd", ptx.counts(mma), strict=True))
    types = (mma.input, mma.input_b, mma.accumulator)
    forms = [FORMS[ptx.kind_of(element_type)] for element_type in types]
    a, b, d = (ptx.registers(name, count) for name, count in counts.items())
    lines = [
        _driver.head(target),
        ".visible .entry run(.param .u64 pa, .param .u64 pb, .param .u64 pd"
        f"{', .param .u64 pm' if mma.is_sparse else ''}) {{",
        ".reg .b32 %tile, %lane;",
        ".reg .b64 %at_a, %at_b, %at_d, %byte;",
        "mov.u32 %tile, %ctaid.x;",
        "mov.u32 %lane, %tid.x;",
    ]
    for (name, count), (suffix, size) in zip(counts.items(), forms, strict=True):
        lines += [
            f".reg .{suffix} %{name}<{count}>;",
            f"ld.param.u64 %at_{name}, [p{name}];",
            f"mul.wide.u32 %byte, %tile, {count * LANES * size};",
            f"add.u64 %at_{name}, %at_{name}, %byte;",
            f"mul.wide.u32 %byte, %lane, {size};",
            f"add.u64 %at_{name}, %at_{name}, %byte;",
            *(
                f"ld.global.{suffix} %{name}{i}, [%at_{name} + {i * LANES * size}];"
                for i in range(count)
            ),
        ]
    if mma.is_sparse:
        lines += [
            ".reg .b32 %meta;",
            "ld.param.u64 %byte, [pm];",
            f"mad.wide.u32 %byte, %tile, {4 * LANES}, %byte;",
            "mad.wide.u32 %byte, %lane, 4, %byte;",
            "ld.global.b32 %meta, [%byte];",
        ]
    lines.append(ptx.instruction(mma, a, b, d, d, selector))
    suffix, size = forms[2]
    for i in range(counts["d"]):
        lines.append(f"st.global.{suffix} [%at_d + {i * LANES * size}], %d{i};")
    return "\n".join([*lines, "ret;", "}", ""])


def places(mma: Instruction, operand: str) -> tuple[Tensor, Tensor]:
    """(rows, columns) of a tile, each (registers, 32 lanes, elements of a register).

    Of b the columns are k, as it is stored by columns.
    """
    element = mma.accumulator if operand == "d" else mma.input
    counts = dict(zip("abd", ptx.counts(mma), strict=True))
    width = max(1, 32 // ptx.BITS[element])  # elements of a register
    register, lane, index = torch.meshgrid(
        torch.arange(counts[operand], device="cpu"),
        torch.arange(LANES, device="cpu"),
        torch.arange(width, device="cpu"),
        indexing="ij",
    )
    group, thread = lane // 4, lane % 4
    if operand == "a":
        halves = 2 if mma.shape[0] == 16 else 1
        row = group + 8 * (register % halves)
        return row, width * thread + 4 * width * (register // halves) + index
    if operand == "b":
        return group, width * thread + 4 * width * register + index
    if width == 2:  # float16 in pairs
        return group + 8 * register, 2 * thread + index
    return group + 8 * (register // 2), 2 * thread + register % 2


def pack(elements: Tensor, element_type: str) -> Tensor:
    """(.., elements of a register) -> (..) words of 32 bits, of float64 64; the first is low."""
    bits = ptx.BITS[element_type]
    if bits >= 8:
        return elements.contiguous().view(WORDS[max(bits, 32) // 8]).squeeze(-1)
    shifts = torch.arange(0, 32, bits, device=elements.device)
    fields = (elements.to(torch.int64) & ((1 << bits) - 1)) << shifts
    return fields.sum(-1).to(torch.int32)


def tiles(x: Tensor, rows: int, columns: int) -> Tensor:
    """Integers (B, R, C) -> (B, R / rows, C / columns, rows, columns); zeros fill R and C."""
    down, across = -x.shape[1] % rows, -x.shape[2] % columns
    wide = x.new_zeros(x.shape[0], x.shape[1] + down, x.shape[2] + across)
    wide[:, : x.shape[1], : x.shape[2]] = x
    return wide.unflatten(1, (-1, rows)).unflatten(3, (-1, columns)).transpose(2, 3)


@functools.cache
def _loaded(mma: Instruction, target: str) -> ctypes.c_void_p:
    """The kernel of an instruction, in the context that torch has made current."""
    return _driver.function(_driver.load(kernel(mma, target).encode()), "run")


def multiply(mma: Instruction, target: str, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
    """a @ b + c on the GPU, by a chain of instructions along k; arguments as in emulate.mma.

    Operands are on the CPU, and so is the result.
    """
    m, n, k = mma.shape
    batch, rows, columns = a.shape[:-2], a.shape[-2], b.shape[-1]
    dtype = TORCH[mma.accumulator]
    if c is None:
        c = torch.zeros(*batch, rows, columns, dtype=dtype, device="cpu")
    of_a, of_b, of_d = (
        tiles(_bits(x.reshape(-1, *x.shape[-2:])).to(DEVICE), *shape)
        for x, shape in ((a, (m, k)), (b.mT, (n, k)), (c, (m, n)))
    )
    down, across, steps = of_a.shape[1], of_b.shape[1], of_a.shape[2]
    place = {name: places(mma, name) for name in "abd"}
    d = pack(of_d[..., *place["d"]], mma.accumulator).contiguous()
    function = _loaded(mma, target)
    for step in range(steps):
        left = pack(of_a[:, :, None, step][..., *place["a"]], mma.input)
        right = pack(of_b[:, None, :, step][..., *place["b"]], mma.input_b)
        pairs = (x.expand(*d.shape[:3], *x.shape[3:]).contiguous() for x in (left, right))
        _driver.launch(function, d.shape[:3].numel(), LANES, (*pairs, d))
    result = torch.empty_like(of_d)
    result[..., *place["d"]] = d.unsqueeze(-1).view(of_d.dtype)
    matrix = result.transpose(2, 3).reshape(-1, down * m, across * n)[:, :rows, :columns]
    return matrix.reshape(*batch, rows, columns).cpu().view(dtype)


@dataclass(frozen=True)
class Checked(Machine):
    """A machine whose results are compared with the emulator's.

    Attributes:
        counts (list[int]): how many results were compared, and how many have other bits.
    """

    counts: list[int]

    def sentence(self) -> str:
        """What the comparison found."""
        return (
            f"{self.name}: {self.counts[0]:,} results of instructions, {self.counts[1]:,} of which "
            "have other bits than the emulator's."
        )


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(WORDS[x.element_size()])


def differing(result: Tensor, expected: Tensor) -> int:
    """How many elements have other bits; NaN of float64 equals NaN."""
    is_different = _bits(result) != _bits(expected)
    if result.dtype is torch.float64:
        is_different &= ~(result.isnan() & expected.isnan())
    return int(is_different.sum())


def device() -> Checked:
    """The GPU of this machine.

    ValueError: there is none, or its arithmetic is not in the table. RuntimeError: the driver does
    not compile the kernels.
    """
    if not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA GPU.")
    major, minor = torch.cuda.get_device_capability()
    architecture = GPU_OF.get(10 * major + minor)
    name = torch.cuda.get_device_name()
    if architecture is None:
        raise ValueError(f"The arithmetic of {name} (sm_{major}{minor}) is not known.")
    target = _driver.target()
    rows = {row.name: row for row in emulate.instructions(architecture)}
    _loaded(next(row for row in rows.values() if row.family == "mma"), target)
    counts = [0, 0]

    def run(instruction: str, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        expected = emulate.mma(a, b, c, instruction=instruction, arch=architecture)
        if rows[instruction].family != "mma":
            raise ValueError(f"{instruction} is no mma.sync instruction of dense operands.")
        result = multiply(rows[instruction], target, a, b, c)
        counts[0] += result.numel()
        counts[1] += differing(result, expected)
        return result

    return Checked(name, architecture, run, counts)
