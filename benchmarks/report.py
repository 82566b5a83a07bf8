"""Writes what was measured into the README, and draws it.

    python benchmarks/report.py                      results/*.json -> README tables, results/*.png
    python benchmarks/report.py --merge shard.json   first takes another run's rows into results/

    results/<gpu>.json --tables--> README.md, between two HTML comments
                       --plot----> results/<gpu>.png: ratio to torch by size, dtype and layout

Losses are shown like gains; a case without a result is a dash. Whatever part of the sets was
measured makes its part of the tables.
"""

import argparse
import sys
from pathlib import Path

import store

BEGIN = "<!-- benchmarks: begin, written by benchmarks/report.py -->"
END = "<!-- benchmarks: end -->"
README = store.RESULTS.parents[1] / "README.md"
TITLES = {
    "targets": "What was aimed at: 0.93 for even squares, 3 for ragged ones",
    "squares": "Squares",
    "layouts": "The other layouts",
    "ragged": "Sizes that are not multiples of 8, and some that are",
    "llm": "Products of language models (M x N x K)",
    "small-m": "Few rows",
    "long-k": "Small results with a long K",
    "batch": "Batched",
    "epilogue": "Linear with a fused epilogue, against torch calls one after another",
    "host": "Host time of one call",
}
FAST = 1000.0  # us; below it a time says more than a rate
LAYOUTS = ("TN", "NN", "TT", "NT")


def size_of(row):
    cube = row["m"] == row["n"] == row["k"]
    size = f"{row['m']}^3" if cube else f"{row['m']} x {row['n']} x {row['k']}"
    return size if row["batch"] == 1 else f"{row['batch']} of {size}"


def line_of(row):
    """The name of a table's line: the size, and what else tells lines of one set apart."""
    extra = "" if row["epilogue"] == "none" else f", {row['epilogue']}"
    operator = "" if row["op"] in ("mm", "bmm") else f"{row['op']} "
    return f"{operator}{size_of(row)}{extra}"


def column_of(row):
    accumulation = "" if row["accumulation"] in ("f32", "f64") else f", {row['accumulation']} acc"
    return f"{row['dtype']} {row['layout']}{accumulation}"


def cell(row):
    """'712 TFLOP/s, **0.98**', or microseconds where the product is too small for a rate."""
    if row is None or row["us"] is None:
        return "-"
    is_rate = row["tflops"] is not None and row["tflops"] >= 100 and row["m"] > 512
    text = f"{row['tflops']:.0f} TFLOP/s" if is_rate else f"{row['us']:.3g} us"
    if row["us"] >= FAST and not is_rate:
        text = f"{row['us'] / 1000:.3g} ms"
    return text if row["ratio"] is None else f"{text}, **{row['ratio']:.2f}**"


def _column_order(row):
    return row["dtype"] != "bf16", row["dtype"], LAYOUTS.index(row["layout"])


def pivot(rows):
    """A Markdown table: one line a size, one column a dtype and layout."""
    rows = sorted(rows, key=lambda r: (r["batch"] * r["m"] * r["n"] * r["k"], line_of(r)))
    lines = list(dict.fromkeys(line_of(row) for row in rows))
    order = sorted(rows, key=_column_order)
    columns = list(dict.fromkeys(column_of(row) for row in order))
    found = {(line_of(row), column_of(row)): row for row in rows}
    text = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in lines:
        cells = [cell(found.get((name, column))) for column in columns]
        text.append(f"| {name} | " + " | ".join(cells) + " |")
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


def tables(results, image):
    """The Markdown of one results file."""
    gpu = results["header"].get("gpu", "?")
    parts = [f"### {gpu}", summary(results)]
    if image:
        parts.append(f"![Time of torch over time of tcgemm by size, {gpu}]({image})")
    for name, title in TITLES.items():
        rows = [row for row in results["rows"] if row["set"] == name]
        if rows:
            parts += [f"**{title}**", pivot(rows)]
    forced = [row for row in results["rows"] if ":" in row["set"]]
    for name in sorted({row["set"].split(":")[1] for row in forced}):
        rows = [row for row in forced if row["set"].split(":")[1] == name]
        parts += [f"**The {name} kernels alone**", pivot(rows)]
    return "\n\n".join(parts)


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
    parts = []
    for path in sorted(options.results.glob("*.json")):
        results = store.load(path)
        image = None
        if not options.no_plot:
            import plot  # matplotlib is needed for nothing else

            drawn = plot.draw(results, path.with_suffix(".png"))
            image = f"benchmarks/results/{drawn.name}" if drawn else None
        parts.append(tables(results, image))
    write_readme(options.readme, "\n\n".join(parts) or "Nothing was measured yet.")
    print(f"{len(parts)} result files -> {options.readme}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
