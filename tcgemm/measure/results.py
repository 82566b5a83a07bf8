"""Rows of measurements: their fields, their files, and what several repetitions of a case say.

    {"header": {gpu, driver, torch, ...}       of the run that wrote last
     "rows":   [{...}, ...]}                   one row a line

A row is a dict. Its first fields are the case: `set`, `function`, dtype, layout, batch, m, n, k,
epilogue, or the model and its task. MEASURED are the others:

    kernel, why       tcgemm's kernel@cluster/slices and the reason for it; older rows have the
                      kernel alone
    us, iqr_us        the median time of a call in microseconds; None if tcgemm could not run it,
                      and `why` is then the reason
    ratios            {baseline: its time divided by tcgemm's}, "x times torch's speed"
    baselines         {baseline: {"name", "us", "iqr_us"}}; refused: {baseline: why it did not run}
    max_error_ratio   the largest error divided by its bound; above 1 the result is wrong
    exact             whether an integer result is exact; None where nothing is to be exact
    tflops, gbps      1e12 operations and 1e9 bytes of memory traffic per second
    clock_mhz, power_w   of the GPU during the measurement
    facts             what only some cases have, such as the share of |w| that pruning keeps;
                      "busy_samples" is the share of samples in which other processes had the CPU
    commit, date      of the measurement
    repetitions       the measurements whose medians the row has, if there are several

A file leaves out the fields that are None or empty. Each row is written as soon as it is measured,
and two files are merged by the case.

A repetition is one measurement of a case. All cases of a run have the first one before any has the
second. The range of a ratio is its lowest and its highest repetition, and a claim ("faster", or a
target that is met) holds if the whole range is above the limit. A ratio that is more than CLOSE
away from 1 and from each of its targets is clear: its first repetition ends after timing.FIRST_MS a
candidate, and there is no other. Every other case takes MS a candidate and all repetitions, because
the same kernel and shape differ by up to 5 % between two measurements of one run.
"""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcgemm import _shipped
from tcgemm.version import __version__

if TYPE_CHECKING:
    from tcgemm.measure.timing import Timing

Row = dict[str, Any]
Aims = Mapping[str, Sequence[float]]  # baseline -> the targets of its ratio
EMPTY: Row = {
    **dict.fromkeys(("kernel", "us", "iqr_us", "tflops", "gbps")),
    **{name: {} for name in ("ratios", "baselines", "refused")},
    **dict.fromkeys(("max_error_ratio", "exact", "clock_mhz", "power_w")),
    "why": "",
    "facts": {},
    **dict.fromkeys(("commit", "date")),
    "repetitions": [],
}
MEASURED = frozenset(EMPTY)
# The fields of a case in order; those of other kinds follow them.
CASE = (
    *("set", "function", "dtype", "layout", "batch", "m", "n", "k"),
    *("accumulation", "epilogue", "graph"),
)
DEFAULTS: Row = {"batch": 1, "epilogue": "", "graph": True}  # of a product; a file omits them
REPEATED = ("us", "ratios", "clock_mhz", "power_w", "date")  # the fields of a repetition
UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s"}
REPETITIONS = 3
MS = 400.0  # milliseconds of one candidate in a repetition, for a ratio that is not clear
BUSY = "busy_samples"  # a fact of a row
FAR = 20  # a ratio beyond this factor, or below one over it, does not stand without a sentence
CLOSE = 0.10  # relative: a ratio this near to a limit is not clear after a short look
CHECKOUT = Path(__file__).resolve().parents[2]
RECORDED = _shipped.folders("benchmarks/results", "measure/recorded")


def case_of(row: Row) -> Row:
    """The fields of a row that say what it is about."""
    return {name: value for name, value in row.items() if name not in MEASURED}


def key(row: Row) -> str:
    """The identity of a row's case: 'squares/mm/bf16/TN/4096/4096/4096'."""
    fields = {name: value for name, value in case_of(row).items() if DEFAULTS.get(name) != value}
    names = [name for name in CASE if name in fields] + sorted(fields.keys() - set(CASE))
    return "/".join(str(fields[name]) for name in names)


def is_wrong(row: Row) -> bool:
    """Was tcgemm's result measured to be wrong, or NaN?"""
    error = row["max_error_ratio"]
    return row["exact"] is False or (error is not None and error > 1)


def busy(timings: Iterable[Timing]) -> dict[str, float]:
    """The fact of a row that other processes had the CPU during its measurement, if they had."""
    share = max((timing.disturbed for timing in timings), default=0.0)
    return {BUSY: max(0.01, round(share, 2))} if share else {}


def cautions(us: float, ratios: Mapping[str, float], facts: Mapping[str, Any]) -> list[str]:
    """Sentences about a measurement that is to be read with care."""
    sentences = []
    if share := facts.get(BUSY):
        part = f"{'less' if share < 0.5 else 'more'} than half of the samples, which were dropped"
        if share == 1:
            part = "all samples, so these times and ratios are not reliable; measure again on a "
            part += "quiet machine"
        sentences.append(f"other processes had the CPU in {part}")
    sentences += [
        f"x {name} is {ratio:.4g}, beyond a factor of {FAR}: {us:.1f} us beside "
        f"{us * ratio:.1f} us; measure it again before you rely on it"
        for name, ratio in ratios.items()
        if not 1 / FAR <= ratio <= FAR
    ]
    return sentences


def is_clear(ratios: Mapping[str, float], aims: Aims) -> bool:
    """Is each ratio more than CLOSE away from 1 and from each of its targets?"""
    pairs = [(x, aim) for name, x in ratios.items() for aim in (1.0, *aims.get(name, ()))]
    return all(abs(ratio / aim - 1) > CLOSE for ratio, aim in pairs)


def repetitions(row: Row) -> list[Row]:
    """The repetitions of a row; none if the case failed."""
    if row["us"] is None:
        return []
    return row["repetitions"] or [{name: row[name] for name in REPEATED}]


def repetitions_left(row: Row, aims: Aims, limit: int = REPETITIONS) -> int:
    """How many repetitions the case still needs; `limit` is the number where no ratio is clear."""
    done = repetitions(row)
    if not done:
        return limit
    return 0 if is_clear(done[0]["ratios"], aims) else max(0, limit - len(done))


def span(row: Row, baseline: str = "torch") -> tuple[float, float] | None:
    """(lowest, highest) of a ratio over the repetitions; None if it was not measured."""
    values = [part["ratios"][baseline] for part in repetitions(row) if baseline in part["ratios"]]
    return (min(values), max(values)) if values else None


def claim(interval: tuple[float, float], least: float) -> str:
    """ "PASS": the whole range is at least `least`. "MISS": all of it is below. Else "UNCLEAR"."""
    low, high = interval
    return "PASS" if low >= least else "MISS" if high < least else "UNCLEAR"


def line(name: str, row: Row) -> str:
    """A row as a line: its name, time, rates, ratios with their ranges, error, kernel and clock."""
    if row["us"] is None:
        return f"{name}: {row['why']}"
    words = [f"{row['us']:.2f} us" + (f" +-{100 * row['iqr_us'] / row['us']:.1f} %")]
    words += [f"{row[field]:.4g} {unit}" for field, unit in UNITS.items() if row[field]]
    for baseline, ratio in row["ratios"].items():
        low, high = span(row, baseline) or (ratio, ratio)
        spread = f" ({low:.3f} to {high:.3f})" if len(row["repetitions"]) > 1 else ""
        words.append(f"{ratio:.3f} x {baseline}{spread}")
    words += [f"{baseline} refuses: {reason[:80]}" for baseline, reason in row["refused"].items()]
    words += [f"{fact} {value}" for fact, value in row["facts"].items() if fact != BUSY]
    if row["max_error_ratio"] is not None:
        words.append(f"error {row['max_error_ratio']:.2f} of its bound")
    if row["clock_mhz"]:
        words.append(f"{row['clock_mhz']:.0f} MHz {row['power_w']:.0f} W")
    words += [row["kernel"] or "", "WRONG RESULT" if is_wrong(row) else ""]
    words += cautions(row["us"], row["ratios"], row["facts"])
    return f"{name}: " + ", ".join(filter(None, words))


def combined(row: Row, parts: Iterable[Row]) -> Row:
    """The row with the medians of these repetitions. Other fields stay as they are."""
    parts = sorted(parts, key=lambda part: str(part["date"]))
    result: Row = {
        name: _median((part[name] for part in parts), digits)
        for name, digits in (("us", 3), ("clock_mhz", 3), ("power_w", 1))
    }
    result["ratios"] = {
        name: _median((part["ratios"].get(name) for part in parts), 4) for name in row["ratios"]
    }
    for name in ("tflops", "gbps"):
        if row[name]:
            result[name] = figures(row[name] * row["us"] / result["us"])
    return row | result | {"repetitions": parts if len(parts) > 1 else []}


def _median(values: Iterable[float | None], digits: int) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(statistics.median(numbers), digits) if numbers else None


def figures(value: float) -> float:
    """The value with five figures, as rates and ratios are stored."""
    return float(f"{value:.5g}")


def merged(old: Row | None, new: Row) -> Row:
    """One case of two files: all repetitions of both if the commit is the same, else `new`."""
    if old is None or old["commit"] != new["commit"] or new["commit"] == "unknown":
        return new
    return old if new["us"] is None else joined(old, new)


def joined(old: Row, new: Row) -> Row:
    """The row `new` with the repetitions of `old` as well."""
    later = repetitions(new)
    extra = [part for part in repetitions(old) if part not in later]
    return combined(new, [*extra, *later]) if extra else new


@dataclass
class Results:
    """The rows of one GPU and the header of the run that wrote last."""

    header: dict[str, Any] = field(default_factory=dict)
    by_key: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row], header: Mapping[str, Any] | None = None) -> Results:
        """Results with these rows."""
        return cls(dict(header or {}), {key(row): row for row in rows})

    @classmethod
    def load(cls, path: Path | str) -> Results:
        """The results of a file; empty without one. ValueError: the file has another form."""
        header, rows = read(path) if Path(path).exists() else ({}, [])
        return cls.of(rows, header)

    @property
    def rows(self) -> list[Row]:
        """The rows in the order of the file."""
        return list(self.by_key.values())

    def put(self, row: Row) -> None:
        """Adds a row, or replaces the row of the same case."""
        self.by_key[key(row)] = row

    def merge(self, new: Results) -> Results:
        """Puts every row of `new`, and its header, into these results; returns them."""
        for name, row in new.by_key.items():
            self.by_key[name] = merged(self.by_key.get(name), row)
        self.header = new.header or self.header
        return self

    def save(self, path: Path | str) -> None:
        """Writes a file with one row a line, so that git shows the rows that changed."""

        def order(row: Row) -> tuple[str, int, str]:
            size = math.prod(row.get(name, 1) for name in ("batch", "m", "n", "k"))
            names = ("set", "function", "dtype", "layout")
            return "/".join(str(row.get(name, "")) for name in names), size, key(row)

        save(path, self.header, sorted(self.rows, key=order))


def recorded(folder: str = "") -> dict[str, Results]:
    """{name of the GPU: the project's own measurements}, of which the pages are made.

    folder: "" is what `python -m benchmarks run` has measured, "formats" the formats of weights.
    """
    files = [path for place in RECORDED for path in sorted((place / folder).glob("*.json"))]
    return {each.header["gpu"]: each for each in map(Results.load, files)}


def save(path: Path | str, header: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Writes rows as they are, one a line."""
    write(Path(path), {"header": header, "rows": list(map(_short, rows))}, allow_nan=False)


def read(path: Path | str) -> tuple[dict[str, Any], list[Row]]:
    """(the header, the rows) of a file. ValueError: it has another form."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error})") from error
    header, rows = (
        content.get(name) if isinstance(content, dict) else None for name in ("header", "rows")
    )
    if not isinstance(header, dict) or not isinstance(rows, list):
        raise ValueError(f"{path} has no header and list of rows")
    for row in rows:
        if not isinstance(row, dict) or "us" not in row or "function" not in row:
            raise ValueError(f"{path} has a row without function or us")
    return header, [_whole(row) for row in rows]


def _short(row: Row) -> Row:
    """A row without the fields that have their defaults, those of the case first.

    The defaults of a repetition are the row's values.
    """
    row = _whole(row)
    usual = EMPTY | (DEFAULTS if "m" in row else {}) | {"us": ()}  # us stays in any case

    def rest(fields: Row, usual: Row) -> Row:
        return {name: value for name, value in fields.items() if usual.get(name) != value}

    return rest(row | {"repetitions": [rest(part, row) for part in row["repetitions"]]}, usual)


def _whole(row: Row) -> Row:
    """A row of a file with all fields, those of the case first."""
    case = (DEFAULTS if "m" in row else {}) | case_of(row)
    first = {name: case[name] for name in CASE if name in case}
    whole = first | case | EMPTY | {name: row[name] for name in row if name in EMPTY}
    usual = {name: whole[name] for name in REPEATED}
    return whole | {"repetitions": [usual | part for part in whole["repetitions"]]}


def file_name(gpu: str) -> str:
    """The name of the file for a GPU: 'NVIDIA H200' -> 'h200.json'."""
    return "-".join(word for word in gpu.lower().split() if word != "nvidia") + ".json"


def path_in(out: Path, gpu: str) -> Path:
    """The file of a GPU: `out` itself, or <gpu>.json if it is a folder."""
    return out if out.suffix == ".json" else out / file_name(gpu)


def encoded(content: Mapping[str, Any], *, allow_nan: bool = True) -> str:
    """The JSON of an object: each row of a list or dict of rows has a line, others are indented."""
    dumps = functools.partial(json.dumps, allow_nan=allow_nan)
    fields = []
    for name, value in content.items():
        rows = value.values() if isinstance(value, dict) else value
        if not isinstance(value, dict | list) or not all(isinstance(row, dict) for row in rows):
            text = dumps(value, indent=1 if isinstance(value, dict) else None)
        elif isinstance(value, dict):
            text = "{\n" + ",\n".join(dumps({key: row})[1:-1] for key, row in value.items()) + "\n}"
        else:
            text = "[\n" + ",\n".join(dumps(row, separators=(",", ":")) for row in value) + "\n]"
        fields.append(f"{dumps(name)}: {text}")
    return "{" + ",\n".join(fields) + "}\n"


def write(path: Path, content: Mapping[str, Any], *, allow_nan: bool = True) -> None:
    """Writes the whole object or nothing. If the run is killed meanwhile, the old file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(encoded(content, allow_nan=allow_nan))
    os.replace(partial, path)


def commit() -> str:
    """The last commit that changed the measured code, with a '+' if files differ from it.

    In an installed package this is the version, and in a copy of the sources without git it is
    'unknown'. Commits of results or of documentation do not count, so a run can resume after them.
    """
    if not (CHECKOUT / "csrc").is_dir():
        return __version__
    code = ("--", "csrc", "tcgemm", "setup.py", "setup_toolchain.py")
    options: dict[str, Any] = {"cwd": CHECKOUT, "text": True, "timeout": 20}
    options["stderr"] = subprocess.DEVNULL
    last = ["git", "log", "-1", "--abbrev=10", "--format=%h", *code]
    changes = ["git", "status", "--porcelain", "--untracked-files=no", *code]
    try:
        name = subprocess.check_output(last, **options).strip() or "unknown"
        is_changed = name != "unknown" and subprocess.check_output(changes, **options)
        return f"{name}+" if is_changed else name
    except (OSError, subprocess.SubprocessError):
        return "unknown"
