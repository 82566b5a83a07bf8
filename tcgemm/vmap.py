"""torch.vmap of every operator: one product whose batch dimensions broadcast, instead of a loop.

    a [B, 1, ..., M, K] @ b [..., K, N]        the vmapped dimension in front, aligned by ones

Where only a is vmapped, csrc/ops/batch.cpp makes rows of its batch: one tall product.
"""

import torch

from tcgemm.dtypes import accumulator
from tcgemm.operators import ALL, MATMUL, TENSORS

ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def _front(tensor, dim):
    return tensor if dim is None else tensor.movedim(dim, 0)


def _align(tensor, batched, dims):
    """Puts the vmapped dimension in front of `dims` others, as broadcasting needs it."""
    missing = dims + 1 - tensor.dim()
    if not batched or missing <= 0:
        return tensor
    return tensor.reshape(tensor.shape[0], *[1] * missing, *tensor.shape[1:])


def _run(a, b, c, bias, residual, activation, alpha, beta, out_dtype, acc_dtype):
    if c is None:
        options = (activation, alpha, beta, out_dtype, acc_dtype)
        return MATMUL.run(a, b, None, bias, residual, *options)
    # matmul has no c: the rest is computed in the accumulator's type and rounded once, as in addmm.
    wide = accumulator(a.dtype)
    c = None if beta == 0 else beta * c.to(wide)
    z = MATMUL.run(a, b, None, bias, c, None, alpha, 1.0, wide, acc_dtype)
    if activation is not None:
        z = ACTIVATIONS[activation](z)
    if residual is not None:
        z = z + residual.to(wide)
    return z.to(out_dtype or a.dtype)


def _rule(op):
    def rule(info, in_dims, *args, **kwargs):
        a, b, *addends = (operands := op.unpack(args, kwargs))[: len(TENSORS)]
        options = operands[len(TENSORS) :]
        batch_a, batch_b, *batches = op.unpack(in_dims, {})[: len(TENSORS)]
        dims_a = a.dim() - (batch_a is not None)
        dims_b = b.dim() - (batch_b is not None)
        a = op.matrix_a(_front(a, batch_a), dims_a)
        b = op.matrix_b(_front(b, batch_b), dims_b)
        # Dimensions of one example's result, as a product of matrices.
        dims = max(a.dim() - (batch_a is not None), b.dim() - (batch_b is not None))
        a = _align(a, batch_a is not None, dims)
        b = _align(b, batch_b is not None, dims)
        if batch_a is None and batch_b is None:  # only an addend differs from example to example
            a = a.expand(info.batch_size, *[1] * (dims - a.dim()), *a.shape)
        shown = dims - (dims_a == 1) - (dims_b == 1)
        lifted = []
        for name, addend, batch in zip(TENSORS[2:], addends, batches, strict=True):
            if addend is not None and name == "bias":  # told in rows and columns of matrices
                addend = _align(_front(addend, batch), batch is not None, dims)
            elif addend is not None:
                addend = _align(_front(addend, batch), batch is not None, shown)
                addend = op.lift(addend, dims_a, dims_b) if addend.dim() > 0 else addend
            lifted.append(addend)
        return op.lower(_run(a, b, *lifted, *options), dims_a, dims_b), 0

    return rule


for _op in ALL:
    torch.library.register_vmap(f"tcgemm::{_op.name}", _rule(_op))
