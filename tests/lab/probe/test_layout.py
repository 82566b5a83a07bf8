"""The search for the layouts finds them in warps that are simulated, and names other ones."""

import pytest
import torch

from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab import probe
from tcgemm.lab.probe import checks, layout, rows, sass
from tcgemm.numerics import device

SHAPES = [row for row in layout.instructions("Hopper", None) if row.shape[2] <= 64]
SHAPES += [row for row in layout.instructions("Hopper", "m16n8k16") if row.input != row.input_b]


def unpacked(words, name):
    """The elements of registers."""
    bits = ptx.BITS[name]
    if bits == 64:
        return words.view(torch.float64).unsqueeze(-1)
    if bits >= 8:
        return words.unsqueeze(-1).contiguous().view(TORCH[name])
    fields = torch.stack([(words >> at) & ((1 << bits) - 1) for at in range(0, 32, bits)], dim=-1)
    return fields - 16 * (fields > 7) if name == "s4" else fields


def matrix(mma, words, operand, name, shape):
    values = unpacked(words, name).double()
    result = torch.zeros(words.shape[0], *shape, dtype=torch.float64)
    result[:, *device.places(mma, operand)] = values.reshape(words.shape[0], *values.shape[1:])
    return result


def warps(mma, places=layout.metadata_places):
    """Runs tiles as PTX lays them out; the metadata lie at `places`."""

    def run(a, b, words):
        m, n, k = mma.shape
        a_matrix = matrix(mma, a, "a", mma.input, (m, mma.stored))
        b_matrix = matrix(mma, b[None], "b", mma.input_b, (n, k))[0]
        if mma.is_sparse:
            values, a_matrix = a_matrix, torch.zeros(a.shape[0], m, k, dtype=torch.float64)
            row, group, is_read = places(mma)
            of_tile = words.expand(a.shape[0], 32)
            nibbles = (of_tile.long()[..., None] >> torch.arange(0, 32, 4)) & 15
            codes = torch.zeros(a.shape[0], m, layout.groups(mma), dtype=torch.int64)
            codes[:, row[is_read], group[is_read]] = nibbles[:, is_read]
            at, column = torch.meshgrid(torch.arange(m), torch.arange(mma.stored), indexing="ij")
            for tile in range(a.shape[0]):
                of_k = layout.logical(mma, at, column, codes[tile])
                a_matrix[tile, at, of_k] = values[tile]
        result = (a_matrix @ b_matrix.mT).to(TORCH[mma.accumulator])
        placed = result[:, *device.places(mma, "d")]
        if mma.accumulator == "f64":
            return placed.view(torch.int64).squeeze(-1)
        return device.pack(placed, mma.accumulator)

    return run


@pytest.mark.parametrize("mma", SHAPES, ids=lambda row: row.name)
def test_the_search_finds_the_layouts(mma):
    for selector in layout.selectors(mma):
        run = warps(mma, lambda mma, of=selector: layout.metadata_places(mma, of))
        facts = layout.check(mma, run, selector)
        assert facts["wrong"] == 0 and facts["elements"] % (mma.shape[0] * mma.stored) == 0
        if mma.is_sparse:
            lanes = layout.groups(mma) // 4
            assert facts["metadata_wrong"] == 0
            assert facts["metadata_lanes"] == list(range(selector * lanes, (selector + 1) * lanes))


def named(name):
    return next(row for row in SHAPES if row.name == name)


def test_another_layout_is_found(monkeypatch):
    mma = named("mma.m16n8k16.f32.f16.f16")
    places = device.places

    def other(mma, operand):
        row, column = places(mma, operand)
        return (row ^ 8, column) if operand == "a" else (row, column)

    run = warps(mma)
    monkeypatch.setattr(device, "places", other)
    words = layout.search(mma, lambda a, b, c: run(a, b, c), None)
    monkeypatch.setattr(device, "places", places)
    assert (words != layout.expected(mma, None)).any(1).all()


def test_metadata_in_other_lanes_are_found():
    mma = named("mma.sp.m16n8k16.f32.f16.f16")

    def other(mma):
        row, group, is_read = layout.metadata_places(mma)
        return row.roll(1, 0), group.roll(1, 0), is_read.roll(1, 0)

    facts = layout.check(mma, warps(mma, other))
    assert facts["metadata_lanes"] == [1] and facts["metadata_wrong"] == 2 * 8 * 8
    assert facts["wrong"] > 0 and facts["first"].startswith("lane ")


def test_metadata_of_another_selector_are_found():
    mma = named("mma.sp.m16n8k32.f32.f16.f16")
    assert list(layout.selectors(mma)) == [0, 1]
    facts = layout.check(mma, warps(mma), 1)  # the warps read the lanes of selector 0
    assert facts["metadata_lanes"] == [0, 1] and facts["metadata_wrong"] > 0 and facts["wrong"] > 0


def test_metadata_have_each_group_once():
    for mma in SHAPES:
        for selector in layout.selectors(mma) if mma.is_sparse else ():
            row, group, is_read = layout.metadata_places(mma, selector)
            pairs = sorted(zip(row[is_read].tolist(), group[is_read].tolist(), strict=True))
            assert pairs == [(r, g) for r in range(16) for g in range(layout.groups(mma))]


@pytest.mark.skipif(sass.tool("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("arch", ["Ampere", "Ada", "Hopper"])
def test_the_kernels_of_sparse_instructions_assemble(arch):
    for mma in layout.instructions(arch, None):
        for selector in layout.selectors(mma) if mma.is_sparse else ():
            text = device.kernel(mma, rows.TARGETS[arch], selector)
            assert f"%meta, {selector:#x};" in text
            sass.assemble(text, rows.TARGETS[arch])


@pytest.mark.gpu
@pytest.mark.parametrize("row", ["mma.sp", "wmma"])
def test_layouts_on_a_gpu(row):
    results = probe.run("layout", row=row)
    assert results["records"] and checks.sentences(results, (checks.layouts,)) == []


@pytest.mark.gpu
@pytest.mark.sm90
def test_layouts_of_wgmma_on_a_gpu():
    results = probe.run("layout", row="wgmma")
    assert {record["a"] for record in results["records"]} == {"RS", "SS"}
    assert checks.sentences(results, (checks.layouts,)) == []
