"""The shapes of the scales of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 128  # elements along each side of a block that shares a scale


def _blocks(extent: int) -> int:
    return (extent + BLOCK - 1) // BLOCK


def scale_shape(shape: Sequence[int], granularity: str) -> tuple[int, ...]:
    """The shape of the scales that quantize returns for a tensor of this shape."""
    if granularity == "tensor":
        return ()
    if granularity == "row":
        return (*shape[:-1], 1)
    if granularity == "1x128":
        return (*shape[:-1], _blocks(shape[-1]))
    return (*shape[:-2], _blocks(shape[-2]), _blocks(shape[-1]))
