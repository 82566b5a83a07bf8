"""What the sums of a product lose: the result of error_report, and its text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tcgemm.numerics.table import Table


def _amount(ratio: float) -> str:
    """ "0.032 of", "7.1 times"."""
    if ratio < 1:
        return f"{ratio:.2g} of"
    return f"{ratio:.2g} times" if ratio < 100 else f"{ratio:,.0f} times"


@dataclass
class Way:
    """One way to add the products, and what it loses.

    Attributes:
        name (str): the words of a call that choose it: 'precision="fast"', "acc_dtype=float16".
        kernel (str): the kernel of its plan.
        is_planned (bool): the call as it was given computes so.
        largest, mean (float): error of the sums before they are rounded to the dtype of the result,
            in units of 2^-24 |A||B|: the largest, and the root mean square.
        any_data, normal_data (float): what the bounds for any data and for normal data allow, in
            the same units; of normal data the largest.
        relative (float): the root mean square error over the root mean square of the exact sums.
        drift (float): the mean of |sum| - |exact sum|, divided by the mean of |exact sum|: below
            zero where sums lose magnitude.
        last_place (float): the largest error of the result, in units of its last place.
    """

    name: str
    kernel: str
    is_planned: bool
    largest: float
    mean: float
    any_data: float
    normal_data: float
    relative: float
    drift: float
    last_place: float


@dataclass
class ErrorReport:
    """What tcgemm.numerics.error_report found. It prints as a table with a sentence.

    Attributes:
        ways (list[Way]): the kernel that would run, and its alternatives.
        torch (float | None): the largest error of torch's product in the sample, in units of the
            last place; None if the operands are not on a GPU, or if torch has no such product.
        unit_roundoff (float): of the dtype of the result.
        facts (dict): m, n, k, dtype, out_dtype, gpu, data, rows and columns of the sample.
    """

    ways: list[Way]
    torch: float | None
    unit_roundoff: float
    facts: dict[str, Any]

    @property
    def planned(self) -> Way:
        """The way of the call as it was given."""
        return next(way for way in self.ways if way.is_planned)

    @property
    def advice(self) -> str:
        """What would lose accuracy here, and what to choose: one sentence."""
        planned, facts = self.planned, self.facts
        best = min(self.ways, key=lambda way: way.relative)
        worst = max(self.ways, key=lambda way: way.relative)
        if facts["dtype"] in ("s8", "u8"):
            if planned.relative == 0:
                return "Sums of integers are exact: there is nothing to choose."
            return (
                "Sums leave the range of int32 and wrap: multiply parts of K and add them in "
                "float32."
            )
        if not math.isfinite(planned.relative):
            return f"The planned sums overflow: choose {best.name}, or smaller operands."
        loss = planned.relative / self.unit_roundoff
        sentence = (
            f"The planned sums lose {_amount(loss)} what the rounding of the result to "
            f"{facts['out_dtype']} may lose"
        )
        if loss > 1 and best.relative < planned.relative / 2:
            best_loss = _amount(best.relative / self.unit_roundoff)
            return f"{sentence}; choose {best.name}, which loses {best_loss} it."
        if worst is not planned:
            lost = _amount(worst.relative / self.unit_roundoff)
            sentence += f", and {worst.name} would lose {lost} it"
        if loss > 1:
            return f"{sentence}; no other way of {facts['dtype']} loses clearly less."
        return f"{sentence}: keep the plan."

    def table(self) -> Table:
        """The rows and the sentences below them."""
        rows = [
            {
                "sums": way.name + (" (planned)" if way.is_planned else ""),
                "largest": way.largest,
                "rms": way.mean,
                "bound": way.any_data,
                "if normal": way.normal_data,
                "rms / result": way.relative,
                "drift": way.drift,
                "last place": way.last_place,
                "kernel": way.kernel,
            }
            for way in self.ways
        ]
        torch = "" if self.torch is None else f"; of torch's product: {self.torch:.3g}"
        facts = self.facts
        notes = [
            "largest, rms, bound for any data, bound for normal data: of the sums, in 2^-24 |A||B|",
            f"last place: largest error of the result in units of its last place{torch}",
            "",
            self.advice,
        ]
        title = (
            f"{facts['m']} x {facts['n']} x {facts['k']}, {facts['dtype']} to "
            f"{facts['out_dtype']}, {facts['data']}, on an {facts['gpu']}: "
            f"{facts['rows']} rows and {facts['columns']} columns, emulated"
        )
        return Table(title, rows, notes)

    def __str__(self) -> str:
        return str(self.table())

    def to_dict(self) -> dict[str, Any]:
        """The report for a JSON file."""
        return {
            "facts": self.facts,
            "ways": [asdict(way) for way in self.ways],
            "torch": self.torch,
            "advice": self.advice,
        }
