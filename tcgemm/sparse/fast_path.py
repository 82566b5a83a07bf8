"""The short way of products with a SparseTensor24, for calls of which nothing has to be asked.

    dispatch.gemm --> scaled_mm          instead of
    dispatch.gemm --> __torch_function__ -->
    dispatch.gemm --> autograd --> __torch_dispatch__ --> scaled_mm

The long way takes 40 microseconds of the host, more than many products on a GPU. The short one is
for eager calls without gradients, autocast and transforms, of tensors that lie as they are stored;
everything else, and everything that is wrong, goes the long way. Where nothing else has to be done
with a call the dispatcher is not asked either, which takes 2 microseconds to find that out. linear
with no more than a bias is _linear24, whose few arguments take a microsecond less.
"""

import functools
from typing import Any, NamedTuple

import torch

from tcgemm.ops import dispatch
from tcgemm.ops._torch_private import (
    any_autocast_enabled,
    any_requires_grad,
    dispatch_keys,
    dispatch_modes,
    in_dual_level,
    is_profiled,
    redispatch,
    tracing_state,
    transforms_active,
)
from tcgemm.ops.epilogue import DEFAULT
from tcgemm.ops.operators import ADDMM, BMM, MM
from tcgemm.sparse.tensor import SparseTensor24, default_pattern

_tensor = torch.Tensor
_ADDENDS = {torch.Tensor, torch.nn.Parameter, type(None)}
_f32 = torch.float32
# Operators of the first argument's keys.
scaled_mm = redispatch(torch.ops.tcgemm.scaled_mm.default)
linear24 = redispatch(torch.ops.tcgemm._linear24.default)
_CPU, _CUDA = dispatch_keys("CPU"), dispatch_keys("CUDA")
_NO_SCALES = (None,) * 4  # zero_a, zero_b, scale_out and prepared_b
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


def plain():
    """Is this an eager call that nothing looks into?"""
    return not (
        _compiling()
        or any_autocast_enabled()
        or transforms_active()
        or dispatch_modes()
        or is_profiled()
        or tracing_state()
        or in_dual_level()
    )


def sparse_argument(metadata, tiles):
    """What the operator takes for the metadata: the tiles where there are any."""
    return metadata if tiles is None else tiles


class Parts(NamedTuple):
    """What a product takes of a SparseTensor24. Its tensors stay the same as long as it lives."""

    keys: Any  # of its device
    cuda: bool
    values: torch.Tensor
    columns: torch.Tensor  # values.t(): to make a view takes as long as to launch a kernel
    sparse: torch.Tensor

    def beside(self, x):
        """Is a tensor on a device of the same kind?"""
        return x.is_cuda if self.cuda else x.is_cpu

    def linear(self, keywords):
        """linear as a function of x and the bias, with these keywords of scaled_mm."""
        if not keywords:
            return functools.partial(linear24, self.keys, self.values, self.sparse)

        def call(x, bias):
            tensors = (x, self.columns, None, None, None, bias, None, *_NO_SCALES, None)
            return scaled_mm(self.keys, *tensors, self.sparse, **keywords)

        return call


def parts_of(w):
    """In a plain() call; None where there is no kernel to call, as on the meta device."""
    parts = w.short
    if parts is None and type(w.values) is _tensor and (w.values.is_cuda or w.values.is_cpu):
        cuda, sparse = w.values.is_cuda, sparse_argument(w.metadata, w.tiles)
        parts = Parts(_CUDA if cuda else _CPU, cuda, w.values, w.values.t(), sparse)
        w.short = parts
    return parts


def gemm(op, a, b, c, bias, residual, epilogue):
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
        or (_grad_enabled() and any_requires_grad(a, b, c, bias, residual))
    ):
        return None
    parts = parts_of(w)
    if parts is None or not parts.beside(x):
        return None
    keys, _cuda, values, columns, sparse = parts
    if values.dtype is _f32:
        if epilogue.precision not in (None, "high") or w.pattern != default_pattern(_f32):
            return None
        epilogue = epilogue.with_precision("high")
    if op.weight and c is None and residual is None and epilogue is DEFAULT:
        return linear24(keys, values, sparse, x, bias)
    a, b, forms = (values, x, (sparse,)) if left else (x, columns, (None, sparse))
    tensors = (a, b, None, None, c, bias, residual, *_NO_SCALES, *forms)
    if epilogue is DEFAULT:
        return scaled_mm(keys, *tensors)
    return scaled_mm(keys, *tensors, **epilogue.given())


dispatch.fast_path = gemm
