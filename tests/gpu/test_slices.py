"""Products whose k is divided into slices: kernels that store the sums of each slice and the kernel
that adds them, clusters that add them, and grids whose CTAs add them after a barrier.

Faults, and the tests that find them:

    a slice is left out, or read twice      whole numbers and ones, whose sums are exact
    the end of k is lost                    ones over every rest of K by the tile and by the slices
    sums are added in another order         the bits of the emulator, and of another kernel
    the epilogue is applied to each slice   a bias, c and an activation beside whole numbers
    another call uses the same workspace    two streams, and a graph that is replayed
    a CTA adds what is not stored yet       the same bits as by another kernel, again and again
    two grids wait for each other           two streams, with more CTAs than multiprocessors
    a grid does not fit a part of a GPU     a green context

test_mps.py has two processes.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import emulate

from support import cases, reference
from support.cases import BF16, F32, check_all
from support.catalog_rows import (
    KINDS,
    Kind,
    block_scales,
    kind_of,
    kind_sizes,
    launch,
    operands,
    row_and_layout,
    rows,
)
from support.grids import check_part_of_a_gpu, check_streams_and_graphs
from support.reference import same_bits

COUNTS = (2, 3, 8, 9, 33, 64)
DIVIDING = rows(lambda row: row.divides_k)
CLUSTERS = rows(lambda row: row.sums_in_cluster)
BOTH_WAYS = rows(lambda row: row.sums_in_cluster and row.divides_k)
TILES = ((64, 64), (128, 128), (128, 256))
GRIDS = rows(lambda row: "slices" in row.epilogue_paths)
COMMON = rows(lambda row: row.divides_k and row.tile[:2] in TILES and row.layout in ("TN", "NN"))
MOST = Kind("most", lambda m, n, k, s: (m // 2 + 1, n // 2 + 3, 67 * k + 5))


def counts_of(k, row):
    """The numbers of slices that so many k-blocks can be divided into."""
    blocks = -(-k // row.tile[2])
    return [count for count in COUNTS if count <= blocks]


def cluster_counts(row):
    """The numbers of slices that a cluster can add. The stages have what the warps of a CTA receive
    from the others, and what its other warps send."""
    m, n, _ = row.tile
    warps, terms = m // 16, 2 if row.split_fp32 else 1

    def held(count):
        own = -(-warps // count)
        return (own * (count - 1) + warps - own) * 16 * n * 4

    stages = row.stages * terms * (m + n) * 128
    return [count for count in range(2, 9) if held(count) <= stages]


@DIVIDING
def test_row_is_exact_in_slices(row):
    def check(kind, step):
        kind = kind_of(kind, row)
        m, n, k = kind_sizes(kind, row)
        counts = counts_of(k, row)
        if not counts:
            return
        operand_row, layout = row_and_layout(row, kind.out, step)
        shapes = {"batch": kind.batch, "shared": kind.shared}
        a, b = operands(operand_row, layout, m, n, k, whole=True, **shapes)
        scales = block_scales(row, m, n, k, step=len(kind.name) + step)
        expected = reference.exact(a, b, **scales, **row.types.options)
        for count in (counts[0], counts[-1]):
            shape = (*kind.batch, m, n)
            guarded = cases.Guarded(kind.out, shape, dtype=row.types.outs[0], device="cuda")
            launch(row, a, b, out=guarded.view, slices=count, **scales)
            reference.assert_guarded(guarded, expected)

    check_all(itertools.product((*KINDS, MOST), range(len(row.layouts))), check)


@CLUSTERS
def test_row_is_exact_in_clusters_that_add(row):
    """Every cluster has one tile, so the result is small."""

    def check(m, n, batch, count, strides, step):
        k = (5 * count + 2) * row.tile[2] // 2 + 3
        operand_row, layout = row_and_layout(row, strides, step)
        a, b = operands(operand_row, layout, m, n, k, whole=True, batch=batch, shared=())
        scales = block_scales(row, m, n, k, step=step)
        expected = reference.exact(a, b, **scales, **row.types.options)
        guarded = cases.Guarded(strides, (*batch, m, n), dtype=row.types.outs[0], device="cuda")
        launch(row, a, b, out=guarded.view, slices=count, cluster_adds=True, **scales)
        reference.assert_guarded(guarded, expected)

    m, n, _ = row.tile
    odd = 0 if row.unrolled_only else 3
    shapes = [(m // 2 + 1, n - odd, ()), (2 * m - 7, 3 * n + 8, ())]
    shapes += [(m, n + 8, (3,)), (1, 5 * n, ())]
    for (rows_, columns, batch), step in itertools.product(shapes, range(len(row.layouts))):
        for count in cluster_counts(row):
            strides = "padded" if count % 2 or row.unrolled_only else "odd_pitch"
            check(rows_, columns, batch, count, strides, step)


@BOTH_WAYS
def test_clusters_have_the_bits_of_the_kernel_that_adds(row):
    """Also with every term of the epilogue, and where the next kernel waits for the sums."""
    m, n, _ = row.tile
    k = 37 * row.tile[2] + 8
    a, b = operands(*row_and_layout(row, "padded"), m + 1, n + 8, k)
    scales = block_scales(row, m + 1, n + 8, k, step=1, powers=False)
    bias = cases.make("contiguous", 1, n + 8, dtype=F32, device="cuda")[0]
    options = {"bias": bias, "activation": "gelu"}
    options = {} if row.types.integer or row.unrolled_only else options
    for count in {2, cluster_counts(row)[-1]}:
        results = []
        for cluster_adds in (False, True):
            out = torch.empty(m + 1, n + 8, dtype=row.types.widest, device="cuda")
            launch(row, a, b, out=out, slices=count, cluster_adds=cluster_adds, **options, **scales)
            results.append(out)
        assert same_bits(*results)


@rows(lambda row: row.sums_in_cluster and row.split_fp32)
def test_split_float32_in_clusters_has_the_bits_of_the_emulator(row):
    """The sums of all slices are rescaled, and those that are wrong are computed again."""

    def check(count, data):
        k = (2 * count + 1) * row.tile[2] + row.tile[2] // 2
        a, b = operands(*row_and_layout(row, "padded"), 72, 40, k)
        if data == "wide":
            a.mul_(2.0 ** torch.randint(-30, 30, a.shape, device="cuda"))
        out = torch.empty(72, 40, device="cuda")
        launch(row, a, b, out=out, slices=count, cluster_adds=True)
        options = {"kernel": f"{row.name}/{count}c", "device": "H200"} | row.types.options
        assert same_bits(out.cpu(), emulate.mm(a.cpu(), b.cpu(), **options))

    counts = {*cluster_counts(row)[:2], cluster_counts(row)[-1]}
    check_all(itertools.product(counts, ("normal", "wide")), check)


@GRIDS
def test_a_grid_has_the_bits_of_the_kernel_that_adds(row):
    """The batch has more tiles than a GPU has multiprocessors: another kernel adds its slices."""
    m, n, k = row.tile[0] - 3, row.tile[1], 67 * row.tile[2] + 8
    a, b = operands(*row_and_layout(row, "contiguous"), m, n, k)
    batches = a.expand(140, -1, -1), b.expand(140, -1, -1)
    dtype = row.types.widest
    for count in (2, 3, 8, 9, 33, 64):
        several = torch.empty(140, m, n, dtype=dtype, device="cuda")
        assert "another kernel adds" in launch(row, *batches, out=several, slices=count)
        for _ in range(5):
            out = torch.full((m, n), 7, dtype=dtype, device="cuda")
            assert "the CTAs add" in launch(row, a, b, out=out, slices=count)
            assert same_bits(out, several[0]), count


@COMMON
def test_ones_count_all_of_k(row):
    """cuBLAS 12.8 and 13.1 lose the rest of K by 64 for some shapes and numbers of slices."""

    def check(count, rest):
        k = 3 * count * row.tile[2] // 2 + rest
        a, b = operands(*row_and_layout(row, "contiguous"), 8, 24, k)
        a.fill_(1), b.fill_(1)
        out = torch.empty(8, 24, device="cuda", dtype=row.types.widest)
        launch(row, a, b, out=out, slices=count)
        assert (out == k).all(), (count, k, out[0, 0].item())

    if row.types.accumulator == torch.float16 or row.block_scaled:
        pytest.skip("its sums are not exact, or are scaled by blocks")
    rests = (0, 1, row.tile[2] // 2, row.tile[2] - 1)
    check_all(itertools.product((2, 5, 16, 61), rests), check)


@COMMON
def test_the_epilogue_runs_once(row):
    """The bits of the terms on exact sums, and of each dtype of results."""

    def check(out_dtype, activation, strides):
        m, n, k = 72, 104, 9 * row.tile[2]
        a, b = operands(*row_and_layout(row, strides), m, n, k, whole=True)
        options = {"activation": activation, "alpha": 0.5, "beta": -0.25}
        options |= block_scales(row, m, n, k, step=m)
        addend_options = {"device": "cuda", "largest": 9}
        options["bias"] = cases.make("contiguous", 1, n, dtype=F32, **addend_options)[0]
        f64 = row.types.a is torch.float64
        dtype = torch.float64 if f64 else BF16
        options["c"] = cases.make("padded", m, n, dtype=dtype, **addend_options)
        options["residual"] = cases.make("odd_pitch", m, n, dtype=dtype, **addend_options)
        if f64:
            options["bias"] = options["bias"].double()
        guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=guarded.view, slices=4, **options)
        options |= row.types.options | {"out_dtype": out_dtype}
        reference.assert_guarded(guarded, reference.exact(a, b, **options))

    if row.types.integer:
        pytest.skip("test_integers_in_slices has them")
    outs = [out for out in row.types.outs if out.itemsize > 1]
    strides = ("padded", "odd_pitch", "step_both")
    check_all(itertools.product(outs, (None, "relu"), strides), check)


@rows(lambda row: row.divides_k and row.types.integer and row.name.endswith("128x128x128_w2_s6_tn"))
def test_integers_in_slices(row):
    """Zero points, scales and all results of 8-bit integers."""
    m, n, k = 40, 72, 11 * row.tile[2] + 3
    a, b = operands(*row_and_layout(row, "contiguous"), m, n, k)
    zeros = {"zero_a": torch.tensor(3, device="cuda", dtype=torch.int32)}
    zeros |= {"zero_b": torch.arange(n, device="cuda", dtype=torch.int32).view(1, n)}
    for out_dtype, options in ((torch.int32, zeros), (BF16, {"scale_a": torch.tensor(2.0**-9)})):
        options = {name: x.cuda() for name, x in options.items()}
        out = torch.empty(m, n, device="cuda", dtype=out_dtype)
        whole = torch.empty_like(out)
        launch(row, a, b, out=out, slices=5, **options)
        launch(row, a, b, out=whole, slices=1, **options)
        assert torch.equal(out, whole)


@COMMON
def test_slices_have_the_bits_of_the_emulator(row):
    def check(count):
        k = (2 * count + 1) * row.tile[2] + row.tile[2] // 2
        a, b = operands(*row_and_layout(row, "padded"), 24, 40, k)
        scales = block_scales(row, 24, 40, k, step=count, powers=False)
        out = torch.empty(24, 40, device="cuda", dtype=row.types.widest)
        launch(row, a, b, out=out, slices=count, **scales)
        options = {name: scale.cpu() for name, scale in scales.items()} | row.types.options
        options |= {"out_dtype": out.dtype, "kernel": f"{row.name}/{count}", "device": "H200"}
        assert same_bits(out.cpu(), emulate.mm(a.cpu(), b.cpu(), **options))

    check_all(((count,) for count in (2, 9, 64)), check)


@pytest.mark.gpu
@pytest.mark.sm90
def test_streams_and_graphs_do_not_share_sums():
    """Two streams at once, and a graph that is replayed while another call runs."""
    shapes = [(96, 136, 8192), (64, 64, 16384)]
    sets = [
        (torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16())
        for m, n, k in shapes
    ]
    assert all(tcgemm.explain(a, w.t()).slices > 1 for a, w in sets)
    expected = [tcgemm.mm(a, w.t(), out_dtype=F32) for a, w in sets]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph_result = tcgemm.mm(sets[0][0], sets[0][1].t(), out_dtype=F32)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for _ in range(50):
        graph_result.zero_()
        torch.cuda.synchronize()
        results = []
        for stream, (a, w) in zip(streams, sets, strict=True):
            with torch.cuda.stream(stream):
                results.append(tcgemm.mm(a, w.t(), out_dtype=F32))
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, results, expected)) and torch.equal(graph_result, expected[0])


def long_product():
    """A product whose slices 128 CTAs add: multiply(out), and its result."""
    a, b = (torch.randn(128, 32768, device="cuda").bfloat16() for _ in range(2))
    kernel = "sm90a_bf16_f32_64x64x64_w1_s12_tn/32"
    assert "the CTAs add" in tcgemm.explain(a, b.t(), kernel=kernel)

    def multiply(out):
        torch.ops.tcgemm.scaled_mm.out(a, b.t(), kernel_name=kernel, out=out)

    expected = torch.empty(128, 128, device="cuda", dtype=BF16)
    multiply(expected)
    return multiply, expected


@pytest.mark.gpu
@pytest.mark.sm90
def test_grids_of_two_streams_and_graphs_end():
    """Each has nearly all multiprocessors."""
    check_streams_and_graphs(*long_product(), rounds=100)


@pytest.mark.gpu
@pytest.mark.sm90
def test_a_part_of_a_gpu():
    """The kernel then stores the sums in one launch, and adds them in a second one."""
    check_part_of_a_gpu(*long_product())
