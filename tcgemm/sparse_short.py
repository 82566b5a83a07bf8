"""The short way of products with a SparseTensor24, for calls of which nothing has to be asked.

    front.product --> scaled_mm      instead of      front.product --> __torch_function__ -->
                                     front.product --> autograd --> __torch_dispatch__ --> scaled_mm

The long way takes 40 microseconds of the host, more than many products on a GPU. The short one is
for eager calls without gradients, autocast and transforms, of tensors that lie as they are stored;
everything else, and everything that is wrong, goes the long way.
"""

import torch
from torch.autograd import forward_ad

from tcgemm.operators import ADDMM, BMM, DEFAULTS, MM, Scaled
from tcgemm.sparse_tensor import SparseTensor24, default_pattern

_tensor = torch.Tensor
_ADDENDS = {torch.Tensor, torch.nn.Parameter, type(None)}
_f32 = torch.float32
_scaled_mm = torch.ops.tcgemm.scaled_mm.default
_NO_CONSTANTS = (None,) * 4  # zero points, scale_out and parts
_below_autograd = torch._C._AutoDispatchBelowAutograd
_compiling = torch.compiler.is_compiling
_any_autocast = torch._C._is_any_autocast_enabled
_transforms_active = torch._C._are_functorch_transforms_active
_grad_enabled = torch.is_grad_enabled
_any_requires_grad = torch._C._any_requires_grad


def plain():
    """Is this an eager call that nothing looks into?"""
    return (
        not (_compiling() or _any_autocast() or _transforms_active())
        and forward_ad._current_level < 0
    )


def sparse_argument(metadata, tiles):
    """What the operator takes for the metadata: the tiles where there are any."""
    return metadata if tiles is None else tiles


def product(op, a, b, c, bias, residual, options):
    """The result of an operator's call, or None where the call has to go the long way."""
    left = type(a) is SparseTensor24
    w, x = (a, b) if left else (b, a)
    if (
        op is BMM
        or not plain()
        or type(w) is not SparseTensor24
        or type(x) is not _tensor
        or w.transposed is (left or op.weight)
        or (left and op.weight)
        or not {type(c), type(bias), type(residual)} <= _ADDENDS
        or x.dim() < 2
        or (op.weight and bias is not None and bias.dim() != 1)
        or ((op is MM or op is ADDMM) and x.dim() > 2)
        or x.shape[-2 if left else -1] != w.k
        or (_grad_enabled() and _any_requires_grad(a, b, c, bias, residual))
    ):
        return None
    if w.values.dtype is _f32:
        if options[-1] not in (None, "high") or w.pattern != default_pattern(_f32):
            return None
        options = (*options[:-1], "high")
    sparse = sparse_argument(w.metadata, w.tiles)
    with _below_autograd():
        a, b, forms = (w.values, x, (sparse,)) if left else (x, w.values.t(), (None, sparse))
        tensors = (a, b, None, None, c, bias, residual, *_NO_CONSTANTS, *forms)
        if options == DEFAULTS:
            return _scaled_mm(*tensors)
        return _scaled_mm(*tensors, **Scaled.given_keywords(options))
