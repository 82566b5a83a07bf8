"""Weights that have not changed since the last call of their layer.

A kernel may start while the kernel before it still runs. It waits for that kernel before it loads,
because it may read what that kernel writes. A weight that the last call of the layer read, and that
has not changed since, was complete at that call: the kernel loads it before the wait
(docs/dev/kernels/few-rows.md).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.ops._torch_private import (
    any_autocast_enabled,
    current_stream,
    in_dual_level,
    is_tracing,
    transforms_active,
)
from tcgemm.ops.prepack import capturing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

# The stream, and the versions and addresses of the tensors that a kernel loads early.
Seen = tuple[int, ...]
# A weight, and what was seen of it. Each tensor has one weak reference of its own: another tensor
# may get the memory of a freed one, and have the same version.
State = tuple["weakref.ref[Tensor]", Seen]
_tensor = torch.Tensor
_DENSE = (torch.Tensor, torch.nn.Parameter)
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


def on_gpu(weight: Tensor) -> bool:
    """Is the weight where a kernel can start before the kernel before it has ended?"""
    return weight.is_cuda


def stream_of(weight: Tensor) -> int:
    """The handle of the stream in which a product with the weight runs now."""
    return current_stream(weight.get_device())


def _seen(weight: Tensor) -> tuple[int, int, int]:
    return stream_of(weight), weight._version, weight.data_ptr()


def _is_same(read: Seen | None, found: Seen, weight: Tensor) -> bool:
    """Is what was seen of the weight that of the last call?

    In another stream the kernel before may be one that the last call waited for. A CUDA graph
    starts when all before it has completed, whatever the stream in which it is captured.
    """
    if read == found:
        return True
    return read is not None and read[1:] == found[1:] and capturing(weight)


def state(input: Any, weight: Tensor, dtypes: tuple[torch.dtype, ...]) -> State | None:
    """The state of the weight of a call that may load it early, else None.

    Such a call is eager, without gradients, autocast and transforms, on a GPU, and launches a
    kernel. `dtypes` are those of inputs for which no other kernel converts the weight.
    """
    if (
        not on_gpu(weight)
        or _compiling()
        or _grad_enabled()
        or is_tracing()
        or type(weight) not in _DENSE
        or type(input) is not _tensor
        or input.dtype not in dtypes
        or input.numel() == 0
        or any_autocast_enabled()
        or transforms_active()
        or in_dual_level()
        or weight.is_inference()  # it has no version
    ):
        return None
    return weakref.ref(weight), _seen(weight)


def is_constant(layer: Any, weight: Tensor, found: State) -> bool:
    """Is the state that of the layer's last call?"""
    read = layer._read
    return read is not None and read[0] is found[0] and _is_same(read[1], found[1], weight)


def remember(layer: Any, weight: Tensor, found: State) -> None:
    """Keeps the state for the next call. A call that is captured in a CUDA graph does not run now,
    so it is not the last one."""
    if not capturing(weight):
        vars(layer)["_read"] = found


def watching(
    run: Callable[[Tensor, Tensor | None], Tensor],
    run_early: Callable[[Tensor, Tensor | None], Tensor],
    weight: Tensor,
    metadata: Tensor,
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """`run` as a function of x and the bias, which calls `run_early` instead if neither the weight
    nor the metadata have changed since its last call.

    The calls are eager and without gradients, and the function holds both tensors.
    """
    if not on_gpu(weight) or weight.is_inference() or metadata.is_inference():
        return run
    read: Seen | None = None

    def call(x: Tensor, bias: Tensor | None) -> Tensor:
        nonlocal read
        found = (*_seen(weight), metadata._version, metadata.data_ptr())
        if _is_same(read, found, weight):
            return run_early(x, bias)
        result = run(x, bias)
        if x.numel() != 0 and not capturing(weight):
            read = found
        return result

    return call
