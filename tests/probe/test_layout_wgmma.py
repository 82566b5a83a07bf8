"""The search for wgmma's layouts finds them in warpgroups that are simulated, and names others."""

import pytest
import torch

from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics import device
from tcgemm.probe import layout, layout_wgmma, layouts, rows, sass

EVERY = layout_wgmma.instructions("Hopper", None)
SOME = (
    "wgmma.m64nNk16.f32.f16.f16",
    "wgmma.m64nNk16.f16.f16.f16",
    "wgmma.m64nNk8.f32.tf32.tf32",
    "wgmma.m64nNk32.s32.s8.s8",
    "wgmma.sp.m64nNk32.f32.bf16.bf16",
    "wgmma.sp.m64nNk16.f32.tf32.tf32",
    "wgmma.sp.m64nNk64.f32.e4m3.e4m3",
)


def named(name):
    return next(row for row in EVERY if row.name == name)


def elements(words, name):
    return words.contiguous().unsqueeze(-1).view(TORCH[name]).flatten(1).float()


def fragment(operand, bits, i, thread):
    """PTX ISA 9.7.15.5.1: (row, column) of element i of a thread."""
    warp, g, t = thread // 32, thread % 32 // 4, thread % 4
    if operand == "d":  # in figures of all types; d of float16 has two in a register
        return 16 * warp + g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2
    width = 32 // bits
    register, of = divmod(i, width)
    row = 16 * warp + g + (8 if register in (1, 3) else 0)
    return row, width * t + of + (4 * width if register > 1 else 0)


def registers(operand, bits, number):
    """(rows, columns) in the order (register, thread, element of a register)."""
    width = 32 // bits
    found = [
        fragment(operand, bits, register * width + of, thread)
        for register in range(number)
        for thread in range(128)
        for of in range(width)
    ]
    return torch.tensor(found).unbind(1)


def in_shared(values, bits, count, width):
    """Elements (tiles, count rows, width) of rows of 128 bytes: bits 7 to 9 change bits 4 to 6."""
    size = bits // 8
    address = 128 * torch.arange(count)[:, None] + size * torch.arange(width)
    return values[:, (address ^ (address >> 7 & 7) << 4) // size]


def warpgroups(known, from_registers, selector=0, rotation=0):
    """Runs tiles as PTX lays them out; `rotation` rotates the metadata's lanes."""
    bits, k = ptx.BITS[known.input], known.shape[2]

    def run(a, b, words):
        tiles, n = a.shape[0], layout_wgmma.COLUMNS
        values = elements(a, known.input)
        if from_registers:
            stored = torch.zeros(tiles, 64, known.stored)
            stored[:, *registers("a", bits, 4)] = values
        else:
            stored = in_shared(values, bits, 64, known.stored)
        right = in_shared(elements(b[None], known.input_b), bits, n, k)[0]
        left = stored
        if known.is_sparse:
            row, group, used = (
                each.roll(rotation, 0) for each in layout_wgmma.metadata_places(known, selector)
            )
            nibbles = words.expand(tiles, 128).long()[..., None] >> torch.arange(0, 32, 4) & 15
            codes = torch.zeros(tiles, 64, layout.groups(known), dtype=torch.int64)
            codes[:, row[used], group[used]] = nibbles[:, used]
            kept = known.group // 2
            column = torch.arange(known.stored)
            code = codes[..., column // kept]
            position = torch.where(column % kept == 0, code & 3, code >> 2)
            if known.input == "tf32":
                position = (code & 3) // 2
            left = torch.zeros(tiles, 64, k).scatter_(
                2, column // kept * known.group + position, stored
            )
        found = (left @ right.mT).to(TORCH[known.accumulator])
        wide = ptx.BITS[known.accumulator]
        placed = found[:, *registers("d", wide, n * wide // 64)]
        return device.pack(placed.view(tiles, -1, 128, 32 // wide), known.accumulator)

    return run


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(device, "DEVICE", "cpu")


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("from_registers", [True, False])
def test_the_search_finds_the_layouts(name, from_registers):
    known = named(name)
    for selector in layout.selectors(known):
        run = warpgroups(known, from_registers, selector)
        facts = layout_wgmma.check(known, run, from_registers, selector)
        draws = layout.DRAWS if known.is_sparse else 1
        assert (facts["wrong"], facts["elements"]) == (0, 64 * known.stored * draws)
        if known.is_sparse:
            lanes = layout.groups(known) // 4
            assert facts["metadata_wrong"] == 0
            assert facts["metadata_lanes"] == list(range(selector * lanes, (selector + 1) * lanes))


def test_other_layouts_are_found(monkeypatch):
    known = named("wgmma.m64nNk16.f32.f16.f16")
    facts = layout_wgmma.check(known, warpgroups(known, False), False)
    assert facts["wrong"] == 0 and "first" not in facts
    straight = layout_wgmma.swizzled

    def unswizzled(row, k, bits):
        return straight(row // 8 * 8, k, bits) + row % 8 * 1024 // bits

    monkeypatch.setattr(layout_wgmma, "swizzled", unswizzled)
    facts = layout_wgmma.check(known, warpgroups(known, True), True)
    assert facts["wrong"] == facts["elements"] == 1024
    assert facts["first"] == "row 0, column 0 (place 0)"


def test_metadata_in_other_lanes_are_found():
    known = named("wgmma.sp.m64nNk32.f32.f16.f16")
    facts = layout_wgmma.check(known, warpgroups(known, True, rotation=1), True)
    assert facts["metadata_lanes"] == [1, 2]
    assert facts["metadata_wrong"] > 0 and facts["wrong"] > 0
    other = layout_wgmma.check(known, warpgroups(known, True, selector=1), True)
    assert other["metadata_lanes"] == [2, 3] and other["metadata_wrong"] == 2 * 64 * 8


def test_metadata_have_each_group_once():
    for known in EVERY:
        for selector in layout.selectors(known) if known.is_sparse else ():
            row, group, used = layout_wgmma.metadata_places(known, selector)
            found = sorted(zip(row[used].tolist(), group[used].tolist(), strict=True))
            assert found == [(r, g) for r in range(64) for g in range(layout.groups(known))]


def test_every_element_has_one_place():
    for known in EVERY:
        for from_registers in (True, False):
            place, row, column = layout_wgmma.of_a(known, from_registers)
            pairs = set(zip(row.tolist(), column.tolist(), strict=True))
            assert len(pairs) == len(set(place.tolist())) == place.numel() == 64 * known.stored
            assert int(place.max()) < 64 * 1024 // ptx.BITS[known.input]


@pytest.mark.skipif(not (sass.tool("ptxas") and sass.tool("nvdisasm")), reason="needs ptxas")
def test_the_kernels_have_one_product():
    for known in EVERY:
        for from_registers in (True, False):
            for selector in layout.selectors(known):
                text = layout_wgmma.kernel(known, "sm_90a", from_registers, selector)
                cubin, said = sass.assemble(text, "sm_90a", verbose=True)
                assert "C75" not in said, said
                lines = sass.lines_of(sass.disassemble(cubin), "run")
                products = [each for each, _ in lines if "GMMA" in each]
                assert len(products) == 1 and "64x32x" in products[0], (known.name, products)


def test_rows_of_the_group():
    found = layouts.found("Hopper", None)
    assert {row.family for row, _ in found.values()} >= {"mma", "mma.sp", "wgmma", "wgmma.sp"}
    assert {row.family for row, _ in layouts.found("Hopper", "m64n256k16").values()} >= {"wgmma"}
    assert not any(row.family.startswith("wg") for row, _ in layouts.found("Ampere", None).values())
    with pytest.raises(ValueError, match="row is 'f17'"):
        layouts.found("Hopper", "f17")
    assert rows.label(named(SOME[0])) in found
