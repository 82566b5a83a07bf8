"""Every kernel of the catalog that this build has and this GPU runs, one by one, by its full name.

The planner would show most of them one shape or none; here each gets whole, ragged, shallow, deep,
batched and fused problems in its own layout. Operands lie in storage that is poison elsewhere,
results in a buffer of poison, so that a read or a write beside them, or an element left out, shows.

Faults of a kernel, and the tests that find them:

    leaves a tile at zero, or unwritten    every exact test: one element is enough
    drops or repeats a step of k           the exact tests; the bound on normal data, far above 1
    swaps rows, columns or fragments       the exact tests: operands are random, no two rows alike
    takes the scale of another block       powers of two in test_row_with_scales and, of kernels of
                                           blocks, everywhere
    masks the edge wrongly                 the ragged kinds: sizes just above and below the tile's
    stores beside the result               the guards around it
    loses what 14 bits do not hold         the bound of promoted sums (ops/test_faults.py)

That the checks do see such results, of every dtype, is shown in ops/test_faults.py.
"""

import itertools

import pytest
import torch

from support import cases, reference
from support.cases import BF16, F16, F32, F64, INT8, S32, check_all
from support.catalog_rows import (
    CLUSTERS,
    KINDS,
    block_scales,
    check_exact,
    every_row,
    kind_of,
    kind_sizes,
    launch,
    operands,
    row_and_layout,
    rows,
)
from support.dtype_matrix import positive, scale_a, scale_b, zero_points

EVERY_ROW = rows()
ANY_ALIGNMENT = rows(lambda row: not row.uses_tma)
ANY_EPILOGUE = rows(lambda row: not row.unrolled_only)
VECTORS = rows(lambda row: row.uses_tma and not row.split_fp32 and row.layout in ("TN", "NN"))
OUT_STRIDES = ("padded", "odd_pitch", "step_both", "transposed_padded", "transposed_odd")


@pytest.mark.gpu
def test_this_build_has_kernels_for_this_gpu():
    kernels = every_row()
    assert "sm80" in {row.arch for row in kernels}
    for dtype in cases.HALVES:
        assert {row.layout for row in kernels if row.types.a == dtype} == set(cases.LAYOUTS)
    assert {row.types.a for row in kernels} >= {F32, *INT8}


@pytest.mark.gpu
@pytest.mark.sm90
def test_this_build_has_kernels_for_hopper():
    kernels = [row for row in every_row() if row.arch == "sm90a"]
    assert {row.types.a for row in kernels} == {*cases.REAL, *cases.FP8, *INT8}
    mainloops = {"dense", "promoted", "block_scaled", "rs", "split_fp32", "tf32x2", "fp64", "gemv"}
    assert {row.mainloop for row in kernels} == mainloops
    assert {row.terms for row in kernels} == {1, 2, 3}
    assert {row.pingpong for row in kernels} == {False, True}


@EVERY_ROW
def test_row_is_exact(row):
    check_all(
        itertools.product(KINDS, range(len(row.layouts))),
        lambda kind, step: check_exact(row, kind, step),
    )


@pytest.mark.parametrize("cluster", (2, 4))
@rows(lambda row: row.uses_tma)
def test_row_in_clusters(row, cluster):
    """Each block loads a part of b for all, and the last one may have no rows."""
    check_all(
        itertools.product(CLUSTERS, range(len(row.layouts))),
        lambda kind, step: check_exact(row, kind, step, cluster=cluster),
    )


@rows(lambda row: not row.types.integer)
def test_row_on_normal_data(row):
    def check(kind, step, out_dtype):
        kind = kind_of(kind, row)
        m, n, k = kind_sizes(kind, row)
        a, b = operands(*row_and_layout(row, kind.out, step), m, n, k)
        scales = block_scales(row, m, n, k, step=m, powers=False)
        guarded = cases.Guarded(kind.out, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=guarded.view, **scales)
        limit = 1.0 if out_dtype != F32 else 0.9 if row.types.fp8 else 0.5
        options = row.types.options | scales
        reference.assert_close(guarded.view, a, b, limit=limit, **options)
        first = guarded.view.clone()
        guarded.view.fill_(cases.poison(out_dtype))
        launch(row, a, b, out=guarded.view, **scales)
        assert torch.equal(guarded.view, first)
        assert guarded.untouched()

    outs = dict.fromkeys((row.types.outs[0], row.types.widest))
    check_all(itertools.product(KINDS[:4], range(len(row.layouts)), outs), check)


@VECTORS
def test_row_with_terms_of_the_plain_and_fused_epilogues(row):
    """A bias of each dtype, c or the residual, each activation: in more than one wave of tiles, so
    that an epilogue runs beside the loads and products of the next tile."""
    addends = [(None, None), ("c", BF16), ("residual", F16), ("residual", BF16)]
    if row.bias_only:
        addends = [(None, None)] * 4
    biases = (None, F32, BF16, F16)
    outs = [out for out in (BF16, F16, F32) if out in row.types.outs]
    if row.unrolled_only and row.types.integer:  # f32 results of s32 sums are stored in pairs
        outs.remove(F32)

    def check(activation, step):
        (name, addend_dtype), bias_dtype = addends[step % 4], biases[step // 2 % 4]
        out_dtype = outs[step % len(outs)]
        m, n = (row.tile[0] + 8, row.tile[1] + 24) if step % 3 else (12 * row.tile[0], 2048)
        k = 2 * row.tile[2] + 128 * row.block_scaled
        exact = activation in (None, "relu")
        a, b = operands(*row_and_layout(row, "padded"), m, n, k, whole=exact)
        options = {"activation": activation} | block_scales(row, m, n, k, step=step, powers=exact)
        addend_options = {"device": "cuda", "largest": 9 if exact else None}
        if row.types.integer:
            options["alpha"] = 2.0**-12
        if bias_dtype:
            options["bias"] = cases.make("contiguous", 1, n, dtype=bias_dtype, **addend_options)[0]
        if name:
            options[name] = cases.make("padded", m, n, dtype=addend_dtype, **addend_options)
            options |= {"beta": -0.5} if name == "c" else {}
        guarded = cases.Guarded("padded", (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=guarded.view, **options)
        options |= row.types.options | {"out_dtype": out_dtype}
        if exact and not row.types.integer:
            reference.assert_exact(guarded.view, reference.exact(a, b, **options))
        else:
            reference.assert_close(guarded.view, a, b, **options)
        assert guarded.untouched()

    activations = (None, "relu") if row.bias_only else (None, *cases.ACTIVATIONS)
    # The fused epilogue has no gelu for results of 32 bits.
    pairs = itertools.product(activations, range(8))
    if row.unrolled_only:
        pairs = [(a, step) for a, step in pairs if a != "gelu" or outs[step % len(outs)] != F32]
    check_all(pairs, check)


@rows(lambda row: row.uses_tma and row.types.a in cases.HALVES)
def test_row_with_the_argument_of_its_activation(row):
    """Both results have the bits of calls that return one of them."""

    def check(activation, dtype, ragged):
        m, n = (row.tile[0] + 8, row.tile[1] + 24) if ragged else (12 * row.tile[0], 2048)
        a, b = operands(*row_and_layout(row, "padded"), m, n, 2 * row.tile[2])
        options = row.types.options | {"out_dtype": dtype, "kernel_name": row.name}
        options["bias"] = cases.make("contiguous", 1, n, dtype=dtype, device="cuda")[0]
        # relu needs its argument where a residual follows.
        addend = cases.make("padded", m, n, dtype=dtype, device="cuda")
        epilogue = {"residual": addend} if ragged or activation == "relu" else {}
        epilogue["activation"] = activation
        out, z = torch.ops.tcgemm.scaled_mm.with_z(a, b, **options, **epilogue)
        assert torch.equal(out, torch.ops.tcgemm.scaled_mm(a, b, **options, **epilogue))
        assert torch.equal(z, torch.ops.tcgemm.scaled_mm(a, b, **options))

    check_all(itertools.product(cases.ACTIVATIONS, (BF16, F16), (0, 1)), check)


@ANY_EPILOGUE
def test_row_with_every_option(row):
    """Every way to store every result, and addends of each type: read in words, one by one, or
    broadcast."""

    def addend(strides, rows, columns, dtype, out_dtype):
        dtype = S32 if out_dtype == S32 else dtype
        return cases.make(strides, rows, columns, dtype=dtype, device="cuda", largest=9)

    def check(out_strides, step, out_dtype):
        m, n, k = row.tile[0] + 21, row.tile[1] + 11, row.tile[2] + 5
        a, b = operands(*row_and_layout(row, out_strides, step), m, n, k, whole=True)
        addends = (
            (("odd_pitch", m, n, F32), ("contiguous", 1, n, F16), ("padded", m, n, F16)),
            (("padded", m, n, F32), ("contiguous", m, 1, BF16), None),
            (None, ("transposed_padded", 1, n, F32), ("padded", m, n, BF16)),
            (("transposed", m, n, F16), None, ("expanded_both", m, n, F32)),
        )[step]
        terms = [words and addend(*words, out_dtype) for words in addends]
        options = {"alpha": 2.0, "beta": -3.0, "activation": "relu"}
        options |= block_scales(row, m, n, k, step=step)
        guarded = cases.Guarded(out_strides, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, *terms, out=guarded.view, **options)
        options |= row.types.options | {"out_dtype": out_dtype}
        reference.assert_guarded(guarded, reference.exact(a, b, *terms, **options))

    outs = row.types.outs
    check_all(
        (
            (strides, step, outs[(index + step + shift) % len(outs)])
            for (index, strides), step in itertools.product(enumerate(OUT_STRIDES), range(4))
            for shift in range(0, len(outs), 3)
        ),
        check,
    )


@ANY_EPILOGUE
def test_row_with_an_activation(row):
    def check(activation, out_strides):
        m, n, k = row.tile[0] + 5, row.tile[1] + 3, 80 + 128 * row.block_scaled
        a, b = operands(*row_and_layout(row, out_strides), m, n, k)
        bias = cases.make("contiguous", 1, n, dtype=F32, device="cuda")[0]
        alpha = 2.0**-15 if row.types.integer else 0.25
        options = {"activation": activation, "alpha": alpha}
        options |= block_scales(row, m, n, k, powers=False)
        out_dtype = F64 if row.types.a == F64 else F32 if row.types.integer else row.types.outs[0]
        guarded = cases.Guarded(out_strides, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, None, bias, out=guarded.view, **options)
        reference.assert_close(guarded.view, a, b, None, bias, **options, **row.types.options)

    check_all(zip(cases.ACTIVATIONS, OUT_STRIDES, strict=False), check)


@ANY_EPILOGUE
def test_row_with_scales(row):
    """Scales of operands and of the result, zero points, amax: every store path, bit by bit."""

    def check(out_strides, step, out_dtype):
        m, n, k = row.tile[0] + 37, row.tile[1] + 8 * step + 3, 2 * row.tile[2] + 131
        a, b = operands(*row_and_layout(row, out_strides, step), m, n, k, whole=True)
        scale_strides = ("contiguous", "transposed", "step_both")[step % 3]
        options = block_scales(row, m, n, k, step=step, strides=scale_strides)
        if not options:
            kinds = (("row", "row"), ("tensor", "row"), ("row", ""), ("", "row"))[step % 4]
            scale_options = {"device": "cuda", "powers": True, "strides": scale_strides}
            options["scale_a"] = scale_a(kinds[0], m, k, **scale_options)
            options["scale_b"] = scale_b(kinds[1], n, k, **scale_options)
            options = {name: scale for name, scale in options.items() if scale is not None}
        if row.types.integer:
            options["alpha"] = 2.0**-12
            options["zero_a"] = zero_points(*((m, 1) if step % 2 else (1,)), device="cuda")
            options["zero_b"] = zero_points(*((1, n) if step != 1 else (1, 1)), device="cuda")
        options["bias"] = cases.make("contiguous", 1, n, dtype=F32, device="cuda", largest=9)[0]
        last = {"scale_out": positive(1, device="cuda", powers=True)}
        guarded = cases.Guarded(out_strides, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=guarded.view, **options, **last)
        last |= {"out_dtype": out_dtype}
        keywords = row.types.options | options
        if row.types.integer:  # these need more than 24 bits
            reference.assert_close(guarded.view, a, b, **keywords, **last)
        else:
            expected = reference.exact(a, b, **keywords, **last)
            reference.assert_exact(guarded.view, expected)
        assert guarded.untouched()
        # It makes its own result, a row-major one; where some is computed again, another kernel.
        if not (out_strides.startswith("transposed") or row.terms > 1):
            arguments = keywords | last | {"kernel_name": row.name}
            out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **arguments)
            assert torch.equal(out, guarded.view)
            reference.assert_amax(amax, a, b, **keywords)

    outs = [out for out in row.types.outs if out != S32]
    steps = itertools.product(enumerate(OUT_STRIDES), range(4))
    check_all(((s, step, outs[(i + step) % len(outs)]) for (i, s), step in steps), check)


# Features of single families.


def assert_exact_from_any_strides(row, a, b):
    """Operands that are gathered or copied first, to a result whose rows are not words."""
    (m, k), n = a.shape, b.shape[1]
    scales = block_scales(row, m, n, k)
    guarded = cases.Guarded("odd_pitch", (m, n), dtype=row.types.outs[0], device="cuda")
    launch(row, a, b, out=guarded.view, direct=False, **scales)
    expected = reference.exact(a, b, **scales, **row.types.options)
    reference.assert_guarded(guarded, expected)


@ANY_ALIGNMENT
def test_row_at_any_alignment(row):
    """Either operand, and both, where cp.async cannot read 16 bytes; with tails everywhere."""
    plain = cases.major_strides(row.layout)
    awkward = {
        "contiguous": ("odd_pitch", "offset", "step_rows", "contiguous"),
        "transposed": ("transposed_odd", "transposed_offset", "transposed_padded", "transposed"),
    }
    m, n, k = row.tile[0] + 9, row.tile[1] + 7, row.tile[2] * (row.stages + 1) + 11
    sizes = {"m": m, "n": n, "k": k, "device": "cuda", "whole": True}

    def check(stride_a, stride_b):
        a, b = row.types.make(stride_a, stride_b, **sizes)
        assert_exact_from_any_strides(row, a, b)

    check_all(itertools.product(awkward[plain[0]], awkward[plain[1]]), check)


@rows(lambda row: row.k_major_only and not row.rs and not row.unrolled_only)
def test_row_that_reads_k_major_alone_serves_every_layout(row):
    """After a copy; small operands are gathered by the older kernels."""

    def check(layout, m, n, k):
        a, b = row.types.operands(layout, m, n, k, device="cuda", whole=True)
        assert_exact_from_any_strides(row, a, b)

    small = (33, 17, 30 + 128 * row.block_scaled)
    whole = (row.tile[0] + 16, row.tile[1] + 16, 2 * row.tile[2] + 32)
    sizes = (small, whole, (row.tile[0] + 5, row.tile[1] + 9, 300))
    check_all(((layout, *size) for layout in cases.LAYOUTS for size in sizes), check)


@rows(lambda row: not row.uses_tma and not row.block_scaled and row.layout == "TN")
def test_row_of_depth_zero(row):
    a = torch.empty(70, 0, device="cuda").to(row.types.a)
    b = torch.empty(50, 0, device="cuda").to(row.types.b).t()
    c = cases.make("contiguous", 70, 50, dtype=F32, device="cuda", largest=9)
    for out_dtype in row.types.outs:
        addend = c.to(S32) if out_dtype == S32 else c
        options = {
            "beta": 2.0,
            "acc_dtype": row.types.accumulator,
            "precision": row.types.precision,
        }
        options["out_dtype"] = out_dtype
        out = torch.ops.tcgemm._gemm(a, b, addend, kernel=row.name, **options)
        reference.assert_exact(out, reference.exact(a, b, addend, **options))
