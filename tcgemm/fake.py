"""What each operator returns, without computing it: shapes, dtype, contiguous strides.

torch.compile, export and FakeTensorMode run these on sizes that may be symbols. Only geometry is
decided here; csrc/ops/check*.cpp has the rules and their sentences, and the opchecks compare both.
"""

import torch

from tcgemm.operators import ALL, Operator


def _result_shape(op, a, b):
    rows = a.shape[-2:-1]
    depth = a.shape[-1]
    if op.weight:
        batch_b, depth_b, columns = (), b.shape[1], b.shape[:1]
    elif b.dim() == 1:
        batch_b, depth_b, columns = (), b.shape[0], ()
    else:
        batch_b, depth_b, columns = b.shape[:-2], b.shape[-2], b.shape[-1:]
    torch._check(
        depth == depth_b,
        lambda: (
            f"tcgemm.{op.name}: K is {depth} in a of shape {tuple(a.shape)}, but {depth_b} "
            f"in b of shape {tuple(b.shape)}."
        ),
    )
    return (*torch.broadcast_shapes(a.shape[:-2], batch_b), *rows, *columns)


def _fake(op):
    def fake(*args, out_dtype=None, **kwargs):
        operands = dict(zip(op.positional, args, strict=False))
        a, b = operands["a"], operands["b"]
        return a.new_empty(_result_shape(op, a, b), dtype=out_dtype or a.dtype)

    return fake


def _fake_out(*_args, **_kwargs):
    return None


for _op in (*ALL, Operator("_gemm")):
    torch.library.register_fake(f"tcgemm::{_op.name}", _fake(_op))
    torch.library.register_fake(f"tcgemm::{_op.name}.out", _fake_out)
