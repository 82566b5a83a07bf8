"""The search for wgmma's layouts finds them in warpgroups that are simulated, and names others."""

import pytest
import torch

from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import layout, layout_wgmma, layouts, rows, sass
from tcgemm.numerics import device

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
    places = [
        fragment(operand, bits, register * width + of, thread)
        for register in range(number)
        for thread in range(128)
        for of in range(width)
    ]
    return torch.tensor(places).unbind(1)


def in_shared(values, bits, count, width):
    """Elements (tiles, count rows, width) of rows of 128 bytes: bits 7 to 9 change bits 4 to 6."""
    size = bits // 8
    address = 128 * torch.arange(count)[:, None] + size * torch.arange(width)
    return values[:, (address ^ (address >> 7 & 7) << 4) // size]


def warpgroups(mma, from_registers, selector=0, rotation=0):
    """Runs tiles as PTX lays them out; `rotation` rotates the metadata's lanes."""
    bits, k = ptx.BITS[mma.input], mma.shape[2]

    def run(a, b, words):
        tiles, n = a.shape[0], layout_wgmma.COLUMNS
        values = elements(a, mma.input)
        if from_registers:
            values_of_a = torch.zeros(tiles, 64, mma.stored)
            values_of_a[:, *registers("a", bits, 4)] = values
        else:
            values_of_a = in_shared(values, bits, 64, mma.stored)
        b_matrix = in_shared(elements(b[None], mma.input_b), bits, n, k)[0]
        a_matrix = values_of_a
        if mma.is_sparse:
            row, group, is_read = (
                index.roll(rotation, 0) for index in layout_wgmma.metadata_places(mma, selector)
            )
            nibbles = words.expand(tiles, 128).long()[..., None] >> torch.arange(0, 32, 4) & 15
            codes = torch.zeros(tiles, 64, layout.groups(mma), dtype=torch.int64)
            codes[:, row[is_read], group[is_read]] = nibbles[:, is_read]
            half = mma.group // 2
            column = torch.arange(mma.stored)
            code = codes[..., column // half]
            position = torch.where(column % half == 0, code & 3, code >> 2)
            if mma.input == "tf32":
                position = (code & 3) // 2
            a_matrix = torch.zeros(tiles, 64, k).scatter_(
                2, column // half * mma.group + position, values_of_a
            )
        result = (a_matrix @ b_matrix.mT).to(TORCH[mma.accumulator])
        wide = ptx.BITS[mma.accumulator]
        placed = result[:, *registers("d", wide, n * wide // 64)]
        return device.pack(placed.view(tiles, -1, 128, 32 // wide), mma.accumulator)

    return run


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(device, "DEVICE", "cpu")


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("from_registers", [True, False])
def test_the_search_finds_the_layouts(name, from_registers):
    mma = named(name)
    for selector in layout.selectors(mma):
        run = warpgroups(mma, from_registers, selector)
        facts = layout_wgmma.check(mma, run, from_registers, selector)
        draws = layout.DRAWS if mma.is_sparse else 1
        assert (facts["wrong"], facts["elements"]) == (0, 64 * mma.stored * draws)
        if mma.is_sparse:
            lanes = layout.groups(mma) // 4
            assert facts["metadata_wrong"] == 0
            assert facts["metadata_lanes"] == list(range(selector * lanes, (selector + 1) * lanes))


def test_other_layouts_are_found(monkeypatch):
    mma = named("wgmma.m64nNk16.f32.f16.f16")
    facts = layout_wgmma.check(mma, warpgroups(mma, False), False)
    assert facts["wrong"] == 0 and "first" not in facts
    straight = layout_wgmma.swizzled

    def unswizzled(row, k, bits):
        return straight(row // 8 * 8, k, bits) + row % 8 * 1024 // bits

    monkeypatch.setattr(layout_wgmma, "swizzled", unswizzled)
    facts = layout_wgmma.check(mma, warpgroups(mma, True), True)
    assert facts["wrong"] == facts["elements"] == 1024
    assert facts["first"] == "row 0, column 0 (place 0)"


def test_metadata_in_other_lanes_are_found():
    mma = named("wgmma.sp.m64nNk32.f32.f16.f16")
    facts = layout_wgmma.check(mma, warpgroups(mma, True, rotation=1), True)
    assert facts["metadata_lanes"] == [1, 2]
    assert facts["metadata_wrong"] > 0 and facts["wrong"] > 0
    facts = layout_wgmma.check(mma, warpgroups(mma, True, selector=1), True)
    assert facts["metadata_lanes"] == [2, 3] and facts["metadata_wrong"] == 2 * 64 * 8


def test_metadata_have_each_group_once():
    for mma in EVERY:
        for selector in layout.selectors(mma) if mma.is_sparse else ():
            row, group, is_read = layout_wgmma.metadata_places(mma, selector)
            pairs = sorted(zip(row[is_read].tolist(), group[is_read].tolist(), strict=True))
            assert pairs == [(r, g) for r in range(64) for g in range(layout.groups(mma))]


def test_every_element_has_one_place():
    for mma in EVERY:
        for from_registers in (True, False):
            place, row, column = layout_wgmma.of_a(mma, from_registers)
            pairs = set(zip(row.tolist(), column.tolist(), strict=True))
            assert len(pairs) == len(set(place.tolist())) == place.numel() == 64 * mma.stored
            assert int(place.max()) < 64 * 1024 // ptx.BITS[mma.input]


@pytest.mark.skipif(not (sass.tool("ptxas") and sass.tool("nvdisasm")), reason="needs ptxas")
@pytest.mark.nightly
def test_the_kernels_have_one_product():
    for mma in EVERY:
        for from_registers in (True, False):
            for selector in layout.selectors(mma):
                text = layout_wgmma.kernel(mma, "sm_90a", from_registers, selector)
                cubin, output = sass.assemble(text, "sm_90a", verbose=True)
                assert "C75" not in output, output
                lines = sass.lines_of(sass.disassemble(cubin), "run")
                products = [opcode for opcode, _ in lines if "GMMA" in opcode]
                assert len(products) == 1 and "64x32x" in products[0], (mma.name, products)


def test_rows_of_the_group():
    kinds = layouts.find("Hopper", None)
    assert {row.family for row, _ in kinds.values()} >= {"mma", "mma.sp", "wgmma", "wgmma.sp"}
    assert {row.family for row, _ in layouts.find("Hopper", "m64n256k16").values()} >= {"wgmma"}
    assert not any(row.family.startswith("wg") for row, _ in layouts.find("Ampere", None).values())
    with pytest.raises(ValueError, match="row is 'f17'"):
        layouts.find("Hopper", "f17")
    assert rows.label(named(SOME[0])) in kinds
