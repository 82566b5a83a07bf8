"""torch's CUTLASS format, (packed, meta), against torch's own conversions on the CPU."""

import pytest
import torch
from torch.sparse._semi_structured_conversions import (
    sparse_semi_structured_from_dense_cutlass as torch_compress,
)
from torch.sparse._semi_structured_conversions import (
    sparse_semi_structured_to_dense_cutlass as torch_decompress,
)

import tcgemm
from tcgemm.sparse_cutlass import from_cutlass, to_cutlass

from support.cases import BF16, DEVICES, E4M3, F16, F32, NAMES, S8
from support.error_asserts import assert_error_message

DTYPES = (F16, BF16, F32, S8)
SHAPES = ((32, 64), (64, 192), (96, 64), (160, 128), (32, 256))
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def pruned(shape, dtype, device="cpu", *, full=False):
    """A tensor with the pattern; `full`: every group has all the elements that it may have."""
    w = torch.randint(1, 100, shape) * (torch.randint(0, 2, shape) * 2 - 1)
    if not full:
        w = w * (torch.rand(shape) < 0.6)
    return tcgemm.prune24(w.to(device, dtype))


@pytest.mark.parametrize("device", DEVICES)
@every_dtype
@shapes
def test_torch_reads_what_we_write(shape, dtype, device):
    w = pruned(shape, dtype, device)
    packed, meta = to_cutlass(tcgemm.compress24(w))
    assert torch.equal(torch_decompress(packed, meta), w)


@pytest.mark.parametrize("device", DEVICES)
@every_dtype
@shapes
def test_we_read_what_torch_writes(shape, dtype, device):
    w = pruned(shape, dtype, device)
    sparse = from_cutlass(*torch_compress(w))
    assert sparse.shape == w.shape and sparse.dtype is dtype and sparse.device == w.device
    assert torch.equal(sparse.to_dense(), w)
    assert sparse.pattern == ("1:2" if dtype is F32 else "2:4")


@every_dtype
@shapes
def test_the_bits_are_torchs_where_every_group_is_full(shape, dtype):
    w = pruned(shape, dtype, full=True)
    for tensor, expected in zip(to_cutlass(tcgemm.compress24(w)), torch_compress(w), strict=True):
        assert tensor.dtype is expected.dtype and torch.equal(tensor, expected)


@every_dtype
def test_a_conversion_keeps_torchs_codes_of_groups_with_zeros(dtype):
    packed, meta = torch_compress(pruned((32, 128), dtype))
    sparse = from_cutlass(packed, meta)
    pair = to_cutlass(sparse)
    assert torch.equal(pair[0], packed) and torch.equal(pair[1], meta)
    if dtype is not F32:  # of an empty group torch keeps the last two, compress24 the first two
        empty = torch.zeros(32, 64, dtype=dtype)
        assert from_cutlass(*torch_compress(empty)).metadata.unique().tolist() == [0xEE]
        assert tcgemm.compress24(empty).metadata.unique().tolist() == [0x44]


@every_dtype
def test_products_of_what_came_from_torch(dtype):
    w = pruned((64, 128), dtype)
    x = torch.randint(-4, 5, (7, 128)).to(dtype)
    expected = tcgemm.linear(x, w, out_dtype=F32)
    assert torch.equal(tcgemm.linear(x, from_cutlass(*torch_compress(w)), out_dtype=F32), expected)


def test_refusals():
    w = tcgemm.compress24(pruned((32, 64), F16))
    packed, meta = to_cutlass(w)
    calls = (
        (lambda: to_cutlass(w.t()), ["w must be", "that is no transpose", "the .t() of one"]),
        (lambda: to_cutlass(w.to_dense()), ["w must be a SparseTensor24", "Tensor"]),
        (lambda: to_cutlass(w.to(E4M3)), ["w is torch.float8_e4m3fn", "is of torch.float16"]),
        (lambda: to_cutlass(w.float()), ["torch.float32 of pattern '2:4'", "has 1:2"]),
        (lambda: to_cutlass(tcgemm.compress24(pruned((33, 64), F16))), ["33 x 64", "of 32 x 32"]),
        (lambda: to_cutlass(tcgemm.compress24(pruned((16, 32), S8))), ["16 x 32", "of 16 x 64"]),
        (lambda: from_cutlass(packed, meta[:16]), ["int16 with 128 elements", "shape (16, 4)"]),
        (lambda: from_cutlass(packed[0], meta), ["packed must be a matrix", "shape (32,)"]),
        (lambda: from_cutlass(packed, meta.int()), ["int16 with 128 elements", "torch.int32"]),
    )
    for call, pieces in calls:
        assert_error_message(call, pieces)
    for call in (lambda: from_cutlass(None, meta), lambda: from_cutlass(packed, 3)):
        with pytest.raises(TypeError, match=r"tcgemm\.sparse_cutlass: .* must be a torch\.Tensor"):
            call()
