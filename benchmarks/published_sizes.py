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

from benchmarks import RESULTS, current
from tcgemm import _plots, published
from tcgemm.measure import command_line
from tcgemm.measure.published_sizes import ACCUMULATIONS, FAMILIES, WIDTHS
from tcgemm.measure.results import Results
from tcgemm.measure.work import F32_SUMS, TORCH
from tcgemm.numerics.table import Table

SET = "doc000"
SOURCE = published.DOCUMENTS["000"].short


def published_figures():
    """A sentence for each of the figures 6 to 9 of the paper."""
    tables = {"figures 6 and 8": ("6", "8"), "figures 7 and 9": ("7", "9")}
    sentences = []
    for table, names in tables.items():
        (gpu,) = published.gpus("000", table)
        rows = published.table("000", table).items()
        for name, (family, row) in zip(names, rows, strict=True):
            mean, largest, width = row.values()
            sentences.append(
                f"{SOURCE}, figure {name}, {gpu}, {family}: {mean} x cuBLAS 10.1 in the mean, at "
                f"most {largest} x at W = {width} (float16 sums)."
            )
    return sentences


def family_of(row):
    """(name of the shape, W) of a row."""
    width = min(row["m"], row["n"], row["k"])
    times = tuple(row[name] // width for name in ("m", "n", "k"))
    return next(name for name, family in FAMILIES.items() if family == times), width


def curves(rows):
    """{(accumulation, shape): {W: row}} of the rows of the set, in the order of the paper."""
    result = {key: {} for key in itertools.product(ACCUMULATIONS, FAMILIES)}
    for row in rows:
        if row["set"] == SET and TORCH in row["ratios"]:
            family, width = family_of(row)
            result[row["accumulation"], family][width] = row
    return {key: dict(sorted(widths.items())) for key, widths in result.items() if widths}


def torch_tflops(row):
    """The speed of torch."""
    return row["tflops"] / row["ratios"][TORCH]


def largest_step(speeds):
    """The largest change of the speed between two adjacent widths: "-20 % at 2048"."""
    changes = {
        wide: speeds[wide] / speeds[width] - 1
        for width, wide in itertools.pairwise(speeds)
        if wide - width == WIDTHS.step
    }
    if not changes:
        return "-"
    width = max(changes, key=lambda wide: abs(changes[wide]))
    return f"{100 * changes[width]:+.0f} % at {width}"


def line(accumulation, family, rows):
    """The line of a shape."""
    ratios = {width: row["ratios"][TORCH] for width, row in rows.items()}
    low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return {
        "sums": accumulation,
        "M x N x K": family,
        "sizes": len(rows),
        "x torch": statistics.geometric_mean(ratios.values()),
        "lowest": f"{ratios[low]:.2f} at {low}",
        "highest": f"{ratios[high]:.2f} at {high}",
        "step": largest_step({width: row["tflops"] for width, row in rows.items()}),
        "torch's step": largest_step({width: torch_tflops(row) for width, row in rows.items()}),
    }


def flag_sentence(rows):
    """What allow_fp16_accumulation changes in torch."""
    times = [
        row["ratios"][TORCH] / row["ratios"][F32_SUMS]
        for row in rows
        if row["set"] == SET and {TORCH, F32_SUMS} <= row["ratios"].keys()
    ]
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
    """The table of the current rows of tcgemm.measure.results.Results; None without any."""
    curve_of = curves(current.without_stale(results).rows)
    if not curve_of:
        return None
    lines = [line(*key, rows) for key, rows in curve_of.items()]
    gpu = results.header["gpu"]
    notes = [flag_sentence(results.rows), *published_figures()]
    count = sum(row["set"] == SET for row in current.stale(results))
    if count:
        notes.insert(0, f"{count} products of older kernels are left out; measure them again.")
    return Table(f"{gpu}: float16 products of published sizes", lines, notes)


def figure(results):
    """TFLOPS over W of the current rows: a panel for each shape."""
    panels = {family: {} for family in FAMILIES}
    for (sums, family), rows in curves(current.without_stale(results).rows).items():
        for library, rate in (("tcgemm", operator.itemgetter("tflops")), ("torch", torch_tflops)):
            rates = {width: rate(row) for width, row in rows.items()}
            panels[family][f"{library}, {sums} sums"] = rates
    title = f"float16 products of published sizes on {results.header['gpu']}"
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
        results = Results.load(path)
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
        print("\n".join(published_figures()))
    return 0
