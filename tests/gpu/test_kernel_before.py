"""A kernel starts while the kernel before it still runs, and loads late what that one writes.

The fault that these tests find: a load that does not wait for the kernel before it.
"""

import functools

import pytest
import torch

from support import cases
from support.cases import BF16, F32, check_all
from support.catalog_rows import (
    MIRRORED,
    built_rows,
    column_rows,
    kernel_name,
    operands,
    parametrized,
    rows,
)
from support.packed_weight_cases import Case, exact_product, product, with_exact_elements
from support.reference import assert_exact, exact
from support.slow_writer import IS_BUILT, WRITER, SlowWriter

OPS = torch.ops.tcgemm
REPEATS = 6
PACKED = [row for row in built_rows() if row.weight_bits]
PACKED = [row for row in PACKED if row.arch == "sm90a" and row.input == "bf16"]
THIN = [row for row in built_rows() if row.mainloop == "thin" and row.input == "bf16"]

pytestmark = pytest.mark.skipif(not IS_BUILT, reason=f"this build has no {WRITER}")


def check(multiply, k, expected):
    """multiply(row) is a product of the row that the kernel before it has written."""
    values = torch.ones(2, k, device="cuda", dtype=BF16)
    values[1] = -1
    row = torch.zeros(1, k, device="cuda", dtype=BF16)
    writer = SlowWriter(row, values)
    multiply(row)  # loads the kernel
    results = []
    cases.spin(10)  # the host launches all kernels meanwhile
    for i in range(REPEATS):
        writer.write(i % 2)
        results.append(multiply(row))
    for i in range(2):
        value = expected(values[i, None])
        for out in results[i::2]:
            assert_exact(out, value)


def check_row(row, op, **division):
    n, k = row.tile[1] + 8, 6 * row.tile[2]
    _, b = operands(row, row.layout, 1, n, k, whole=True)
    options = {"out_dtype": F32, "kernel_name": kernel_name(row, **division)}
    check(lambda a: op(a, b, **options), k, lambda a: exact(a, b, out_dtype=F32))


def is_wanted(row):
    """A K-major operand that is a row is read as it is."""
    return row.uses_tma and row.types.a is BF16 and row.layout == "TN"


BOTH_OPERANDS = pytest.mark.parametrize(
    "op",
    [OPS.scaled_mm, functools.partial(OPS.scaled_mm, constant_b=True)],
    ids=["both", "constant"],
)


@BOTH_OPERANDS
@rows(is_wanted)
def test_an_operand_of_the_kernel_before(row, op):
    """With a constant b, its first loads do not wait."""
    check_row(row, op)
    if row.sums_in_cluster:
        check_all(((2,), (3,)), lambda count: check_row(row, op, slices=count, cluster_adds=True))


@BOTH_OPERANDS
@column_rows(lambda row: row.types.a is BF16)
def test_an_operand_of_a_kernel_that_stores_columns(row, op):
    """It is the b of the kernel. Results of 16 bits, and many tiles along them."""
    n, k = 300 * row.tile[0] + 8, 6 * row.tile[2]
    _, b = operands(row, MIRRORED[row.layout], 1, n, k, whole=True)
    options = {"out_dtype": BF16, "kernel_name": kernel_name(row, other_orientation=True)}
    check(lambda a: op(a, b, **options), k, lambda a: exact(a, b, out_dtype=BF16))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("row", parametrized(PACKED))
def test_the_input_of_a_packed_weight(row, constant):
    n, k = 264, 1024
    case = Case("int4", 64) if row.weight_bits == 4 else Case("int8", 64)
    packed = with_exact_elements(case.pack(torch.randn(n, k, device="cuda").to(BF16)))
    options = {"constant_b": constant, "out_dtype": F32}
    check(lambda x: product(x, packed, row.name, **options), k, lambda x: exact_product(x, packed))


@pytest.mark.parametrize("row", parametrized(THIN))
def test_a_thin_kernel_waits_and_lets_the_next_one_start_after_that(row):
    """A constant that the next kernel loads at once was written by the kernel before both."""
    b = cases.make("contiguous", 64, 24, dtype=BF16, device="cuda", largest=4)
    options = {"out_dtype": F32, "kernel_name": row.name}
    check(lambda a: OPS.scaled_mm(a, b, **options), 64, lambda a: exact(a, b, out_dtype=F32))
    x = cases.make("contiguous", 5, 256, dtype=BF16, device="cuda", largest=4)
    other = cases.make("contiguous", 200, 64, dtype=BF16, device="cuda", largest=4)
    constant = {"out_dtype": F32, "constant_b": True}

    def multiply(written):
        OPS.scaled_mm(other, b, **options)
        return OPS.scaled_mm(x, written.t(), **constant)

    check(multiply, 256, lambda written: exact(x, written.t(), out_dtype=F32))
