"""Wrong results that a grouped kernel might give are refused by both checks."""

import pytest
import torch

import tcgemm

from support import grouped
from support.cases import BF16
from support.grouped import UNEVEN, exact, make_call
from support.reference import assert_exact


def neighbour(call, result):
    """A tile of the group before."""
    a, b, ends = call.a, call.b, call.offs.tolist()
    rows = slice(ends[2], ends[2] + 8)
    result[rows] = tcgemm.mm(a[rows], b[2])


def one_row_too_many(call, result):
    """The first row of no group has the product of the last group."""
    end = int(call.offs[-1])
    result[end] = tcgemm.mm(call.a[end : end + 1], call.b[-1])[0]


def clipped(call, result):
    """The last row of a group is not written."""
    result[int(call.offs[1]) - 1] = 0


def moved(call, result):
    """Rows of a group one row further."""
    first, end = call.offs[2:4].tolist()
    result[first:end] = result[first:end].roll(1, 0)


@pytest.mark.parametrize("fault", [neighbour, one_row_too_many, clipped, moved])
def test_both_checks_refuse_it(fault):
    whole = make_call("rows", UNEVEN, BF16, largest=2)
    normal = make_call("rows", UNEVEN, BF16)
    for call in (whole, normal):
        result = call.run(tcgemm.grouped_mm)
        assert grouped.error_ratio(result, call) <= 1
        fault(call, result)
        assert grouped.error_ratio(result, call) > 1
        if call is whole:
            with pytest.raises(AssertionError, match="elements differ"):
                assert_exact(result, exact(call))


def test_a_neighbour_of_k_is_refused():
    """A product of k that takes one index of the next group."""
    call = make_call("depth", "unaligned", BF16)
    longer = call._replace(offs=torch.cat([call.offs[:-1] + 1, call.offs[-1:]]))
    assert grouped.error_ratio(longer.run(tcgemm.grouped_mm), call) > 1
