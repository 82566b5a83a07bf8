"""A kernel starts while the kernel before it still runs, and loads late what that one writes."""

import torch

import tcgemm

from support.cases import BF16, F16, each
from support.catalog_rows import asked, launch, operands, rows
from support.reference import assert_exact, exact

DEPTH = 1 << 16  # a product of one row with it takes much longer than a kernel's start
REPEATS = 6


class SlowWriter:
    """A product of one row that takes long, lets the next kernel start, and writes a row."""

    def __init__(self, columns, dtype):
        self.ones = torch.ones(DEPTH, columns, device="cuda", dtype=BF16)
        self.factors = torch.zeros(2, 1, DEPTH, device="cuda", dtype=BF16)
        self.factors[0, 0, -1], self.factors[1, 0, -1] = 1, -1
        self.row = torch.zeros(1, columns, device="cuda", dtype=dtype)

    def write(self, index):
        """Fills the row with 1 or -1."""
        tcgemm.mm(self.factors[index % 2], self.ones, out=self.row, out_dtype=self.row.dtype)


def check(row, **division):
    """Operand a of each product is what the kernel before it has written."""
    n, k = row.tile[1] + 8, 6 * row.tile[2]
    _, b = operands(*asked(row, "contiguous"), 1, n, k, whole=True)
    writer = SlowWriter(k, row.types.a)
    outs = [torch.empty(1, n, device="cuda", dtype=row.types.a) for _ in range(REPEATS)]
    launch(row, writer.row, b, out=outs[0], **division)  # loads the kernel
    for i, out in enumerate(outs):
        writer.write(i)
        launch(row, writer.row, b, out=out, **division)
    for i in range(2):
        a = torch.full_like(writer.row, 1 - 2 * i)
        expected = exact(a, b, out_dtype=row.types.a, **row.types.options)
        for out in outs[i::2]:
            assert_exact(out, expected)


def is_wanted(row):
    return row.tma and row.types.a in (BF16, F16) and row.layout[0] == "T"


@rows(is_wanted)
def test_an_operand_of_the_kernel_before(row):
    check(row)


@rows(lambda row: is_wanted(row) and row.sums_in_cluster)
def test_slices_of_a_cluster(row):
    each(((2,), (3,)), lambda count: check(row, slices=count, cluster_adds=True))
