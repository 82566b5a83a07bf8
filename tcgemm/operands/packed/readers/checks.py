"""What the readers share: the checks of their tensors, and the weight that they make."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tcgemm.dtypes import named
from tcgemm.operands.packed.formats import FLOATS, FORMATS
from tcgemm.operands.packed.parts import check_tensor
from tcgemm.operands.packed.weight import PackedWeight
from tcgemm.typing import PackedFormat

_MEND = "pass the tensor of the checkpoint"


def check_is_tensor(function: str, name: str, tensor: Any) -> None:
    """Raises TypeError unless this is a tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{function}: {name} must be a torch.Tensor, but is {type(tensor).__name__}; {_MEND}."
        )


def check(
    function: str,
    name: str,
    tensor: Any,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int | str, ...],
) -> None:
    """Raises the error unless this is a tensor of one of the dtypes and of the shape, in which a
    str stands for any number."""
    check_is_tensor(function, name, tensor)
    check_tensor(function, name, tensor, dtypes, shape, _MEND)


def made(
    function: str,
    format: PackedFormat,
    codes: Tensor,
    k: int,
    size: int,
    dtype: torch.dtype | str | None,
    **others: Tensor | None,
) -> PackedWeight:
    """The weight of codes, as they are saved, and of the other parts, for groups of `size` elements
    of rows of k.

    A group that is no size of the format is divided: its parts have its scale.
    """
    dtype = named(dtype)
    if dtype not in (None, *FLOATS):
        raise RuntimeError(
            f"{function}: dtype is {dtype}, but dequantize() has torch.float16, torch.bfloat16 or "
            "torch.float32; pass one of these, or leave it out."
        )
    sizes = [group for group in FORMATS[format].groups if group is not None]
    fitting = [group for group in sizes if size % group == 0]
    group = None if size == k and size not in sizes else max(fitting, default=0)
    if group == 0:
        raise RuntimeError(
            f"{function}: the groups have {size} elements, but a PackedWeight has groups of "
            f"{', '.join(map(str, sizes))}, of a multiple of these, or of a whole row; multiply "
            "the dequantised weight."
        )
    repeats = 1 if group is None else size // group
    if repeats > 1:
        for name, tensor in others.items():
            if tensor is not None and tensor.dim() == 2:
                others[name] = tensor.repeat_interleave(repeats, 1)
    parts: dict[str, Any] = others | {"k": k, "group_size": group, "dtype": dtype}
    return PackedWeight.from_parts(codes, format=format, **parts)
