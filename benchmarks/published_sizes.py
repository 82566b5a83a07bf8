"""Products of published sizes beside the paper's: the set doc000.

    python -m benchmarks run --set doc000         measures it
    python -m benchmarks doc000                   the tables of the stored results
    python -m benchmarks doc000 --plot FOLDER     and TFLOPS over the width, one picture a GPU

For each shape the table has the mean of tcgemm's speed over torch's, its extremes with their width
W, and the largest step between adjacent widths: how much of the speed is lost or won when W
grows by 256. Published figures are of kernels beside cuBLAS 10.1 on other GPUs.
"""

import itertools
import operator
import statistics
from pathlib import Path
from typing import NamedTuple

from benchmarks import RESULTS
from tcgemm import _plots, published
from tcgemm.measure import command_line, results_file
from tcgemm.measure.published_sizes import ACCUMULATIONS, FAMILIES, WIDTHS
from tcgemm.numerics.table import Table

SET = "doc000"
SOURCE = published.DOCUMENTS["000"].short


class Published(NamedTuple):
    """A speed over cuBLAS 10.1 with float16 sums."""

    figure: str
    gpu: str
    family: str  # "rectangles": the six shapes that are no squares
    mean: float
    largest: float
    width: int  # of the largest one


def published_figures():
    """The figures 6 to 9 of the paper."""
    tables = {"figures 6 and 8": ("6", "8"), "figures 7 and 9": ("7", "9")}
    result = []
    for table, names in tables.items():
        (gpu,) = published.gpus("000", table)
        rows = published.table("000", table).items()
        for figure, (family, row) in zip(names, rows, strict=True):
            result.append(Published(figure, gpu, family, *row.values()))
    return result


def family_of(row):
    """(name of the shape, W) of a row."""
    width = min(row["m"], row["n"], row["k"])
    times = tuple(row[name] // width for name in ("m", "n", "k"))
    return next(name for name, family in FAMILIES.items() if family == times), width


def curves(results):
    """{(accumulation, shape): {W: row}} of the measured cases."""
    result = {}
    for row in results["rows"]:
        if row["set"] == SET and row["ratio"]:
            family, width = family_of(row)
            result.setdefault((row["accumulation"], family), {})[width] = row
    return {key: dict(sorted(rows.items())) for key, rows in result.items()}


def torch_tflops(row):
    """The speed of torch."""
    return row["tflops"] / row["ratio"]


def largest_step(speeds):
    """The largest change of the speed between two adjacent widths, -0.2 for a fifth less."""
    pairs = [
        (speeds[wide] / speeds[width] - 1, wide)
        for width, wide in itertools.pairwise(speeds)
        if wide - width == WIDTHS.step
    ]
    return max(pairs, key=lambda pair: abs(pair[0]), default=None)


def _step(speeds):
    step = largest_step(speeds)
    return "-" if step is None else f"{100 * step[0]:+.0f} % at {step[1]}"


def line(accumulation, family, rows):
    """The line of a shape."""
    ratios = {width: row["ratio"] for width, row in rows.items()}
    low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return {
        "sums": accumulation,
        "M x N x K": family,
        "sizes": len(rows),
        "x torch": statistics.geometric_mean(ratios.values()),
        "lowest": f"{ratios[low]:.2f} at {low}",
        "highest": f"{ratios[high]:.2f} at {high}",
        "step": _step({width: row["tflops"] for width, row in rows.items()}),
        "torch's step": _step({width: torch_tflops(row) for width, row in rows.items()}),
    }


def flag_sentence(results):
    """What allow_fp16_accumulation changes in torch."""
    times = []
    for row in results["rows"]:
        if row["set"] == SET and row["accumulation"] == "f16" and row["ratio"]:
            f32_sums_us = results["details"][results_file.key(row)].get("f32_sums_us")
            if f32_sums_us:
                times.append(row["baseline_us"] / f32_sums_us)
    if not times:
        return "No products with float16 sums are measured."
    mean = statistics.geometric_mean(times)
    gain = 1 / mean
    change = "changes nothing" if abs(gain - 1) < 0.01 else f"makes torch {gain:.2f} times as fast"
    return (
        f"allow_fp16_accumulation {change}: its time is {mean:.3f} of that with float32 sums, "
        f"from {min(times):.3f} to {max(times):.3f}."
    )


def table(results):
    """The table of a file of results, or None if it has no product of the set."""
    rows_of = curves(results)
    if not rows_of:
        return None
    lines = [
        line(sums, family, rows_of[sums, family])
        for sums in ACCUMULATIONS
        for family in FAMILIES
        if (sums, family) in rows_of
    ]
    gpu = results["header"]["gpu"]
    notes = [flag_sentence(results), *map(sentence, published_figures())]
    return Table(f"{gpu}: float16 products of published sizes", lines, notes)


def sentence(figure):
    """A published figure in words."""
    return (
        f"{SOURCE}, figure {figure.figure}, {figure.gpu}, {figure.family}: {figure.mean} x cuBLAS "
        f"10.1 in the mean, at most {figure.largest} x at W = {figure.width} (float16 sums)."
    )


def figure(results):
    """TFLOPS over W: a panel for each shape."""
    panels = {family: {} for family in FAMILIES}
    for (sums, family), rows in sorted(curves(results).items()):
        for library, rate in (("tcgemm", operator.itemgetter("tflops")), ("torch", torch_tflops)):
            rates = {width: rate(row) for width, row in rows.items()}
            panels[family][f"{library}, {sums} sums"] = rates
    title = f"float16 products of published sizes on {results['header']['gpu']}"
    return _plots.line_panels(title, panels, ("W", "TFLOPS"), 4)


def main(argv=None):
    parser = command_line.parser("benchmarks doc000", __doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of <gpu>.json")
    parser.add_argument("--plot", type=Path, help="draw into this folder")
    options = parser.parse_args(argv)
    if not options.results.is_dir():
        parser.error(f"{options.results}: there is no such folder.")
    count = 0
    for path in sorted(options.results.glob("*.json")):
        results = results_file.load(path)
        text = table(results)
        if text is None:
            continue
        count += 1
        print(text, end="\n\n")
        if options.plot:
            _plots.make_folder(options.plot)
            _plots.save(figure(results), options.plot / f"{path.stem}-{SET}.png")
    if not count:
        print(f"{options.results} has none; run python -m benchmarks run --set {SET}.")
        print("\n".join(map(sentence, published_figures())))
    return 0
