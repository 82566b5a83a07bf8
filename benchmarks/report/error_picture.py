"""The pictures of errors of sums: over K, and of a chain of products.

The curves are from benchmarks/results/numerics/emulated.json, which
`python -m tcgemm numerics all --json FILE` writes.
"""

import itertools
import json
import math
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.report.svg import BLUE, GREEN, ORANGE, PURPLE, RED, SOFT, Drawing

FILE = RESULTS / "numerics" / "emulated.json"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#b8860b", "#008080", "#59636e")
LEFT, TOP, WIDTH, HEIGHT = 72, 64, 470, 320
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
    series: Curves,
    dashed: str,
    title: str,
    description: str,
    *,
    log_x: bool,
    axes: tuple[str, str],
) -> str:
    """The picture of curves on a logarithmic y axis; labels with `dashed` are thin, with dots."""
    drawing = Drawing(780, 452, title, description)
    drawing.text(20, 26, title, size=16, bold=True)
    xs = sorted({x for points in series.values() for x in points})
    ys = [math.log10(y) for points in series.values() for y in points.values()]
    low, high = math.floor(min(ys)), math.ceil(max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        if log_x:
            share = math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
        else:
            share = (x - xs[0]) / (xs[-1] - xs[0])
        return LEFT + share * WIDTH, TOP + (high - math.log10(y)) / (high - low) * HEIGHT

    for power in range(low, high + 1):
        y = place(xs[0], 10.0**power)[1]
        drawing.line(LEFT, y, LEFT + WIDTH, y)
        drawing.text(LEFT - 8, y + 4, f"1e{power}", size=11, fill=SOFT, anchor="end")
    for x in xs[:: 1 if log_x else 2]:
        at = place(x, 10.0**low)[0]
        drawing.text(at, TOP + HEIGHT + 18, str(x), size=11, fill=SOFT, anchor="middle")
    drawing.text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, axes[0], size=12, anchor="middle")
    drawing.text(20, TOP - 12, axes[1], size=12, fill=SOFT)
    groups = list(dict.fromkeys(label.replace(dashed, "") for label in series))
    for label, points in series.items():
        colour = COLOURS[groups.index(label.replace(dashed, ""))]
        # Of few groups the first ones are wide, so that none hides another.
        width = 1 if dashed in label else 2 + 2 * max(0, 2 - groups.index(label))
        places = [place(x, y) for x, y in points.items()]
        for start, end in itertools.pairwise(places):
            drawing.line(*start, *end, colour, width if len(groups) < 5 else min(width, 2))
        for x, y in places if dashed in label else ():
            drawing.circle(x, y, 2.5, colour)
    for index, group in enumerate(groups):
        y = TOP + 14 + index * 22
        drawing.line(LEFT + WIDTH + 22, y - 4, LEFT + WIDTH + 46, y - 4, COLOURS[index], 2)
        drawing.text(LEFT + WIDTH + 54, y, group, size=12)
    return drawing.svg()


def draw_sums() -> str:
    """The error over K of every way to add."""
    series = {
        label.replace(", normal", ""): points
        for label, points in curves(load()["outside"][1]).items()
        if not label.startswith("float64")
    }
    title = "Errors of long sums on an H200"
    description = "Root mean square error over K, on logarithmic axes."
    axes = ("K (lines: normal data; dots: uniform in [0, 1))", "rms error, 2^-24 |A||B|")
    return _picture(series, ", uniform", title, description, log_x=True, axes=axes)


def draw_chain() -> str:
    """The error of a chain of products on an emulated A100."""
    series = {
        label.removesuffix(", A100").replace(" init", "").replace(", low", " "): points
        for label, points in curves(load()["chain"][0]).items()
        if label.endswith("A100")
    }
    series = {label.strip(): points for label, points in series.items()}
    title = "A chain of N products by mma.m16n8k8 on an A100"
    description = "Mean error relative to the result, over N."
    axes = ("N (lines: rounded before both chains; dots: on the GPU alone)", "error / result")
    return _picture(series, ", FP32", title, description, log_x=False, axes=axes)
