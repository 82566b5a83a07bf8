"""Writes what was measured into the README, and draws it.

    python benchmarks/report.py                      results/*.json -> README tables, results/*.png
    python benchmarks/report.py --merge shard.json   first takes another run's rows into results/
    python benchmarks/report.py --errors table.json  and an error table of benchmarks/errors.py

    results/<gpu>.json --tables--> README.md, between two HTML comments: promises, and the sets
                       |           that show most
                       |---------> results/<gpu>.md: every set
                       --plot----> results/<gpu>.png: ratio to torch by size, dtype and layout
    results/errors/<gpu>.json ---> the same two pages, results/<gpu>-f32.png: errors by K, rates

Losses are shown like gains; a case without a result is a dash. Whatever part of the sets was
measured makes its part of the tables.
"""

import argparse
import sys
from pathlib import Path

import error_table
import promises
import shapes
import store

BEGIN = "<!-- benchmarks: begin, written by benchmarks/report.py -->"
END = "<!-- benchmarks: end -->"
README = store.RESULTS.parents[1] / "README.md"
# Sets that share a table -> its title. Cells: rate or time, torch's time over ours, our other's.
TITLES = {
    ("targets",): "What was aimed at for 16 bits: 0.93 for even squares, 3 for ragged ones",
    ("int8", "fp8"): "8 bits, e4m3 promoted or fast (s8 NN, third: our own TN's time over it)",
    ("scales",): "e4m3 with scales (of rows, third: our own time with a scale a tensor over it)",
    ("tf32", "f64"): "tf32 and f64",
    (
        "highest",
    ): "f32 with all its bits (spread: elements of a row lie up to 2^40 apart; prepared: "
    "a weight whose parts are kept, third: the time without that over it)",
    ("turned",): "Layouts that tensor cores do not read (third: our own TN's time over it)",
    ("squares",): "Squares",
    ("layouts",): "The other layouts",
    ("ragged",): "Sizes that are not multiples of 8, and some that are",
    ("cliff",): "Sizes beside 4096",
    ("llm",): "Products of language models (M x N x K)",
    ("small-m",): "Few rows",
    ("long-k",): "Small results with a long K",
    ("batch",): "Batched",
    ("sparse-mm",): "2:4 sparse weights, tf32 1:2: rates of the dense product, cuSPARSELt's time "
    "(tf32: torch's dense product's) over ours, our own dense product's, and torch's",
    ("sparse-few",): "2:4 sparse weights and few rows, the same",
    ("sparse-passes",): "Pruning and compressing, against torch._cslt_compress of what is pruned "
    "and torch._sparse_semi_structured_tile",
    ("sparse-host",): "Host time of a 2:4 sparse linear, against a weight of "
    "to_sparse_semi_structured (third: our own dense's over it)",
    ("epilogue",): "Linear with a fused epilogue, against torch calls one after another",
    ("host",): "Host time of one call",
}
README_SETS = ("int8", "scales", "tf32", "highest", "turned", "squares", "ragged", "small-m")
README_SETS += ("long-k", "sparse-mm", "sparse-few", "sparse-passes", "sparse-host")
FAST = 1000.0  # us; below it a time says more than a rate
LAYOUTS = ("TN", "NN", "TT", "NT")


def size_of(row):
    if row["op"] in shapes.PASSES:
        return f"{row['m']} x {row['k']}"
    cube = row["m"] == row["n"] == row["k"]
    size = f"{row['m']}^3" if cube else f"{row['m']} x {row['n']} x {row['k']}"
    return size if row["batch"] == 1 else f"{row['batch']} of {size}"


def _parts(row, *, of_operands):
    """The parts of a row's epilogue that say something of the operands, or that do not."""
    parts = [] if row["epilogue"] == "none" else row["epilogue"].split("+")
    chosen = [part for part in parts if (part in shapes.OF_OPERANDS) == of_operands]
    return [part.replace("-", " ") for part in chosen]


def line_of(row):
    """The name of a table's line: the size, and what else tells lines of one set apart."""
    operator = "" if row["op"] in ("mm", "bmm") else f"{row['op']} "
    extra = "+".join(_parts(row, of_operands=False))
    return f"{operator}{size_of(row)}" + (f", {extra}" if extra else "")


def column_of(row):
    plain = ("f32", "f64", "s32", "promoted")
    accumulation = [] if row["accumulation"] in plain else [f"{row['accumulation']} acc"]
    special = [part for part in _parts(row, of_operands=True) if part != "tensor scales"]
    return ", ".join([f"{row['dtype']} {row['layout']}", *accumulation, *special])


def cell(row, detail):
    """'712 TFLOP/s, **0.98**', or microseconds where the product is too small for a rate, and how
    much faster it is than other products."""
    if row is None or row["us"] is None:
        return "-"
    is_rate = row["tflops"] is not None and row["tflops"] >= 100 and row["m"] > 512
    unit = "TOP/s" if row["accumulation"] == "s32" else "TFLOP/s"
    text = f"{row['tflops']:.0f} {unit}" if is_rate else f"{row['us']:.3g} us"
    if row["us"] >= FAST and not is_rate:
        text = f"{row['us'] / 1000:.3g} ms"
    if row["ratio"] is not None:
        text += f", **{row['ratio']:.2f}**"
    elif "refused" in detail:
        text += ", refused"
    for name in ("own_ratio", "dense_ratio"):
        text += f", {detail[name]:.2f}" if name in detail else ""
    if "kept" in detail:
        text += f", {100 * detail['kept']:.2f} % of the sum of magnitudes"
    if "rival_kept" in detail:
        text += f" (torch {100 * detail['rival_kept']:.2f} %)"
    return text


def _column_order(row):
    return row["dtype"] != "bf16", row["dtype"], LAYOUTS.index(row["layout"]), column_of(row)


def pivot(rows, details):
    """A Markdown table: one line a size, one column a dtype and layout."""
    rows = sorted(rows, key=lambda r: (r["batch"] * r["m"] * r["n"] * r["k"], line_of(r)))
    lines = list(dict.fromkeys(line_of(row) for row in rows))
    order = sorted(rows, key=_column_order)
    columns = list(dict.fromkeys(column_of(row) for row in order))
    found = {(line_of(row), column_of(row)): row for row in rows}
    text = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in lines:
        chosen = [found.get((name, column)) for column in columns]
        cells = [cell(row, details.get(store.key(row), {}) if row else {}) for row in chosen]
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def promise_table(results):
    """What was promised of whole sets: geometric means, the worst shape, the largest error."""
    text = ["| x | aimed at | reached | lowest | error | |", "|---|---|---|---|---|---|"]
    for verdict in promises.verdicts(results):
        reached = ["-", "-"]
        if verdict.ratios:
            reached = [f"**{verdict.mean:.2f}**", f"{verdict.lowest:.2f}"]
        error = f"{max(verdict.errors):.2f}" if verdict.errors else "-"
        word = {"PASS": "met", "MISS": "missed"}.get(verdict.word, verdict.word)
        cells = (verdict.name, f"{verdict.least:.2f}", *reached, error, word)
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) if len(text) > 2 else None


def cliff_table(results):
    """How far apart the times are of sizes around 4096, by what is varied."""
    found = promises.cliffs(results)
    if not found:
        return None
    text = ["| | " + " | ".join(promises.CLIFFS) + " |", "|---" * (len(promises.CLIFFS) + 1) + "|"]
    for dtype, spreads in found.items():
        cells = [f"{spreads[axis]:.2f}" if axis in spreads else "-" for axis in promises.CLIFFS]
        text.append(f"| {dtype} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def losses(rows, count=5):
    """The cases in which torch is furthest ahead."""
    behind = sorted((r for r in rows if r["ratio"] and r["ratio"] < 1), key=lambda r: r["ratio"])
    return [
        f"{r['op']} {r['dtype']} {r['layout']} {size_of(r)} {r['ratio']:.2f} ({r['kernel']})"
        for r in behind[:count]
    ]


def summary(results):
    """Two sentences: under what conditions, and how it came out on the whole."""
    head, rows = results["header"], results["rows"]
    measured = [row for row in rows if row["ratio"]]
    ahead = sum(row["ratio"] >= 1 for row in measured)
    commits = sorted({row["commit"] for row in rows})
    text = (
        f"{head.get('gpu')}, driver {head.get('driver')}, torch {head.get('torch')}, "
        f"CUDA {head.get('cuda')}, commit {', '.join(commits)}. Bold: torch's time over tcgemm's. "
        f"Of {len(measured)} cases tcgemm is at least as fast in {ahead}."
    )
    clocks = [row["clock_mhz"] for row in rows if row["clock_mhz"]]
    powers = [row["power_w"] for row in rows if row["power_w"]]
    if clocks and powers:
        text += (
            f" SM clock {min(clocks):.0f}-{max(clocks):.0f} MHz, "
            f"power up to {max(powers):.0f} W while measuring."
        )
    broken = [row for row in rows if row["us"] is None or row["exact"] is False]
    if broken:
        text += f" {len(broken)} cases failed: see results/{store.file_name(head['gpu'])}."
    slowest = losses(rows)
    if slowest:
        text += "\n\nFurthest behind torch: " + "; ".join(slowest) + "."
    return text


def _set_tables(results, sets):
    """Titles and tables of the sets whose first name is among `sets`, of all if that is None."""
    rows, parts = results["rows"], []
    for names, title in TITLES.items():
        chosen = [row for row in rows if row["set"] in names]
        if chosen and (sets is None or names[0] in sets):
            parts += [f"**{title}**", pivot(chosen, results["details"])]
    return parts


def tables(results, found, images, *, page=None):
    """The Markdown of one results file, and of the errors that were `found` on the same GPU: all
    that there is, or for the README, which has a link to that `page`.

    images: names of the files, or None: of the ratios, of the errors.
    """
    gpu = results["header"].get("gpu", "?")
    folder = "benchmarks/results/" if page else ""
    ratios, curves = (image and folder + image for image in images)
    parts = [f"### {gpu}", summary(results)]
    if ratios:
        parts.append(f"![Time of torch over time of tcgemm by size, {gpu}]({ratios})")
    table = promise_table(results)
    if table:
        title = (
            "**What was aimed at: geometric means over cubes (f32: of each; 2:4 of 16 bits and "
            "1:2: over all shapes); the largest error over its bound**"
        )
        parts += [title, table]
    table = cliff_table(results)
    if table:
        sizes = ", ".join(map(str, shapes.CLIFF))
        title = f"**No cliff: slowest over fastest of 4096 and {sizes} in M, N, K or all three**"
        parts += [title, table]
    depths = error_table.SHOWN if page else error_table.DEPTHS
    parts += error_table.parts(found, curves, depths)
    parts += _set_tables(results, README_SETS if page else None)
    if page:
        parts.append(f"All tables: [{folder}{page}]({folder}{page}).")
    else:
        forced = [row for row in results["rows"] if ":" in row["set"]]
        for name in sorted({row["set"].split(":")[1] for row in forced}):
            rows = [row for row in forced if row["set"].split(":")[1] == name]
            parts += [f"**The {name} kernels alone**", pivot(rows, results["details"])]
    return "\n\n".join(parts)


def draw(path, results, found):
    """The names of both pictures, or None where there is nothing to draw."""
    import plot  # matplotlib is needed for nothing else
    import plot_errors

    drawn = plot.draw(results, path.with_suffix(".png"))
    curves = plot_errors.draw(found, results, path.with_name(f"{path.stem}-f32.png"))
    return tuple(picture and picture.name for picture in (drawn, curves))


def write_readme(readme, text):
    """Replaces what stands between the markers; everything else stays."""
    old = readme.read_text()
    if BEGIN not in old or END not in old:
        raise ValueError(f"{readme} lacks the lines {BEGIN!r} and {END!r}; put both back.")
    before, rest = old.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    readme.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def parse(argv):
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="result files of runs")
    parser.add_argument("--errors", type=Path, nargs="+", default=[], help="error tables of runs")
    parser.add_argument("--results", type=Path, default=store.RESULTS, help="folder of results")
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--no-plot", action="store_true", help="tables only")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    for path in options.merge:
        new = store.load(path)
        target = options.results / store.file_name(new["header"]["gpu"])
        store.save(store.merge(store.load(target), new), target)
    for path in options.errors:
        new = error_table.load(path)
        error_table.save(error_table.path_of(new["header"]["gpu"], options.results), **new)
    parts = []
    for path in sorted(options.results.glob("*.json")):
        results = store.load(path)
        found = error_table.load(error_table.path_of(results["header"]["gpu"], options.results))
        images = (None, None) if options.no_plot else draw(path, results, found)
        page = path.with_suffix(".md")
        page.write_text(tables(results, found, images) + "\n")
        parts.append(tables(results, found, images, page=page.name))
    write_readme(options.readme, "\n\n".join(parts) or "Nothing was measured yet.")
    print(f"{len(parts)} result files -> {options.readme}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
