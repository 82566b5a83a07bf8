"""Products whose tiles stream-K divides: each CTA has an equal part of the k-blocks of all tiles.

Two kernels add the slices. One stores results by columns: the CTA with the first slice of a tile
adds the others to it. The other one stores all sums, and each CTA adds a part of all tiles.
test_packed_stream_k.py has products with packed weights.

Faults, and the tests that find them:

    a k-block is left out, or read twice     whole numbers, whose sums are exact
    a slice is added to another tile         the same, with tiles in several rows of the grid
    sums are added in another order          the bits of the emulator
    the kernels have other bits              results of float32, rounded
    a CTA adds what is not stored yet        the same bits again and again
    the epilogue is applied to a slice       a bias, c and activations beside whole numbers
    two grids wait for each other            two streams, and a graph
    a grid does not fit a part of a GPU      a green context
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import emulate
from tcgemm.ops import query

from support import cases, reference
from support.cases import BF16, F32, check_all
from support.catalog_rows import MIRRORED, column_rows, kernel_name, operands
from support.grids import check_part_of_a_gpu, check_streams_and_graphs
from support.reference import same_bits

STREAMING = column_rows(lambda row: row.streams_k)
COMMON = column_rows(lambda row: row.streams_k and row.input == "bf16")
CLUSTERS = (1, 2, 4, "1x2", "2x2")


def sizes(row, rows=25, columns=1, blocks=7):
    """m, n and k of a product of so many tiles, whose last ones are edges. A kernel of the other
    orientation has n in rows of tiles."""
    tile_m, tile_n, tile_k = row.tile
    return columns * tile_n - 8, rows * tile_m - 24, blocks * tile_k - 16


def stream(row, a, b, out, cluster=1, **options):
    """Runs the row with stream-K; returns what explain says."""
    kernel = kernel_name(row, cluster, "streamk", other_orientation=True)
    options |= row.types.options | {"out_dtype": out.dtype}
    fields = query.ask("explain", a, b, out=out, **options, kernel=kernel)
    assert (fields["kernel"], fields["stream_k"], fields["grid_adds"]) == (row.name, True, True)
    torch.ops.tcgemm.scaled_mm.out(a, b, **options, kernel_name=kernel, out=out)
    return fields


@STREAMING
def test_row_is_exact(row):
    """Results by columns, at any stride, and in float32; tiles in rows and in columns."""

    def check(shape, cluster, strides, out_dtype):
        m, n, k = sizes(row, **shape)
        a, b = operands(row, MIRRORED[row.layout], m, n, k, whole=True)
        guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device="cuda")
        fields = stream(row, a, b, guarded.view, cluster)
        by_columns = strides != "odd_pitch" and out_dtype != F32
        assert (fields["epilogue_path"] == "columns") == by_columns
        reference.assert_guarded(guarded, reference.exact(a, b, out_dtype=out_dtype))

    shapes = ({}, {"rows": 9, "columns": 3, "blocks": 5}, {"rows": 40, "blocks": 70})
    outs = [("padded", row.types.a), ("odd_pitch", row.types.a), ("padded", F32)]
    cases_ = [(*both, *out) for both in itertools.product(shapes, CLUSTERS) for out in outs]
    check_all(cases_, check)


@STREAMING
def test_column_major_results(row):
    def check(strides):
        m, n, k = sizes(row)
        m = 2 * m if strides == "transposed" else m
        transposed = strides.startswith("transposed")
        layout = row.layout if transposed else MIRRORED[row.layout]
        shape = (n, m) if transposed else (m, n)
        a, b = operands(row, layout, *shape, k, whole=True)
        guarded = cases.Guarded(strides, shape, dtype=row.types.a, device="cuda")
        stream(row, a, b, guarded.view)
        reference.assert_guarded(guarded, reference.exact(a, b, out_dtype=row.types.a))

    check_all([("transposed",), ("transposed_padded",)], check)


@COMMON
def test_bits_are_those_of_the_emulator_and_of_both_kernels(row):
    """Again and again: a sum that is read too early differs from time to time."""
    for blocks, cluster in ((8, 1), (40, 2)):
        m, n, k = sizes(row, rows=20, blocks=blocks)
        a, b = operands(row, MIRRORED[row.layout], m, n, k)
        out, wide = (torch.empty(m, n, dtype=d, device="cuda") for d in (row.types.a, F32))
        assert stream(row, a, b, out, cluster)["epilogue_path"] == "columns"
        assert stream(row, a, b, wide, cluster)["epilogue_path"] == "slices"
        kernel = kernel_name(row, cluster, "streamk", other_orientation=True)
        options = {"out_dtype": F32, "kernel": kernel, "device": "H200"}
        if torch.cuda.get_device_properties(0).multi_processor_count == 132:
            assert same_bits(wide.cpu(), emulate.mm(a.cpu(), b.cpu(), **options))
        for _ in range(10):
            again = torch.full_like(out, 7)
            stream(row, a, b, again, cluster)
            assert same_bits(again, wide.to(out.dtype))


@COMMON
def test_the_epilogue_runs_once(row):
    """On exact sums, in both kernels."""

    def check(activation, strides, out_dtype):
        m, n, k = sizes(row)
        a, b = operands(row, MIRRORED[row.layout], m, n, k, whole=True)
        addends = {"device": "cuda", "largest": 9}
        options = {"activation": activation, "alpha": 0.5, "beta": -0.25}
        options["bias"] = cases.make("contiguous", 1, n, dtype=F32, **addends)[0]
        options["c"] = cases.make("padded", m, n, dtype=row.types.a, **addends)
        guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device="cuda")
        stream(row, a, b, guarded.view, 2, **options)
        expected = reference.exact(a, b, **options, out_dtype=out_dtype)
        reference.assert_guarded(guarded, expected)

    outs = (("padded", row.types.a), ("odd_pitch", row.types.a), ("padded", F32))
    check_all([(name, *out) for name, out in itertools.product((None, "relu"), outs)], check)


def planned_product():
    """A product that the planner gives to stream-K."""
    a = torch.randn(192, 14080, device="cuda").bfloat16()
    w = torch.randn(10008, 14080, device="cuda").bfloat16()
    assert tcgemm.explain(a, w.t()).stream_k
    return a, w


@pytest.mark.gpu
@pytest.mark.sm90
def test_a_planned_product_has_the_same_bits_in_every_form():
    a, w = planned_product()
    out = tcgemm.mm(a, w.t())
    wide = tcgemm.mm(a, w.t(), out_dtype=F32)
    assert same_bits(wide.bfloat16(), out)
    columns = torch.empty(10008, 192, device="cuda", dtype=BF16).t()
    assert same_bits(tcgemm.mm(a, w.t(), out=columns), out)
    relu = tcgemm.matmul(a, w.t(), activation="relu")
    assert same_bits(relu, out.relu())
    torch.testing.assert_close(wide, a.float() @ w.t().float(), rtol=2e-2, atol=2.0)
    with tcgemm.batch_invariant():
        assert not tcgemm.explain(a, w.t()).stream_k


@pytest.mark.gpu
@pytest.mark.sm90
def test_the_argument_of_an_activation_is_kept():
    """Its gradient needs it; gelu's own result comes from the same sums."""
    a, w = planned_product()
    bias = torch.randn(10008, device="cuda").bfloat16().requires_grad_()
    result = tcgemm.linear(a, w, bias, activation="gelu")
    z = tcgemm.linear(a, w, bias.detach())
    torch.testing.assert_close(result, torch.nn.functional.gelu(z), rtol=2e-2, atol=2e-2)
    result.sum().backward()
    exact = z.float().requires_grad_()
    torch.nn.functional.gelu(exact).sum().backward()
    torch.testing.assert_close(bias.grad.float(), exact.grad.sum(0), rtol=2e-2, atol=1.0)


def in_place(a, w):
    """multiply(out) of the operands, and its result."""
    return lambda out: tcgemm.mm(a, w.t(), out=out), tcgemm.mm(a, w.t())


@pytest.mark.gpu
@pytest.mark.sm90
def test_streams_and_graphs_end():
    """Each grid has all multiprocessors."""
    check_streams_and_graphs(*in_place(*planned_product()), rounds=30)


@pytest.mark.gpu
@pytest.mark.sm90
def test_a_part_of_a_gpu():
    """The kernel then stores the sums in one launch, and adds them in a second one."""
    check_part_of_a_gpu(*in_place(*planned_product()))
