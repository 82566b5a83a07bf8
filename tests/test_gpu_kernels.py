"""Every kernel of the catalog that this build has and this GPU runs, one by one, by its full name.

The planner would show most of them one shape or none; here each gets whole, ragged, shallow, deep,
batched and fused problems in its own layout. Operands lie in storage that is NaN elsewhere, results
in a buffer of NaN, so that a read or a write beside them, or an element left out, shows.
"""

import re
from typing import NamedTuple

import cases
import pytest
import reference
import torch
from cases import BF16, F16, F32

import tcgemm
from tcgemm import info

NAN = float("nan")
TYPES = {name: dtype for dtype, name in cases.NAMES.items()}
# What a layout is called for out^T = b^T a^T.
MIRRORED = {"TN": "TN", "NT": "NT", "NN": "TT", "TT": "NN"}


class Row(NamedTuple):
    """What the name of a kernel says."""

    name: str
    arch: str
    dtype: torch.dtype
    accumulator: torch.dtype
    tile: tuple[int, int, int]
    stages: int
    layout: str


def parse(name):
    arch, dtype, accumulator, tile, _, stages, layout = name.split("_")
    return Row(
        name,
        arch,
        TYPES[dtype],
        TYPES[accumulator],
        tuple(int(size) for size in tile.split("x")),
        int(stages.removeprefix("s")),
        layout.upper(),
    )


def rows(arch=""):
    """Parameter sets, one a kernel of this build."""
    marks = {"sm80": [pytest.mark.gpu], "sm90a": [pytest.mark.gpu, pytest.mark.sm90]}
    found = [parse(name) for name in info.build()["kernels"]]
    return [
        pytest.param(row, marks=marks[row.arch], id=row.name)
        for row in found
        if row.arch.startswith(arch)
    ]


class Kind(NamedTuple):
    """One problem, from the sizes of a tile and the depth of the ring."""

    name: str
    sizes: object  # (tile_m, tile_n, tile_k, stages) -> m, n, k
    out: str = "padded"  # strides of the result
    batch: tuple[int, ...] = ()
    shared: str = ""  # the operand that all batches share


KINDS = (
    Kind("whole", lambda m, n, k, s: (2 * m, 2 * n, (s + 2) * k), "contiguous"),
    # 13 x 13 tiles are more than one wave of 132 multiprocessors.
    Kind("waves", lambda m, n, k, s: (13 * m - 5, 13 * n - 8, 2 * k), "contiguous"),
    Kind("ragged", lambda m, n, k, s: (2 * m + 1, n + 13, 2 * k + k // 2 + 3), "odd_pitch"),
    Kind("ragged_words", lambda m, n, k, s: (m + 24, n + 40, 3 * k + 8)),
    Kind("ragged_in_padding", lambda m, n, k, s: (m - 7, n - 3, k - 1)),
    Kind("column_major", lambda m, n, k, s: (m + 3, n + 5, k + 2), "transposed_padded"),
    Kind("three_tiles_down", lambda m, n, k, s: (2 * m + 17, n // 2, 2 * k)),
    Kind("deep", lambda m, n, k, s: (m // 2, n // 2, (3 * s + 1) * k + 9)),
    Kind("one_k_block", lambda m, n, k, s: (m, n, k)),
    Kind("shallow", lambda m, n, k, s: (m + 3, n + 9, 5)),
    Kind("tiny", lambda m, n, k, s: (2, 3, 2)),
    Kind("batch", lambda m, n, k, s: (m + 1, n // 2 + 3, k + 7), "padded", (5,)),
    Kind("batch_whole", lambda m, n, k, s: (m, n, 2 * k), "contiguous", (3,)),
    Kind("batch_of_one_a", lambda m, n, k, s: (m + 2, n + 8, k + 8), "padded", (4,), "a"),
    Kind("batch_of_one_b", lambda m, n, k, s: (m // 2, n + 8, k + 8), "padded", (4,), "b"),
)


def kind_sizes(kind, row):
    return kind.sizes(*row.tile, row.stages)


def operands(row, m, n, k, *, batch=(), shared="", layout=None, largest=None):
    """a and b in the layout of the row, readable by TMA whatever their sizes."""
    padded = {"contiguous": "padded", "transposed": "transposed_padded"}
    stored_a, stored_b = (padded[name] for name in cases.major_strides(layout or row.layout))
    options = {"dtype": row.dtype, "device": "cuda", "largest": largest}
    a = cases.make(stored_a, *(() if shared == "a" else batch), m, k, **options)
    return a, cases.make(stored_b, *(() if shared == "b" else batch), k, n, **options)


def whole_numbers(row):
    """Largest operands; sums of some thousand random ones stay below 2^11 and 2^24."""
    return 1 if row.accumulator == F16 else 4


def launch(row, a, b, *addends, out, **options):
    """Runs the row, and makes sure that it is this kernel alone, on the operands as they are."""
    keywords = {"acc_dtype": row.accumulator, "out_dtype": out.dtype, "kernel": row.name}
    text = torch.ops.tcgemm.explain(a, b, out=out, **keywords)
    assert f" {row.name} (row " in text
    assert "nothing is copied" in text
    torch.ops.tcgemm._gemm.out(a, b, *addends, **options, **keywords, out=out)


@pytest.mark.gpu
def test_this_build_has_kernels_for_this_gpu():
    kernels = [parse(name) for name in info.build()["kernels"]]
    assert "sm80" in {row.arch for row in kernels}
    for dtype in cases.HALVES:
        layouts = {row.layout for row in kernels if row.dtype == dtype}
        assert layouts == set(cases.LAYOUTS)


@pytest.mark.gpu
@pytest.mark.sm90
def test_this_build_has_kernels_for_hopper():
    assert "sm90a" in {parse(name).arch for name in info.build()["kernels"]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("row", rows())
def test_row_is_exact(row, kind):
    m, n, k = kind_sizes(kind, row)
    column_major = kind.out.startswith("transposed")
    layout = MIRRORED[row.layout] if column_major else row.layout
    options = {"batch": kind.batch, "shared": kind.shared, "layout": layout}
    a, b = operands(row, m, n, k, largest=whole_numbers(row), **options)
    guarded = cases.Guarded(kind.out, (*kind.batch, m, n), dtype=row.dtype, device="cuda")
    launch(row, a, b, out=guarded.view)
    reference.assert_exact(guarded.view, reference.exact(a, b))
    assert guarded.untouched()


@pytest.mark.parametrize("row", rows())
def test_row_on_normal_data(row):
    for kind in KINDS[:4]:
        m, n, k = kind_sizes(kind, row)
        a, b = operands(row, m, n, k)
        for out_dtype in (row.dtype, F32):
            guarded = cases.Guarded(kind.out, (m, n), dtype=out_dtype, device="cuda")
            launch(row, a, b, out=guarded.view)
            limit = 0.5 if out_dtype == F32 else 1.0
            options = {"acc_dtype": row.accumulator, "out_dtype": out_dtype}
            reference.assert_close(guarded.view, a, b, limit=limit, **options)
            first = guarded.view.clone()
            guarded.view.fill_(NAN)
            launch(row, a, b, out=guarded.view)
            assert torch.equal(guarded.view, first)
            assert guarded.untouched()


@pytest.mark.parametrize(
    "out_strides", ("padded", "odd_pitch", "step_both", "transposed_padded", "transposed_odd")
)
@pytest.mark.parametrize("row", rows())
def test_row_with_every_option(row, out_strides):
    """Every way to store, and addends of each type: read in words, one by one, or broadcast."""
    m, n, k = row.tile[0] + 21, row.tile[1] + 11, row.tile[2] + 5
    layout = MIRRORED[row.layout] if out_strides.startswith("transposed") else row.layout
    a, b = operands(row, m, n, k, layout=layout, largest=whole_numbers(row))

    def addend(strides, rows, columns, dtype):
        return cases.make(strides, rows, columns, dtype=dtype, device="cuda", largest=9)

    line = addend("contiguous", 1, n, row.dtype)
    for addends in (
        (addend("odd_pitch", m, n, F32), line, addend("padded", m, n, F16)),
        (addend("padded", m, n, F32), addend("contiguous", m, 1, BF16), None),
        (None, addend("transposed_padded", m, n, F32), addend("padded", m, n, BF16)),
        (addend("transposed", m, n, F16), None, addend("expanded_both", m, n, F32)),
    ):
        for out_dtype in cases.FLOATS:
            scalars = {"alpha": 2.0, "beta": -3.0, "activation": "relu"}
            guarded = cases.Guarded(out_strides, (m, n), dtype=out_dtype, device="cuda")
            torch.ops.tcgemm._gemm.out(
                *(a, b, *addends),
                **scalars,
                acc_dtype=row.accumulator,
                out_dtype=out_dtype,
                kernel=row.name,
                out=guarded.view,
            )
            expected = reference.exact(a, b, *addends, **scalars, out_dtype=out_dtype)
            reference.assert_exact(guarded.view, expected)
            assert guarded.untouched()


@pytest.mark.parametrize("activation", cases.ACTIVATIONS)
@pytest.mark.parametrize("row", rows())
def test_row_with_an_activation(row, activation):
    m, n, k = row.tile[0] + 5, row.tile[1] + 3, 80
    a, b = operands(row, m, n, k)
    bias = cases.make("contiguous", 1, n, dtype=F32, device="cuda")[0]
    options = {"activation": activation, "alpha": 0.25, "acc_dtype": row.accumulator}
    out = torch.ops.tcgemm._gemm(a, b, bias=bias, kernel=row.name, **options)
    reference.assert_close(out, a, b, None, bias, **options)


@pytest.mark.parametrize("row", rows("sm80"))
def test_sm80_row_at_any_alignment(row):
    """Either operand, and both, where cp.async cannot read 16 bytes; with tails everywhere."""
    plain = dict(zip(("a", "b"), cases.major_strides(row.layout), strict=True))
    awkward = {
        "contiguous": ("odd_pitch", "offset", "step_rows", "contiguous"),
        "transposed": ("transposed_odd", "transposed_offset", "transposed_padded", "transposed"),
    }
    m, n, k = row.tile[0] + 9, row.tile[1] + 7, row.tile[2] * (row.stages + 1) + 11
    options = {"dtype": row.dtype, "device": "cuda", "largest": whole_numbers(row)}
    for stride_a in awkward[plain["a"]]:
        for stride_b in awkward[plain["b"]]:
            a = cases.make(stride_a, m, k, **options)
            b = cases.make(stride_b, k, n, **options)
            guarded = cases.Guarded("odd_pitch", (m, n), dtype=row.dtype, device="cuda")
            torch.ops.tcgemm._gemm.out(
                a, b, acc_dtype=row.accumulator, kernel=row.name, out=guarded.view
            )
            reference.assert_exact(guarded.view, reference.exact(a, b))
            assert guarded.untouched()


@pytest.mark.parametrize("row", [row for row in rows("sm80") if row.id.endswith("_tn")])
def test_sm80_tile_of_depth_zero(row):
    """A matrix without depth may count as either major, so the layout is left open."""
    a = torch.empty(70, 0, dtype=row.dtype, device="cuda")
    c = cases.make("contiguous", 70, 50, dtype=F32, device="cuda", largest=9)
    options = {"acc_dtype": row.accumulator, "kernel": row.name.removesuffix("_tn")}
    out = torch.ops.tcgemm._gemm(a, a[:50].t(), c, beta=2.0, **options)
    reference.assert_exact(out, (2 * c).to(row.dtype))


# The prepare pass, in front of a wgmma kernel.


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize(("stride_a", "stride_b"), cases.stride_pairs())
@pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)
def test_prepare_makes_any_operand_readable(dtype, stride_a, stride_b):
    options = {"dtype": dtype, "device": "cuda", "largest": 4}
    for m, n, k in ((130, 65, 200), (257, 129, 63), (65, 300, 129)):
        a = cases.make(stride_a, m, k, **options)
        b = cases.make(stride_b, k, n, **options)
        guarded = cases.Guarded("padded", (m, n), dtype=dtype, device="cuda")
        torch.ops.tcgemm._gemm.out(a, b, kernel="sm90a", out=guarded.view)
        reference.assert_exact(guarded.view, reference.exact(a, b))
        assert guarded.untouched()


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("strides", (*cases.STRIDES, *cases.BATCH_STRIDES))
@pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)
def test_prepare_of_batches(dtype, strides):
    options = {"dtype": dtype, "device": "cuda", "largest": 4}
    for batch in ((5,), (2, 3)):
        a = cases.make(strides, *batch, 70, 90, **options)
        b = cases.make("odd_pitch", *batch, 90, 66, **options)
        for left, right in ((a, b), (b.mT, a.mT), (a, b[(0,) * len(batch)])):
            out = torch.ops.tcgemm._gemm(left, right, kernel="sm90a")
            reference.assert_exact(out, reference.exact(left, right))


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)
def test_prepare_reads_nothing_beside_its_operand(dtype):
    """Sizes and offsets through all remainders of a 16-byte word, each in NaN."""
    for k in range(120, 137):
        for offset in range(9):
            buffer = torch.full((70 * (k + 1) + 32,), NAN, dtype=dtype, device="cuda")
            a = cases.fill(buffer.as_strided((70, k), (k + 1, 1), offset), largest=4)
            b = cases.fill(buffer.new_empty(k, 64), largest=4)
            out = torch.ops.tcgemm._gemm(a, b, kernel="sm90a")
            reference.assert_exact(out, reference.exact(a, b))


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("pitch", (8, 16, 24, 64))
def test_tma_reads_overlapping_rows(pitch):
    """Windows of a signal: rows that begin before the one above ends are rows like any other."""
    signal = cases.make("contiguous", 8192, dtype=BF16, device="cuda", largest=4)
    windows = signal.as_strided((100, 128), (pitch, 1))
    weight = cases.make("contiguous", 128, 64, dtype=BF16, device="cuda", largest=4)
    expected = reference.exact(windows, weight)
    for kernel in (None, "sm90a", "sm80"):
        out = torch.ops.tcgemm._gemm(windows, weight, kernel=kernel)
        reference.assert_exact(out, expected)
    batches = signal.as_strided((3, 40, 128), (pitch, 128, 1))
    out = torch.ops.tcgemm._gemm(batches, weight[None].expand(3, -1, -1), kernel="sm90a")
    reference.assert_exact(out, reference.exact(batches, weight))


@pytest.mark.gpu
def test_unknown_kernel_is_refused_and_harms_nothing():
    a = cases.make("contiguous", 64, 64, dtype=BF16, device="cuda", largest=4)
    with pytest.raises(RuntimeError, match="under the filter 'sm70'"):
        torch.ops.tcgemm._gemm(a, a, kernel="sm70")
    with pytest.raises(RuntimeError, match="no kernel of this build"):
        torch.ops.tcgemm._gemm(a, a, kernel="f16_f16")
    reference.assert_exact(tcgemm.mm(a, a), reference.exact(a, a))


def test_names_of_kernels_can_be_read():
    row = parse("sm90a_bf16_f32_128x256x64_w2_s4_tn")
    assert row[1:] == ("sm90a", BF16, F32, (128, 256, 64), 4, "TN")
    for name in info.build()["kernels"]:
        assert re.fullmatch(r"sm\w+_b?f16_f(16|32)_\d+x\d+x\d+_w\d_s\d+_[tn]{2}", name)
