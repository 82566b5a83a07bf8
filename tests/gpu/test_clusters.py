"""Clusters whose CTAs share both operands, or are eight.

Each CTA loads a part of a for the CTAs of the same rows and a part of b for those of the same
columns. Faults, and the tests that find them:

    a part of an operand goes to the wrong CTA    whole numbers: operands are random, no two alike
    a CTA waits for bytes that nobody sends       it hangs: edges of each operand, in both majors
    a stage is written while a CTA reads it       more k-blocks than stages, several tiles a CTA
    a CTA ends while another one writes to it     the same, with one tile and one k-block
    the last CTAs store beside the result         the guards around it, no row or no column inside
"""

import itertools

import pytest
import torch

from support import cases, reference
from support.cases import BF16, F32, check_all
from support.catalog_rows import (
    Kind,
    check_exact,
    kernel_name,
    launch,
    operands,
    row_and_layout,
    rows,
)
from support.dtype_matrix import scale_a, scale_b

SHAPES = (8, "1x2", "2x2", "4x2", "1x4", "2x4", "1x8")
# Three and five tiles leave the last CTAs of clusters without rows and without columns.
KINDS = (
    Kind("corner", lambda m, n, k, s: (3 * m - 16, 3 * n - 16, (s + 2) * k), "contiguous"),
    Kind("ragged", lambda m, n, k, s: (4 * m + 5, 4 * n + 13, 2 * k + 9), "odd_pitch"),
    Kind("one_tile", lambda m, n, k, s: (m - 7, n - 3, k - 1)),
    Kind("last_rows", lambda m, n, k, s: (2 * m + 1, n + 1, (3 * s + 1) * k + 9)),
    Kind("column_major", lambda m, n, k, s: (2 * m + 3, 3 * n + 5, k + 2), "transposed_padded"),
    Kind("batch", lambda m, n, k, s: (m + 1, 2 * n + 8, 2 * k), "padded", (3,)),
    Kind("batch_of_one_a", lambda m, n, k, s: (m + 1, n + 8, k + 8), "padded", (2,), "a"),
    Kind("batch_of_one_b", lambda m, n, k, s: (m + 1, n + 8, k + 8), "padded", (2,), "b"),
)
# More clusters than run at one time: 66 of two, 30 of four, 15 of eight.
WAVES = Kind("waves", lambda m, n, k, s: (18 * m - 5, 14 * n - 8, 2 * k), "contiguous")


def is_plain(row):
    return row.shares_a and row.tile[:2] == (128, 128) and not row.pingpong


def is_telling(row):
    """One tile of every type and layout, and those of bf16 whose boxes differ."""
    tiles = {"TN": (48, 64, 96, 128, 176, 208, 224, 320), "NT": (64, 176, 320)}
    differs = row.input == "bf16" and row.tile[1] in tiles.get(row.layout, ())
    return is_plain(row) or (row.shares_a and (differs or (row.pingpong and row.layout == "TN")))


@pytest.mark.parametrize("cluster", SHAPES)
@rows(is_telling)
def test_row_in_clusters_that_share_both_operands(row, cluster):
    check_all(((kind,) for kind in KINDS), lambda kind: check_exact(row, kind, cluster=cluster))


@pytest.mark.parametrize("cluster", SHAPES)
@rows(is_plain)
def test_more_clusters_than_run_at_one_time(row, cluster):
    check_exact(row, WAVES, cluster=cluster)


@pytest.mark.parametrize("cluster", SHAPES)
@rows(lambda row: is_plain(row) and row.divides_k)
def test_slices_that_another_kernel_adds(row, cluster):
    division = {"cluster": cluster, "slices": 2}
    check_all(((kind,) for kind in KINDS[:2]), lambda kind: check_exact(row, kind, **division))


@pytest.mark.parametrize("cluster", SHAPES)
@rows(lambda row: is_plain(row) and not row.types.integer and row.types.accumulator == F32)
def test_epilogues_of_ctas_without_rows_or_columns(row, cluster):
    """The fused, the plain and the rolled epilogue: addends, a bias, scales, the amax."""

    def check(strides, terms):
        m, n, k = 2 * row.tile[0] + 8, 2 * row.tile[1] + 24, 2 * row.tile[2]
        a, b = operands(*row_and_layout(row, strides), m, n, k, whole=True)
        addend = {"device": "cuda", "largest": 9}
        options = {"bias": cases.make("contiguous", 1, n, dtype=BF16, **addend)[0]}
        if terms:
            options["residual"] = cases.make("padded", m, n, dtype=BF16, **addend)
            options["activation"] = "relu"
        if terms == "scales":
            scales = {"device": "cuda", "powers": True}
            options |= {"scale_a": scale_a("row", m, k, **scales)}
            options |= {"scale_b": scale_b("row", n, k, **scales)}
        guarded = cases.Guarded(strides, (m, n), dtype=F32, device="cuda")
        launch(row, a, b, out=guarded.view, cluster=cluster, **options)
        options |= row.types.options
        reference.assert_guarded(guarded, reference.exact(a, b, **options, out_dtype=F32))
        if strides == "padded":
            arguments = options | {"out_dtype": F32, "kernel_name": kernel_name(row, cluster)}
            out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **arguments)
            assert torch.equal(out, guarded.view)
            reference.assert_amax(amax, a, b, **options)

    check_all(itertools.product(("padded", "odd_pitch"), ("", "terms", "scales")), check)


@pytest.mark.parametrize("cluster", (8, "2x2", "2x4"))
@rows(lambda row: is_plain(row) and row.input == "bf16")
def test_the_bits_are_those_of_single_ctas(row, cluster):
    """Again and again, with the products before still running."""
    m, n, k = 5 * row.tile[0] + 8, 5 * row.tile[1] + 8, 9 * row.tile[2] + 8
    a, b = operands(*row_and_layout(row, "padded"), m, n, k)
    options = row.types.options | {"out_dtype": BF16}
    single = torch.ops.tcgemm.scaled_mm(a, b, **options, kernel_name=kernel_name(row, 1))
    name = kernel_name(row, cluster)
    products = [torch.ops.tcgemm.scaled_mm(a, b, **options, kernel_name=name) for _ in range(20)]
    assert all(torch.equal(product, single) for product in products)
