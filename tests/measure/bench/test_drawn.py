"""The sets that a seed draws."""

import collections

import pytest

from tcgemm.measure import drawn
from tcgemm.measure.cases import cases as cases_of


def test_squares_have_two_pairs_each():
    cases = cases_of("drawn-squares", seed=5)
    sizes = collections.Counter(case.m for case in cases)
    assert sorted(sizes) == [*drawn.SQUARES] and set(sizes.values()) == {2}
    assert len({(case.m, case.layout, case.dtype) for case in cases}) == len(cases) == 46
    assert {case.set for case in cases} == {"drawn-squares@5"}


@pytest.mark.parametrize("name", drawn.FAMILIES)
def test_shapes_of_a_family(name):
    cases = cases_of(f"drawn-{name}", seed=5)
    assert len(set(cases)) == len(cases) == drawn.SHAPES
    for case in cases:
        sizes = case.m, case.n, case.k
        step = 16 if case.dtype == "e4m3" else 8
        assert all(size % step == 0 for size in sizes), case
        least, most = (64, 2048) if case.op == "bmm" else (512, 16384)
        assert all(least <= size <= most for size in sizes), case
        assert 2 * case.batch * case.m * case.n * case.k <= drawn.MOST_FLOPS
    assert cases == cases_of(f"drawn-{name}", seed=5) != cases_of(f"drawn-{name}", seed=6)


def test_thin_products_have_few_rows_or_a_long_k():
    rows, long = cases_of("drawn-few-rows", seed=5), cases_of("drawn-long-k", seed=5)
    assert (len(set(rows)), len(set(long))) == (40, 20)
    assert all(case.m <= 256 and min(case.n, case.k) >= 512 for case in rows)
    assert all(case.k >= 16 * max(case.m, case.n) for case in long)
    assert rows != cases_of("drawn-few-rows", seed=6)
