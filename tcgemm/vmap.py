"""torch.vmap of every operator: one call of the general operator instead of a loop.

a [B, M, K], b [K, N]       rows of the batch make one matrix: [B * M, K] @ [K, N]
otherwise                   batches are aligned and broadcast: [B, 1, ..., M, K] @ [..., K, N]
"""

import torch

from tcgemm.operators import ALL, GEMM, TENSORS


def _front(tensor, dim):
    return tensor if dim is None else tensor.movedim(dim, 0)


def _align(tensor, batched, dims):
    """Puts the vmapped dimension in front of `dims` others, as broadcasting needs it."""
    missing = dims + 1 - tensor.dim()
    if not batched or missing <= 0:
        return tensor
    return tensor.reshape(tensor.shape[0], *[1] * missing, *tensor.shape[1:])


def _fold(addend, rows):
    """An addend of [*rows, N] for the folded product, or None if it has no such form."""
    if addend is None or addend.dim() < 2:
        return addend
    if addend.shape[:-1] == rows:
        return addend.flatten(0, -2)
    if all(size == 1 for size in addend.shape[:-1]):
        return addend.reshape(addend.shape[-1])
    return None


def _run(a, b, addends, options):
    if b.dim() == 2:
        rows = a.shape[:-1]
        folded = [_fold(addend, rows) for addend in addends]
        if all((f is None) == (x is None) for f, x in zip(folded, addends, strict=True)):
            return GEMM.run(a.flatten(0, -2), b, *folded, *options).unflatten(0, rows)
    return GEMM.run(a, b, *addends, *options)


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
        return op.lower(_run(a, b, lifted, options), dims_a, dims_b), 0

    return rule


for _op in ALL:
    torch.library.register_vmap(f"tcgemm::{_op.name}", _rule(_op))
