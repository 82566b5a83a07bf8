"""The measurement protocol: how often and how long a case is measured, and what its ratios say.

    repetition    one measurement of a case: the candidates in alternating order in one process
    case          up to REPETITIONS of them, spread over the run: all cases have the first one
                  before any case has the second
    row           the medians of the repetitions; the ratio is the median of their ratios
    range         the lowest and the highest ratio of the repetitions
    claim         "faster", or a target that is met: the whole range is above the limit

A ratio that is more than CLOSE away from 1 and from each target of the case is clear: its first
repetition ends after timing.FIRST_MS a candidate, and there is no other. Every other case takes MS
a candidate and all repetitions, because the same kernel and shape differ by up to 5 % between two
measurements of one run.

A case keeps its repetitions in its details:

    "repetitions": [{"date": ..., "us": {"tcgemm": ..., "dense": ...}, "ratio": ...,
                     "dense_ratio": ..., "clock_mhz": ..., "power_w": ..., "ms": ...}]

"ms" is the time that one candidate was measured for. A row that was stored without repetitions
counts as one.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tcgemm.measure import results_file
from tcgemm.measure.results_file import Results, Row
from tcgemm.measure.timing import Timing

Detail = dict[str, Any]
Repetition = dict[str, Any]
Aims = Mapping[str, Sequence[float]]  # "ratio", "dense_ratio" ... -> the targets of this ratio
REPETITIONS = 3
MS = 400.0  # milliseconds of one candidate in a repetition, for a ratio that is not clear
CLOSE = 0.10  # relative: a ratio this near to a limit is not clear after a short look
OTHERS = ("self_baseline", "dense", "fused")  # candidates beside the baseline


def ratio_name(candidate: str) -> str:
    """The field of a candidate's ratio: "ratio" for the baseline, else "dense_ratio" and so on."""
    return "ratio" if candidate == "baseline" else f"{candidate}_ratio"


def ratios_of(timings: Mapping[str, Timing]) -> dict[str, float]:
    """{field: the time of a candidate divided by tcgemm's} of one measurement."""
    us = timings["tcgemm"].us
    return {ratio_name(name): t.us / us for name, t in timings.items() if name != "tcgemm"}


def is_clear(ratios: Mapping[str, float], aims: Aims) -> bool:
    """Is each ratio more than CLOSE away from 1 and from each of its targets?"""
    return all(
        abs(ratio / aim - 1) > CLOSE
        for name, ratio in ratios.items()
        for aim in (1.0, *aims.get(name, ()))
    )


def repetition(row: Row, detail: Detail) -> Repetition:
    """The repetition that a row of one measurement is."""
    names = {"tcgemm": row["us"], "baseline": row["baseline_us"]}
    names |= {name: detail.get(f"{name}_us") for name in OTHERS}
    fields = {
        "date": detail.get("date"),
        "us": {name: us for name, us in names.items() if us is not None},
        "ratio": row["ratio"],
    }
    ratios = {f"{name}_ratio": detail.get(f"{name}_ratio") for name in OTHERS}
    fields |= {name: ratio for name, ratio in ratios.items() if ratio is not None}
    fields |= {"clock_mhz": row["clock_mhz"], "power_w": row["power_w"]}
    return fields | ({"ms": detail["ms"]} if "ms" in detail else {})


def repetitions(row: Row, detail: Detail) -> list[Repetition]:
    """The repetitions of a row; none if the case failed."""
    if row["us"] is None:
        return []
    return detail.get("repetitions") or [repetition(row, detail)]


def combined(row: Row, detail: Detail, runs: Iterable[Repetition]) -> tuple[Row, Detail]:
    """(row, detail) with the medians of these repetitions. Other fields stay as they are."""
    runs = sorted(runs, key=lambda run: str(run["date"]))
    row, detail = dict(row), dict(detail) | {"repetitions": runs}

    def median(values: Iterable[float | None], digits: int) -> float | None:
        numbers = [value for value in values if value is not None]
        return round(statistics.median(numbers), digits) if numbers else None

    def us_of(name: str) -> float | None:
        return median((run["us"].get(name) for run in runs), 3)

    latest_us = row["us"]
    row |= {"us": us_of("tcgemm"), "baseline_us": us_of("baseline")}
    row["ratio"] = median((run["ratio"] for run in runs), 4)
    if row["tflops"] is not None:
        row["tflops"] = round(row["tflops"] * latest_us / row["us"], 3)
    for name in ("clock_mhz", "power_w"):
        row[name] = median((run[name] for run in runs), 1)
    for name in OTHERS:
        if name in detail:
            detail[f"{name}_us"] = us_of(name)
            detail[f"{name}_ratio"] = median((run.get(f"{name}_ratio") for run in runs), 4)
    return row, detail


def claim(interval: tuple[float, float], least: float) -> str:
    """ "PASS": the whole range is at least `least`. "MISS": all of it is below. Else "UNCLEAR"."""
    low, high = interval
    return "PASS" if low >= least else "MISS" if high < least else "UNCLEAR"


def span(row: Row, detail: Detail, name: str = "ratio") -> tuple[float, float] | None:
    """(lowest, highest) of a ratio over the repetitions; None if it was not measured.

    Arguments:
        name (str): "ratio", or the ratio to another candidate, such as "dense_ratio".
    """
    values = [run.get(name) for run in repetitions(row, detail)]
    numbers = [ratio for ratio in values if ratio is not None]
    return (min(numbers), max(numbers)) if numbers else None


def ratios(row: Row, detail: Detail) -> dict[str, float]:
    """The ratios of a row by their fields: medians of the repetitions."""
    values = {"ratio": row["ratio"]} | {f"{n}_ratio": detail.get(f"{n}_ratio") for n in OTHERS}
    return {name: ratio for name, ratio in values.items() if ratio is not None}


def repetitions_left(row: Row, detail: Detail, aims: Aims, limit: int = REPETITIONS) -> int:
    """How many repetitions the case still needs; `limit` is the number where no ratio is clear."""
    runs = repetitions(row, detail)
    if not runs:
        return limit
    first = {name: runs[0].get(name) for name in ratios(row, detail)}
    numbers = {name: ratio for name, ratio in first.items() if ratio is not None}
    return 0 if is_clear(numbers, aims) else max(0, limit - len(runs))


def merged(old: tuple[Row, Detail] | None, new: tuple[Row, Detail]) -> tuple[Row, Detail]:
    """One case of two files: all repetitions of both if the commit is the same, else `new`."""
    row, detail = new
    if old is None or old[0]["commit"] != row["commit"] or row["commit"] == "unknown":
        return new
    if row["us"] is None:
        return old
    earlier, later = repetitions(*old), repetitions(row, detail)
    extra = [run for run in earlier if run not in later]
    return combined(row, detail, [*extra, *later]) if extra else new


def merge(results: Results, new: Results) -> Results:
    """Puts every row of `new`, and its header, into `results`; returns `results`."""
    rows = {results_file.key(row): row for row in results["rows"]}
    for row in new["rows"]:
        name = results_file.key(row)
        old = (rows[name], results["details"].get(name, {})) if name in rows else None
        results_file.put(results, *merged(old, (row, new["details"].get(name, {}))))
    results["header"] = new["header"] or results["header"]
    return results
