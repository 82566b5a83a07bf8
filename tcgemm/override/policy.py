"""The choice of the products that tcgemm.use takes: by dtype, by size, by measurements."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, Protocol

import torch

from tcgemm import dtypes
from tcgemm.override.product import Product

_DTYPES = {row.name: row.torch for row in dtypes.TABLE}
_FIELDS = ("dtype", "layout", "m", "n", "k", "ratios")
_FUNCTIONS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear")
# Terms of a row that torch's own functions have no counterpart of.
_OTHER_TERMS = {"sparse", "prepared"}
_BLOCKS = ("128x128", "1x128")  # rows with scales of such blocks have a term of their own


class HasRows(Protocol):
    """An object with rows, such as the result of tcgemm.compare."""

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """One row for each measured product."""
        ...


# The result of tcgemm.compare, the path of its file, the content of that file, or rows.
Measurements = HasRows | str | PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Measured(NamedTuple):
    """One row of a table: the speed of tcgemm over torch's, and whether it is right."""

    sizes: tuple[int, int, int, int]
    ratio: float
    right: bool


def dtype_name(dtype: torch.dtype, precision: str | None) -> str:
    """The name in a table. tf32 and f32_bf16 are float32 operands of precision high and medium;
    float8 operands of precision "fast" have rows of their own."""
    if precision == "fast":
        return f"{dtype_name(dtype, None)} fast"
    if dtype is torch.float32 and precision in ("high", "medium"):
        return "tf32" if precision == "high" else "f32_bf16"
    return next((row.name for row in dtypes.TABLE if row.torch is dtype), str(dtype))


def read_dtypes(choice: Iterable[torch.dtype | str] | None) -> frozenset[torch.dtype] | None:
    """The dtypes of the argument; names are torch's or names of tcgemm's tables."""
    if choice is None:
        return None
    accepted = set()
    for value in (choice,) if isinstance(choice, str | torch.dtype) else choice:
        dtype = dtypes.named(_DTYPES.get(value, value) if isinstance(value, str) else value)
        if dtype not in _DTYPES.values():
            raise ValueError(
                f"tcgemm.use: dtypes has {value!r}, but products are taken of "
                f"{', '.join(map(str, _DTYPES.values()))}; pass some of these, or their names."
            )
        accepted.add(dtype)
    return frozenset(accepted)


def read_count(name: str, value: Any) -> float:
    """The value of an argument that is a limit."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(
            f"tcgemm.use: {name} must be a number that is not negative, but is {value!r}; pass 0 "
            "for no limit."
        )
    return value


def _is_of_torchs_functions(row: Mapping[str, Any]) -> bool:
    """Is the row about a product as torch's functions compute it? Others are about layers of
    tcgemm, 2:4 sparsity, or sums in float16."""
    terms = (row.get("epilogue") or "").split("+")
    return (
        row.get("function", "mm") in _FUNCTIONS
        and row.get("accumulation") != "f16"
        and _OTHER_TERMS.isdisjoint(terms)
        and row["ratios"].get("torch") is not None  # None: torch could not run this product
    )


class Table:
    """Rows by (dtype, layout). The nearest shape is the one whose sizes differ by the smallest
    factors: the smallest sum of |log2| over batch, m, n and k."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows: dict[tuple[str, str], list[Measured]] = {}
        for row in rows:
            missing = [name for name in _FIELDS if name not in row]
            if missing:
                raise ValueError(
                    f"tcgemm.use: a row of table has no {missing[0]!r}; pass what tcgemm.compare "
                    "returns, the path of a file that it saved, or rows with "
                    f"{', '.join(_FIELDS)}."
                )
            if not _is_of_torchs_functions(row):
                continue
            sizes = (row.get("batch") or 1, row["m"], row["n"], row["k"])
            fast = " fast" if row.get("accumulation") == "fast" else ""
            terms = (row.get("epilogue") or "").split("+")
            blocks = next((f" {each}" for each in _BLOCKS if f"{each}-scales" in terms), "")
            right = row.get("exact") is not False and not (row.get("max_error_ratio") or 0) > 1
            measured = Measured(sizes, row["ratios"]["torch"], right)
            self.rows.setdefault((row["dtype"] + fast + blocks, row["layout"]), []).append(measured)

    def why_not(self, product: Product) -> str | None:
        """Why the nearest row leaves the product to torch, or None."""
        name = dtype_name(product.a.dtype, product.epilogue.precision)
        if product.blocks:
            name += f" {product.blocks}"
        if product.offs is not None:
            name += " in groups"
        layout = product.layout()
        rows = self.rows.get((name, layout))
        if not rows:
            return f"the table has no row of {name} in layout {layout}"
        sizes = product.sizes()
        nearest = min(rows, key=lambda row: _distance(row.sizes, sizes))
        if not nearest.right:
            return f"at the nearest size of the table, {size_text(nearest.sizes)}, tcgemm was wrong"
        if nearest.ratio >= 1:
            return None
        return (
            f"torch is faster at the nearest size of the table, {size_text(nearest.sizes)}: "
            f"tcgemm has {nearest.ratio:.2f} of its speed"
        )


def _distance(first: Sequence[int], second: Sequence[int]) -> float:
    return sum(abs(math.log2(x / y)) for x, y in zip(first, second, strict=True))


def size_text(sizes: Sequence[int]) -> str:
    """ "8 x 512 x 512 x 64" of (batch, m, n, k); without a batch of 1."""
    return " x ".join(map(str, sizes if sizes[0] != 1 else sizes[1:]))


def read_table(table: Any) -> Table | None:
    """The table that the argument gives."""
    if table is None:
        return None
    if isinstance(table, str | PathLike):
        with open(table) as file:
            table = json.load(file)
    rows = table.get("rows") if isinstance(table, Mapping) else getattr(table, "rows", table)
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(
            f"tcgemm.use: table must be what tcgemm.compare returns, the path of a file that it "
            f"saved, or a list of its rows, but is {type(table).__name__}."
        )
    return Table(rows)


class Policy(NamedTuple):
    """The choice of one tcgemm.use."""

    dtypes: frozenset[torch.dtype] | None
    min_size: float
    min_flops: float
    table: Table | None

    def key(self) -> str:
        """A text that differs between choices that differ."""
        chosen = None if self.dtypes is None else sorted(map(str, self.dtypes))
        rows = None if self.table is None else sorted(self.table.rows.items())
        return repr((chosen, self.min_size, self.min_flops, rows))

    def why_not_dtype(self, dtype: torch.dtype) -> str | None:
        """Why products of this dtype are left to torch, or None."""
        if self.dtypes is not None and dtype not in self.dtypes:
            return f"{dtype} is not among dtypes"
        return None

    def why_not(self, product: Product) -> str | None:
        """Why the product is left to torch, or None if tcgemm takes it."""
        why = self.why_not_dtype(product.a.dtype)
        if why is not None:
            return why
        batch, m, n, k = product.sizes()
        if min(m, n, k) < self.min_size:
            return f"m, n or k is below min_size, {self.min_size}"
        if 2 * batch * m * n * k < self.min_flops:
            return f"2 * batch * m * n * k is below min_flops, {self.min_flops:g}"
        return None if self.table is None else self.table.why_not(product)
