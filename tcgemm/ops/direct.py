"""The shortest way from Python to a kernel: past torch's dispatcher, which takes 1 us of a call.

Only calls that the dispatcher would hand to the kernel of the device unchanged may take it. Tensors
whose memory the kernel cannot read (sparse or nested ones, a batch of is_grads_batched) make it
raise an error; then the dispatcher gets the call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.ops._torch_private import (
    any_autocast_enabled,
    dispatch_keys,
    dispatch_modes,
    in_dual_level,
    is_profiled,
    is_tracing,
    transforms_active,
)
from tcgemm.ops.epilogue import DEFAULT, Epilogue
from tcgemm.ops.memory import refused

if TYPE_CHECKING:
    from tcgemm.ops.operators import Operator

DENSE = (torch.Tensor, torch.nn.Parameter)
_traced = torch.compiler.is_dynamo_compiling  # takes less time than is_compiling
_keywords = lru_cache(1024)(Epilogue.keywords)  # building them takes 0.1 us more
CPU, CUDA = dispatch_keys("CPU"), dispatch_keys("CUDA")


def is_plain_eager() -> bool:
    """Is this an eager call without any active mode, transform, profiler or tracer?"""
    return not (
        _traced()
        or any_autocast_enabled()
        or transforms_active()
        or dispatch_modes()  # also of torch.export
        or is_profiled()
        or is_tracing()
        or in_dual_level()
    )


def is_plain(tensor: torch.Tensor) -> bool:
    """Does the memory of a tensor have its elements? With a negative bit it has the negated ones,
    and a ZeroTensor has no memory. The kernels read only memory."""
    return type(tensor) in DENSE and not (tensor.is_neg() or tensor._is_zerotensor())


def run_pass(kernel: Any, tensors: tuple[Any, ...], *arguments: Any) -> Any:
    """The result of a pass with these tensors, or None if the call needs the dispatcher.

    `kernel` is what redispatch gives for its operator. Each tensor but the first may be None.
    """
    if not is_plain_eager():
        return None
    cuda = tensors[0].is_cuda
    for tensor in tensors:
        if tensor is None:
            continue
        if not (is_plain(tensor) and (tensor.is_cuda if cuda else tensor.is_cpu)):
            return None
    try:
        return kernel(CUDA if cuda else CPU, *tensors, *arguments)
    except RuntimeError as error:
        if (out_of_memory := refused(error)) is not None:
            raise out_of_memory from None
        return None


def run(op: Operator, a: Any, b: Any, c: Any, bias: Any, residual: Any, epilogue: Epilogue) -> Any:
    """The result of the operator, or None if the call needs the dispatcher.

    The caller knows that no transform is active, and that autocast has cast the operands.
    """
    if (
        op.kernel is None
        or type(a) not in DENSE
        or type(b) not in DENSE
        or dispatch_modes()
        or is_profiled()
        or is_tracing()
        or in_dual_level()
        or a.is_neg()
        or b.is_neg()
        or a._is_zerotensor()
        or b._is_zerotensor()
    ):
        return None
    if a.is_cuda and b.is_cuda:
        keys, cuda = CUDA, True
    elif a.is_cpu and b.is_cpu:
        keys, cuda = CPU, False
    else:
        return None
    try:
        if (
            epilogue is DEFAULT
            and c is residual is None
            and (kernel := op.plain_kernel) is not None
        ):
            if bias is None:
                return kernel(keys, a, b)
            if is_plain(bias) and (bias.is_cuda if cuda else bias.is_cpu):
                return kernel(keys, a, b, bias=bias)
            return None
        tensors = op.tensors(a, b, c, bias, residual)
        for tensor in tensors:
            if tensor is None or tensor is a or tensor is b:
                continue
            if (
                type(tensor) not in DENSE
                or not (tensor.is_cuda if cuda else tensor.is_cpu)
                or tensor.is_neg()
                or tensor._is_zerotensor()
            ):
                return None
        if op.kernel_name is None:
            return op.kernel(keys, *tensors, **_keywords(epilogue))
        return op.kernel(keys, *tensors, **op.keywords(epilogue))
    except (RuntimeError, TypeError) as error:  # TypeError: an option has no hash
        if (out_of_memory := refused(error)) is not None:
            raise out_of_memory from None
        return None
