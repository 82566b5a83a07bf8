"""The pictures of errors of sums: over K, and of a chain of products.

The curves are from benchmarks/results/numerics/emulated.json, which
`python -m tcgemm numerics all --json FILE` writes.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.report import style
from tcgemm.numerics.picture import COLOURS

FILE = RESULTS / "numerics" / "emulated.json"
Curves = dict[str, dict[int, float]]


def load(path: Path = FILE) -> dict[str, list[dict[str, Any]]]:
    """Name of an experiment -> its tables."""
    return json.loads(path.read_text())


def curves(table: dict[str, Any]) -> Curves:
    """Label -> {x: y}, without what overflowed."""
    return {
        label: {int(x): y for x, y in points.items() if y is not None}
        for label, points in table["curves"].items()
    }


def _picture(
    series: Curves, dashed: str, title: str, axes_names: tuple[str, str], *, log_x: bool
) -> "style.Figure":
    """The picture of curves on a logarithmic y axis; labels with `dashed` are thin, with dots."""
    figure = style.figure(780, 452, title)
    axes = figure.subplots()
    groups = list(dict.fromkeys(label.replace(dashed, "") for label in series))
    for label, points in series.items():
        group = label.replace(dashed, "")
        # Of few groups the first ones are wide, so that none hides another.
        width = 1.5 + (max(0, 5 - 2.5 * groups.index(group)) if len(groups) < 5 else 0)
        line = {"linewidth": width, "label": group}
        if dashed in label:
            line = {"linewidth": 0.8, "marker": "o", "markersize": 3}
        axes.plot(*zip(*points.items(), strict=True), color=COLOURS[groups.index(group)], **line)
    if log_x:
        axes.set_xscale("log", base=2)
    xs = sorted({x for points in series.values() for x in points})[:: 1 if log_x else 2]
    axes.set_xticks(xs, map(str, xs), size="small")
    axes.set(yscale="log", xlabel=axes_names[0], ylabel=axes_names[1])
    figure.legend(loc="outside right upper", frameon=False)
    style.plain(axes)
    return figure


def draw_sums() -> "style.Figure":
    """The error over K of every way to add."""
    series = {
        label.replace(", normal", ""): points
        for label, points in curves(load()["outside"][1]).items()
        if not label.startswith("float64")
    }
    title = "Errors of long sums on an H200"
    axes = ("K (lines: normal data; dots: uniform in [0, 1))", "rms error, 2^-24 |A||B|")
    return _picture(series, ", uniform", title, axes, log_x=True)


def draw_chain() -> "style.Figure":
    """The error of a chain of products on an emulated A100."""
    series = {
        label.removesuffix(", A100").replace(" init", "").replace(", low", " "): points
        for label, points in curves(load()["chain"][0]).items()
        if label.endswith("A100")
    }
    series = {label.strip(): points for label, points in series.items()}
    title = "A chain of N products by mma.m16n8k8 on an A100"
    axes = ("N (lines: rounded before both chains; dots: on the GPU alone)", "error / result")
    return _picture(series, ", FP32", title, axes, log_x=False)
