"""Which lane and register of an instruction holds which element, found on the GPU.

Each tile has one element of a that is 1, at one place of the registers, and a b whose elements are
the numbers of their places. The result shows which row the place of a has, and which places of b
meet it: whole numbers, so exact. A sparse a has random metadata; lanes whose metadata should not be
read have other random metadata. The places are counted as in tcgemm.numerics.device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcgemm import _driver
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import rows
from tcgemm.numerics import device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from tcgemm.emulate.table import Instruction
    from tcgemm.lab.probe.session import Session

    # (words of a, of b, of the metadata, each for tiles) -> words of the result
    Run = Callable[[Tensor, Tensor, Tensor | None], Tensor]

# The elements of b are digits from 1 to this number, so that products and sums are exact.
BASES = {"f16": 256, "bf16": 256, "tf32": 256, "f64": 256, "e4m3": 16, "e5m2": 8}
BASES |= {"s8": 100, "u8": 100, "s4": 7, "u4": 15}
CODES = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)  # two positions of four, the first is lower
DRAWS = 4  # of random metadata
TILES = 1024  # of a launch


def instructions(arch: str, filter_text: str | None) -> list[Instruction]:
    """The rows whose layout PTX defines. XOR has the layout of AND."""
    selection = rows.select(arch, ("mma", "mma.sp"), filter_text)
    return [row for row in selection if not rows.is_volta(row) and "xor" not in row.name]


# Metadata.


def groups(mma: Instruction) -> int:
    """Groups of a row of a sparse a; a nibble of metadata has the positions of one."""
    return mma.shape[2] // (mma.group * mma.pair)


def selectors(mma: Instruction) -> range:
    """The selectors that a sparse instruction has; a dense one has 0."""
    return range(16 // groups(mma)) if mma.is_sparse else range(1)


def metadata_places(mma: Instruction, selector: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """(row, group, is it read?) of each lane and nibble of the metadata: (32 lanes, 8 nibbles).

    In 16 and 32-bit types the halves of a word are rows g and g + 8, in others a word has one row.
    With selector 0 the first lanes of each four are read, as many as are needed, with 1 the next.
    """
    lane, nibble = torch.meshgrid(
        torch.arange(32, device="cpu"), torch.arange(8, device="cpu"), indexing="ij"
    )
    lanes = groups(mma) // 4
    g, t = lane // 4, lane % 4 - selector * lanes
    is_read = (t >= 0) & (t < lanes)
    if mma.input in ("f16", "bf16", "tf32"):
        return g + 8 * (nibble // 4), 4 * t + nibble % 4, is_read
    return g + 8 * (t % 2), 8 * (t // 2) + nibble, is_read


def draw_metadata(
    mma: Instruction, generator: torch.Generator, selector: int = 0
) -> tuple[Tensor, Tensor]:
    """(random codes (16 rows, groups), the 32 words that have them)."""
    codes = torch.tensor((0x4, 0xE) if mma.input == "tf32" else CODES, device="cpu")
    contents = codes[
        torch.randint(len(codes), (16, groups(mma)), generator=generator, device="cpu")
    ]
    filler = codes[torch.randint(len(codes), (32, 8), generator=generator, device="cpu")]
    row, group, is_read = metadata_places(mma, selector)
    row, group = (torch.where(is_read, index, 0) for index in (row, group))
    return contents, words_of(torch.where(is_read, contents[row, group], filler))


def words_of(nibbles: Tensor) -> Tensor:
    """(32 lanes, 8 nibbles) -> 32 words of 32 bits."""
    return (nibbles.to(torch.int64) << torch.arange(0, 32, 4, device="cpu")).sum(-1).to(torch.int32)


def logical(mma: Instruction, row: Tensor, column: Tensor, codes: Tensor) -> Tensor:
    """The k of stored elements (row, column) of a sparse a with these codes."""
    stored = mma.group * mma.pair // 2  # stored elements of a group
    code = codes[row, column // stored]
    pair_index = column % stored // mma.pair
    position = torch.where(pair_index == 0, code & 3, code >> 2)
    if mma.input == "tf32":  # one of two, whose positions count halves
        position = (code & 3) // 2
    return column // stored * mma.group * mma.pair + position * mma.pair + column % mma.pair


# One row.


def expected(mma: Instruction, codes: Tensor | None) -> Tensor:
    """(places of a, registers and elements of d) -> the place of b that each meets, or -1."""
    row, column = (x.flatten() for x in device.places(mma, "a"))
    k = column if codes is None else logical(mma, row, column, codes)
    n_b, k_b = (x.flatten() for x in device.places(mma, "b"))
    place = torch.empty(mma.shape[1], mma.shape[2], dtype=torch.int64, device="cpu")
    place[n_b, k_b] = torch.arange(n_b.numel(), device="cpu")
    row_d, column_d = (x.flatten() for x in device.places(mma, "d"))
    place_of_b = place[column_d[None], k[:, None]]
    return torch.where(row_d[None] == row[:, None], place_of_b, -1)


def search(mma: Instruction, run: Run, words: Tensor | None) -> Tensor:
    """The same as the instruction computes it."""
    shape = device.places(mma, "a")[0].shape
    count = shape.numel()
    unit_matrices = (
        torch.eye(count, dtype=torch.int32, device="cpu").view(count, *shape).to(TORCH[mma.input])
    )
    a = device.pack(unit_matrices, mma.input)
    of_b = torch.arange(device.places(mma, "b")[0].numel(), device="cpu")
    base = BASES.get(mma.input_b, 2)
    offset = int(base > 2)  # so that no element is zero, if there are more digits than 0 and 1
    total, is_hit = torch.zeros(1, dtype=torch.int64, device="cpu"), None
    if base == 2:
        is_hit = _values(mma, run(a, _pack_b(mma, torch.ones_like(of_b)), words)) != 0
    power = 1
    while power <= int(of_b.max()):
        digit = of_b // power % base
        values = _values(mma, run(a, _pack_b(mma, digit + offset), words))
        is_hit = values != 0 if is_hit is None else is_hit
        total = total + (values - offset) * power
        power *= base
    assert is_hit is not None
    return torch.where(is_hit, total, -1)


def _pack_b(mma: Instruction, values: Tensor) -> Tensor:
    shape = device.places(mma, "b")[0].shape
    return device.pack(values.view(shape).to(TORCH[mma.input_b]), mma.input_b)


def _values(mma: Instruction, words: Tensor) -> Tensor:
    """(tiles, registers, lanes) words -> (tiles, elements) whole numbers."""
    dtype = TORCH[mma.accumulator]
    wide = words if words.dtype == torch.int64 else words.unsqueeze(-1)
    return wide.contiguous().view(dtype).flatten(1).to(torch.int64)


def acting(mma: Instruction, run: Run) -> Tensor:
    """The row that each nibble of the metadata changes, (32 lanes, 8 nibbles); -1: none."""
    base = torch.full((32, 8), CODES[0], device="cpu")
    variants = base.repeat(257, 1, 1)
    index = torch.arange(256, device="cpu")
    variants[1 + index, index // 8, index % 8] = CODES[-1]
    words = torch.stack([words_of(variant) for variant in variants])
    shape = device.places(mma, "a")[0].shape
    ones = torch.ones(257, *shape, dtype=torch.int32, device="cpu").to(TORCH[mma.input])
    b = device.places(mma, "b")[0]
    generator = torch.Generator().manual_seed(0)
    digits = torch.randint(
        1, min(BASES[mma.input_b], 16), (b.numel(),), generator=generator, device="cpu"
    )
    result = _values(mma, run(device.pack(ones, mma.input), _pack_b(mma, digits), words))
    row = device.places(mma, "d")[0].flatten()
    is_changed = result[1:] != result[0]
    rows_of = torch.where(is_changed, row[None], -1)
    return rows_of.amax(1).view(32, 8)


def check(mma: Instruction, run: Run, selector: int = 0) -> dict[str, Any]:
    """The facts of a row: how many places of a, and how many results are not as expected."""
    generator = torch.Generator().manual_seed(0)
    errors, first, draws = 0, None, DRAWS if mma.is_sparse else 1
    for _ in range(draws):
        codes = words = None
        if mma.is_sparse:
            codes, words = draw_metadata(mma, generator, selector)
        expected_places, places = expected(mma, codes), search(mma, run, words)
        differ = (expected_places != places).any(1)
        errors += int(differ.sum())
        if first is None and errors:
            first = int(differ.nonzero()[0, 0])
    shape = device.places(mma, "a")[0].shape
    facts: dict[str, Any] = {"elements": shape.numel() * draws, "wrong": errors}
    if first is not None:
        register, rest = divmod(first, shape[1] * shape[2])
        facts["first"] = f"lane {rest // shape[2]}, register {register}, element {rest % shape[2]}"
    if mma.is_sparse:
        row, _, is_read = metadata_places(mma, selector)
        acts = acting(mma, run)
        lanes = sorted({int(lane) % 4 for lane in (acts >= 0).any(1).nonzero().flatten()})
        facts["metadata_lanes"] = lanes
        facts["metadata_wrong"] = int((acts != torch.where(is_read, row, -1)).sum())
    return facts


def runner(mma: Instruction, target: str, selector: int) -> Run:
    """Runs tiles on the GPU."""
    module = _driver.load(device.kernel(mma, target, selector).encode())
    entry = _driver.function(module, "run")

    def run(a: Tensor, b: Tensor, words: Tensor | None) -> Tensor:
        tiles, registers = a.shape[0], device.places(mma, "d")[0].shape[0]
        dtype = torch.int64 if mma.accumulator == "f64" else torch.int32
        result = torch.zeros(tiles, registers, device.LANES, dtype=dtype, device="cpu")
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


def measure(session: Session, mma: Instruction) -> Iterator[dict[str, Any]]:
    """The records of a row: one for each selector."""
    for selector in selectors(mma):
        facts = check(mma, runner(mma, session.target, selector), selector)
        fields = {"group": "layout", "row": rows.label(mma), "mode": "layout"}
        yield fields | {"selector": selector, "native": mma.is_native} | facts
