"""The tensors of a packed weight, how they are stored, and the checks that they belong together.

codes        4 bits: uint8 (N, ceil(K/2)), the element k in byte k // 2, in the low four bits
             if k is even; 8 bits: int8 or float8_e4m3fn (N, K)
scales       (N, G), G = K / group_size, or 1 for a whole row
zero_points  uint8 (N, G), or offsets (N, G) of the dtype of the scales; int4 only
table        float32 (16,), of every format whose codes are indexes
global_scale float32 (), of nvfp4
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tcgemm.operands.packed.formats import ENTRIES, FORMATS, Format, check_group, format_of
from tcgemm.operands.quant.weight import view_bytes
from tcgemm.typing import PackedFormat


class Parts(NamedTuple):
    """The tensors that are saved. Those that a format does not have are None.

    Inside of a PackedWeight, float8 is stored as uint8: see bytes_of.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None = None
    offsets: torch.Tensor | None = None
    table: torch.Tensor | None = None
    global_scale: torch.Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Parts:
        """The results of the function for each tensor that is there."""
        codes, scales, *others = self
        others = (tensor if tensor is None else function(tensor) for tensor in others)
        return Parts(function(codes), function(scales), *others)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are there, by name."""
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}


class Layout(NamedTuple):
    """The numbers and words that the tensors do not say."""

    format: PackedFormat
    n: int
    k: int
    group_size: int | None

    @property
    def form(self) -> Format:
        """The row of the format."""
        return FORMATS[self.format]

    @property
    def groups(self) -> int:
        """The groups of a row."""
        return 1 if self.group_size is None else self.k // self.group_size

    @property
    def code_columns(self) -> int:
        """The columns of the codes."""
        return (self.k + 1) // 2 if self.form.bits == 4 else self.k


class Part(NamedTuple):
    """What a format says about one of the tensors."""

    shape: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    there: bool | None = True  # False: the format has none; None: it can do without


def described(layout: Layout, scale_dtype: torch.dtype) -> dict[str, Part]:
    """The tensors of a weight with such scales, by name."""
    form, groups = layout.form, (layout.n, layout.groups)
    of_int4 = None if form.name == "int4" else False
    return {
        "codes": Part((layout.n, layout.code_columns), (form.codes,)),
        "scales": Part(groups, form.scales),
        "zero_points": Part(groups, (torch.uint8,), of_int4),
        "offsets": Part(groups, (scale_dtype,), of_int4),
        "table": Part((ENTRIES,), (torch.float32,), form.indexes),
        "global_scale": Part((), (torch.float32,), form.has_global_scale),
    }


def check_parts(function: str, parts: Parts, layout: Layout) -> None:
    """Raises TypeError or RuntimeError, which begins with `function`, unless tensors and numbers
    belong together."""
    for name, tensor in parts._asdict().items():
        required = name in ("codes", "scales")
        if not isinstance(tensor, torch.Tensor) and (required or tensor is not None):
            raise TypeError(
                f"{function}: {name} must be a torch.Tensor{'' if required else ' or None'}, but "
                f"is {type(tensor).__name__}; convert it with torch.as_tensor."
            )
    form = format_of(function, layout.format)
    if isinstance(layout.k, bool) or not isinstance(layout.k, int) or layout.k < 0:
        raise RuntimeError(
            f"{function}: k is {layout.k!r}, but it must be the number of columns of the weight; "
            "pass a whole number that is not negative."
        )
    check_group(function, form, layout.group_size, layout.k)
    if parts.zero_points is not None and parts.offsets is not None:
        raise RuntimeError(
            f"{function}: zero_points and offsets are both given, but a weight has one of them; "
            "leave one out."
        )
    for name, part in described(layout, parts.scales.dtype).items():
        tensor = getattr(parts, name)
        if tensor is None and part.there:
            raise RuntimeError(
                f"{function}: {name} is None, but the format {form.name!r} needs it; pass a "
                "float32 tensor."
            )
        if tensor is None:
            continue
        if part.there is False:
            raise RuntimeError(
                f"{function}: {name} is given, but the format {form.name!r} has none; leave it out."
            )
        mend = "pass the tensors of one packed weight"
        check_tensor(function, name, tensor, part.dtypes, part.shape, mend)
        if tensor.requires_grad:
            raise RuntimeError(
                f"{function}: {name} needs a gradient, but a packed weight has none; pass "
                f"{name}.detach()."
            )
        if tensor.device != parts.codes.device:
            raise RuntimeError(
                f"{function}: {name} is on {tensor.device}, but codes is on {parts.codes.device}; "
                "all tensors of a packed weight must be on one device: move it with .to(...)."
            )


def check_tensor(
    function: str,
    name: str,
    tensor: Tensor,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int | str, ...],
    mend: str,
) -> None:
    """Raises RuntimeError unless this is a dense tensor of one of the dtypes and of the shape, in
    which a str stands for any number."""
    sizes = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
    expected = f"{' or '.join(map(str, dtypes))} of shape ({sizes})"
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise RuntimeError(
            f"{function}: {name} must be a dense, strided tensor, {expected}, but is {kind}; pass "
            f"{name}.to_dense()."
        )
    fits = tensor.dim() == len(shape) and all(
        isinstance(size, str) or size == came
        for size, came in zip(shape, tensor.shape, strict=True)
    )
    if not fits or tensor.dtype not in dtypes:
        raise RuntimeError(
            f"{function}: {name} must be {expected}, but is {tensor.dtype} of shape "
            f"{tuple(tensor.shape)}; {mend}."
        )


def bytes_of(tensor: Tensor) -> Tensor:
    """A float8 tensor as uint8, because pickle, gloo and torch.where do not take float8; others as
    they are."""
    return view_bytes(tensor, torch.uint8) if _is_float8(tensor.dtype) else tensor


def of_bytes(parts: Parts, form: Format) -> Parts:
    """The parts with the inverse of bytes_of for a format; other tensors stay as they are."""
    changed = {}
    for name, dtype in (("codes", form.codes), ("scales", form.scales[0])):
        tensor = getattr(parts, name)
        if _is_float8(dtype) and getattr(tensor, "dtype", None) is torch.uint8:
            changed[name] = view_bytes(tensor, dtype)
    return parts._replace(**changed)


def _is_float8(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize == 1
