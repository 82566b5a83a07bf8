"""Samples of a full square of parameters: the rest runs with --all."""

import pytest

nightly = pytest.mark.nightly


def pairs(names, first, second):
    """Parametrises two arguments with all pairs. Those on a diagonal, which has every value of
    both, always run."""
    first, second = list(first), list(second)
    length = max(len(first), len(second))
    sample = {(first[i % len(first)], second[i % len(second)]) for i in range(length)}
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(a, b, marks=() if (a, b) in sample else nightly)
            for a in first
            for b in second
        ],
    )


def some(names, values, sample, ids=None):
    """Parametrises an argument. The values that are not in the sample are nightly."""
    return pytest.mark.parametrize(
        names,
        [pytest.param(value, marks=() if value in sample else nightly) for value in values],
        ids=ids,
    )
