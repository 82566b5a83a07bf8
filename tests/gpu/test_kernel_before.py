"""A kernel starts while the kernel before it still runs, and reads late what that one writes."""

import pytest
import torch

import tcgemm

from support.cases import BF16, F32, each
from support.catalog_rows import asked, block_scales, launch, operands, rows
from support.reference import assert_exact, exact

DEPTH = 1 << 15  # a product of one row with it takes much longer than a kernel's start
REPEATS = 6


class SlowWriter:
    """A product of one row that takes long, lets the next kernel start, and writes a vector."""

    def __init__(self, columns):
        self.ones = torch.ones(DEPTH, columns, device="cuda", dtype=BF16)
        factors = torch.zeros(2, 1, DEPTH, device="cuda", dtype=BF16)
        factors[0, 0, -1], factors[1, 0, -1] = 1, -1
        self.factors = factors
        self.vector = torch.zeros(1, columns, device="cuda")

    def write(self, index):
        """Fills the vector with 1 or -1."""
        tcgemm.mm(self.factors[index % 2], self.ones, out=self.vector, out_dtype=F32)


def check(row, operand, *, cluster=0, **division):
    """`operand` of each product is what the kernel before it has written."""
    m, n, _ = row.tile
    m, n, k = m + 8, n + 8, 6 * row.tile[2]
    a, b = operands(*asked(row, "contiguous"), m, n, k, whole=True)
    scales = block_scales(row, m, n, k, step=1)
    writer = SlowWriter(n)
    given = {"bias": writer.vector[0], "residual": writer.vector.expand(m, n)}[operand]
    outs = [torch.empty(m, n, device="cuda", dtype=row.types.outs[0]) for _ in range(REPEATS)]
    launch(row, a, b, out=outs[0], cluster=cluster, **division, **scales)  # loads the kernel
    for i, out in enumerate(outs):
        writer.write(i)
        launch(row, a, b, out=out, cluster=cluster, **{operand: given}, **division, **scales)
    options = {**scales, **row.types.options, "out_dtype": outs[0].dtype}
    for i in range(2):
        expected = exact(a, b, **{operand: torch.full_like(given, 1 - 2 * i)}, **options)
        for out in outs[i::2]:
            assert_exact(out, expected)


def has_terms(row):
    return row.tma and not row.types.integer and F32 in row.types.outs and not row.unrolled_only


@rows(has_terms)
def test_a_bias_of_the_kernel_before(row):
    each(((1,), (2,)), lambda cluster: check(row, "bias", cluster=cluster))


@rows(lambda row: has_terms(row) and row.sums_in_cluster)
@pytest.mark.parametrize("operand", ("bias", "residual"))
def test_slices_of_a_cluster(row, operand):
    each(((2,), (3,)), lambda s: check(row, operand, slices=s, cluster_adds=True))
