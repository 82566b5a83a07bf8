"""The tensors of a packed weight, how they are stored, and the checks that they belong together.

codes        4 bits: uint8 (N, ceil(K/2)), the element k in byte k // 2, in the low four bits
             if k is even; 8 bits: int8 or float8_e4m3fn (N, K)
scales       (N, G), G = K / group_size, or 1 for a whole row
zero_points  uint8 (N, G), or offsets (N, G) of the dtype of the scales; int4 only
table        float32 (16,), of every format whose codes are indexes
global_scale float32 (), of nvfp4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from tcgemm.packed.formats import ENTRIES, FORMATS, Format, check_group, format_of, groups_of
from tcgemm.quant.weight import view_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tcgemm.typing import PackedFormat


class Parts(NamedTuple):
    """The tensors that are saved. Those that a format does not have are None.

    Inside of a PackedWeight, float8 is stored as uint8: see as_bytes.
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
        return groups_of(self.k, self.group_size)

    @property
    def code_columns(self) -> int:
        """The columns of the codes."""
        return (self.k + 1) // 2 if self.form.bits == 4 else self.k


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
    _check_kinds(function, parts, form)
    for name, shape in _shapes(layout).items():
        _check_tensor(function, name, getattr(parts, name), shape, _dtypes(name, form, parts))
    for name, tensor in parts.tensors().items():
        if tensor.device != parts.codes.device:
            raise RuntimeError(
                f"{function}: {name} is on {tensor.device}, but codes is on {parts.codes.device}; "
                "all tensors of a packed weight must be on one device: move it with .to(...)."
            )


def _check_kinds(function: str, parts: Parts, form: Format) -> None:
    """Has the weight the tensors of its format, and no others?"""
    if parts.zero_points is not None and parts.offsets is not None:
        raise RuntimeError(
            f"{function}: zero_points and offsets are both given, but a weight has one of them; "
            "leave one out."
        )
    kinds = {
        "zero_points": (form.name == "int4", False),
        "offsets": (form.name == "int4", False),
        "table": (form.indexes, form.indexes),
        "global_scale": (form.has_global_scale, form.has_global_scale),
    }
    for name, (allowed, required) in kinds.items():
        tensor = getattr(parts, name)
        if tensor is not None and not allowed:
            raise RuntimeError(
                f"{function}: {name} is given, but the format {form.name!r} has none; leave it out."
            )
        if tensor is None and required:
            raise RuntimeError(
                f"{function}: {name} is None, but the format {form.name!r} needs it; pass a "
                "float32 tensor."
            )


def _shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    groups = (layout.n, layout.groups)
    return {
        "codes": (layout.n, layout.code_columns),
        "scales": groups,
        "zero_points": groups,
        "offsets": groups,
        "table": (ENTRIES,),
        "global_scale": (),
    }


def _dtypes(name: str, form: Format, parts: Parts) -> tuple[torch.dtype, ...]:
    if name == "codes":
        return (form.codes,)
    if name == "scales":
        return form.scales
    if name == "zero_points":
        return (torch.uint8,)
    return (parts.scales.dtype,) if name == "offsets" else (torch.float32,)


def _check_tensor(
    function: str,
    name: str,
    tensor: Tensor | None,
    shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
) -> None:
    if tensor is None:
        return
    expected = f"{' or '.join(map(str, dtypes))} of shape {shape}"
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise RuntimeError(
            f"{function}: {name} must be a dense, strided tensor, {expected}, but is {kind}; pass "
            f"{name}.to_dense()."
        )
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        raise RuntimeError(
            f"{function}: {name} must be {expected}, but is {tensor.dtype} of shape "
            f"{tuple(tensor.shape)}; pass the tensors of one packed weight."
        )
    if tensor.requires_grad:
        raise RuntimeError(
            f"{function}: {name} needs a gradient, but a packed weight has none; pass "
            f"{name}.detach()."
        )


def bytes_of(tensor: Tensor) -> Tensor:
    """A float8 tensor as uint8, because pickle, gloo and torch.where do not take float8; others as
    they are."""
    return view_bytes(tensor, torch.uint8) if _is_float8(tensor.dtype) else tensor


def as_bytes(parts: Parts) -> Parts:
    """The parts with bytes_of each."""
    return parts.map(bytes_of)


def of_bytes(parts: Parts, form: Format) -> Parts:
    """The inverse of as_bytes for a format; other tensors stay as they are."""
    changed = {}
    for name, dtype in (("codes", form.codes), ("scales", form.scales[0])):
        tensor = getattr(parts, name)
        if _is_float8(dtype) and getattr(tensor, "dtype", None) is torch.uint8:
            changed[name] = view_bytes(tensor, dtype)
    return parts._replace(**changed)


def _is_float8(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize == 1
