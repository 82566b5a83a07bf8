"""The search for the layouts finds them in warps that are simulated, and names other ones."""

import pytest
import torch

from tcgemm import probe
from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics import device
from tcgemm.probe import checks, layout, rows, sass

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


def matrix(known, words, operand, name, shape):
    values = unpacked(words, name).double()
    made = torch.zeros(words.shape[0], *shape, dtype=torch.float64)
    made[:, *device.places(known, operand)] = values.reshape(words.shape[0], *values.shape[1:])
    return made


def warps(known, places=layout.metadata_places):
    """Runs tiles as PTX lays them out; the metadata lie at `places`."""

    def run(a, b, words):
        m, n, k = known.shape
        left = matrix(known, a, "a", known.input, (m, known.stored))
        right = matrix(known, b[None], "b", known.input_b, (n, k))[0]
        if known.is_sparse:
            stored, left = left, torch.zeros(a.shape[0], m, k, dtype=torch.float64)
            row, group, used = places(known)
            of_tile = words.expand(a.shape[0], 32)
            nibbles = (of_tile.long()[..., None] >> torch.arange(0, 32, 4)) & 15
            codes = torch.zeros(a.shape[0], m, layout.groups(known), dtype=torch.int64)
            codes[:, row[used], group[used]] = nibbles[:, used]
            at, column = torch.meshgrid(torch.arange(m), torch.arange(known.stored), indexing="ij")
            for tile in range(a.shape[0]):
                of_k = layout.logical(known, at, column, codes[tile])
                left[tile, at, of_k] = stored[tile]
        found = (left @ right.mT).to(TORCH[known.accumulator])
        placed = found[:, *device.places(known, "d")]
        if known.accumulator == "f64":
            return placed.view(torch.int64).squeeze(-1)
        return device.pack(placed, known.accumulator)

    return run


@pytest.mark.parametrize("known", SHAPES, ids=lambda row: row.name)
def test_the_search_finds_the_layouts(known):
    for selector in layout.selectors(known):
        run = warps(known, lambda known, of=selector: layout.metadata_places(known, of))
        facts = layout.check(known, run, selector)
        assert facts["wrong"] == 0 and facts["elements"] % (known.shape[0] * known.stored) == 0
        if known.is_sparse:
            lanes = layout.groups(known) // 4
            assert facts["metadata_wrong"] == 0
            assert facts["metadata_lanes"] == list(range(selector * lanes, (selector + 1) * lanes))


def named(name):
    return next(row for row in SHAPES if row.name == name)


def test_another_layout_is_found(monkeypatch):
    known = named("mma.m16n8k16.f32.f16.f16")
    places = device.places

    def other(known, operand):
        row, column = places(known, operand)
        return (row ^ 8, column) if operand == "a" else (row, column)

    run = warps(known)
    monkeypatch.setattr(device, "places", other)
    words = layout.found(known, lambda a, b, c: run(a, b, c), None)
    monkeypatch.setattr(device, "places", places)
    assert (words != layout.expected(known, None)).any(1).all()


def test_metadata_in_other_lanes_are_found():
    known = named("mma.sp.m16n8k16.f32.f16.f16")

    def other(known):
        row, group, used = layout.metadata_places(known)
        return row.roll(1, 0), group.roll(1, 0), used.roll(1, 0)

    facts = layout.check(known, warps(known, other))
    assert facts["metadata_lanes"] == [1] and facts["metadata_wrong"] == 2 * 8 * 8
    assert facts["wrong"] > 0 and facts["first"].startswith("lane ")


def test_metadata_of_another_selector_are_found():
    known = named("mma.sp.m16n8k32.f32.f16.f16")
    assert list(layout.selectors(known)) == [0, 1]
    facts = layout.check(known, warps(known), 1)  # the warps read the lanes of selector 0
    assert facts["metadata_lanes"] == [0, 1] and facts["metadata_wrong"] > 0 and facts["wrong"] > 0


def test_metadata_have_each_group_once():
    for known in SHAPES:
        for selector in layout.selectors(known) if known.is_sparse else ():
            row, group, used = layout.metadata_places(known, selector)
            found = sorted(zip(row[used].tolist(), group[used].tolist(), strict=True))
            assert found == [(r, g) for r in range(16) for g in range(layout.groups(known))]


@pytest.mark.skipif(sass.tool("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("arch", ["Ampere", "Ada", "Hopper"])
def test_the_kernels_of_sparse_instructions_assemble(arch):
    for known in layout.instructions(arch, None):
        for selector in layout.selectors(known) if known.is_sparse else ():
            text = device.kernel(known, rows.TARGETS[arch], selector)
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
    assert {each["a"] for each in results["records"]} == {"RS", "SS"}
    assert checks.sentences(results, (checks.layouts,)) == []
