"""emulate.mm of float32 operands that 16-bit terms do not hold: the decision, and what is computed
again.

    data                          what multiplies it
    few wide rows                 float16 terms; tiles with small results are computed again
    many wide rows                the alternative of the plan
    Inf, NaN                      zeros in the terms; their tiles are computed again
    exponents beyond 40           the same terms, rescaled by several factors
"""

import functools
import json

import pytest
import torch

import tcgemm
from tcgemm import emulate, info
from tcgemm.emulate import split_fp32, split_product, split_ranges, sums

from support import bit_problems, recorded_bits
from support.reference import same_bits

F16, BF16, F64 = "f16x2", "bf16x3", "f32_f64_64x64"
RECORD = json.loads((bit_problems.DATA / "bits_h200.json").read_text())["results"]
PROBLEMS = {one["id"]: one for one in bit_problems.problems()}
# Recorded products whose rows have terms of float16 only in part: elements far apart (float64
# sums of all results), Inf and NaN (float64 sums of some tiles).
RECORDED = {109: "elements", 112: "elements", 115: "nonfinite"}
# Recorded twice, with a prepared operand and without: rows with exponents up to 60.
RECORDED_TWICE = {122: "rows", 128: "rows"}
K = 256
LONG_K = 1024  # a CTA of the first pass reads one row of so many elements
inf, nan = float("inf"), float("nan")


@functools.cache
def data():
    return recorded_bits.Data("cpu")


def has_recorded_bits(number):
    case = PROBLEMS[number]
    data().seed(number)
    a, b = recorded_bits.operands_of(data(), case)
    # The record is older than slices of k: the name of a kernel asks for one slice.
    options = {"kernel": RECORD[str(number)]["kernels"][0]} | recorded_bits.options_of(data(), case)
    result = emulate.mm(a, b, **options)
    times = 2 if number in RECORDED_TWICE else 1
    return recorded_bits.digest(*[result] * times) == RECORD[str(number)]["bits"]


@pytest.mark.parametrize("number", [*RECORDED, *RECORDED_TWICE])
def test_bits_of_a_gpu(number):
    assert PROBLEMS[number]["data"] == (RECORDED | RECORDED_TWICE)[number]
    assert "f16x2" in RECORD[str(number)]["kernels"][0]
    assert has_recorded_bits(number)


@pytest.mark.parametrize("size", [16, 32, 128])
def test_another_size_of_tiles_is_refused(monkeypatch, size):
    monkeypatch.setattr(split_product, "TILE", size)
    assert not has_recorded_bits(115)


def test_float16_terms_of_wide_rows_are_refused(monkeypatch):
    """Without the decision the checks would find these results; without both nothing does."""
    monkeypatch.setattr(split_ranges, "use_bf16", lambda *_: False)
    assert has_recorded_bits(109)
    monkeypatch.setattr(split_fp32, "inaccurate", lambda *_: torch.tensor(False))
    assert not has_recorded_bits(109)


def test_float64_sums_of_few_rows_are_refused(monkeypatch):
    monkeypatch.setattr(split_ranges, "use_bf16", lambda *_: True)
    assert not has_recorded_bits(115)
    assert not has_recorded_bits(128)


def product(a, b, kernel="", **options):
    return emulate.mm(a, b, precision="highest", kernel=kernel or None, **options)


def operands(m=150, n=136, k=K, *, mn_major=False):
    """Normal data with rows that are not wide."""
    a, b = (torch.rand(rows, k) + 0.5 for rows in (m, n))
    a, b = (torch.where(torch.rand_like(x) < 0.5, -x, x) for x in (a, b))
    if mn_major:
        a, b = (x.mT.contiguous().mT for x in (a, b))
    return a, b.mT


def widen(x, rows, exponent=-40):
    """x, where one element of these rows is small."""
    x[rows, 3] = 2.0**exponent
    return x


def uses_alternative(a, b):
    result = product(a, b, F16)
    return torch.equal(result, product(a, b, F64))


@pytest.mark.parametrize("side", "ab")
def test_words_of_k_major_rows(side):
    """A CTA reads one of these rows: sixteen words that count a wide row decide."""
    for count in (15, 16):
        a, b = operands(k=LONG_K)
        widen(a if side == "a" else b.mT, range(count))
        assert uses_alternative(a, b) == (count == 16)
    a, b = operands(k=LONG_K)  # both operands count together
    assert not uses_alternative(widen(a, range(8)), widen(b.mT, range(7)).mT)
    assert uses_alternative(a, widen(b.mT, range(8)).mT)


def test_words_of_strips():
    """A cluster reads 16 columns: four wide ones decide."""
    for rows, expected in (
        ([0, 5, 15], False),
        ([0, 5, 14, 15], True),
        ([13, 14, 15, 16], False),
        ([3, 20, 40, 60], False),
    ):
        a, b = operands(mn_major=True)
        assert uses_alternative(widen(a, rows), b) == expected


def test_words_have_several_units():
    """More than 512 units share 512 words."""
    k = 32
    high, finite = torch.zeros(4, 5000, dtype=torch.int32), torch.ones(4, 5000, dtype=torch.bool)
    spread = torch.zeros_like(high)
    rows_of_a_unit = 256 // 8
    units = -(-20000 // rows_of_a_unit)
    assert units == 625
    spread[0, 0] = spread[0, 31] = 29
    spread.view(-1)[512 * rows_of_a_unit] = 29  # unit 512 has word 0
    spread[0, 32] = 29
    spread[1, 7] = 28  # not wide
    wide, _ = split_ranges.statistics(split_ranges.Ranges(high, spread, finite), False, k)
    assert wide.tolist() == [3, 1] + 510 * [0]
    wide, _ = split_ranges.statistics(split_ranges.Ranges(high, spread, finite), True, k)
    strips = -(-5000 // 32)  # of each matrix: a strip has columns of one matrix alone
    assert wide.numel() == min(4 * strips, 512)
    last = 512 * rows_of_a_unit
    unit = last // 5000 * strips + last % 5000 // 32
    assert wide.nonzero().flatten().tolist() == sorted({0, 1, unit % 512})


def test_all_words_out_of_range_carry():
    """The counter of the words has no room for 1024 of them: the GPU then takes bfloat16 terms."""
    ranges = split_ranges.Ranges(
        torch.full((512,), 41, dtype=torch.int32),
        torch.zeros(512, dtype=torch.int32),
        torch.ones(512, dtype=torch.bool),
    )
    assert split_ranges.use_bf16((ranges, ranges), (False, False), 8192)
    ranges.high[7] = 40
    assert not split_ranges.use_bf16((ranges, ranges), (False, False), 8192)


def test_only_marked_tiles_are_computed_again():
    a, b = operands(200, 200)
    a[70, 3] = inf
    b[9, 130] = nan
    result, float64_sums = product(a, b, F16), product(a, b, F64)
    clean = product(a.nan_to_num(0, 0, 0).index_fill(0, torch.tensor([70]), 0), b, F16)
    tiles = torch.zeros(4, 4, dtype=torch.bool)
    tiles[1], tiles[:, 2] = True, True
    mask = tiles.repeat_interleave(64, 0).repeat_interleave(64, 1)[:200, :200]
    assert same_bits(result[mask], float64_sums[mask])
    assert torch.equal(result[~mask], clean[~mask])
    assert not torch.equal(clean[~mask], float64_sums[~mask])
    assert (result.view(torch.int32)[:, 130] == 0x7FFFFFFF).all()
    assert torch.equal(result[70].isnan(), (a[70].double() @ b.double()).isnan())


def test_small_results_of_wide_rows_are_computed_again():
    """An element 2^-60 of its row's largest one, alone against a column's only element."""
    a, b = operands(150, 136)
    a[77, 5] = 2.0**-60
    b[:, 100] = 0
    b[5, 100] = 3.0
    result, float64_sums, clean = product(a, b, F16), product(a, b, F64), product(a, b, F16)
    assert result[77, 100] == 3 * 2.0**-60
    tile = (slice(64, 128), slice(64, 128))
    assert torch.equal(result[tile], float64_sums[tile])
    assert not torch.equal(result[:64], float64_sums[:64])
    assert product(b.mT, a.mT, F16)[100, 77] == 3 * 2.0**-60
    assert product(a, b, BF16)[77, 100] == 3 * 2.0**-60
    assert same_bits(result, clean)


@pytest.mark.parametrize(("terms", "limit"), [(2, K * 2.0**3), (3, K * 2.0 ** (58 - 109))])
def test_the_threshold(terms, limit):
    """2^24 * d * k * 2^(top + 1), once for a wide row and once for a wide column."""
    kind = split_fp32.kind_of(terms, K)
    assert limit == 2.0**24 * K * 2.0 ** (kind.top + 1 - (36 if terms == 2 else 134))
    spread = torch.tensor([0, kind.most_spread, kind.most_spread + 1, 0], dtype=torch.int32)
    finite = torch.tensor([True, True, True, False])
    ranges = split_ranges.Ranges(torch.zeros_like(spread), spread, finite)
    of_wide = torch.tensor([0.0, 0.0, limit, inf])
    least = of_wide[:, None] + of_wide
    for sign in (1, -1):
        assert split_fp32.inaccurate(kind, K, sign * least, ranges, ranges)[:3, :3].sum() == 0
        below = torch.nextafter(least, torch.tensor(0.0))
        mask = split_fp32.inaccurate(kind, K, sign * below, ranges, ranges)
        assert torch.equal(mask, least > 0)


def test_ranges_of_rows():
    x = torch.zeros(6, 8)
    x[0, :3] = torch.tensor([2.0**-149, -(2.0**-147), 0])
    x[1, :2] = torch.tensor([-3.0, 2.0**-130])
    x[2, 4], x[3, 5] = inf, nan
    x[5, 1] = torch.finfo(torch.float32).max
    high, spread, finite = split_ranges.ranges_of(x)
    assert high.tolist() == [-147, 1, 0, 0, 0, 127]
    assert spread.tolist() == [2, 131, 0, 0, 0, 0]
    assert finite.tolist() == [True, True, False, False, True, True]


@pytest.mark.parametrize("exponent", [-149, -126, -41, 0, 41, 100, 127])
@pytest.mark.parametrize("terms", [2, 3])
def test_terms_of_one_element(exponent, terms):
    """A power of two has one term, however far from 1."""
    kind = split_fp32.kind_of(terms, K)
    x = torch.full((1, 1), 2.0**exponent)
    first, *rest = split_fp32.split(split_fp32.Rows(x, split_ranges.ranges_of(x)), kind)
    assert first[0, 0] == 2.0**kind.top
    assert all((term == 0).all() for term in rest)


def bound(a, b):
    """t(K) * 2^-24 |a| @ |b|; below the normal numbers a result is rounded to 2^-149."""
    size = a.double().abs() @ b.double().abs()
    return (8 + 2 * (a.shape[-1] / 32) ** 0.5) * 2.0**-24 * size + 2.0**-150


def spread(x, exponents):
    return torch.ldexp(x, torch.randint(-exponents, exponents + 1, x.shape))


def mixed(kind):
    a, b = operands(100, 72, 320)
    if kind == "elements":
        return spread(a, 20), spread(b, 20)
    if kind == "few":
        return widen(a, [5, 70], -90), widen(b.mT, [9], -35).mT
    if kind == "rows":
        return a * 2.0 ** torch.randint(-60, 60, (100, 1)), b * 2.0 ** torch.randint(-60, 60, (72,))
    if kind == "subnormal":
        return a * 2.0**-130, b * 2.0**100
    if kind == "cancelling":  # large against small along k
        powers = 2.0 ** torch.randint(-60, 61, (320,)).double()
        return (a * powers).float(), (b / powers[:, None]).float()
    a[3] = torch.ldexp(a[3], torch.arange(320) % 256 - 128)  # more than any terms hold
    b[:, 7] = torch.ldexp(b[:, 7], 120 - torch.arange(320) % 256)
    return a, b


@pytest.mark.parametrize("kind", ["elements", "few", "rows", "subnormal", "cancelling", "both"])
@pytest.mark.parametrize("kernel", [F16, BF16, ""])
def test_results_are_accurate(kind, kernel):
    a, b = mixed(kind)
    exact = a.double() @ b.double()
    result = product(a, b, kernel)
    fits = exact.abs() < 2.0**128
    assert fits.float().mean() > 0.9
    assert ((result.double() - exact).abs() <= bound(a, b))[fits].all()
    assert (result[~fits].isinf()).all()


def test_products_below_the_float32_range_are_rounded_once():
    a, b = (torch.full(size, value) for size, value in (((1, 1), 2.0**-75), ((1, 2), 2.0**-74)))
    b[0, 1] = 1.5 * 2.0**-75
    for kernel in (F16, BF16):
        assert product(a, b, kernel).tolist() == [[2.0**-149, 2.0**-149]]
    assert product(a, a, F16).item() == 0  # half of the smallest number is rounded to even


def test_the_ends_of_the_range():
    a, b = torch.full((64, 64), 2.0**127), torch.zeros(64, 32)
    b[0], b[1, 16:], b[2], b[3, :8] = 1.5, -1.5, 0.5, 4.0
    for kernel in (F16, BF16):
        out = product(a, b, kernel)
        assert (out[:, :16] == inf).all() and (out[:, 16:] == 2.0**126).all()
        assert (product(torch.zeros_like(a), b, kernel) == 0).all()


def test_small_exponents_of_bfloat16_terms():
    """Together with twice the top these powers of two are below float32."""
    a, b = operands(20, 24, 64)
    expected = product(a, b, BF16)
    assert torch.equal(product(a * 2.0**-30, b * 2.0**-30, BF16), expected * 2.0**-60)


def test_the_alternative_of_a_plan():
    """Long sums of many results have an alternative of bfloat16 terms, others one of float64."""
    large = torch.empty(4096, 4096, device="meta")
    passes = {}
    for size in (1024, 4096):
        a, b = large[:, :size], large[:size]
        plan = tcgemm.explain(a, b, precision="highest", device="H200")
        passes[size] = split_product.passes_of(plan, a, b)
    assert passes[1024].alternative["accumulator"] == "f64"
    assert passes[4096].alternative["terms"] == 3
    plan = tcgemm.explain(large, large, precision="highest", device="H200", kernel=BF16)
    assert split_product.passes_of(plan, large, large).alternative is None


def test_an_alternative_of_bfloat16_terms():
    rows = {row["name"]: row for row in info.catalog()}
    a, b = spread(operands()[0], 20), operands()[1]
    main, alternative = (
        next(row for name, row in rows.items() if name.endswith(f"_tn_{word}"))
        for word in (F16, BF16)
    )
    passes = split_product.Passes(alternative, (False, False), (True, True), False)
    result = split_product.of_terms(sums.Kernel(main, "Hopper", False), passes, a, b)
    assert torch.equal(result, product(a, b, alternative["name"]))


@pytest.mark.parametrize("layout", ["TN", "NN", "TT", "NT"])
def test_majors_of_a_plan(layout):
    a, b = torch.empty(96, 320), torch.empty(320, 64)
    a = a if layout[1] == "N" else a.mT.contiguous().mT
    b = b if layout[0] == "N" else b.mT.contiguous().mT
    plan = tcgemm.explain(a, b, precision="highest", device="H200", kernel=F16)
    expected = (layout[1] == "T", layout[0] == "N")
    assert split_product.passes_of(plan, a, b).mn_major == expected
    strided = torch.empty(96, 640)[:, ::2]
    plan = tcgemm.explain(strided, b, precision="highest", device="H200", kernel=F16)
    assert split_product.passes_of(plan, strided, b).mn_major == (False, layout[0] == "N")


def test_the_rows_of_a_batch_are_one_dimension():
    """Without a batch of b, tiles continue into the next matrix."""
    a, b = operands(3 * 50, 72)
    a[49, 3] = inf
    matrix, batched = product(a, b, F16), product(a.view(3, 50, K), b, F16)
    assert same_bits(batched.view(150, 72), matrix)
    clean = product(a.nan_to_num(0, 0, 0), b, F16)
    assert not torch.equal(matrix[50:64], clean[50:64])
    assert torch.equal(matrix[64:], clean[64:])


@pytest.mark.parametrize("shared", ["", "a", "b"])
def test_one_decision_for_a_batch(shared):
    """Words of all matrices count; an operand that serves every batch counts once."""
    a, b = (torch.stack([operands(24, 20, LONG_K)[side] for _ in range(3)]) for side in (0, 1))
    a, b = (x[:1] if shared == name else x for name, x in (("a", a), ("b", b)))
    for rows in (5, 6, 15, 16):
        wide = a.clone()
        wide[:, :rows, 3] = 2.0**-40
        alternative = wide.shape[0] * rows >= 16
        assert torch.equal(product(wide, b, F16), product(wide, b, F64)) == alternative
        repeated = wide.expand(3, -1, -1)
        assert torch.equal(product(repeated, b, F16), product(wide, b, F16))
    if shared == "a":
        wide[:, 6:, 3] = 1.0
        repeated = wide.expand(3, -1, -1).contiguous()  # 18 rows
        assert not torch.equal(product(repeated, b, F16), product(wide, b, F16))


def test_recomputed_tiles_have_the_epilogue_too():
    a, b = operands(130, 70)
    a[9, 9] = inf
    options = {"bias": torch.randn(70), "residual": torch.randn(130, 70), "alpha": -0.5}
    options |= {"activation": "relu", "out_dtype": torch.bfloat16}
    result, float64_sums = product(a, b, F16, **options), product(a, b, F64, **options)
    assert same_bits(result[:64], float64_sums[:64])
    clean = product(a.nan_to_num(0, 0, 0), b, F16, **options)
    assert torch.equal(result[64:], clean[64:])
    assert (result[9][b[9] < 0] == inf).all()


def test_a_result_by_columns():
    """The kernel computes the transpose."""
    a, b = operands(130, 70)
    a[9, 9], out = nan, torch.empty(70, 130).mT
    plan = tcgemm.explain(a, b, precision="highest", device="H200", kernel=F16, out=out)
    assert plan.swap_ab
    result = product(a, b, F16, out=out)
    assert same_bits(result, product(b.mT, a.mT, F16).mT)
    rows = product(a, b, F16)
    assert same_bits(result[:64], rows[:64])  # computed again
    assert not torch.equal(result[64:], rows[64:])
