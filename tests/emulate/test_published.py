"""The emulator has the bits of five GPUs that Khattak and Mikaitis recorded and published.

tests/data/published_tensor_cores/<GPU>.npz has the first 1000 results of each of their sets (of
5000; github.com/north-numerical-computing/MATLAB-tensor-core, commit b12b5a7, folder
model_validation; BSD licence beside the files): a and b (1000, K) and c (1000,) as raw bits, and
the results with float32 and with float16 sums. Sums of 16-bit operands and tf32 come from WMMA,
sums of float8 from mma.sync, on Hopper with float32 sums from WGMMA without a c.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from tcgemm import emulate
from tcgemm.emulate import instruction, table
from tcgemm.numerics.device import differing

from support import recordings

FOLDER = Path(__file__).resolve().parents[1] / "data" / "published_tensor_cores"
ARCHITECTURES = {"V100": "Volta", "A100": "Ampere", "Ada": "Ada", "L40S": "Ada", "H100": "Hopper"}
SETS = [
    (path.stem, *key.split("."))
    for path in sorted(FOLDER.glob("*.npz"))
    for key in np.load(path).files
    if key.endswith((".f32", ".f16"))
]
EVERY = pytest.mark.parametrize("case", SETS, ids="-".join)


def name_of(gpu, input_type, accumulator):
    """The instruction that was recorded."""
    types = f"{accumulator}.{input_type}.{input_type}"
    if input_type in ("e4m3", "e5m2"):
        wgmma = gpu == "H100" and accumulator == "f32"
        return f"wgmma.m64nNk32.{types}" if wgmma else f"mma.m16n8k32.{types}"
    return f"wmma.m16n16k{8 if input_type == 'tf32' else 16}.{types}"


def wrong(case, **changes):
    """How many of the set's results are others than the emulator's, with a changed arithmetic."""
    gpu, input_type, accumulator = case
    file = np.load(FOLDER / f"{gpu}.npz")
    name = name_of(*case)
    mma = table.rows()[ARCHITECTURES[gpu], name][0]
    a, b = (recordings.tensor(file[f"{input_type}.{side}"], input_type) for side in "ab")
    fill = (0, mma.shape[2] - a.shape[1])  # zero products add nothing
    a, b = (torch.nn.functional.pad(x, fill) for x in (a, b))
    c = recordings.tensor(file[f"{input_type}.c"], "f32")[:, None, None]
    c = None if name.startswith("wgmma") else c.to(instruction.TORCH[accumulator])
    result = recordings.multiply(mma, a[:, None], b[:, :, None], c, changes=changes)
    d = recordings.tensor(file[f"{input_type}.{accumulator}"], accumulator)
    return differing(result.flatten(), d)


def test_there_are_sets_of_five_gpus():
    assert {gpu for gpu, *_ in SETS} == set(ARCHITECTURES) and len(SETS) == 28


@EVERY
def test_bits_of_published_results(case):
    assert wrong(case) == 0
    mma = table.rows()[ARCHITECTURES[case[0]], name_of(*case)][0]
    assert mma.evidence in ("published", "recorded")


@EVERY
def test_another_arithmetic_is_refused(case):
    gpu, input_type, accumulator = case
    mma = table.rows()[ARCHITECTURES[gpu], name_of(*case)][0]
    if mma.method == "two halves":  # of float16 sums, which fit into fewer bits
        changes = [{"method": table.METHODS.index("blocks"), "products": mma.stored}]
    else:
        # float16 sums hide some of the bits of float16 products.
        steps = (-1, 1) if accumulator == "f32" else (-1,) if input_type != "f16" else (-8,)
        changes = [{"fraction_bits": mma.fraction_bits + step} for step in steps]
        if mma.products > 4 or input_type == "f16":
            changes.append({"products": mma.products // 2})
        rounding = (table.ROUNDINGS.index(mma.rounding) + 1) % 2
        changes += [{"rounding": rounding}] * (accumulator == "f32")
    missed = [change for change in changes if wrong(case, **change) == 0]
    assert missed == []


def test_every_generation_has_its_own_bits():
    """The rows of Volta, Ampere and Hopper cannot take each other's place."""
    for gpu, arch in (("V100", "Ampere"), ("A100", "Hopper"), ("H100", "Ampere")):
        case = (gpu, "f16", "f32")
        arithmetic = table.rows()[arch, name_of(*case)][1].arithmetic
        changes = {"products": arithmetic.products, "fraction_bits": arithmetic.fraction_bits}
        assert wrong(case, **changes) > 10


def test_instructions_of_the_same_arithmetic_have_the_same_evidence():
    rows = {(row.arch, row.name): row for row in emulate.instructions()}
    assert rows["Ampere", "wmma.m16n16k16.f32.f16.f16"].evidence == "published"
    assert rows["Ampere", "wmma.m32n8k16.f32.f16.f16"].evidence == "assumed"
    assert rows["Turing", "wmma.m16n16k16.f32.f16.f16"].evidence == "assumed"
