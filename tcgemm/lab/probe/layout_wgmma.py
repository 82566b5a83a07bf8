"""Which register and which byte of shared memory holds which element of wgmma, found on the GPU.

The search is as in layout.py: one element of a is 1, and b has the numbers of its places. A tile
is a warpgroup. a comes from registers (RS) or from shared memory (SS), b from shared memory. There,
rows of 128 bytes of k have the 128-byte swizzle. The places are as in PTX ISA 9.7.15.5.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcgemm import _driver
from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import layout, rows
from tcgemm.lab.probe.kernels_mma import SUFFIX, ZERO
from tcgemm.lab.probe.kernels_wgmma import DESCRIPTOR, ROW
from tcgemm.numerics import device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from tcgemm.emulate.table import Instruction
    from tcgemm.lab.probe.session import Session

    # (words of a for tiles, of b for all, of the metadata) -> words of the result
    Run = Callable[[Tensor, Tensor, Tensor | None], Tensor]

FAMILIES = ("wgmma", "wgmma.sp")
COLUMNS = 32  # of b: the least number above 16 that all types have
THREADS, WARPS = 128, 4
ROWS = 64  # of a
REGISTERS = 4  # of a in a thread


def instructions(arch: str, filter_text: str | None) -> list[Instruction]:
    """The rows that are measured."""
    return rows.select(arch, FAMILIES, filter_text)


def kernel(mma: Instruction, target: str, from_registers: bool, selector: int = 0) -> str:
    """A PTX module whose entry `run` multiplies the tile of block x: d = a * b.

    All tiles have one b. Of a sparse instruction it has a fourth argument, a word of metadata for
    each tile and thread.
    """
    kind = ptx.kind_of(mma.accumulator)
    suffix, number = SUFFIX[kind], ptx.count(16 * COLUMNS, mma.accumulator)
    shared = 0 if from_registers else ROWS * ROW
    words_a = REGISTERS if from_registers else ROWS * ROW // 4 // THREADS
    lines = [
        _driver.head(target) + f".shared .align 1024 .b8 tile[{shared + COLUMNS * ROW}];",
        ".visible .entry run(.param .u64 pa, .param .u64 pb, .param .u64 pd"
        f"{', .param .u64 pm' if mma.is_sparse else ''}) {{",
        f".reg .{suffix} %d<{number}>;",
        f".reg .b32 %a<{REGISTERS}>, %x, %to, %from, %tile, %t, %meta;",
        ".reg .b64 %at, %byte, %da, %db;",
        ".reg .pred %yes;",
        "mov.u32 %tile, %ctaid.x;",
        "mov.u32 %t, %tid.x;",
        "mul.wide.u32 %byte, %t, 4;",
        "shl.b32 %x, %t, 2;",
        "mov.u32 %to, tile;",
        "add.u32 %to, %to, %x;",
        "setp.eq.u32 %yes, %t, %t;",
        *_address("pa", words_a),
    ]
    step = 4 * THREADS
    if from_registers:
        lines += [f"ld.global.b32 %a{i}, [%at + {i * step}];" for i in range(words_a)]
    else:
        lines += _copy(words_a, 0)
    lines += ["ld.param.u64 %at, [pb];", "add.u64 %at, %at, %byte;"]
    lines += _copy(COLUMNS * ROW // step, shared)
    if mma.is_sparse:
        lines += [*_address("pm", 1), "ld.global.b32 %meta, [%at];"]
    for letter, offset in (("a", 0), ("b", shared)):
        lines += [
            "mov.u32 %from, tile;",
            f"add.u32 %from, %from, {offset};",
            "and.b32 %from, %from, 0x3ffff;",
            "shr.u32 %from, %from, 4;",
            f"cvt.u64.u32 %d{letter}, %from;",
            f"or.b64 %d{letter}, %d{letter}, {DESCRIPTOR};",
        ]
    lines += [f"mov.{suffix} %d{i}, {ZERO[kind]};" for i in range(number)]
    a = ptx.registers("a", REGISTERS) if from_registers else "%da"
    sums = ptx.registers("d", number)
    lines += [
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "wgmma.fence.sync.aligned;",
        ptx.group_instruction(mma, COLUMNS, sums, a, "%db", selector),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        *_address("pd", number),
        *(f"st.global.{suffix} [%at + {i * step}], %d{i};" for i in range(number)),
    ]
    return "\n".join([*lines, "ret;", "}", ""])


def _address(parameter: str, words: int) -> list[str]:
    """The address of a thread's first word of a tile that has so many words a thread."""
    return [
        f"ld.param.u64 %at, [{parameter}];",
        "add.u64 %at, %at, %byte;",
        f"mad.wide.u32 %at, %tile, {4 * THREADS * words}, %at;",
    ]


def _copy(words: int, offset: int) -> list[str]:
    """Copies so many words a thread into shared memory."""
    lines = []
    for index in range(words):
        at = 4 * THREADS * index
        lines += [f"ld.global.b32 %x, [%at + {at}];", f"st.shared.b32 [%to + {offset + at}], %x;"]
    return lines


# Where elements are.


def places(mma: Instruction, operand: str) -> tuple[Tensor, Tensor]:
    """(rows, columns) of a or d in registers, each (registers, threads, elements of a register)."""
    bits = ptx.BITS[mma.accumulator if operand == "d" else mma.input]
    width = 32 // bits
    number = REGISTERS if operand == "a" else COLUMNS * ROWS * bits // 32 // THREADS
    register, thread, index = torch.meshgrid(
        torch.arange(number, device="cpu"),
        torch.arange(THREADS, device="cpu"),
        torch.arange(width, device="cpu"),
        indexing="ij",
    )
    row, t = 16 * (thread // 32) + thread % 32 // 4, thread % 4
    if operand == "a":
        return row + 8 * (register % 2), width * t + 4 * width * (register // 2) + index
    if width == 2:  # float16 in pairs
        return row + 8 * (register % 2), 8 * (register // 2) + 2 * t + index
    return row + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * t + register % 2


def swizzled(row: Tensor, k: Tensor, bits: int) -> Tensor:
    """The number of an element in shared memory: 16 bytes of a row change places by row % 8."""
    vector = 128 // bits  # elements of 16 bytes
    return row * (8 * ROW // bits) + (k // vector ^ row % 8) * vector + k % vector


def of_a(mma: Instruction, from_registers: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(place, row, column) of each element of a."""
    if from_registers:
        row, column = (index.flatten() for index in places(mma, "a"))
        return torch.arange(row.numel(), device="cpu"), row, column
    row, column = torch.meshgrid(
        torch.arange(ROWS, device="cpu"), torch.arange(mma.stored, device="cpu"), indexing="ij"
    )
    row, column = row.flatten(), column.flatten()
    return swizzled(row, column, ptx.BITS[mma.input]), row, column


def metadata_places(mma: Instruction, selector: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """(row, group, is it read?) of each thread and nibble: in each warp as of mma.sp."""
    row, group, is_read = layout.metadata_places(mma, selector)
    first = 16 * torch.arange(WARPS, device="cpu").repeat_interleave(32)[:, None]
    return row.repeat(WARPS, 1) + first, group.repeat(WARPS, 1), is_read.repeat(WARPS, 1)


def expected(mma: Instruction, codes: Tensor | None, from_registers: bool) -> Tensor:
    """(elements of a, elements of d) -> the place of b that they meet, or -1; on the GPU."""
    _, row, column = of_a(mma, from_registers)
    k = column if codes is None else layout.logical(mma, row, column, codes)
    row, k = (index.to(device.DEVICE) for index in (row, k))
    row_d, column_d = (index.flatten().to(device.DEVICE) for index in places(mma, "d"))
    place_of_b = swizzled(column_d[None], k[:, None], ptx.BITS[mma.input_b])
    return torch.where(row_d[None] == row[:, None], place_of_b, -1)


# What the GPU has.


def _word(values: Tensor, element_type: str) -> Tensor:
    width = 32 // ptx.BITS[element_type]
    return device.pack(values.view(-1, width).to(TORCH[element_type]), element_type)


def _one_hot(mma: Instruction, at: Tensor, words: int) -> Tensor:
    """(places, words): a with a 1 at one place; on the GPU."""
    bits = ptx.BITS[mma.input]
    width = 32 // bits
    bits_of_one = int(_word(torch.tensor([1] + [0] * (width - 1), device="cpu"), mma.input))
    words_of_a = torch.zeros(at.numel(), words, dtype=torch.int32, device=device.DEVICE)
    one = torch.tensor(bits_of_one, device="cpu")
    contents = one << (at % width * bits)  # int64, whose low half is the word
    return words_of_a.scatter_(
        1,
        (at // width)[:, None].to(device.DEVICE),
        contents[:, None].to(device=device.DEVICE, dtype=torch.int32),
    )


def _words_of_a(from_registers: bool) -> int:
    return REGISTERS * THREADS if from_registers else ROWS * ROW // 4


def _values(mma: Instruction, words: Tensor) -> Tensor:
    """(tiles, registers, threads) words -> (tiles, elements) whole numbers."""
    return words.unsqueeze(-1).view(TORCH[mma.accumulator]).flatten(1).to(torch.int64)


def search(mma: Instruction, run: Run, words: Tensor | None, from_registers: bool) -> Tensor:
    """What expected() should be, as the instruction computes it; on the GPU."""
    at, _, _ = of_a(mma, from_registers)
    a = _one_hot(mma, at, _words_of_a(from_registers))
    numbers = torch.arange(8 * COLUMNS * ROW // ptx.BITS[mma.input_b], device="cpu")
    base = layout.BASES.get(mma.input_b, 2)
    offset = int(base > 2)  # so that no element is zero, if there are more digits than 0 and 1
    is_hit = None
    if base == 2:
        is_hit = _values(mma, run(a, _word(torch.ones_like(numbers), mma.input_b), words)) != 0
    total, power = torch.zeros(1, dtype=torch.int64, device=device.DEVICE), 1
    while power < numbers.numel():
        digit = numbers // power % base
        values = _values(mma, run(a, _word(digit + offset, mma.input_b), words))
        is_hit = values != 0 if is_hit is None else is_hit
        total = total + (values - offset) * power
        power *= base
    assert is_hit is not None
    return torch.where(is_hit, total, -1)


def acting(mma: Instruction, run: Run, from_registers: bool) -> Tensor:
    """The row that each nibble of the metadata changes, (threads, 8 nibbles); -1: none."""
    count = THREADS * 8
    variants = torch.full((count + 1, THREADS, 8), layout.CODES[0], device="cpu")
    index = torch.arange(count, device="cpu")
    variants[1 + index, index // 8, index % 8] = layout.CODES[-1]
    words = layout.words_of(variants)
    width = 32 // ptx.BITS[mma.input]
    ones = _word(torch.ones(width, device="cpu"), mma.input).to(device.DEVICE)
    a = ones.expand(count + 1, _words_of_a(from_registers)).contiguous()
    generator = torch.Generator().manual_seed(0)
    number = 8 * COLUMNS * ROW // ptx.BITS[mma.input_b]
    most = min(layout.BASES[mma.input_b], 16)
    b = _word(torch.randint(1, most, (number,), generator=generator, device="cpu"), mma.input_b)
    result = _values(mma, run(a, b, words))
    row = places(mma, "d")[0].flatten().to(result.device)
    rows_of = torch.where(result[1:] != result[0], row[None], -1)
    return rows_of.amax(1).view(THREADS, 8).cpu()


def check(mma: Instruction, run: Run, from_registers: bool, selector: int = 0) -> dict[str, Any]:
    """The facts of a row: how many elements of a, and how many are not where they should be."""
    generator = torch.Generator().manual_seed(0)
    errors, first, draws = 0, None, layout.DRAWS if mma.is_sparse else 1
    place, row, column = of_a(mma, from_registers)
    for _ in range(draws):
        codes = words = None
        if mma.is_sparse:
            metadata = [layout.draw_metadata(mma, generator, selector) for _ in range(WARPS)]
            codes, words = (torch.cat(part) for part in zip(*metadata, strict=True))
        expected_places = expected(mma, codes, from_registers)
        differ = (expected_places != search(mma, run, words, from_registers)).any(1).cpu()
        errors += int(differ.sum())
        if first is None and errors:
            at = int(differ.nonzero()[0, 0])
            first = f"row {row[at]}, column {column[at]} (place {place[at]})"
    facts: dict[str, Any] = {"elements": place.numel() * draws, "wrong": errors}
    if first is not None:
        facts["first"] = first
    if mma.is_sparse:
        of, _, is_read = metadata_places(mma, selector)
        acts = acting(mma, run, from_registers)
        lanes = sorted({int(lane) % 4 for lane in (acts >= 0).any(1).nonzero().flatten()})
        facts["metadata_lanes"] = lanes
        facts["metadata_wrong"] = int((acts != torch.where(is_read, of, -1)).sum())
    return facts


def runner(mma: Instruction, target: str, from_registers: bool, selector: int) -> Run:
    """Runs tiles on the GPU."""
    module = _driver.load(kernel(mma, target, from_registers, selector).encode())
    entry = _driver.function(module, "run")
    number = ptx.count(16 * COLUMNS, mma.accumulator)

    def run(a: Tensor, b: Tensor, words: Tensor | None) -> Tensor:
        tiles = a.shape[0]
        d = torch.zeros(tiles, number, THREADS, dtype=torch.int32, device=device.DEVICE)
        tensors = [a.contiguous(), b.to(device.DEVICE), d]
        if words is not None:
            tensors.append(words.expand(tiles, THREADS).contiguous().to(device.DEVICE))
        _driver.launch(entry, tiles, THREADS, tensors)
        return d

    return run


def measure(session: Session, mma: Instruction) -> Iterator[dict[str, Any]]:
    """The records of a row: for each place of a, and each selector."""
    fields = {"group": "layout", "row": rows.label(mma, COLUMNS), "base": rows.label(mma)}
    for from_registers in (True, False):
        for selector in layout.selectors(mma):
            run = runner(mma, session.target, from_registers, selector)
            facts = check(mma, run, from_registers, selector)
            form = {"a": "RS" if from_registers else "SS", "selector": selector}
            yield fields | {"mode": "layout", "native": mma.is_native} | form | facts
