"""Every kernel with a sparse operand, one by one, by its full name: the dense one's problems
(test_kernels.py), with the sparse operand on either side of the call.
"""

import itertools
import re

import pytest
import torch

import tcgemm
from tcgemm.ops import query

from support import cases, reference
from support.cases import F32, S32, check_all
from support.catalog_rows import CLUSTERS, KINDS, Kind, kernel_name, rows
from support.sparse_operands import (
    SIDES,
    dense_sides,
    multiply,
    operand_of,
    options_of,
    sparse_matrix,
)

EVERY_ROW = rows(sparse=True)
# Column-major results (side b) that TMA stores: more tiles than one wave has, edges of whole
# vectors inside 16 rows and inside a tile, a batch.
COLUMNS = (
    Kind("in_waves", lambda m, n, k, s: (13 * m - 8, 13 * n - 8, 2 * k), "contiguous"),
    Kind("in_padding", lambda m, n, k, s: (m + 24, n + 40, 3 * k)),
    Kind("in_a_corner", lambda m, n, k, s: (24, 8, k)),
    Kind("in_a_batch", lambda m, n, k, s: (2 * m - 40, n // 2 + 8, k), "padded", (3,)),
)


def problem(row, kind, side, largest):
    """w, x and the shape of their product; x as the kernel reads it."""
    down, across, k = kind.sizes(*row.tile, row.stages)
    w = sparse_matrix(down, k, row.types.a, device="cuda", largest=largest)
    batch = () if kind.shared == "b" else kind.batch
    strides = "padded" if row.layout == "TN" else "transposed_padded"
    x = cases.make(strides, *batch, across, k, dtype=row.types.b, device="cuda", largest=largest)
    if side == "a":
        return w, x.mT, (*batch, down, across)
    return w, x, (*batch, across, down)


def call_options(row, cluster=0, **division):
    return {**options_of(row.types), "kernel_name": kernel_name(row, cluster, **division)}


def check_exact(row, kind, side, cluster=0, **division):
    # As in rows.operands: sums of some thousand random whole numbers are exact.
    w, x, shape = problem(row, kind, side, None if row.types.integer else 4)
    guarded = cases.Guarded(kind.out, shape, dtype=row.types.outs[0], device="cuda")
    operand = operand_of(w)
    multiply(
        side, w, x, operand=operand, out=guarded.view, **call_options(row, cluster, **division)
    )
    a, b = dense_sides(side, w, x)
    reference.assert_guarded(guarded, reference.exact(a, b, **options_of(row.types)))
    return explained(row, side, operand, x, guarded.view, cluster=cluster, **division)


def explained(row, side, operand, x, out, cluster=0, slices=0, cluster_adds=False, **keywords):
    values, form = operand
    a, b = dense_sides(side, values, x)
    options = {"sparse_" + side: form, "precision": options_of(row.types)["precision"]}
    kernel = kernel_name(row, cluster, slices, cluster_adds)
    return query.ask("explain", a, b, **options, **keywords, out=out, kernel=kernel)["text"]


@EVERY_ROW
def test_row_is_exact(row):
    check_all(itertools.product(KINDS, SIDES), lambda kind, side: check_exact(row, kind, side))


@pytest.mark.parametrize("cluster", (2, 4))
@rows(lambda row: row.uses_tma, sparse=True)
def test_row_in_clusters(row, cluster):
    def check(kind, side):
        text = check_exact(row, kind, side, cluster)
        assert f"\n  cluster       {cluster}\n" in text, "the blocks do not share their loads"
        assert re.search(rf"\n  sparse +{side}: ", text)

    kinds = [kind for kind in CLUSTERS if not kind.batch]
    check_all(itertools.product(kinds, SIDES), check)


@pytest.mark.parametrize("cluster_adds", (False, True))
@rows(lambda row: row.divides_k, sparse=True)
def test_row_in_slices(row, cluster_adds):
    """Whole tiles, edges on both sides and the end of k, whatever adds the slices."""

    def check(kind, side, slices):
        text = check_exact(row, kind, side, slices=slices, cluster_adds=cluster_adds)
        adds = "the CTAs of a cluster add" if cluster_adds else "another kernel adds"
        assert f"\n  slices of k   {slices}, whose sums {adds}" in text

    kinds = (
        Kind("whole", lambda m, n, k, s: (2 * m, 2 * n, 16 * k), "contiguous"),
        Kind("edges", lambda m, n, k, s: (m + 5, n + 3, 9 * k + 20), "odd_pitch"),
        Kind("one", lambda m, n, k, s: (3 * m + 8, 1, 11 * k), "padded"),
    )
    check_all(itertools.product(kinds, SIDES, (2, 3, 8)), check)


@rows(lambda row: not row.uses_tma, sparse=True)
def test_row_reads_any_strides(row):
    """Values and the other operand, each in words with a ragged end, gathered, or copied where that
    costs less; what lies beyond is poison."""

    def check(strides, other, side, stages):
        m, n, k = row.tile[0] + 37, row.tile[1] - 3, stages * row.tile[2] + 20
        options = {"device": "cuda", "largest": None if row.types.integer else 4}
        w = sparse_matrix(m, k, row.types.a, **options)
        values, form = operand_of(w)
        operand = cases.empty(strides, values.shape, dtype=values.dtype, device="cuda"), form
        operand[0].copy_(values)
        x = cases.make(other, n, k, dtype=row.types.b, **options)
        x, shape = (x.mT, (m, n)) if side == "a" else (x, (n, m))
        guarded = cases.Guarded("odd_pitch", shape, dtype=row.types.outs[0], device="cuda")
        multiply(side, w, x, operand=operand, out=guarded.view, **call_options(row))
        a, b = dense_sides(side, w, x)
        reference.assert_guarded(guarded, reference.exact(a, b, **options_of(row.types)))
        text = explained(row, side, operand, x, guarded.view)
        assert f" {row.name} (row " in text
        if strides == other == "padded":  # in words
            assert "nothing is copied" in text
            assert "scalar loads" not in text

    values = ("padded", "contiguous", "offset", "transposed_padded", "step_cols", "step_both")
    strides_of_x = ("padded", "odd_pitch", "step_cols", "transposed_padded", "transposed_odd")
    if row.types.a.itemsize == 2:  # other rows read the other major
        strides_of_x = strides_of_x[3:] if row.layout == "NN" else strides_of_x[:3]
    check_all(itertools.product(values, strides_of_x, SIDES, (0, 2 * row.stages)), check)


@rows(lambda row: not row.types.integer, sparse=True)
def test_row_on_normal_data(row):
    def check(kind, side, out_dtype):
        w, x, shape = problem(row, kind, side, None)
        guarded = cases.Guarded(kind.out, shape, dtype=out_dtype, device="cuda")
        operand = operand_of(w)
        options = {
            "operand": operand,
            "out": guarded.view,
            "out_dtype": out_dtype,
            **call_options(row),
        }
        multiply(side, w, x, **options)
        reference.assert_close(guarded.view, *dense_sides(side, w, x), **options_of(row.types))
        first = guarded.view.clone()
        guarded.view.fill_(cases.poison(out_dtype))
        multiply(side, w, x, **options)
        assert torch.equal(guarded.view, first)
        assert guarded.untouched()

    outs = dict.fromkeys((row.types.outs[0], F32))
    check_all(itertools.product(KINDS[:4], SIDES, outs), check)


@EVERY_ROW
def test_row_with_its_epilogues(row):
    """The short way out for a bias and relu, the long one for all else, in every type of result."""

    def check(kind, side, out_dtype):
        w, x, shape = problem(row, kind, side, 4)
        guarded = cases.Guarded(kind.out, shape, dtype=out_dtype, device="cuda")
        options = {"out": out_dtype, "device": "cuda"}
        terms = {"bias": row.types.addend(shape[-1], **options), "activation": "relu"}
        if out_dtype not in (row.types.outs[0], S32):
            terms["residual"] = row.types.addend(*shape, **options)
            terms["alpha"] = 2.0**-8
        terms["out_dtype"] = out_dtype
        multiply(side, w, x, out=guarded.view, **terms, **call_options(row))
        expected = reference.exact(*dense_sides(side, w, x), **terms, **options_of(row.types))
        reference.assert_guarded(guarded, expected)

    kinds = [kind for kind in KINDS if not kind.batch and kind.name != "waves"]
    check_all(itertools.product(kinds[:6], SIDES, row.types.outs), check)


@rows(lambda row: row.uses_tma and row.tile[1] > 32, sparse=True)
def test_row_sends_columns(row):
    """Two halves of a result in alternation: a missed wait would mingle them."""

    def check(kind, out_dtype):
        w, x, shape = problem(row, kind, "b", 4)
        sides, operand, out = dense_sides("b", w, x), operand_of(w), {"out_dtype": out_dtype}
        guarded = cases.Guarded(kind.out, shape, dtype=out_dtype, device="cuda")
        multiply("b", w, x, operand=operand, out=guarded.view, **out, **call_options(row))
        expected = reference.exact(*sides, **out, **options_of(row.types))
        reference.assert_guarded(guarded, expected)
        text = explained(row, "b", operand, x, guarded.view, **out)
        assert "by TMA, column-major\n" in text

    out_dtype = row.types.a if row.types.a.itemsize == 2 else cases.BF16
    check_all(itertools.product(COLUMNS, [out_dtype]), check)


@pytest.mark.gpu
@pytest.mark.sm90
def test_graphs_hold_products():
    w = sparse_matrix(256, 512, cases.BF16, device="cuda")
    x = torch.randn(64, 512, device="cuda").bfloat16()
    operand = operand_of(w)
    graph, out = cases.graph_of(lambda: multiply("b", w, x, operand=operand))
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, multiply("b", w, x, operand=operand))
    assert tcgemm.info.build()["cuda"]
