"""Every kernel of int4 and of bits by its full name, and the passes in front of them.

Sums are exact, so one wrong element shows. Operands lie in storage whose other bytes are ones.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm.operands.integers.binary import OPERATIONS

from support import cases, subbyte
from support.cases import BF16, F32, S32, check_all
from support.catalog_rows import subbyte_rows

OPS = torch.ops.tcgemm
# Rows that are whole vectors for TMA and cp.async, rows that are not, and an odd address.
ALIGNED, PADDED, ODD = (0, 0), (16, 32), (3, 1)


def sizes(tile, stages):
    """m, n, k around the tile: whole, ragged, deep, small."""
    m, n, k = tile
    return (
        (2 * m, 2 * n, (stages + 2) * k),
        (13 * m - 5, 9 * n - 8, 2 * k),
        (2 * m + 1, n + 13, 2 * k + k // 2 + 6),
        (m + 24, n + 40, 3 * k + 8),
        (m // 2, n // 2, (3 * stages + 1) * k + 10),
        (m, n, k),
        (m + 3, n + 9, 6),
        (1, n + 7, k + 10),
        (m + 7, 1, k + 10),
    )


def columns(row, n):
    """Pingpong kernels of bits have no rolled epilogue. The planner does not take them for "xor",
    "pm1" and rows of the result that are no vectors."""
    return n + -n % 4 if row.unrolled_only else n


def placed(x, layout):
    return x if layout == ALIGNED else subbyte.padded(x, *layout)


def operands(row, m, n, k, layout, batch=()):
    if row.input == "b1":
        a, b = subbyte.bits(*batch, m, k), subbyte.bits(*batch, n, k)
    else:
        a = subbyte.int4(*batch, m, k, signed=row.input == "s4")
        b = subbyte.int4(*batch, n, k, signed=row.input_b == "s4")
    return placed(a.cuda(), layout), placed(b.cuda(), layout).mT


def product(row, a, b, operation="and", **options):
    options["kernel_name"] = row.name
    if row.input == "b1":
        options |= {"k": a.shape[-1], "operation": operation}
        return OPS._binary_mm(a.bytes, b.bytes, **options)
    types = f"{row.input},{row.input_b}"
    return OPS._int4_mm(a.bytes, b.bytes, types=types, **options)


def expected(row, a, b, operation="and"):
    if row.input == "b1":
        return subbyte.count(a, b, operation).to(S32)
    return subbyte.exact(a, b).to(S32)


@subbyte_rows()
def test_row_is_exact(row):
    def check(size, layout):
        m, n, k = size
        a, b = operands(row, m, columns(row, n), k, layout)
        assert torch.equal(product(row, a, b).cpu(), expected(row, a, b))

    check_all(itertools.product(sizes(row.tile, row.stages), (ALIGNED, PADDED, ODD)), check)


@subbyte_rows()
def test_row_of_batches(row):
    m, n, k = row.tile
    part = columns(row, n // 2 + 3)
    for batch, size in (((5,), (m + 1, part, k + 8)), ((3,), (m, n, 2 * k))):
        a, b = operands(row, *size, ALIGNED, batch)
        assert torch.equal(product(row, a, b).cpu(), expected(row, a, b))


@subbyte_rows()
def test_row_of_results_of_any_strides(row):
    m, n, k = row.tile
    a, b = operands(row, m + 21, columns(row, n + 11), 2 * k + 16, PADDED)
    value = expected(row, a, b)
    kinds = ("contiguous", "padded", "odd_pitch", "step_both", "transposed_padded")
    for strides in kinds[: 1 if row.unrolled_only else None]:
        guarded = cases.Guarded(strides, value.shape, dtype=S32, device="cuda")
        if row.input == "b1":
            keywords = {"k": a.shape[-1], "operation": "and", "kernel_name": row.name}
            OPS._binary_mm.out(a.bytes, b.bytes, **keywords, out=guarded.view)
        elif row.input == row.input_b or not strides.startswith("transposed"):
            # Of other types another row would compute a transposed result.
            types = f"{row.input},{row.input_b}"
            OPS._int4_mm.out(a.bytes, b.bytes, types=types, kernel_name=row.name, out=guarded.view)
        else:
            continue
        assert torch.equal(guarded.view.cpu(), value)
        assert guarded.untouched()


@subbyte_rows()
def test_row_with_its_epilogues(row):
    """int4: zero points, an integer bias and a scaled bf16 result. Bits: every operation."""
    m, n, k = row.tile
    for size in ((m + 5, n + 24, 2 * k + 24), (3 * m, 2 * n, 3 * k)):
        a, b = operands(row, *size, ALIGNED)
        if row.input == "b1":
            for operation in ("and",) if row.unrolled_only else OPERATIONS:
                result = product(row, a, b, operation)
                assert torch.equal(result.cpu(), expected(row, a, b, operation))
            continue
        rows, columns = size[:2]
        zero_a = torch.randint(-8, 9, (rows, 1), dtype=S32)
        zero_b = torch.randint(-8, 9, (1, columns), dtype=S32)
        bias = torch.randint(-99, 99, (1, columns), dtype=S32)
        value = (subbyte.wide(a) - zero_a) @ (subbyte.wide(b) - zero_b) + bias
        terms = {"zero_a": zero_a.cuda(), "zero_b": zero_b.cuda(), "bias": bias.cuda()}
        assert torch.equal(product(row, a, b, **terms).cpu(), value.to(S32))
        scale = 2.0 ** torch.randint(-9, -5, (1, columns))
        result = product(row, a, b, scale_b=scale.cuda(), out_dtype=BF16, activation="relu")
        value = (subbyte.exact(a, b).float() * scale).relu().to(BF16)
        assert torch.equal(result.cpu(), value)


# The choices of the planner, with their passes.


@pytest.mark.gpu
@pytest.mark.parametrize("signs", subbyte.SIGNS, ids=str)
def test_int4_products_of_the_planner(signs):
    """On Hopper through int8: bytes at any address and any pitch are converted."""

    def check(size, layout, out_dtype):
        m, n, k = size
        a = placed(subbyte.int4(m, k, signed=signs[0]).cuda(), layout)
        b = placed(subbyte.int4(n, k, signed=signs[1]).cuda(), layout).t()
        result = tcgemm.mm(a, b, out_dtype=out_dtype)
        assert torch.equal(result.cpu(), subbyte.exact(a, b).to(S32).to(out_dtype))

    shapes = ((1, 1, 2), (5, 70, 34), (129, 257, 1022), (512, 384, 4096), (16, 4096, 2050))
    check_all(itertools.product(shapes, (ALIGNED, PADDED, ODD), (S32, F32)), check)


@pytest.mark.gpu
@pytest.mark.parametrize("operation", OPERATIONS)
def test_binary_products_of_the_planner(operation):
    def check(size, layout):
        m, n, k = size
        a = placed(subbyte.bits(m, k).cuda(), layout)
        b = placed(subbyte.bits(n, k).cuda(), layout).t()
        result = tcgemm.binary_mm(a, b, operation)
        assert torch.equal(result.cpu(), subbyte.count(a, b, operation).to(S32))

    shapes = ((1, 1, 1), (5, 70, 33), (129, 257, 4095), (512, 384, 16384), (16, 2048, 70000))
    check_all(itertools.product(shapes, (ALIGNED, PADDED, ODD)), check)


@pytest.mark.gpu
def test_a_broadcast_operand_is_converted_once():
    a, b = subbyte.int4(4, 65, 514).cuda(), subbyte.int4(33, 514).cuda().t()
    assert torch.equal(tcgemm.matmul(a, b).cpu(), subbyte.exact(a, b).to(S32))
    a, b = subbyte.int4(65, 514).cuda(), subbyte.int4(4, 33, 514).cuda().mT
    assert torch.equal(tcgemm.matmul(a, b).cpu(), subbyte.exact(a, b).to(S32))


@pytest.mark.gpu
def test_a_graph_repeats_the_products():
    a, b = subbyte.int4(64, 512).cuda(), subbyte.int4(96, 512).cuda().t()
    x, y = subbyte.bits(64, 2048).cuda(), subbyte.bits(96, 2048).cuda().t()

    def run():
        return tcgemm.mm(a, b), tcgemm.binary_mm(x, y, "pm1")

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    for result in results:
        result.zero_()
    graph.replay()
    assert torch.equal(results[0].cpu(), subbyte.exact(a, b).to(S32))
    assert torch.equal(results[1].cpu(), subbyte.count(x, y, "pm1").to(S32))
