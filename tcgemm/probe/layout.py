"""Which lane and register of an instruction holds which element, found on the GPU.

Each tile has one element of a that is 1, at one place of the registers, and a b whose elements are
the numbers of their places. The result shows which row the place of a has, and which places of b
meet it: whole numbers, so exact. A sparse a has random metadata; lanes whose metadata should not be
read have other random metadata. The places are those of tcgemm.numerics.device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcgemm import _driver
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics import device
from tcgemm.probe import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from tcgemm.emulate.table import Instruction
    from tcgemm.probe.session import Session

    # (words of a, of b, of the metadata, each for tiles) -> words of the result
    Run = Callable[[Tensor, Tensor, Tensor | None], Tensor]

# The elements of b are digits from 1 to this number, so that products and sums are exact.
BASES = {"f16": 256, "bf16": 256, "tf32": 256, "f64": 256, "e4m3": 16, "e5m2": 8}
BASES |= {"s8": 100, "u8": 100, "s4": 7, "u4": 15}
CODES = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)  # two positions of four, the first is lower
DRAWS = 4  # of random metadata
TILES = 1024  # of a launch


def instructions(arch: str, wanted: str | None) -> list[Instruction]:
    """The rows whose layout PTX defines. XOR has the layout of AND."""
    found = rows.select(arch, ("mma", "mma.sp"), wanted)
    return [row for row in found if not rows.is_volta(row) and "xor" not in row.name]


# Metadata.


def groups(known: Instruction) -> int:
    """Groups of a row of a sparse a; a nibble of metadata has the positions of one."""
    return known.shape[2] // (known.group * known.pair)


def selectors(known: Instruction) -> range:
    """The selectors that a sparse instruction has; a dense one has 0."""
    return range(16 // groups(known)) if known.is_sparse else range(1)


def metadata_places(known: Instruction, selector: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """(row, group, is it read?) of each lane and nibble of the metadata: (32 lanes, 8 nibbles).

    In 16 and 32-bit types the halves of a word are rows g and g + 8, in others a word has one row.
    With selector 0 the first lanes of each four are read, as many as are needed, with 1 the next.
    """
    lane, nibble = torch.meshgrid(torch.arange(32), torch.arange(8), indexing="ij")
    needed = groups(known) // 4
    g, t = lane // 4, lane % 4 - selector * needed
    used = (t >= 0) & (t < needed)
    if known.input in ("f16", "bf16", "tf32"):
        return g + 8 * (nibble // 4), 4 * t + nibble % 4, used
    return g + 8 * (t % 2), 8 * (t // 2) + nibble, used


def draw_metadata(
    known: Instruction, generator: torch.Generator, selector: int = 0
) -> tuple[Tensor, Tensor]:
    """(random codes (16 rows, groups), the 32 words that have them)."""
    codes = torch.tensor((0x4, 0xE) if known.input == "tf32" else CODES)
    chosen = codes[torch.randint(len(codes), (16, groups(known)), generator=generator)]
    others = codes[torch.randint(len(codes), (32, 8), generator=generator)]
    row, group, used = metadata_places(known, selector)
    row, group = (torch.where(used, each, 0) for each in (row, group))
    return chosen, words_of(torch.where(used, chosen[row, group], others))


def words_of(nibbles: Tensor) -> Tensor:
    """(32 lanes, 8 nibbles) -> 32 words of 32 bits."""
    return (nibbles.to(torch.int64) << torch.arange(0, 32, 4)).sum(-1).to(torch.int32)


def logical(known: Instruction, row: Tensor, column: Tensor, codes: Tensor) -> Tensor:
    """The k of stored elements (row, column) of a sparse a with these codes."""
    kept = known.group * known.pair // 2  # stored elements of a group
    code = codes[row, column // kept]
    which = column % kept // known.pair
    position = torch.where(which == 0, code & 3, code >> 2)
    if known.input == "tf32":  # one of two, whose positions count halves
        position = (code & 3) // 2
    return column // kept * known.group * known.pair + position * known.pair + column % known.pair


# One row.


def expected(known: Instruction, codes: Tensor | None) -> Tensor:
    """(places of a, registers and elements of d) -> the place of b that each meets, or -1."""
    row, column = (x.flatten() for x in device.places(known, "a"))
    k = column if codes is None else logical(known, row, column, codes)
    n_b, k_b = (x.flatten() for x in device.places(known, "b"))
    place = torch.empty(known.shape[1], known.shape[2], dtype=torch.int64)
    place[n_b, k_b] = torch.arange(n_b.numel())
    row_d, column_d = (x.flatten() for x in device.places(known, "d"))
    met = place[column_d[None], k[:, None]]
    return torch.where(row_d[None] == row[:, None], met, -1)


def found(known: Instruction, run: Run, words: Tensor | None) -> Tensor:
    """The same as the instruction computes it."""
    shape = device.places(known, "a")[0].shape
    count = shape.numel()
    one = torch.eye(count, dtype=torch.int32).view(count, *shape).to(TORCH[known.input])
    a = device.pack(one, known.input)
    of_b = torch.arange(device.places(known, "b")[0].numel())
    base = BASES.get(known.input_b, 2)
    offset = int(base > 2)  # so that no element is zero, if there are more digits than 0 and 1
    total, met = torch.zeros(1, dtype=torch.int64), None
    if base == 2:
        met = _values(known, run(a, _pack_b(known, torch.ones_like(of_b)), words)) != 0
    power = 1
    while power <= int(of_b.max()):
        digit = of_b // power % base
        values = _values(known, run(a, _pack_b(known, digit + offset), words))
        met = values != 0 if met is None else met
        total = total + (values - offset) * power
        power *= base
    assert met is not None
    return torch.where(met, total, -1)


def _pack_b(known: Instruction, values: Tensor) -> Tensor:
    shape = device.places(known, "b")[0].shape
    return device.pack(values.view(shape).to(TORCH[known.input_b]), known.input_b)


def _values(known: Instruction, words: Tensor) -> Tensor:
    """(tiles, registers, lanes) words -> (tiles, elements) whole numbers."""
    dtype = TORCH[known.accumulator]
    wide = words if words.dtype == torch.int64 else words.unsqueeze(-1)
    return wide.contiguous().view(dtype).flatten(1).to(torch.int64)


def acting(known: Instruction, run: Run) -> Tensor:
    """The row that each nibble of the metadata changes, (32 lanes, 8 nibbles); -1: none."""
    base = torch.full((32, 8), CODES[0])
    variants = base.repeat(257, 1, 1)
    index = torch.arange(256)
    variants[1 + index, index // 8, index % 8] = CODES[-1]
    words = torch.stack([words_of(each) for each in variants])
    shape = device.places(known, "a")[0].shape
    ones = torch.ones(257, *shape, dtype=torch.int32).to(TORCH[known.input])
    b = device.places(known, "b")[0]
    generator = torch.Generator().manual_seed(0)
    digits = torch.randint(1, min(BASES[known.input_b], 16), (b.numel(),), generator=generator)
    result = _values(known, run(device.pack(ones, known.input), _pack_b(known, digits), words))
    row = device.places(known, "d")[0].flatten()
    changed = result[1:] != result[0]
    rows_of = torch.where(changed, row[None], -1)
    return rows_of.amax(1).view(32, 8)


def check(known: Instruction, run: Run, selector: int = 0) -> dict[str, Any]:
    """The facts of a row: how many places of a, and how many results are not as expected."""
    generator = torch.Generator().manual_seed(0)
    wrong, first, draws = 0, None, DRAWS if known.is_sparse else 1
    for _ in range(draws):
        codes = words = None
        if known.is_sparse:
            codes, words = draw_metadata(known, generator, selector)
        wanted, got = expected(known, codes), found(known, run, words)
        differ = (wanted != got).any(1)
        wrong += int(differ.sum())
        if first is None and wrong:
            first = int(differ.nonzero()[0, 0])
    shape = device.places(known, "a")[0].shape
    facts: dict[str, Any] = {"elements": shape.numel() * draws, "wrong": wrong}
    if first is not None:
        register, rest = divmod(first, shape[1] * shape[2])
        facts["first"] = f"lane {rest // shape[2]}, register {register}, element {rest % shape[2]}"
    if known.is_sparse:
        row, _, used = metadata_places(known, selector)
        acts = acting(known, run)
        lanes = sorted({int(lane) % 4 for lane in (acts >= 0).any(1).nonzero().flatten()})
        facts["metadata_lanes"] = lanes
        facts["metadata_wrong"] = int((acts != torch.where(used, row, -1)).sum())
    return facts


def runner(known: Instruction, target: str, selector: int) -> Run:
    """Runs tiles on the GPU."""
    module = _driver.load(device.kernel(known, target, selector).encode())
    entry = _driver.function(module, "run")

    def run(a: Tensor, b: Tensor, words: Tensor | None) -> Tensor:
        tiles, registers = a.shape[0], device.places(known, "d")[0].shape[0]
        dtype = torch.int64 if known.accumulator == "f64" else torch.int32
        result = torch.zeros(tiles, registers, device.LANES, dtype=dtype)
        for start in range(0, tiles, TILES):
            part = a[start : start + TILES].to(device.DEVICE)
            count = part.shape[0]
            of_b = b.expand(count, *b.shape).contiguous().to(device.DEVICE)
            d = torch.zeros(count, registers, device.LANES, dtype=dtype, device=device.DEVICE)
            tensors = [part.contiguous(), of_b, d]
            if words is not None:
                of = words if words.dim() == 1 else words[start : start + TILES]
                tensors.append(of.expand(count, device.LANES).contiguous().to(device.DEVICE))
            _driver.launch(entry, count, device.LANES, tensors)
            result[start : start + TILES] = d.cpu()
        return result

    return run


def measure(session: Session, known: Instruction) -> Iterator[dict[str, Any]]:
    """The records of a row: one for each selector."""
    for selector in selectors(known):
        facts = check(known, runner(known, session.target, selector), selector)
        named = {"group": "layout", "row": rows.label(known), "mode": "layout"}
        yield named | {"selector": selector, "native": known.is_native} | facts
