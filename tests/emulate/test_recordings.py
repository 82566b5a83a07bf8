"""The emulator has the bits of an H200's tensor cores, and another arithmetic has not."""

from dataclasses import replace

import pytest

from tcgemm import emulate
from tcgemm.emulate import instruction, table

from support import recordings

EVERY = pytest.mark.parametrize("name", recordings.NAMES)
# FP16 sums of FP8 that was widened to FP16 are exact in far fewer bits than 25.
COARSE = {"mma_e4m3_f16_k32": -15}


def test_there_are_recordings():
    assert len(recordings.NAMES) == 33


@EVERY
def test_bits_of_an_h200(name):
    recorded = recordings.load(name)
    result = emulate.mma(instruction=recorded.instruction, **recorded.operands())
    mask = recorded.wrong(result)
    kinds = {str(kind) for kind in recorded.category[mask.flatten(1).any(1).numpy()]}
    assert not mask.any(), f"{int(mask.sum())} of {mask.numel()} differ, of {kinds}"


@EVERY
def test_evidence_is_named(name):
    row = table.rows()["Hopper", recordings.load(name).instruction][0]
    assert row.evidence == "recorded"


def wrong_results(recorded, **changes):
    """How many results differ from the recording if the arithmetic has other numbers."""
    mma = table.rows()["Hopper", recorded.instruction][0]
    columns = instruction.columns_of(mma, recorded.a, recorded.metadata)
    options = {"satfinite": recorded.satfinite, "columns": columns, "changes": changes}
    result = recordings.multiply(mma, recorded.a, recorded.b, recorded.c, **options)
    return int(recorded.wrong(result).sum())


def mutations(name, mma):
    """Changed numbers of a row, each of which the recordings have to refuse."""
    if mma.method == "blocks":
        yield {"products": mma.products // 2}
    else:  # all products at once, and the accumulator with them
        yield {"method": table.METHODS.index("blocks"), "products": mma.stored}
    for step in [COARSE[name]] if name in COARSE else (-1, 1):
        yield {"fraction_bits": mma.fraction_bits + step}
    if mma.rounding == "FP32, toward zero":
        yield {"rounding": table.ROUNDINGS.index("14 bits, toward zero")}
    if mma.rounding == "14 bits, toward zero":
        yield {"rounding": table.ROUNDINGS.index("FP32, toward zero")}


@EVERY
def test_another_arithmetic_is_refused(name):
    recorded = recordings.load(name)
    mma = table.rows()["Hopper", recorded.instruction][0]
    if mma.method not in ("blocks", "two halves"):
        pytest.skip("integers and chains of FMAs have no such numbers")
    assert wrong_results(recorded) == 0
    missed = [c for c in mutations(name, mma) if wrong_results(recorded, **c) == 0]
    assert missed == []


@pytest.mark.parametrize("name", [name for name in recordings.NAMES if name.endswith("_x2")])
def test_two_instructions_are_no_single_block(name):
    recorded = recordings.load(name)
    mma = table.rows()["Hopper", recorded.instruction][0]
    double = replace(mma, shape=(*mma.shape[:2], 2 * mma.shape[2]))
    operands, changes = (recorded.a, recorded.b, recorded.c), {"products": 2 * mma.products}
    result = recordings.multiply(double, *operands, changes=changes)
    assert recorded.wrong(result).any()


@pytest.mark.parametrize("name", ["mma_bf16_f32_k16", "wgmma_bf16_f32", "wgmma_f16_f16"])
@pytest.mark.parametrize("step", [-4, 4])
def test_another_lowest_exponent_is_refused(name, step):
    recorded = recordings.load(name)
    mma = table.rows()["Hopper", recorded.instruction][0]
    assert wrong_results(recorded, lowest_exponent=mma.lowest_exponent + step) > 0
