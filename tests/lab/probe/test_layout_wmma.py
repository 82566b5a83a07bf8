"""The layouts of wmma's fragments are found in warps that are simulated, and faults are counted."""

import pytest
import torch

from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import layout_wmma, layouts, rows, sass
from tcgemm.numerics import device

EVERY = layout_wmma.instructions("Hopper", None)


def rotated_layout(mma, operand):
    """numbers of elements in (registers, lanes, elements), in order, from another lane on."""
    name = layout_wmma.element(mma, operand)
    count = dict(zip("abc", ptx.counts(mma), strict=True))[operand]
    width = max(1, 32 // ptx.BITS[name])
    height, across = layout_wmma.shape(mma, operand)
    numbers = torch.arange(count * 32 * width) % (height * across)
    return numbers.view(count, 32, width).roll(5, 1)


def warps(mma, loaded, stored=None, product=0):
    """Runs tiles whose fragments have those elements; the product is wrong by so much."""
    types = {key: layout_wmma.element(mma, key) for key in "abc"}

    def run(matrices, fragment):
        of = {key: layout_wmma.matrix_of(matrices[key], types[key]) for key in "abc"}
        words = {
            key: device.pack(of[key].flatten(1)[:, loaded[key]].to(TORCH[types[key]]), name)
            for key, name in types.items()
        }
        sums = of["a"] @ of["b"].mT + of["c"] + product
        values = layout_wmma.unpacked(fragment, types["c"])
        matrix = torch.zeros(of["c"].shape, dtype=torch.int64)
        matrix.flatten(1)[:, (stored or loaded)["c"].flatten()] = values.flatten(1)
        outputs = (layout_wmma.words_of(key, types["c"]) for key in (sums, matrix))
        return words, *outputs

    return run


@pytest.mark.parametrize("mma", EVERY, ids=lambda row: row.name)
def test_any_layout_is_found(mma):
    places = {key: rotated_layout(mma, key) for key in "abc"}
    facts = layout_wmma.check(mma, warps(mma, places))
    copies = {key: places[key].numel() // torch.unique(places[key]).numel() for key in "abc"}
    assert facts["wrong"] == 0 and facts["copies"] == copies and facts["as_mma"] == []


def named(name):
    return next(row for row in EVERY if row.name == name)


# PTX ISA 9.7.14.5.8: lane 4 g + t of mma.m16n8k16 with float16; columns 8 to 15 are other blocks.
A = [
    (g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i // 2) + e
    for i in range(4)
    for g in range(8)
    for t in range(4)
    for e in range(2)
]
C = [
    (g + 8 * (i // 2 % 2)) * 16 + 2 * t + i % 2 + 8 * (i // 4)
    for i in range(8)
    for g in range(8)
    for t in range(4)
]


def test_layouts_of_mma_are_named():
    mma = named("wmma.m16n16k16.f32.f16.f16")
    places = {key: rotated_layout(mma, key) for key in "abc"}
    places["a"] = torch.tensor(A * 2).view(8, 32, 2)
    places["c"] = torch.tensor(C).view(8, 32, 1)
    facts = layout_wmma.check(mma, warps(mma, places))
    assert facts["as_mma"] == ["a", "c"] and facts["copies"] == {"a": 2, "b": 2, "c": 1}
    assert facts["wrong"] == 0 and facts["elements"] == 3 * 256


@pytest.mark.parametrize("name", ["wmma.m16n16k16.f32.f16.f16", "wmma.m8n8k128.s32.b1.b1.and.popc"])
def test_faults_are_counted(name):
    mma = named(name)
    places = {key: rotated_layout(mma, key) for key in "abc"}
    shift = places | {"c": places["c"].roll(1, 1)}
    results = places["c"].numel()
    assert layout_wmma.check(mma, warps(mma, places, shift))["wrong"] == results
    assert layout_wmma.check(mma, warps(mma, places, product=1))["wrong"] == results
    loss = places | {"a": torch.where(places["a"] == 3, 4, places["a"])}
    facts = layout_wmma.check(mma, warps(mma, loss))
    assert facts["wrong"] == 1 and facts["copies"]["a"] == 0


@pytest.mark.skipif(sass.tool("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("arch", ["Ampere", "Ada", "Hopper"])
def test_the_kernels_assemble(arch):
    for mma in layout_wmma.instructions(arch, None):
        text = layout_wmma.kernel(mma, rows.TARGETS[arch])
        assert text.count("wmma.store.d") == 2
        sass.assemble(text, rows.TARGETS[arch])


def test_rows_of_the_group():
    kinds = layouts.find("Ampere", "f16")
    assert {row.family for row, _ in kinds.values()} == {"mma", "mma.sp", "wmma"}
