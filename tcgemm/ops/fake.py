"""What each operator returns, without computing it: shapes, dtype, contiguous strides.

torch.compile, export and FakeTensorMode run these on sizes that may be symbols. Only geometry is
decided here; csrc/ops/check*.cpp has the rules and their sentences, and the opchecks compare both.
"""

import torch

from tcgemm import dtypes
from tcgemm.ops._torch_private import check
from tcgemm.ops.operators import ALL, Operator


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
        check(
            depth == depth_b,
            lambda: (
                f"tcgemm.{op.name}: K is {depth} in a of shape {tuple(a.shape)}, but {depth_b} "
                f"in b of shape {tuple(b.shape)}."
            ),
        )
    return (*torch.broadcast_shapes(a.shape[:-2], batch_b), *rows, *columns)


def gemm(op):
    """The fake of an operator that multiplies."""

    def fake(*args, out_dtype=None, **kwargs):
        given = op.given(args, kwargs)
        a, b = given["a"], given["b"]
        dtype = out_dtype or dtypes.result(a.dtype)
        sparse = given.get("sparse_a") is not None or given.get("sparse_b") is not None
        out = a.new_empty(_result_shape(op, a, b, sparse), dtype=dtype)
        return (out, a.new_empty((), dtype=torch.float32)) if op.amax else out

    return fake


def _prepare(w):
    """On a GPU the values decide how many parts there are, and so how many bytes."""
    size = torch.library.get_ctx().new_dynamic_size() if w.device.type == "cuda" else 0
    return w.new_empty(size, dtype=torch.uint8)


def _out(*_args, **_kwargs):
    return None


for _op in (*ALL, Operator("_gemm")):
    torch.library.register_fake(f"tcgemm::{_op.name}", gemm(_op))
    if _op.out is not None:
        torch.library.register_fake(f"tcgemm::{_op.name}.out", _out)
torch.library.register_fake("tcgemm::prepare", _prepare)
