"""Stages that share mbarriers.

Faults, and the tests that find them:

    a k-block is left out or comes twice              odd and even numbers of them, whole numbers
    a group is read before all of it has arrived      the same, with more groups than stages
    the next tile begins with a wrong parity          several tiles a CTA

tests/gpu/test_constant_weights.py has an operand that is loaded early, and tests/gpu/test_slices.py
groups that end with a slice.
"""

import itertools

import pytest

from support.cases import check_all
from support.catalog_rows import Kind, check_exact, rows

GROUPED = rows(lambda row: row.group_stages > 1)


def k_blocks(row):
    """Up to three groups more than the stages hold."""
    return (1, 2, 3, 4, row.stages - 1, *range(row.stages, row.stages + 7))


@pytest.mark.parametrize("cluster", [1, 2, "2x2"])
@GROUPED
def test_every_number_of_k_blocks(row, cluster):
    m, n, k = row.tile

    def check(blocks, rest):
        size = (2 * m, 2 * n, (blocks - 1) * k + rest)
        check_exact(row, Kind("blocks", lambda *_: size, "contiguous"), cluster=cluster)

    check_all(itertools.product(k_blocks(row), (16, k)), check)


@pytest.mark.parametrize("blocks", [1, 2, 3, 13, 14])
@GROUPED
def test_several_tiles_of_a_cta(row, blocks):
    m, n, k = row.tile
    size = (18 * m - 5, 14 * n - 8, blocks * k - 8)
    check_exact(row, Kind("tiles", lambda *_: size, "contiguous"))
