"""The fast path of products with a SparseTensor24: plain eager calls skip torch's dispatch.

    dispatch.gemm --> scaled_mm          instead of
    dispatch.gemm --> __torch_function__ -->
    dispatch.gemm --> autograd --> __torch_dispatch__ --> scaled_mm

The path through __torch_function__ and __torch_dispatch__ takes 40 us of host time, more than many
products on a GPU. The fast path is for eager calls without gradients, autocast and transforms whose
operands are used as they are stored. All other calls, also wrong ones, take the path of torch,
where errors are raised. The fast path calls the kernel for the device directly, as tcgemm/ops/
direct.py does: this saves the 2 us of the dispatcher. linear with at most a bias calls _linear24,
which has few arguments: this saves another 1 us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tcgemm.operands.sparse.parts import default_pattern
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops._torch_private import any_requires_grad, redispatch
from tcgemm.ops.direct import CPU, CUDA, is_plain, is_plain_eager
from tcgemm.ops.epilogue import DEFAULT, NO_SCALES, Scales
from tcgemm.ops.memory import refused
from tcgemm.ops.operands import products
from tcgemm.ops.operators import ADDMM, MM, SCALED

_tensor = torch.Tensor
_MATRICES = (MM, ADDMM)  # neither operand has a batch
_f32 = torch.float32
# The first argument of these is the dispatch key of a device.
scaled_mm: Callable[..., Any] = SCALED.kernel
linear24: Callable[..., Any] = redispatch(torch.ops.tcgemm._linear24.default)
# The scales after scale_a and scale_b, and terms_b.
_NO_SCALES = (None,) * (len(Scales._fields) - 1)
_grad_enabled = torch.is_grad_enabled


def metadata_argument(metadata: Tensor, tiles: Tensor | None) -> Tensor:
    """The metadata as the operators take them: reordered if they exist so, else as stored."""
    return metadata if tiles is None else tiles


@dataclass(slots=True)
class Operands:
    """The arguments of the operator for a SparseTensor24."""

    keys: Any  # the dispatch key of its device
    cuda: bool
    values: torch.Tensor
    address: int  # of both views; assigning to values.data gives the values another one
    columns: torch.Tensor  # values.t(): to make a view takes as long as to launch a kernel
    sparse: torch.Tensor

    def linear(self, keywords: Mapping[str, Any]) -> Callable[[Tensor, Tensor | None], Tensor]:
        """linear as a function of x and the bias, with these keywords of scaled_mm."""
        if keywords.keys() <= {"constant_b"}:
            return functools.partial(linear24, self.keys, self.values, self.sparse, **keywords)

        def call(x, bias):
            tensors = (x, self.columns, None, None, None, bias, None, *_NO_SCALES, None)
            return scaled_mm(self.keys, *tensors, self.sparse, **keywords)

        return call


def operands_of(w: SparseTensor24) -> Operands | None:
    """The operands of w for calls for which is_plain_eager() is true; None for a device without
    kernels."""
    operands = w.fast_operands
    if operands is not None and operands.values.data_ptr() != operands.address:
        operands = w.fast_operands = None
    if operands is None and type(w.values) is _tensor and (w.values.is_cuda or w.values.is_cpu):
        keys, cuda = (CUDA, True) if w.values.is_cuda else (CPU, False)
        columns, sparse = w.values.t(), metadata_argument(w.metadata, w.tiles)
        operands = Operands(keys, cuda, w.values, columns.data_ptr(), columns, sparse)
        w.fast_operands = operands
    return operands


def _multiply(function, op, a, b, c, bias, residual, out, epilogue, scales, amax):
    """The result of a call of `op`, or NotImplemented if the call needs torch's dispatch. The
    arguments are as in dispatch."""
    left = type(a) is SparseTensor24
    w, x = (a, b) if left else (b, a)
    try:
        if (
            op.batched
            or not (out is None and scales is NO_SCALES and amax is False)
            or not is_plain_eager()
            or type(w) is not SparseTensor24
            or type(x) is not _tensor
            or w.transposed is (left or op.weight)
            or (left and op.weight)
            or x.is_neg()
            or x._is_zerotensor()
            or not (bias is None or is_plain(bias))
            or not (residual is None or is_plain(residual))
            or not (c is None or is_plain(c))
            or x.dim() < 2
            or (op.weight and bias is not None and bias.dim() != 1)
            or (op in _MATRICES and (x.dim() > 2 or (bias is not None and bias.dim() > 2)))
            or x.shape[-2 if left else -1] != w.k
            or (_grad_enabled() and any_requires_grad(a, b, c, bias, residual))
        ):
            return NotImplemented
        operands = operands_of(w)
        if operands is None:
            return NotImplemented
        keys, values, sparse = operands.keys, operands.values, operands.sparse
        if not (x.is_cuda if operands.cuda else x.is_cpu):
            return NotImplemented
        if values.dtype is _f32:
            if epilogue.precision not in (None, "high") or w.pattern != default_pattern(_f32):
                return NotImplemented
            epilogue = epilogue.with_precision("high")
        if op.weight and c is None and residual is None and epilogue is DEFAULT:
            return linear24(keys, values, sparse, x, bias)
        a, b, forms = (values, x, (sparse,)) if left else (x, operands.columns, (None, sparse))
        tensors = (a, b, None, None, c, bias, residual, *_NO_SCALES, *forms)
        if epilogue is DEFAULT:
            return scaled_mm(keys, *tensors)
        return scaled_mm(keys, *tensors, **epilogue.keywords())
    except RuntimeError as error:
        if (out_of_memory := refused(error)) is not None:
            raise out_of_memory from None
        return NotImplemented  # the path of torch raises an error that names the wrong operand


products[SparseTensor24] = _multiply
