"""Scales and zero points of every shape, with batches that merge into one product and that do not.

Values are compared with float64; how exactly each kernel rounds is in the tests of the products.
"""

import itertools

import pytest
import torch

from support.cases import DEVICES, F32, FP8_DEVICES

OPS = torch.ops.tcgemm
E4M3 = torch.float8_e4m3fn
# Batches of a and b: one matrix, equal, rows that go on, rows that cannot, loops around products.
BATCHES = [
    *(((), ()), ((2,), (2,)), ((4, 3), ()), ((4, 3), (1, 3))),
    *(((4, 1), (3,)), ((2, 2, 2), (2, 1, 2))),
]
# M at which blocks of 128 rows go on from matrix to matrix (256), and at which they do not.
SIZES = [(5, 7, 3), (1, 300, 4), (200, 300, 4), (256, 130, 1), (128, 128, 130)]


def blocks(extent):
    return -(-extent // 128)


def spread(scale, rows, cols):
    """A scale for each element."""
    if scale.numel() == 1:
        return scale.double()
    for dim, extent in ((-2, rows), (-1, cols)):
        if scale.shape[dim] not in (1, extent):
            index = torch.arange(extent, device=scale.device) // 128
            scale = scale.index_select(dim, index)
    return scale.double()


def whole(*shape, device):
    """fp8 whose sums every tensor core has exactly."""
    return torch.randint(-2, 3, shape, device=device).to(F32).to(E4M3)


def positive(*shape, device):
    return torch.rand(shape, device=device) + 0.5


def strided(scale, way):
    """The same scale with other strides."""
    if way == "transposed" and scale.dim() >= 2:
        return scale.mT.contiguous().mT
    if way == "stepped":
        return torch.stack([scale, 9 * scale], -1)[..., 0]
    return scale


def assert_near(out, expected):
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("device", FP8_DEVICES)
@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("batch_a, batch_b", BATCHES)
def test_shapes_of_scales(batch_a, batch_b, m, k, n, device):
    batch = torch.broadcast_shapes(batch_a, batch_b)
    a = whole(*batch_a, m, k, device=device)
    b = whole(*batch_b, k, n, device=device)
    of_a = [(m, 1), (m, blocks(k)), (blocks(m), blocks(k))]
    of_b = [(1, n), (blocks(k), n), (blocks(k), blocks(n))]
    batches = [(batch, ()), ((), batch), (batch, batch), (batch_a, batch_b), ((), ())]
    for index, (shape_a, shape_b) in enumerate(itertools.product(of_a, of_b)):
        in_a, in_b = batches[index % len(batches)]
        way = ("contiguous", "transposed", "stepped")[index % 2 + index // 3 % 2]
        scale_a = strided(positive(*in_a, *shape_a, device=device), way)
        scale_b = strided(positive(*in_b, *shape_b, device=device), way)
        out, amax = OPS.scaled_mm_amax(a, b, scale_a, scale_b, out_dtype=F32)
        expected = (a.double() * spread(scale_a, m, k)) @ (b.double() * spread(scale_b, k, n))
        assert out.shape == expected.shape
        assert_near(out, expected)
        assert amax == out.abs().max()  # of all products, however many launches they are


@pytest.mark.parametrize("device", FP8_DEVICES)
def test_blocks_that_share_memory(device):
    """Their strides fit rows that go on from matrix to matrix, but 200 rows end within a block."""
    a, b = whole(2, 200, 130, device=device), whole(130, 8, device=device)
    scale = positive(3, 2, device=device).as_strided((2, 2, 2), (2, 2, 1))
    expected = (a.double() * spread(scale, 200, 130)) @ b.double()
    assert_near(OPS.scaled_mm(a, b, scale, out_dtype=F32), expected)


@pytest.mark.parametrize("m", [128, 256, 512])
def test_rows_of_blocks_go_on(m):
    """One product for the whole batch, where each matrix is a whole number of blocks."""
    a, b = (torch.empty(*shape, dtype=E4M3) for shape in [(4, m, 256), (256, 64)])
    for scale in (torch.empty(4, m, 2), torch.empty(4, m // 128, 2)):
        merged = f"are one dimension of {4 * m} rows" in OPS.explain(a, b, None, None, scale)
        assert merged == (scale.shape[1] > 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("m", [1, 6])
@pytest.mark.parametrize("batch_a, batch_b", [*BATCHES, ((4, 1, 2), (1, 3, 1))])
def test_shapes_of_zero_points(batch_a, batch_b, m, device):
    a = torch.randint(-128, 128, (*batch_a, m, 9), dtype=torch.int8, device=device)
    b = torch.randint(0, 256, (*batch_b, 9, 4), dtype=torch.uint8, device=device)
    batch = torch.broadcast_shapes(batch_a, batch_b)
    for of_a, of_b in [((*batch, m, 1), (1, 4)), ((m, 1), (*batch, 1, 4)), ((), (*batch, 1, 1))]:
        zero_a = torch.randint(-9, 9, of_a, dtype=torch.int32, device=device)
        zero_b = torch.randint(-9, 9, of_b, dtype=torch.int32, device=device)
        expected = (a.cpu().long() - zero_a.cpu()) @ (b.cpu().long() - zero_b.cpu())
        out = OPS.scaled_mm(a, b, zero_a=zero_a, zero_b=zero_b)
        assert out.dtype == torch.int32 and torch.equal(out.cpu().long(), expected)
        half = torch.tensor([[0.5]], device=device)
        options = {"zero_a": zero_a, "zero_b": zero_b, "out_dtype": F32}
        out, amax = OPS.scaled_mm_amax(a, b, half, **options, scale_out=half)
        assert torch.equal(out.cpu().double(), expected.double() / 4)
        assert amax == expected.abs().max() / 2


@pytest.mark.parametrize("device", FP8_DEVICES)
def test_one_value_for_each_matrix(device):
    a, b = whole(3, 16, 32, device=device), whole(3, 32, 8, device=device)
    scale_a, scale_b = (positive(3, 1, 1, device=device) for _ in range(2))
    expected = (a.double() @ b.double()) * scale_a.double() * scale_b.double()
    assert_near(OPS.scaled_mm(a, b, scale_a, scale_b, out_dtype=F32), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128", "128x128"])
@pytest.mark.parametrize("dims", [(0, 1, 2, 3), (1, 2, 0, 3), (2, 0, 3, 1)])
def test_quantize_of_any_strides(dims, granularity, device):
    """Also of those that no batch of matrices has: the same bits as of a contiguous tensor."""
    x = torch.randn(2, 3, 140, 150, device=device).permute(dims)
    values, scale = OPS.quantize(x, E4M3, granularity)
    expected, expected_scale = OPS.quantize(x.contiguous(), E4M3, granularity)
    rows, columns = x.shape[-2:]
    last = {
        "tensor": (),
        "row": (*x.shape[:-1], 1),
        "1x128": (*x.shape[:-1], blocks(columns)),
        "128x128": (*x.shape[:-2], blocks(rows), blocks(columns)),
    }
    assert values.shape == x.shape and values.is_contiguous() and values.dtype == E4M3
    assert scale.shape == last[granularity] and scale.is_contiguous() and scale.dtype == F32
    assert torch.equal(values.view(torch.int8), expected.view(torch.int8))
    assert torch.equal(scale, expected_scale)
    error = (values.double() * spread(scale, rows, columns) - x.double()).abs()
    assert (error <= x.double().abs() / 16 + spread(scale, rows, columns) / 1024).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 5)])
def test_quantize_of_nothing(shape, device):
    x = torch.empty(shape, device=device)
    for granularity in ("tensor", "row", "1x128"):
        values, scale = OPS.quantize(x, torch.int8, granularity)
        assert values.shape == shape and (scale == 1).all()
    assert OPS.quantize(x, E4M3)[1].shape == ()
