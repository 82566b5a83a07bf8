"""The experiments of `tcgemm numerics` have the published figures, and can fail."""

import pytest
import torch

from tcgemm import emulate, published
from tcgemm.numerics import accumulation, chain, formats, integers, low_precision
from tcgemm.numerics.machine import Machine, emulated
from tcgemm.numerics.stream import SEED, normal_stream

A100, H200 = emulated("A100"), emulated("h200")


def test_the_stream():
    """The engine's words are the standard's; the distribution is the compiler's."""
    numbers = normal_stream(200_000)
    # ISO C++: the 10000th number of mt19937 with the seed 5489 is 4123659995; torch has the engine.
    words = torch.empty(5000, dtype=torch.int64)
    words.random_(-(2**63), None, generator=torch.Generator().manual_seed(5489))
    assert words[-1] & 0xFFFFFFFF == 4123659995
    # Marsaglia's polar method on the words of the seed, which draws y first.
    words.random_(-(2**63), None, generator=torch.Generator().manual_seed(SEED))
    x, y = (
        2 * (word.double() / 2.0**32) - 1 for word in (words >> 32 & 0xFFFFFFFF, words & 0xFFFFFFFF)
    )
    radius = x * x + y * y
    factor = (-2 * radius.log() / radius).sqrt()
    expected = torch.stack([y * factor, x * factor], dim=1)[radius <= 1].flatten().float()
    torch.testing.assert_close(numbers[: expected.numel()], expected, rtol=1e-4, atol=1e-5)
    assert abs(numbers.mean()) < 0.01 and abs(numbers.std() - 1) < 0.01
    assert torch.equal(normal_stream(7), numbers[:7])


def third_digit(value):
    """One unit of the third digit."""
    return 10.0 ** (len(f"{value:.0e}".split("e")[0]) - 1 + int(f"{value:.0e}".split("e")[1]) - 2)


@pytest.fixture(scope="module")
def tables():
    return low_precision.run([A100, H200])


def test_the_published_tables(tables):
    figures = [row for row in tables.rows if row["published"] is not None]
    assert len(figures) == len(low_precision.figures()) == 30
    for row in figures:
        unit = third_digit(row["published"]) if row["published"] else 0.0
        assert abs(row["A100"] - row["published"]) <= 1.01 * unit, row


def test_the_accumulation_of_a_hopper_is_another_one(tables):
    row = next(row for row in tables.rows if row["table"] == "XII" and row["published"] == 1.89e-8)
    assert row["H200"] > row["A100"] + third_digit(row["published"])


def test_accumulation_loses_the_same_in_all_types(tables):
    """The published difference of bfloat16 to float16 and tf32 comes from another c0."""
    same = [row["A100"] for row in tables.rows if "c0 of FP32" in row["operation"]]
    bf16 = next(row["A100"] for row in tables.rows if row["published"] == 1.89e-8)
    assert len(same) == 2 and all(abs(value - bf16) < 0.02 * bf16 for value in same)


def test_operands_of_tf32_have_to_be_rounded(tables):
    cut = next(row["A100"] for row in tables.rows if "not rounded" in row["operation"])
    assert 4.55e-4 < cut < 4.65e-4


def test_another_arithmetic_has_another_table():
    def shorter(name, a, b, c):
        return emulate.mma(a, b, c, instruction=name, arch="Ampere").bfloat16().float()

    types, case = ("bf16", "f32"), ("inner product", "low")
    figure = low_precision.Figure("-", *types, *case, "FP32", None, "low")
    result, exact = low_precision.results(Machine("shorter", "Ampere", shorter), figure)
    assert low_precision.difference(result, exact, "FP32") > 1e-4


def test_the_chain(monkeypatch):
    monkeypatch.setattr(chain, "ROUNDS", 60)
    table = chain.run([A100])
    curves = {curve.label: curve.points for curve in table.curves}
    assert len(curves) == 6 and len(table.rows) == 6
    for kind in ("low", "FP32"):
        bf16, f16, tf32 = (curves[f"{x}, {kind} init, A100"] for x in ("bf16", "f16", "tf32"))
        assert all(bf16[n] < bf16[n + 4] for n in range(1, 17))  # each N has its own numbers
        assert all(5 < bf16[n] / tf32[n] < 12 for n in range(2, 21))
        near = 0.1 if kind == "low" else 0.005  # "low" rounds to float16 and cuts to tf32
        assert all(abs(f16[n] / tf32[n] - 1) < near for n in range(2, 9))
        assert f16[20] != f16[20]  # an overflow makes the mean NaN
    assert all(curves[f"{x}, low init, A100"][1] < 2e-7 for x in chain.TYPES)
    assert all(curves[f"{x}, FP32 init, A100"][1] > 2e-4 for x in chain.TYPES)
    assert "overflow" in str(table)
    assert table.facts()["curves"]["f16, low init, A100"]["20"] is None


def test_the_chains_of_the_published_program():
    """The engine starts again for each N, and a round draws A and N + 1 times B."""
    drawn = chain.operands()
    numbers = normal_stream(1000 * (128 + 11 * 64)).unflatten(0, (1000, -1))
    assert torch.equal(drawn.a[9].flatten(1), numbers[:, :128])
    assert torch.equal(drawn.b[4][5].flatten(1), numbers[:, 128 + 4 * 64 : 128 + 5 * 64])
    of_ten = chain.Operands(drawn.a[:10], [step[: 10 - n] for n, step in enumerate(drawn.b[:10])])
    assert f"{chain.errors(A100, 'bf16', 'low', of_ten)[9]:.2e}" == "5.73e-03"
    f16 = chain.errors(A100, "f16", "low", of_ten)
    assert f16[8] == f16[8] and f16[9] != f16[9]  # finite at N = 9, and no number at N = 10


def test_integers(monkeypatch):
    monkeypatch.setattr(integers, "SIDE", 40)

    def one_wrong(name, a, b, c):
        result = emulate.mma(a, b, c, instruction=name)
        result[7, 9] += 1
        return result

    table = integers.run([A100, H200, Machine("broken", "Hopper", one_wrong)])
    assert len(table.rows) == 8
    for row in table.rows:
        assert (row["wrong on A100"], row["wrong on H200"], row["wrong on broken"]) == (0, 0, 1)
    assert "-2147483617" in table.notes[0] and "result: 2147483647" in table.notes[0]


def test_a_part_is_a_chain_of_its_own():
    a, b = torch.randn(8, 64).half(), torch.randn(64, 4).half()
    name = "mma.m16n8k16.f16.f16.f16"
    result = accumulation.in_parts(H200, name, a, b, 32)
    first, second = (
        emulate.mma(a[:, k], b[k], instruction=name).float() for k in (slice(32), slice(32, 64))
    )
    assert torch.equal(result, first + second)
    one_chain = emulate.mma(a, b, instruction=name)
    assert torch.equal(accumulation.in_parts(H200, name, a, b, None), one_chain)


def test_sums_outside_lose_less():
    table = accumulation.outside([H200])
    assert [row["sums"] for row in table.rows] == ["f32", "f32", "f16", "f16"]
    for row in table.rows:
        inside, best = (float(row[key].split(" / ")[1]) for key in ("inside", "parts of 64"))
        assert inside > 4 * best


def test_long_sums(monkeypatch):
    monkeypatch.setattr(accumulation, "LENGTHS", (64, 512, 4096))
    monkeypatch.setattr(accumulation, "SHOWN", (64, 512, 4096))
    table = accumulation.long_sums("H200")
    rms = {(row["way"], row["data"]): row["K = 4096"] for row in table.rows}
    assert len(rms) == 2 * len(accumulation.WAYS)
    fast, promoted = (rms[f"float8_e4m3fn, {word}", "uniform"] for word in ("fast", "promoted"))
    assert fast > 100 * promoted
    assert rms["float32, highest", "normal"] < 1 < rms["float16", "normal"]
    assert rms["float16", "uniform"] > 100 * rms["float16", "normal"]  # truncation drifts
    assert rms["float64", "uniform"] < 1e-6


@pytest.mark.parametrize("name", formats.FORMATS)
def test_formats(name):
    entry = formats.FORMATS[name]
    bits = (1, entry.exponent_bits, entry.fraction_bits, entry.register_bits)
    assert bits == tuple(published.table("003", "XI")[name].values())
    if name == "tf32":
        assert entry.largest == torch.tensor(2139086848, dtype=torch.int32).view(torch.float32)
        return
    torch_type = emulate.instruction.TORCH[name]
    limits = torch.finfo(torch_type)
    assert (entry.largest, entry.smallest_normal) == (limits.max, limits.tiny)
    assert entry.smallest_subnormal == limits.smallest_normal * limits.eps
    assert entry.unit_roundoff == limits.eps / 2
    assert [row["format"] for row in formats.run().rows] == list(formats.FORMATS)


def test_the_gpu_is_named():
    with pytest.raises(ValueError, match="'V100' is no GPU that is known here; expected one of H"):
        emulated("V100")
    assert (A100.architecture, H200.name) == ("Ampere", "H200")
