"""Fake implementations of the products: the shape, dtype and strides of each result.

torch.compile, export and FakeTensorMode call these with sizes that may be symbols. csrc/ops/check*
has all other rules and their error messages; the opcheck tests compare both.
"""

import torch

from tcgemm import dtypes
from tcgemm.ops._torch_private import check
from tcgemm.ops.operators import ALL, Operator


def _result_shape(op, a, b, sparse):
    """With `sparse`, a or b holds the values of a sparse operand: its K is half the other's."""
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
    """The fake implementation of an operator that multiplies."""

    def fake(*args, out_dtype=None, **kwargs):
        given = op.given(args, kwargs)
        a, b = given["a"], given["b"]
        dtype = out_dtype or dtypes.result(a.dtype)
        sparse = given.get("sparse_a") is not None or given.get("sparse_b") is not None
        out = a.new_empty(_result_shape(op, a, b, sparse), dtype=dtype)
        return (out, a.new_empty((), dtype=torch.float32)) if op.amax else out

    return fake


def _prepare(w):
    """On a GPU the number of bytes depends on the values: they decide the number of parts."""
    size = torch.library.get_ctx().new_dynamic_size() if w.device.type == "cuda" else 0
    return w.new_empty(size, dtype=torch.uint8)


def _out(*_args, **_kwargs):
    return None


for _op in (*ALL, Operator("_gemm")):
    torch.library.register_fake(f"tcgemm::{_op.name}", gemm(_op))
    if _op.out is not None:
        torch.library.register_fake(f"tcgemm::{_op.name}.out", _out)
torch.library.register_fake("tcgemm::prepare", _prepare)
