"""The result of tcgemm.compare: a table as text, HTML, pandas frame, picture and file."""

import math
import operator
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tcgemm import _plots, _tables
from tcgemm.measure import results
from tcgemm.measure.compare.request import COMPARE
from tcgemm.measure.results import Row, cautions, is_wrong
from tcgemm.ops import markup

CASE = ("dtype", "layout", "m", "n", "k")


def size(row: Row) -> str:
    """A shape as compare takes it: "4096x4096x4096", with the batch in front if there is one."""
    sizes = [row["m"], row["n"], row["k"]]
    return "x".join(map(str, sizes if row["batch"] == 1 else [row["batch"], *sizes]))


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


# Title -> the cell's text. A column without any text is left out.
COLUMNS: dict[str, Callable[[Row], str]] = {
    "calls": lambda row: str(row.get("count", "")),
    **{name: operator.itemgetter(name) for name in ("function", "dtype")},
    "weight": lambda row: row["facts"].get("weight", ""),
    "layout": operator.itemgetter("layout"),
    "size": size,
    "epilogue": operator.itemgetter("epilogue"),
    "kernel": lambda row: (row["kernel"] or "").partition("@")[0],
    "us": lambda row: _number(row["us"], ".2f"),
    "± %": lambda row: f"{100 * row['iqr_us'] / row['us']:.1f}" if row["us"] else "",
    "TFLOP/s": lambda row: _number(row["tflops"], ".3g" if (row["tflops"] or 0) < 10 else ".1f"),
    "GB/s": lambda row: _number(row["gbps"], ".0f"),
}
LAST_COLUMNS: dict[str, Callable[[Row], str]] = {
    "error": lambda row: _number(row["max_error_ratio"], ".2f") or ("NaN" if is_wrong(row) else ""),
    "MHz": lambda row: _number(row["clock_mhz"], ".0f"),
    "W": lambda row: _number(row["power_w"], ".0f"),
}
# Aligned to the left.
TEXT_COLUMNS = ("function", "dtype", "weight", "layout", "size", "epilogue", "kernel")


def _joined(names: list[str]) -> str:
    """The names of layers, with * for numbers: "layers.*.up, layers.*.gate"."""
    short = [re.sub(r"(?<![^.])\d+(?![^.])", "*", name) or "(the model)" for name in names]
    return ", ".join(dict.fromkeys(short))


@dataclass(repr=False)
class Comparison:
    """The measurements of tcgemm.compare. They print as a table.

    Attributes:
        rows (list[dict]): one dict for each case, with these keys:

            - function: "mm", "bmm" or "linear"; for a layer of a model also "QuantLinear" or
              "SparseLinear24", the class that it was swapped to.
            - dtype, layout, batch, m, n, k, epilogue: the case.
            - kernel, why: tcgemm's kernel with its cluster and slices, "kernel@2/4", and the reason
              for it.
            - us, iqr_us: the median time of a call and its interquartile range, in microseconds.
              us is None if tcgemm could not run the case; `why` is then the reason.
            - tflops, gbps: 1e12 operations and 1e9 bytes of memory traffic per second.
            - ratios: {name of a baseline: its time divided by tcgemm's}, "x times torch's speed".
            - baselines: {name: {"name", "us", "iqr_us"}}; refused: {name: why it did not run}.
            - max_error_ratio: the largest error divided by its bound. Above 1 the result is wrong.
            - exact: whether an integer result is exact.
            - clock_mhz, power_w: the GPU's clock and power during the measurement.
            - facts: "weight", the dtype or format of a layer's weight if the swap changed it;
              "busy_samples", the share of samples in which other processes had the CPU. They were
              dropped, unless it is 1.
            - count, layers: for a model, the calls in one forward, and the names of the layers.
        facts (dict): gpu, driver, clocks, torch, cuda, tcgemm, python, processor, date and method.
            `model`, for a model, has the time of its forward before and after the swap.
    """

    rows: list[Row]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def baselines(self) -> list[str]:
        """The names of the baselines that ran in at least one row."""
        return list(dict.fromkeys(name for row in self.rows for name in row["ratios"]))

    def _columns(self) -> dict[str, list[str]]:
        """Title -> the texts of its cells."""
        columns = {"#": [str(index) for index in range(1, len(self.rows) + 1)]}
        ratios = {
            f"x {name}": lambda row, name=name: _number(row["ratios"].get(name), ".3f")
            for name in self.baselines
        }
        for title, cell in (COLUMNS | ratios | LAST_COLUMNS).items():
            cells = [cell(row) for row in self.rows]
            if any(cells):
                columns[title] = cells
        return columns

    def _title(self) -> str:
        facts = {"gpu": "an unknown device", "processor": "unknown"} | self.facts
        device = facts["gpu"] + (f" (driver {facts['driver']})" if facts.get("driver") else "")
        if device == "cpu":
            device = f"the CPU ({facts['processor']})"
        version, torch, date = (facts.get(name, "") for name in ("tcgemm", "torch", "date"))
        return f"tcgemm {version} on {device}, torch {torch}, {date}"

    def _summary(self) -> list[str]:
        """A line for the model, and one for each baseline."""
        lines = []
        if model := self.facts.get("model"):
            before, after = (
                f"{model[f'{moment}_us']:.1f} ± {model[f'{moment}_iqr_us']:.1f} us {moment}"
                for moment in ("before", "after")
            )
            lines = [
                f"{model['name']}: forward {before}, {after} the swap to {model['to']}, "
                f"{model['speedup']:.3f} x; {model['swapped']} layers swapped, "
                f"{len(model['skipped'])} not; outputs differ by {model['difference']:.2g}",
                f"the swap {model['coverage']}",
            ]
            if ours := model.get("tcgemm_before"):
                start = f"{ours} layers were tcgemm's before the swap"
                lines.append(f"{start}, so that the first time is not that of torch")
            lines += cautions(model["after_us"], {"torch's forward": model["speedup"]}, model)
        for name in self.baselines:
            ratios = [row["ratios"][name] for row in self.rows if name in row["ratios"]]
            if len(ratios) > 1:  # of a single row the table says it
                mean = statistics.geometric_mean(ratios)
                span = f"{min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} rows"
                lines.append(f"x {name}: geometric mean {mean:.3f} ({span})")
        return lines

    def _notes(self) -> list[str]:
        """What there is to say about rows, with their numbers in front."""
        notes: dict[str, list[str]] = {}
        for number, row in enumerate(self.rows, 1):
            wrong = "WRONG RESULT: its error exceeds what rounding explains"
            texts = [wrong] if is_wrong(row) else []
            texts += [f"layers {_joined(row['layers'])}"] if "layers" in row else []
            texts += [f"{name} did not run: {why}" for name, why in row["refused"].items()]
            texts += cautions(row["us"], row["ratios"], row["facts"])
            for text in filter(None, [*texts, row["why"]]):
                notes.setdefault(text, []).append(str(number))
        return [f"row {', '.join(numbers)}: {text}" for text, numbers in notes.items()]

    def __str__(self) -> str:
        columns = self._columns()
        sides = "".join("<" if title in TEXT_COLUMNS else ">" for title in columns)
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        lines = _tables.aligned(rows, sides)
        return "\n".join([self._title(), *lines, *self._summary(), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        columns = self._columns()
        table = markup.table(list(columns), zip(*columns.values(), strict=True))
        below = [f"<li>{markup.escape(text)}</li>" for text in self._summary() + self._notes()]
        return f"<p>{markup.escape(self._title())}</p>{table}<ul>{''.join(below)}</ul>"

    def to_pandas(self) -> Any:
        """Makes a pandas.DataFrame with one row for each case.

        Keys whose values are dicts become columns: "x torch", "torch us", "torch refused".

        Raises:
            RuntimeError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            text = "to_pandas needs pandas; `pip install pandas` installs it."
            raise COMPARE.refuse(text) from error
        return pandas.DataFrame([_flat(row) for row in self.rows])

    def plot(self, ax: Any = None) -> Any:
        """Draws the TFLOP/s of tcgemm and of each baseline as bars, and returns the Axes.

        Example:
            >>> result.plot().figure.savefig("compare.png")  # doctest: +SKIP

        Arguments:
            ax: the matplotlib Axes to draw into. Default: the Axes of a new figure.

        Raises:
            RuntimeError: matplotlib is not installed, or no row has a time.
        """
        rows = [row for row in self.rows if row.get("tflops")]
        if not rows:
            raise COMPARE.refuse("there is no row with a time, so that there is nothing to plot.")
        labels = [_label(row) for row in rows]
        rates = {"tcgemm": [row["tflops"] for row in rows]}
        for name in self.baselines:
            rates[name] = [row["tflops"] / row["ratios"].get(name, math.nan) for row in rows]
        try:
            ax = _plots.bar_groups(labels, rates, ax)
        except ImportError as error:
            text = "plot needs matplotlib; `pip install matplotlib` installs it."
            raise COMPARE.refuse(text) from error
        ax.set_xlabel("TFLOP/s")
        to = str(self.facts.get("model", {}).get("to", "")).rpartition(".")[2]
        title = ", ".join(filter(None, (str(self.facts.get("gpu", "")), to)))
        ax.set_title(title, pad=30)  # above the legend
        return ax

    def save(self, path: str | Path) -> None:
        """Writes a JSON file: {"header": {...}, "rows": [...]}, as `tcgemm bench` does.

        tcgemm.measure.compare.load reads it. The file contains no code. If the file cannot be
        written completely, an older file of this name stays as it was.
        """
        results.save(path, self.facts, self.rows)


def _label(row: Row) -> str:
    """The case of a bar, such as "bf16 x int4 TN 1x4096x4096 bias"."""
    weight = row["facts"].get("weight")
    operands = f"{row['dtype']} x {weight}" if weight else row["dtype"]
    return " ".join(filter(None, (operands, row["layout"], size(row), row["epilogue"])))


def _flat(row: Row) -> Row:
    nested = ("ratios", "baselines", "refused", "facts", "repetitions")
    fields = {name: value for name, value in row.items() if name not in nested}
    for name, baseline in row["baselines"].items():
        fields |= {f"x {name}": row["ratios"][name], f"{name} us": baseline["us"]}
    return fields | {f"{name} refused": reason for name, reason in row["refused"].items()}


def load(path: str | Path) -> Comparison:
    """Reads the Comparison that `save` wrote.

    Example:
        >>> tcgemm.measure.compare.load("h200.json").rows  # doctest: +SKIP

    Raises:
        RuntimeError: the file has another form.
        OSError: the file cannot be read.
    """
    try:
        facts, rows = results.read(path)
        for row in rows:
            if missing := [name for name in CASE if name not in row]:
                raise ValueError(f"{path} has a row without {', '.join(missing)}")
    except ValueError as error:
        text = f"{error}; pass a file that the result of tcgemm.compare saved."
        raise COMPARE.refuse(text) from error
    return Comparison(rows, facts)
