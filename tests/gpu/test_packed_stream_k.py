"""Products with packed weights whose tiles stream-K divides.

With more tiles than CTAs some tiles are whole, and the others are divided. test_stream_k.py has the
faults that these tests find, and beside them:

    a whole tile is computed twice, or never     whole numbers, of one wave of tiles to four
    a kernel that only adds in the first launch  a green context, in which there are two
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import emulate

from support import cases, reference
from support.cases import BF16, F32, check_all
from support.catalog_rows import built_rows, parametrized
from support.grids import check_part_of_a_gpu, check_streams_and_graphs
from support.packed_weight_cases import Case, exact_product, product, with_exact_elements
from support.reference import same_bits

ROWS = [row for row in built_rows() if row.weight_bits and row.streams_k]
STREAMING = pytest.mark.parametrize("row", parametrized(ROWS))
COMMON = pytest.mark.parametrize("row", parametrized(r for r in ROWS if r.input == "bf16"))
FORMATS = {4: (Case("int4", 128), Case("int4", 32, "points"), Case("nf4", 64), Case("mxfp4", 32))}
FORMATS[8] = (Case("int8", None), Case("e4m3", 64))
# Tiles along the weight's rows and along the rows of x, and k-blocks. 132 CTAs have parts of all
# tiles, or whole tiles and parts of others.
SHAPES = ((25, 1, 8), (41, 2, 20), (170, 1, 10), (40, 4, 16), (160, 3, 6))


def sizes(row, tiles_m=25, tiles_n=1, blocks=8):
    """The weight's rows, the rows of x, and k. The last tiles are edges."""
    tile_m, tile_n, tile_k = row.tile
    return tile_m * tiles_m - 8, tile_n * tiles_n - 8, tile_k * blocks


def make(row, case, *shape):
    """x of whole numbers and a weight whose products are exact in float32."""
    n, m, k = sizes(row, *shape)
    weight = case.pack(torch.randn(n, k, device="cuda").to(row.types.a))
    x = torch.randint(-2, 3, (m, k), device="cuda").to(row.types.a)
    return x, with_exact_elements(weight)


def stream(row, x, packed, **options):
    return product(x, packed, f"{row.name}@1/streamk", **options)


@STREAMING
def test_row_is_exact(row):
    def check(case, shape):
        x, packed = make(row, case, *shape)
        sums = exact_product(x, packed)
        if case.format in ("nf4", "e4m3"):  # float32 does not hold all digits
            size = x.double().abs() @ packed.dequantize(F32).double().abs().t()
            out = stream(row, x, packed, out_dtype=F32)
            assert ((out.double() - sums.double()).abs() <= 2.0**-19 * size).all()
            return
        assert torch.equal(stream(row, x, packed, out_dtype=F32), sums)
        for strides in ("contiguous", "odd_pitch", "transposed"):
            guarded = cases.Guarded(strides, sums.shape, dtype=row.types.a, device="cuda")
            kernel = f"{row.name}@1/streamk"
            arguments = packed.order._asdict() | {"kernel_name": kernel, "out": guarded.view}
            torch.ops.tcgemm.packed_mm.out(x, packed.arranged(), **arguments)
            reference.assert_guarded(guarded, sums.to(row.types.a))

    check_all(itertools.product(FORMATS[row.weight_bits], SHAPES), check)


@COMMON
def test_bits_are_those_of_the_emulator_and_of_every_result(row):
    """Again and again: a sum that is read too early differs from time to time. x has few rows,
    because the emulator is slow."""
    for shape in ((25, 1, 24), (170, 1, 6)):
        n, _, k = sizes(row, *shape)
        packed = FORMATS[row.weight_bits][0].pack(torch.randn(n, k, device="cuda").bfloat16())
        x = torch.randn(6, k, device="cuda").bfloat16()
        wide = stream(row, x, packed, out_dtype=F32)
        for _ in range(10):
            assert same_bits(stream(row, x, packed), wide.bfloat16())
        if torch.cuda.get_device_properties(0).multi_processor_count == 132:
            options = {"out_dtype": F32, "kernel": f"{row.name}@1/streamk", "device": "H200"}
            expected = emulate.mm(x.cpu(), packed.to("cpu").t(), **options)
            assert same_bits(wide.cpu(), expected), shape


@COMMON
def test_the_epilogue_runs_once(row):
    """On exact sums, of whole tiles and of slices."""

    def check(shape, activation, out_dtype):
        x, packed = make(row, FORMATS[row.weight_bits][0], *shape)
        m, n = x.shape[0], packed.shape[0]
        options = {"activation": activation, "out_dtype": out_dtype}
        options["bias"] = torch.randint(-9, 10, (n,), device="cuda").to(F32)
        options["residual"] = torch.randint(-9, 10, (m, n), device="cuda").to(BF16)
        out = stream(row, x, packed, **options)
        sums = exact_product(x, packed) + options["bias"]
        expected = (sums.relu() if activation else sums) + options["residual"]
        assert torch.equal(out, expected.to(out_dtype))

    check_all(itertools.product(SHAPES[:3], (None, "relu"), (BF16, F32)), check)


def planned_product(m, n, k):
    """A product that the planner gives to stream-K."""
    x = torch.randn(m, k, device="cuda").bfloat16()
    weight = tcgemm.pack_weight(torch.randn(n, k, device="cuda").bfloat16(), "int4", 128)
    assert tcgemm.explain(x, weight.t()).stream_k
    return lambda out: tcgemm.mm(x, weight.t(), out=out), tcgemm.mm(x, weight.t())


PLANNED = pytest.mark.parametrize("size", [(320, 4096, 14336), (320, 28672, 4096)], ids=str)


@pytest.mark.gpu
@pytest.mark.sm90
@PLANNED
def test_streams_and_graphs_end(size):
    check_streams_and_graphs(*planned_product(*size), rounds=30)


@pytest.mark.gpu
@pytest.mark.sm90
@PLANNED
def test_a_part_of_a_gpu(size):
    check_part_of_a_gpu(*planned_product(*size))
