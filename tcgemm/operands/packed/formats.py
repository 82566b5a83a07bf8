"""The formats of packed weights: their code books, group sizes and dtypes.

    format   a code is                        group sizes             scales
    int4     -8..7; 0..15 with zero points    32, 64, 128, a row      float16, bfloat16, float32
    int8     -128..127                        32, 64, 128, a row      the same
    e4m3     a float8_e4m3fn                  32, 64, 128, a row      the same
    nf4      an index of the table            32, 64, 128, a row      the same
    fp4      an index: sign, 2 bits of        32, 64, 128, a row      the same
             exponent, 1 bit of mantissa
    table    an index of a table              32, 64, 128, a row      the same
    mxfp4    as of fp4                        32                      float8_e8m0fnu
    nvfp4    as of fp4                        16                      float8_e4m3fn, times one scale

NF4 is the NormalFloat of Dettmers and others, "QLoRA" (2023). mxfp4 is from the OCP Microscaling
specification, version 1.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tcgemm.dtypes import E4M3
from tcgemm.ops.arguments import integer
from tcgemm.typing import PackedFormat, words

_DTypes = tuple[torch.dtype, ...]
FLOATS: _DTypes = (torch.float16, torch.bfloat16, torch.float32)
E8M0: torch.dtype = torch.float8_e8m0fnu
_GROUPS = (32, 64, 128, None)
ENTRIES = 16  # of a table

NF4: tuple[float, ...] = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1: tuple[float, ...] = (*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES))


class Format(NamedTuple):
    """One row of the table above."""

    name: str
    bits: int
    operator: str  # the word of the operator packed_mm
    codes: torch.dtype
    groups: tuple[int | None, ...]  # the group sizes; None: a whole row
    scales: _DTypes
    default_group: int | None
    limit: float  # amax / limit is the scale of a group; 0: the largest magnitude of the table
    table: tuple[float, ...] | None = None  # the code book, if the format has one of its own

    @property
    def indexes(self) -> bool:
        """Is a code an index of a table?"""
        return self.operator == "table4"

    @property
    def has_global_scale(self) -> bool:
        """Have all groups a second scale in common?"""
        return self.name == "nvfp4"


# A scale of mxfp4 is the power of two that is not above amax / 4: values above 6 saturate.
_ROWS = (
    Format("int4", 4, "int4", torch.uint8, _GROUPS, FLOATS, 128, 7.0),
    Format("int8", 8, "int8", torch.int8, _GROUPS, FLOATS, None, 127.0),
    Format("e4m3", 8, "e4m3", E4M3, _GROUPS, FLOATS, None, 448.0),
    Format("nf4", 4, "table4", torch.uint8, _GROUPS, FLOATS, 64, 1.0, NF4),
    Format("fp4", 4, "table4", torch.uint8, _GROUPS, FLOATS, 64, 6.0, E2M1),
    Format("mxfp4", 4, "table4", torch.uint8, (32,), (E8M0,), 32, 4.0, E2M1),
    Format("nvfp4", 4, "table4", torch.uint8, (16,), (E4M3,), 16, 6.0, E2M1),
    Format("table", 4, "table4", torch.uint8, _GROUPS, FLOATS, 64, 0.0),
)
FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
assert tuple(FORMATS) == words(PackedFormat)


def format_of(function: str, name: object) -> Format:
    """The row of this name; RuntimeError, which begins with `function`, if there is none."""
    form = FORMATS.get(name) if isinstance(name, str) else None
    if form is None:
        raise RuntimeError(
            f"{function}: format is {name!r}, but there are {', '.join(FORMATS)}; pass one of "
            "these."
        )
    return form


def check_group(function: str, form: Format, group_size: Any, k: int) -> None:
    """Raises RuntimeError unless the format has groups of this size, and they divide rows of k."""
    if group_size is not None:
        integer(function.removeprefix("tcgemm."), "group_size", group_size)
    if group_size not in form.groups:
        sizes = ", ".join("None (a whole row)" if g is None else str(g) for g in form.groups)
        raise RuntimeError(
            f"{function}: group_size is {group_size!r}, but the format {form.name!r} has groups of "
            f"{sizes}; pass one of these."
        )
    if group_size is not None and k % group_size:
        smaller = [g for g in form.groups if g is not None and k % g == 0]
        if smaller:
            mend = str(max(smaller))
        elif None in form.groups:
            mend = "None, for one group a row"
        else:
            mend = "a weight with more columns, which are zero"
        raise RuntimeError(
            f"{function}: group_size is {group_size}, which does not divide the {k} columns of the "
            f"weight; pass {mend}."
        )


def table_of(form: Format, device: torch.device | str) -> torch.Tensor | None:
    """The code book of a format as a tensor; None if it has none of its own."""
    if form.table is None:
        return None
    return torch.tensor(form.table, dtype=torch.float32, device=device)
