"""Results that a kernel stores by columns, mostly of products whose a and b are swapped: tiles.

Each launch makes sure that it has this path and this orientation. test_transposed_terms.py has the
terms of the epilogue. Faults, and the tests that find them:

    a transposed fragment in the wrong place    whole numbers: operands are random, no two alike
    a box of 16 columns, or half of a buffer    tiles of 48, 80, 112, 144, 176, 208, 240 columns
    a buffer that is packed while TMA reads it  several tiles a CTA, again and again; tiles with an
                                                odd number of buffers begin with the first one again
    a store beside the result                   the guards, in each direction, batches too
"""

import itertools
import re

import pytest
import torch

from tcgemm.ops import query

from support import cases, reference
from support.cases import F32, check_all
from support.catalog_rows import MIRRORED, Kind, column_rows, kernel_name, launch, operands
from support.column_products import (
    RAGGED,
    WAVES,
    guarded_out,
    narrow_outs,
    other_out,
    plain_out,
    sizes_of,
    whole_operands,
)
from support.reference import same_bits

SCALED_MM = torch.ops.tcgemm.scaled_mm
EVERY_ROW = column_rows()

KINDS = (
    WAVES,
    RAGGED,
    Kind("whole", lambda m, n, k, s: (2 * m, 2 * n, (s + 2) * k), "contiguous"),
    Kind("deep", lambda m, n, k, s: (m // 2, n // 2, (3 * s + 1) * k + 9)),
    Kind("one_k_block", lambda m, n, k, s: (m, n, k), "contiguous"),
    Kind("shallow", lambda m, n, k, s: (m - 8, n + 9, 5)),
    Kind("tiny", lambda m, n, k, s: (8, 3, 2)),
    Kind("one_column", lambda m, n, k, s: (m + 8, 1, k + 9)),
    Kind("one_vector", lambda m, n, k, s: (8, n + 7, k + 9), "contiguous"),
    # 8 rows inside: of other warpgroups, and blocks of 64 rows, none.
    Kind("last_warpgroups_outside", lambda m, n, k, s: (m + 8, 2 * n - 1, 3 * k)),
    Kind("last_rows_outside", lambda m, n, k, s: (m + 72, n, k), "contiguous"),
    # The last tile ends before, at and after the end of a box.
    *(
        Kind(f"columns_{i}", lambda m, n, k, s, i=i: (m, n + i, k), "contiguous")
        for i in (1, 15, 16, 17, 31, 32)
    ),
    Kind("batch", lambda m, n, k, s: (m + 8, n // 2 + 3, k + 7), "padded", (5,)),
    Kind("batch_of_edges", lambda m, n, k, s: (m // 2 + 8, n // 2 + 5, 2 * k + 5), "padded", (3,)),
    Kind("batch_whole", lambda m, n, k, s: (m, n, 2 * k), "contiguous", (3,)),
    Kind("batch_of_tiles", lambda m, n, k, s: (m - 8, n - 1, 2 * k), "padded", (401,)),
    Kind("batch_of_one_a", lambda m, n, k, s: (m + 16, n + 8, k + 8), "padded", (4,), "a"),
    Kind("batch_of_one_b", lambda m, n, k, s: (m // 2, n + 8, k + 8), "padded", (4,), "b"),
)
CLUSTERS = (
    Kind("corner", lambda m, n, k, s: (3 * m - 16, 3 * n - 15, (s + 2) * k)),
    Kind("last_column", lambda m, n, k, s: (2 * m + 8, 2 * n + 1, 2 * k + 9)),
    Kind("batch", lambda m, n, k, s: (m + 8, 2 * n + 8, 2 * k), "padded", (3,)),
    # 400 tiles or more, and 66 clusters of two or 30 of four at one time.
    Kind("waves", lambda m, n, k, s: (20 * m - 8, 21 * n - 5, 2 * k + 8), "contiguous"),
)


def check_exact(row, kind, dtype, **options):
    m, n, k = sizes_of(kind, row)
    a, b = whole_operands(row, m, n, k, batch=kind.batch, shared=kind.shared)
    guarded = guarded_out(kind, m, n, dtype)
    launch(row, a, b, out=guarded.view, by_columns=True, **options)
    expected = reference.exact(a, b, **row.types.options, out_dtype=dtype)
    reference.assert_guarded(guarded, expected)


@EVERY_ROW
def test_row_is_exact(row):
    check_all(((kind,) for kind in KINDS), lambda kind: check_exact(row, kind, plain_out(row)))


@EVERY_ROW
def test_row_with_results_of_the_other_type(row):
    check_all(((kind,) for kind in KINDS[:2]), lambda kind: check_exact(row, kind, other_out(row)))


@column_rows(narrow_outs)
def test_row_with_results_of_8_bits(row):
    """A vector has 16 elements. Sums of whole numbers are rounded once."""
    kinds = (
        Kind("waves", lambda m, n, k, s: (20 * m - 16, 21 * n - 5, 2 * k + 8)),
        Kind("ragged", lambda m, n, k, s: (2 * m + 16, n + 13, 2 * k + 3), "contiguous"),
        Kind("one_column", lambda m, n, k, s: (m + 16, 1, k + 9), "contiguous"),
        Kind("columns_17", lambda m, n, k, s: (m, n + 17, k), "contiguous"),
        Kind("last_rows_outside", lambda m, n, k, s: (m + 80, n, k), "contiguous"),
        Kind("batch", lambda m, n, k, s: (m + 16, n // 2 + 3, k + 7), "contiguous", (5,)),
    )

    def check(dtype, kind):
        m, n, k = sizes_of(kind, row)
        a, b = whole_operands(row, m, n, k, batch=kind.batch)
        bias = cases.make("contiguous", 1, n, dtype=F32, device="cuda", largest=9)[0]
        last = {"scale_out": torch.full((), 2.0**-4, device="cuda")}
        for terms in ({}, last, {"bias": bias, "activation": "relu", **last}):
            guarded = guarded_out(kind, m, n, dtype)
            launch(row, a, b, out=guarded.view, by_columns=True, **terms)
            expected = reference.exact(a, b, **terms, **row.types.options, out_dtype=dtype)
            assert same_bits(guarded.view, expected) and guarded.untouched()

    check_all(itertools.product(narrow_outs(row), kinds), check)


@EVERY_ROW
def test_a_column_major_result_keeps_the_orientation(row):
    """So m is a multiple of 8, and any n will do."""

    def check(strides, m, n, k, asks):
        types = row.types
        a, b = operands(row, row.layout, m, n, k, whole=True)
        if types.integer:
            a.remainder_(5), b.remainder_(5)
        guarded = cases.Guarded(strides, (m, n), dtype=plain_out(row), device="cuda")
        launch(row, a, b, out=guarded.view, by_columns=True, other_orientation=asks)
        expected = reference.exact(a, b, **types.options, out_dtype=plain_out(row))
        reference.assert_guarded(guarded, expected)

    m, n, k = row.tile
    shapes = [("transposed", 2 * m, n + 5, 3 * k), ("transposed_padded", m + 8, 2 * n - 3, k + 5)]
    # A row with one path has one orientation, which nobody needs to ask for.
    asks = (True, False) if row.columns_only else (True,)
    check_all(((*shape, word) for shape in shapes for word in asks), check)


@column_rows(lambda row: row.columns_only)
def test_a_row_for_columns_alone_swaps_by_itself(row):
    check_all(
        ((kind,) for kind in KINDS[1:3]),
        lambda kind: check_exact(row, kind, plain_out(row), other_orientation=False),
    )


@pytest.mark.parametrize("cluster", (2, "1x2", "2x2"))
@EVERY_ROW
def test_row_in_clusters(row, cluster):
    """The last CTAs have no rows, or no columns."""
    check_all(
        ((kind,) for kind in CLUSTERS),
        lambda kind: check_exact(row, kind, plain_out(row), cluster=cluster),
    )


@pytest.mark.parametrize("cluster", (4, 8, "4x2", "2x4", "1x8"))
@column_rows(lambda row: row.input == "bf16" and row.tile[1] in (80, 128, 144))
def test_row_in_larger_clusters(row, cluster):
    check_all(
        ((kind,) for kind in CLUSTERS),
        lambda kind: check_exact(row, kind, plain_out(row), cluster=cluster),
    )


@EVERY_ROW
def test_the_bits_are_the_same_again_and_again(row):
    """Several tiles a CTA, with the products before still running: a buffer that is packed or
    released too early differs from time to time. Random data, so every element shows it."""
    kind = WAVES
    m, n, k = sizes_of(kind, row)
    a, b = operands(row, MIRRORED[row.layout], m, n, k)
    bias = cases.make("contiguous", 1, n, dtype=F32, device="cuda")[0]
    for terms in ({}, {"bias": bias, "activation": "silu"}):
        out = torch.empty(m, n, dtype=plain_out(row), device="cuda")
        launch(row, a, b, out=out, by_columns=True, **terms)
        options = row.types.options | terms | {"out_dtype": out.dtype}
        name = kernel_name(row, other_orientation=True)
        results = [SCALED_MM(a, b, **options, kernel_name=name) for _ in range(12)]
        assert all(same_bits(result, out) for result in results)


@column_rows(lambda row: not row.columns_only)
def test_slices_of_k_are_right(row):
    """Other kernels add them, or a cluster does, whose CTAs store the sum in another way."""

    def check(cluster_adds, kind):
        m, n, k = sizes_of(kind, row)
        m += -m % 8 if row.unrolled_only else 0  # sums of slices are stored as rows of vectors
        a, b = whole_operands(row, m, n, k)
        dtype = plain_out(row)
        guarded = guarded_out(kind, m, n, dtype)
        asked = {"slices": 2, "cluster_adds": cluster_adds, "other_orientation": True}
        launch(row, a, b, out=guarded.view, **asked)
        expected = reference.exact(a, b, **row.types.options, out_dtype=dtype)
        reference.assert_guarded(guarded, expected)

    kinds = (
        Kind("ragged", lambda m, n, k, s: (m + 8, n + 13, 4 * k + 3)),
        Kind("one_tile", lambda m, n, k, s: (m, n // 2, 5 * k)),
    )
    adds = [False] * row.divides_k + [True] * (row.sums_in_cluster and not row.unrolled_only)
    check_all(itertools.product(adds, kinds), check)


@column_rows(lambda row: row.columns_only)
def test_slices_of_a_row_for_columns_alone_are_refused(row):
    m, n, k = sizes_of(RAGGED, row)
    a, b = whole_operands(row, m, n, 4 * k)
    for division in ("/2", "@1/2c"):
        for orientation in ("", "^T"):
            options = row.types.options | {"out_dtype": plain_out(row)}
            options["kernel"] = f"{row.name}{division}{orientation}"
            with pytest.raises(RuntimeError, match=re.escape(options["kernel"])):
                query.ask("explain", a, b, **options)


@column_rows(lambda row: row.tile[:2] in ((128, 128), (64, 80)))
def test_misaligned_results_take_other_paths(row):
    """The kernel of this path is not asked for them; a row that has no other one is refused."""
    m, n, k = sizes_of(RAGGED, row)
    for strides, width in (("odd_pitch", n), ("padded", n + 3), ("step_cols", n)):
        a, b = whole_operands(row, m, width, k)
        guarded = cases.Guarded(strides, (m, width), dtype=plain_out(row), device="cuda")
        if row.columns_only or row.unrolled_only:
            with pytest.raises(RuntimeError, match=r"under the filter|by columns alone"):
                launch(row, a, b, out=guarded.view, other_orientation=True)
            continue
        launch(row, a, b, out=guarded.view, other_orientation=True)
        expected = reference.exact(a, b, **row.types.options, out_dtype=plain_out(row))
        reference.assert_guarded(guarded, expected)
