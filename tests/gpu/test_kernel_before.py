"""A kernel starts while the kernel before it still runs, and loads late what that one writes.

The fault that these tests find: a load that does not wait for the kernel before it.
"""

import pytest
import torch

from tcgemm import info

from support import cases
from support.cases import BF16, F32, each
from support.catalog_rows import kernel_name, operands, rows
from support.packed_cases import Case, exact_product, product, with_exact_elements
from support.reference import assert_exact, exact

OPS = torch.ops.tcgemm
# A GEMV kernel lets the next kernel start before it multiplies. This one does not divide k between
# thread blocks, so with DEPTH it takes much longer than a kernel's start.
WRITER = "sm90a_bf16_f32_8x64x64_w2_s3_tn_gemv"
DEPTH = 1 << 17
REPEATS = 6
KERNELS = info.build()["kernels"]
PACKED = [name for name in KERNELS if name.startswith("sm90a_bf16") and "_packed" in name]

pytestmark = pytest.mark.skipif(WRITER not in KERNELS, reason=f"this build has no {WRITER}")


class SlowWriter:
    """A product of one row that takes long. Its result is the operand of the next product."""

    def __init__(self, columns):
        self.weight = torch.ones(columns, DEPTH, device="cuda", dtype=BF16)
        self.factors = torch.zeros(2, 1, DEPTH, device="cuda", dtype=BF16)
        self.factors[0, 0, -1], self.factors[1, 0, -1] = 1, -1
        self.row = torch.zeros(1, columns, device="cuda", dtype=BF16)

    def write(self, index):
        """Fills the row with 1 or -1."""
        factors, weight = self.factors[index % 2], self.weight.t()
        OPS.scaled_mm.out(factors, weight, out_dtype=BF16, kernel_name=WRITER, out=self.row)


def check(multiply, k, expected):
    """multiply(row) is a product of the row that the kernel before it has written."""
    writer = SlowWriter(k)
    multiply(writer.row)  # loads the kernel
    found = []
    cases.spin(10)  # the host launches all kernels meanwhile
    for i in range(REPEATS):
        writer.write(i)
        found.append(multiply(writer.row))
    for i in range(2):
        value = expected(torch.full_like(writer.row, 1 - 2 * i))
        for out in found[i::2]:
            assert_exact(out, value)


def check_row(row, op, **division):
    n, k = row.tile[1] + 8, 6 * row.tile[2]
    _, b = operands(row, row.layout, 1, n, k, whole=True)
    options = {"out_dtype": F32, "kernel_name": kernel_name(row, **division)}
    check(lambda a: op(a, b, **options), k, lambda a: exact(a, b, out_dtype=F32))


def is_wanted(row):
    """A K-major operand that is a row is read as it is."""
    return row.tma and row.types.a is BF16 and row.layout == "TN"


@pytest.mark.parametrize("op", [OPS.scaled_mm, OPS._constant_scaled_mm], ids=["both", "constant"])
@rows(is_wanted)
def test_an_operand_of_the_kernel_before(row, op):
    """With a constant b, its first loads do not wait."""
    check_row(row, op)
    if row.sums_in_cluster:
        each(((2,), (3,)), lambda count: check_row(row, op, slices=count, cluster_adds=True))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", [cases.gpu(name, mark="sm90", id=name) for name in PACKED])
def test_the_input_of_a_packed_weight(name, constant):
    n, k = 264, 1024
    case = Case("int4", 64) if "_packed4" in name else Case("int8", 64)
    packed = with_exact_elements(case.pack(torch.randn(n, k, device="cuda").to(BF16)))
    options = {"constant_b": constant, "out_dtype": F32}
    check(lambda x: product(x, packed, name, **options), k, lambda x: exact_product(x, packed))
