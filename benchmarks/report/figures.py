"""Writes the measured figures of the guides and of docs/numerics/.

    python -m benchmarks figures

A table between <!-- figures: NAME --> and <!-- /figures --> is written from the results of an H200:

    ragged       sizes beside 4096, results/h200.json
    f32-errors   errors of f32 products, results/h200.json
    swap         the picture and the times of a model after a swap, results/h200.json
    *-sums       what accumulators lose: sums_tables.py
    others       the cases of TABLES[NAME], results/h200.json

A test compares the pages with the results.
"""

import re
from pathlib import Path

from benchmarks import RESULTS, current
from benchmarks.report import f32_table, sums_tables
from benchmarks.report.models_table import CALLS, in_order
from tcgemm import _tables
from tcgemm.measure import command_line, results
from tcgemm.measure.results import Results
from tcgemm.measure.work import DENSE, TORCH

DOCS = RESULTS.parents[1] / "docs"
GPU = "NVIDIA H200"
BETWEEN = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- /figures -->)", re.DOTALL)

# Name of the table -> {key of a case: its text in front of the size}.
TABLES: dict[str, dict[str, str]] = {
    "dense": {
        "squares/mm/bf16/TN/4096/4096/4096/f32": "bf16",
        "squares/mm/bf16/TN/8192/8192/8192/f32": "bf16",
        "squares/mm/bf16/TN/4095/4095/4095/f32": "bf16",
        "small-m/mm/bf16/TN/16/4096/4096/f32": "bf16, few rows",
        "long-k/mm/bf16/TN/64/64/65536/f32": "bf16, long K",
        "epilogue/linear/bf16/TN/4096/4096/4096/f32/bias+relu": "bf16, bias, relu",
        "epilogue/linear/bf16/TN/4096/4096/4096/f32/bias+residual": "bf16, bias, residual",
        "f64/mm/f64/TN/4096/4096/4096/f64": "f64",
    },
    "eight-bits": {
        "fp8/mm/e4m3/TN/4096/4096/4096/promoted/tensor-scales": "e4m3, `tensor` scales",
        "fp8/mm/e4m3/TN/4096/4096/4096/fast/tensor-scales": 'the same, `"fast"`',
        "scales/mm/e4m3/TN/4096/4096/4096/promoted/row-scales": "e4m3, `row` scales",
        "scales/mm/e4m3/TN/4096/4096/4096/promoted/1x128-scales": "e4m3, `1x128` scales",
        "scales/mm/e4m3/TN/4096/4096/4096/promoted/128x128-scales": "e4m3, `128x128` scales",
        "fp8/mm/e4m3/TN/16/4096/4096/promoted/tensor-scales": "e4m3, few rows",
        "int8/mm/s8/TN/4096/4096/4096/s32": "int8, TN",
        "int8/mm/s8/NN/4096/4096/4096/s32": "int8, NN",
    },
    "sparse": {
        "sparse-mm/mm/bf16/TN/8192/8192/8192/f32/sparse": "bf16",
        "sparse-mm/mm/bf16/TN/16/28672/4096/f32/sparse": "bf16, few rows",
        "sparse-mm/mm/e4m3/TN/8192/8192/8192/fast/sparse": "e4m3",
        "sparse-mm/mm/s8/TN/8192/8192/8192/s32/sparse": "int8",
        "sparse-mm/mm/tf32/TN/8192/8192/8192/f32/sparse": "float32 as tf32 (1:2)",
    },
    "float32": {
        "highest/mm/f32/TN/1024/1024/1024/f32": "`highest`",
        "highest/mm/f32/TN/4096/4096/4096/f32": "`highest`",
        "highest/mm/f32/TN/4096/4096/4096/f32/spread": "`highest`, rows span 2^40",
        "highest/linear/f32/TN/4096/4096/4096/f32/prepared": "`highest`, prepared weight",
        "highest/linear/f32/TN/16/4096/4096/f32/prepared": "the same, few rows",
        "highest/mm/f32/TN/128/128/32768/f32": "`highest`, long K",
        "tf32/mm/tf32/TN/4096/4096/4096/f32": "`high`",
        "tf32/mm/tf32/TN/16/4096/4096/f32": "`high`, few rows",
    },
}
# Times of sizes beside 4096, relative to 4096 x 4096 x 4096: dtype -> (set, accumulation).
RAGGED = {
    "bf16": ("squares", "f32"),
    "tf32": ("tf32", "f32"),
    "e4m3": ("fp8", "promoted"),
    "s8": ("int8", "s32"),
    "f64": ("f64", "f64"),
}
RAGGED_SIZES = ((4095, 4096, 4096), (4096, 4095, 4096), (4096, 4097, 4096), (4096, 4096, 4095))
FULL = (4096, 4096, 4096)
ERROR_DEPTHS = (1, 64, 512, 4096)


def microseconds(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def ratios(measured: Results, name: str) -> str:
    """The table of times, and how many times torch's speed they are."""
    dense = name == "sparse"
    heads = [f"on an {GPU}", "m x n x k", "time", "x torch's speed", "torch's call"]
    heads += ["x torch's dense speed"] if dense else []
    lines = []
    for key, text in TABLES[name].items():
        row = measured.by_key[key]
        mark = f" {current.MARK}" if current.reason(row, GPU) else ""
        cells = [text, f"{row['m']} x {row['n']} x {row['k']}", microseconds(row["us"])]
        cells += [f"{row['ratios'][TORCH]:.2f}{mark}", row["baselines"][TORCH]["name"]]
        cells += [f"{row['ratios'].get(DENSE, row['ratios'][TORCH]):.2f}"] * dense
        lines.append(cells)
    table = _tables.markdown(heads, lines)
    return f"{table}\n\n{current.FOOTNOTE}" if current.MARK in table else table


def ragged(measured: Results) -> str:
    """The table of sizes whose rows are no multiple of 16 bytes; "-" for one without a row."""
    heads = ["time (4096 x 4096 x 4096: 1)", *(f"{m} x {n} x {k}" for m, n, k in RAGGED_SIZES)]
    rows = current.without_stale(measured).by_key
    lines = []
    for dtype, (name, accumulation) in RAGGED.items():
        us = {
            size: rows[key]["us"]
            for size in (FULL, *RAGGED_SIZES)
            if (key := "/".join(map(str, (name, "mm", dtype, "TN", *size, accumulation)))) in rows
        }
        full = us.get(FULL)
        cells = [f"{us[size] / full:.2f}" if full and size in us else "-" for size in RAGGED_SIZES]
        lines.append([dtype, *cells])
    return _tables.markdown(heads, lines)


def swap(measured: Results) -> str:
    """The picture of a model after a swap, and its times; nothing without current rows."""
    rows = [row for row in measured.rows if row["set"] == "swap" and row["us"]]
    rows = in_order(row for row in rows if current.is_current(row, GPU))
    if not rows:
        return ""
    counts = sorted({row["tokens"] for row in rows})
    places = [(graph, count) for graph in CALLS for count in counts]
    heads = [f"{count} token{'s' * (count > 1)}, {CALLS[graph]}" for graph, count in places]
    lines = []
    for name in dict.fromkeys(row["function"] for row in rows):
        own = [row for row in rows if row["function"] == name]
        cells = {(row["graph"], row["tokens"]): microseconds(row["us"]) for row in own}
        facts = own[0]["facts"]
        memory = f"{facts['held_bytes'] / 1e9:.2f} GB"
        lines.append([name, *(cells.get(place, "-") for place in places), memory])
    table = _tables.markdown([f"one forward on an {GPU}", *heads, "memory"], lines)
    picture = f"swap_{results.file_name(GPU).removesuffix('.json')}.svg"
    title = f"Speed and memory of a model after swap_linear, {GPU}"
    return f"![{title}](../pictures/{picture})\n\n{table}"


def tables(folder: Path = RESULTS) -> dict[str, str]:
    """Name of a table -> its text."""
    measured = Results.load(results.path_in(folder, GPU))
    texts = {title: ratios(measured, title) for title in TABLES}
    errors = f32_table.rows_of(current.without_stale(measured).rows)
    texts |= {"f32-errors": f32_table.markdown(errors, ERROR_DEPTHS)}
    return texts | {"ragged": ragged(measured), "swap": swap(measured)} | sums_tables.tables()


def pages(docs: Path = DOCS) -> list[Path]:
    return [path for name in ("guides", "numerics") for path in sorted((docs / name).glob("*.md"))]


def written(page: str, texts: dict[str, str]) -> str:
    """The text of a page with these tables."""
    return BETWEEN.sub(lambda match: f"{match[1]}{texts[match[2]]}\n{match[3]}", page)


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("benchmarks figures", __doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of pages")
    options = parser.parse_args(argv)
    texts = tables(options.results)
    for page in pages(options.docs):
        page.write_text(written(page.read_text(), texts))
    return 0
