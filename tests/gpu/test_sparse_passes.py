"""The passes of 2:4 sparsity on a GPU: the same results as on the CPU, bit by bit.

sparse/test_format.py tests the results of the CPU.
"""

import pytest
import torch

from support import cases
from support.cases import BF16, F16, F32, S8
from support.reference import same_bits
from support.sparse_operands import RAGGED, SHAPES, dtypes, kinds, random_matrix

pytestmark = pytest.mark.gpu

OPS = torch.ops.tcgemm
# Whole tiles of 64 rows x 256 bytes, or 128 bytes x 128 of k, some with ragged ones beside them.
TILED = ((64, 256), (128, 512), (257, 130), (300, 1000), (5, 3001), (2050, 6))


def stored(strides, rows, k, dtype):
    """Numbers of every kind in strides, on the GPU, amid poison."""
    w = cases.make(strides, rows, k, dtype=dtype, device="cuda")
    if "expanded" not in strides:
        w.copy_(random_matrix(rows, k, dtype))
    return w


def check(w, pattern):
    """Everything there is to make of w."""
    on_cpu = w.cpu()
    assert same_bits(OPS.prune24(w, pattern).cpu(), OPS.prune24(on_cpu, pattern))
    if pattern == "2:4":
        assert same_bits(OPS.prune24(w, "2:4", True).cpu(), OPS.prune24(on_cpu, "2:4", True))
    for prune in (False, True):
        tensors = OPS.compress24(w, pattern, prune)
        for tensor, expected in zip(tensors, OPS.compress24(on_cpu, pattern, prune), strict=True):
            assert tensor.is_cuda and same_bits(tensor.cpu(), expected)
    check_metadata(w, *tensors[:2], pattern)


def check_metadata(w, values, metadata, pattern):
    k, compressed = w.shape[1], (values.cpu(), metadata.cpu())
    elements = OPS.gather24(w, metadata, pattern)
    assert same_bits(elements.cpu(), OPS.gather24(w.cpu(), compressed[1], pattern))
    back = OPS.decompress24(values, metadata, k, pattern)
    assert same_bits(back.cpu(), OPS.decompress24(*compressed, k, pattern))
    if pattern == "1:2" or values.dtype is not F32:
        tiles = OPS.tile24(metadata, k, pattern, values.dtype)
        assert torch.equal(tiles.cpu(), OPS.tile24(compressed[1], k, pattern, values.dtype))


@kinds
@pytest.mark.parametrize("transposed", [False, True])
def test_shapes(dtype, pattern, transposed):
    for shape in (*SHAPES, *TILED):
        w = random_matrix(*shape, dtype).cuda()
        check(w.t() if transposed else w, pattern)


@kinds
@pytest.mark.parametrize("strides", list(cases.STRIDES))
def test_strides(dtype, pattern, strides):
    for shape in ((37, 301), (130, 520)):
        check(stored(strides, *shape, dtype), pattern)


@kinds
def test_nothing_beside_an_operand_is_read(dtype, pattern):
    """Rows that begin and end at every byte of a word, in poison."""
    for k in (*RAGGED, *range(250, 267)):
        for offset in range(16 // dtype.itemsize + 1):
            buffer = torch.full((70 * (k + 1) + 32,), cases.poison(dtype), dtype=dtype)
            w = buffer.cuda().as_strided((70, k), (k + 1, 1), offset)
            w.copy_(random_matrix(70, k, dtype))
            on_cpu = w.cpu()
            for tensor, expected in zip(
                OPS.compress24(w, pattern, True), OPS.compress24(on_cpu, pattern, True), strict=True
            ):
                assert same_bits(tensor.cpu(), expected)
            assert same_bits(OPS.prune24(w, pattern).cpu(), OPS.prune24(on_cpu, pattern))


@pytest.mark.parametrize("strides", list(cases.OUT_STRIDES))
@pytest.mark.parametrize("dtype", (S8, F16, F32), ids=cases.NAMES.get)
def test_strides_of_values_and_metadata(dtype, strides):
    pattern = "1:2" if dtype is F32 else "2:4"
    for rows, k in ((35, 531), (64, 1024)):
        w = random_matrix(rows, k, dtype)
        compressed = OPS.compress24(w, pattern, True)[:2]
        views = [cases.empty(strides, x.shape, dtype=x.dtype, device="cuda") for x in compressed]
        for tensor, values in zip(views, compressed, strict=True):
            tensor.copy_(values)
        check_metadata(w.cuda(), *views, pattern)


@dtypes
def test_transposable_of_all_bits(dtype):
    """Ties of all kinds, and NaN, Inf and numbers above 2^124 that count alike."""
    words = torch.randint(-(2**31), 2**31, (256, 260), dtype=torch.int32)
    few = torch.randint(0, 3, (256, 260)).to(dtype)
    rounded = (1 + torch.randint(0, 3, (256, 260)) * 2.0 ** -torch.randint(4, 24, (256, 260))).to(
        dtype
    )
    for w in (words.view(torch.uint8).view(dtype), few, rounded):
        for way in (w, w.t()):
            assert same_bits(
                OPS.prune24(way.cuda(), "2:4", True).cpu(), OPS.prune24(way, "2:4", True)
            )


@kinds
def test_excess_of_many_and_of_one(dtype, pattern):
    """All groups of a matrix have too many, then one has, wherever it is."""
    rows, k = 513, 1032
    w = torch.ones(rows, k).to(dtype).cuda()
    groups = rows * k // (4 if pattern == "2:4" else 2)
    assert OPS.compress24(w, pattern)[2].tolist() == [groups, 0]
    w.zero_()
    assert OPS.compress24(w, pattern)[2].tolist() == [0, -1]
    for row, column in ((0, 0), (0, 1028), (512, 1028), (64, 256), (63, 252), (200, 516)):
        for way in (w, w.t().contiguous().t()):
            way[row, column : column + 4] = 1
            size = 4 if pattern == "2:4" else 2
            assert OPS.compress24(way, pattern)[2].tolist() == [4 // size, row * k + column]
            assert OPS.compress24(way, pattern, True)[2].tolist() == [0, -1]
        w.zero_()


def test_excess_begins_anew_in_each_replay():
    w = random_matrix(200, 512, BF16).cuda()
    graph, (values, metadata, excess) = cases.graph_of(lambda: OPS.compress24(w, "2:4"))
    for seed in range(4):
        torch.manual_seed(seed)
        w.copy_(random_matrix(200, 512, BF16) if seed else torch.zeros(200, 512))
        graph.replay()
        for tensor, expected in zip(
            (values, metadata, excess), OPS.compress24(w.cpu(), "2:4"), strict=True
        ):
            assert same_bits(tensor.cpu(), expected)


@kinds
def test_empty(dtype, pattern):
    for shape in ((0, 5), (5, 0), (0, 0)):
        check(torch.empty(shape, dtype=dtype, device="cuda"), pattern)
