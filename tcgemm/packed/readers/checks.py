"""The checks that the readers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcgemm.dtypes import named
from tcgemm.packed.formats import FLOATS, FORMATS

if TYPE_CHECKING:
    from torch import Tensor


def check_tensor(
    function: str,
    name: str,
    tensor: Any,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int | str, ...],
) -> None:
    """Raises the error unless this is a tensor of one of the dtypes and of the shape, in which a
    str stands for any number."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{function}: {name} must be a torch.Tensor, but is {type(tensor).__name__}; pass the "
            "tensor of the checkpoint."
        )
    fits = tensor.dim() == len(shape) and all(
        isinstance(expected, str) or expected == came
        for expected, came in zip(shape, tensor.shape, strict=True)
    )
    if not fits or tensor.dtype not in dtypes:
        shown = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
        raise RuntimeError(
            f"{function}: {name} must be {' or '.join(map(str, dtypes))} of shape ({shown}), but "
            f"is {tensor.dtype} of shape {tuple(tensor.shape)}; pass the tensor of the checkpoint."
        )


def shown_dtype(function: str, dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The dtype of dequantize(), from a dtype or its name. Raises RuntimeError for another one."""
    dtype = named(dtype)
    if dtype not in (None, *FLOATS):
        raise RuntimeError(
            f"{function}: dtype is {dtype}, but dequantize() has torch.float16, torch.bfloat16 or "
            "torch.float32; pass one of these, or leave it out."
        )
    return dtype


def divided(
    function: str, format: str, k: int, size: int, scales: Tensor
) -> tuple[int | None, Tensor]:
    """(group size, scales) for scales (N, G) of groups of `size` elements of rows of k.

    A group that is no size of the format is divided: its parts have its scale.
    """
    sizes = [group for group in FORMATS[format].groups if group is not None]
    if size in sizes:
        return size, scales
    if size == k:
        return None, scales
    fitting = [group for group in sizes if size % group == 0]
    if not fitting:
        raise RuntimeError(
            f"{function}: the groups have {size} elements, but a PackedWeight has groups of "
            f"{', '.join(map(str, sizes))}, of a multiple of these, or of a whole row; multiply "
            "the dequantised weight."
        )
    part = max(fitting)
    return part, scales.repeat_interleave(size // part, 1)
