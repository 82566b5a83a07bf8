"""Weights that a kernel loads while the kernel before still runs.

The fault that these tests find: a load of one of the operands is left out or comes twice. The bits
equal the bits of the same kernel that waits, for tiles, waves, clusters and slices.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm.ops import query

from support import cases
from support.cases import E4M3, E5M2, F16, F32, S8, check_all
from support.catalog_rows import (
    CLUSTERS,
    KINDS,
    MIRRORED,
    Kind,
    block_scales,
    column_rows,
    kernel_name,
    kind_sizes,
    operands,
    row_and_layout,
    rows,
)
from support.column_products import plain_out
from support.sparse_operands import multiply, operand_of, options_of, sparse_matrix

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]
BF16 = torch.bfloat16
OPS = torch.ops.tcgemm
SHAPES = ((4096, 4096), (6144, 1000), (1000, 72), (40, 16384), (28672, 512), (8192, 8192))
EIGHT = (S8, E4M3, E5M2)
few_and_many = pytest.mark.parametrize("m", [1, 16, 64, 100, 300, 2048])
activations = pytest.mark.parametrize("activation", [None, "gelu"])


def assert_same(op, *arguments, **options):
    expected = op(*arguments, **options)
    for _ in range(3):
        assert torch.equal(op(*arguments, **options, constant_b=True), expected)


@activations
@few_and_many
def test_bits_are_those_of_linear(m, activation):
    def check(n, k):
        x, w = torch.randn(m, k, device="cuda").to(BF16), torch.randn(n, k, device="cuda").to(BF16)
        bias = torch.randn(n, device="cuda").to(BF16)
        assert_same(OPS.linear, x, w, bias, activation=activation)

    check_all(SHAPES, check)


@activations
@few_and_many
@pytest.mark.parametrize("dtype", EIGHT, ids=str)
def test_bits_are_those_of_scaled_mm(dtype, m, activation):
    """The operands of a QuantLinear."""

    def check(shape, granularity):
        n, k = shape
        x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        w8, scale_w = tcgemm.quantize(w, dtype, granularity)
        x8, scale_x = tcgemm.quantize(x, dtype, {"128x128": "1x128"}.get(granularity, granularity))
        bias = torch.randn(n, device="cuda").to(BF16)
        tensors = (x8, w8.t(), scale_x, scale_w.t(), None, bias)
        options = {"activation": activation, "out_dtype": BF16}
        assert_same(OPS.scaled_mm, *tensors, **options)

    granularities = ("row", "tensor", *(("128x128",) if dtype is not S8 else ()))
    check_all(itertools.product(SHAPES, granularities), check)


@few_and_many
@pytest.mark.parametrize("dtype", [BF16, F16, *EIGHT, F32], ids=str)
def test_bits_are_those_of_sparse_products(dtype, m):
    def check(n, k):
        w = sparse_matrix(n, k, dtype, device="cuda")
        x = torch.randn(m, k, device="cuda").mul(9).to(dtype)
        values, form = operand_of(w)
        bias = None if dtype is S8 else torch.randn(n, device="cuda").to(BF16)
        if dtype is not F32:
            assert_same(OPS._linear24, values, form, x, bias)
        options = {"precision": "high"} if dtype is F32 else {}
        options |= {"sparse_b": form, "bias": bias, "activation": None if dtype is S8 else "gelu"}
        assert_same(OPS.scaled_mm, x, values.t(), **options)

    check_all(SHAPES, check)


CHOSEN = ("whole", "waves", "ragged", "deep", "one_row", "one_k_block", "batch_whole")


def bits_of_row(row, kind, **division):
    """The product of one kernel, with b constant and without."""
    m, n, k = kind_sizes(kind, row)
    a, b = operands(*row_and_layout(row, "contiguous"), m, n, k, batch=kind.batch)
    options = {**row.types.options, **block_scales(row, m, n, k, step=len(kind.name))}
    options |= {"out_dtype": row.types.outs[0], "kernel_name": kernel_name(row, **division)}
    assert_same(OPS.scaled_mm, a, b, **options)


@rows(lambda row: row.uses_tma)
def test_bits_of_every_kernel(row):
    kinds = [kind for kind in KINDS if kind.name in CHOSEN]
    check_all(((kind,) for kind in kinds), lambda kind: bits_of_row(row, kind))


@pytest.mark.parametrize("cluster", (2, 4))
@rows(lambda row: row.uses_tma)
def test_bits_of_every_kernel_in_clusters(row, cluster):
    check_all(((kind,) for kind in CLUSTERS), lambda kind: bits_of_row(row, kind, cluster=cluster))


@pytest.mark.parametrize("cluster", ("2x2", "1x8"))
@rows(lambda row: row.shares_a and row.tile[:2] == (128, 128))
def test_bits_of_kernels_in_clusters_that_share_both_operands(row, cluster):
    check_all(((kind,) for kind in CLUSTERS), lambda kind: bits_of_row(row, kind, cluster=cluster))


@rows(lambda row: row.group_stages > 1)
def test_bits_of_every_number_of_k_blocks(row):
    """Stages that share mbarriers."""
    counts = (1, 2, 3, row.stages - 1, row.stages, row.stages + 1, row.stages + 4)
    kinds = [Kind(str(count), lambda m, n, k, s, c=count: (m, 2 * n, c * k)) for count in counts]
    check_all(((kind,) for kind in kinds), lambda kind: bits_of_row(row, kind))


@pytest.mark.parametrize("cluster", (1, 2, "2x2"))
@column_rows(lambda row: row.columns_only or row.tile[:2] == (128, 128))
def test_bits_of_kernels_that_store_columns(row, cluster):
    """The b of the call is the a of the kernel."""

    def check(kind):
        n, m, k = kind.sizes(*row.tile, row.stages)
        a, b = operands(row, MIRRORED[row.layout], m, n - n % 8, k)
        options = row.types.options | {"out_dtype": plain_out(row)}
        kernel = kernel_name(row, cluster, other_orientation=True)
        plan = query.ask("explain", a, b, **options, kernel=kernel)
        assert (plan["epilogue_path"], plan["swap_ab"]) == ("columns", True)
        assert_same(OPS.scaled_mm, a, b, **options, kernel_name=kernel)

    check_all(((kind,) for kind in KINDS if kind.name in CHOSEN[:4]), check)


@pytest.mark.parametrize("cluster_adds", (False, True))
@rows(lambda row: row.divides_k)
def test_bits_of_every_kernel_in_slices(row, cluster_adds):
    if cluster_adds and not row.sums_in_cluster:
        pytest.skip("its clusters add no slices")
    kind = next(kind for kind in KINDS if kind.name == "deep")
    division = {"slices": 2, "cluster_adds": cluster_adds}
    bits_of_row(row, kind, **division)


@pytest.mark.parametrize("cluster", (0, 2, 4))
@rows(lambda row: row.uses_tma, sparse=True)
def test_bits_of_every_sparse_kernel(row, cluster):
    """The sparse operand, values and metadata, is constant."""

    def check(kind):
        m, n, k = kind.sizes(*row.tile, row.stages)
        w = sparse_matrix(m, k, row.types.a, device="cuda")
        strides = "padded" if row.layout == "TN" else "transposed_padded"
        x = cases.make(strides, n, k, dtype=row.types.b, device="cuda")
        operand = operand_of(w)
        options = {**options_of(row.types), "kernel_name": kernel_name(row, cluster)}
        expected = multiply("b", w, x, operand=operand, **options)
        for _ in range(3):
            result = multiply("b", w, x, operand=operand, constant_b=True, **options)
            assert torch.equal(result, expected)

    kinds = CLUSTERS if cluster else [kind for kind in KINDS if kind.name in CHOSEN]
    check_all(((kind,) for kind in kinds if not kind.batch), check)
