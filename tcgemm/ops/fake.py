"""What each operator returns, without computing it: shapes, dtype, contiguous strides.

torch.compile, export and FakeTensorMode run these on sizes that may be symbols. Only geometry is
decided here; csrc/ops/check*.cpp has the rules and their sentences, and the opchecks compare both.
"""

import torch

from tcgemm import dtypes
from tcgemm.ops.operators import ALL, Operator

BLOCK = 128


def _result_shape(op, a, b, sparse):
    """`sparse`: one of them is the values of a sparse operand, half as deep as the other."""
    rows = a.shape[-2:-1]
    depth = a.shape[-1]
    if op.weight:
        batch_b, depth_b, columns = (), b.shape[1], b.shape[:1]
    elif b.dim() == 1:
        batch_b, depth_b, columns = (), b.shape[0], ()
    else:
        batch_b, depth_b, columns = b.shape[:-2], b.shape[-2], b.shape[-1:]
    if not sparse:
        torch._check(
            depth == depth_b,
            lambda: (
                f"tcgemm.{op.name}: K is {depth} in a of shape {tuple(a.shape)}, but {depth_b} "
                f"in b of shape {tuple(b.shape)}."
            ),
        )
    return (*torch.broadcast_shapes(a.shape[:-2], batch_b), *rows, *columns)


def product(op):
    """The fake of an operator that multiplies."""

    def fake(*args, out_dtype=None, **kwargs):
        given = op.given(args, kwargs)
        a, b = given["a"], given["b"]
        dtype = out_dtype or dtypes.result(a.dtype)
        sparse = given.get("sparse_a") is not None or given.get("sparse_b") is not None
        out = a.new_empty(_result_shape(op, a, b, sparse), dtype=dtype)
        return (out, a.new_empty((), dtype=torch.float32)) if op.amax else out

    return fake


def _blocks(extent):
    return (extent + BLOCK - 1) // BLOCK


def scale_shape(shape, granularity):
    """Of the scales that quantize makes for a tensor of this shape."""
    if granularity == "tensor":
        return ()
    if granularity == "row":
        return (*shape[:-1], 1)
    if granularity == "1x128":
        return (*shape[:-1], _blocks(shape[-1]))
    return (*shape[:-2], _blocks(shape[-2]), _blocks(shape[-1]))


def _quantize(x, dtype, granularity="tensor"):
    scale = x.new_empty(scale_shape(x.shape, granularity), dtype=torch.float32)
    return x.new_empty(x.shape, dtype=dtype), scale


def _prepare(w):
    """On a GPU the values decide how many parts there are, and so how many bytes."""
    size = torch.library.get_ctx().new_dynamic_size() if w.device.type == "cuda" else 0
    return w.new_empty(size, dtype=torch.uint8)


def value_columns(k, pattern):
    """Of the values of a row; a row of metadata has a byte for four of them."""
    return (k + 1) // 2 if pattern == "1:2" else (k + 3) // 4 * 2


def _compress24(w, pattern, prune=False):
    rows, columns = w.shape[0], value_columns(w.shape[1], pattern)
    metadata = w.new_empty((rows, (columns + 3) // 4), dtype=torch.uint8)
    return w.new_empty((rows, columns)), metadata, w.new_empty(2, dtype=torch.int64)


def _linear24(weight, metadata, x, bias=None):
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=dtypes.result(x.dtype))


def _decompress24(values, metadata, k, pattern):
    return values.new_empty((values.shape[0], k))


def _gather24(w, metadata, pattern):
    return w.new_empty((w.shape[0], value_columns(w.shape[1], pattern)))


def _prune24(w, pattern, transposable=False):
    return w.new_empty(w.shape)


def tiles_size(rows, k, dtype):
    """Bytes of MetadataTiles (csrc/core/sparse.h)."""
    block_bytes, depth = (1024, 128) if dtype.itemsize == 1 else (512, 128 // dtype.itemsize)
    return ((rows + 63) // 64 * ((k + depth - 1) // depth) + 8) * block_bytes


def _tile24(metadata, k, pattern, dtype):
    return metadata.new_empty(tiles_size(metadata.shape[0], k, dtype), dtype=torch.uint8)


def _out(*_args, **_kwargs):
    return None


for _op in (*ALL, Operator("_gemm")):
    torch.library.register_fake(f"tcgemm::{_op.name}", product(_op))
    if _op.out is not None:
        torch.library.register_fake(f"tcgemm::{_op.name}.out", _out)
torch.library.register_fake("tcgemm::quantize", _quantize)
torch.library.register_fake("tcgemm::prepare", _prepare)
torch.library.register_fake("tcgemm::compress24", _compress24)
torch.library.register_fake("tcgemm::_linear24", _linear24)
torch.library.register_fake("tcgemm::decompress24", _decompress24)
torch.library.register_fake("tcgemm::gather24", _gather24)
torch.library.register_fake("tcgemm::prune24", _prune24)
torch.library.register_fake("tcgemm::tile24", _tile24)
