"""Writes the measured figures of the guides and of docs/numerics/.

    python -m benchmarks figures

A table between <!-- figures: NAME --> and <!-- /figures --> is written from the results of an H200:

    ragged       sizes beside 4096, results/h200.json
    f32-errors   errors of f32 products, results/errors/h200.json
    swap         the picture and the times of a model after a swap, results/swap/h200.json
    *-sums       what accumulators lose: sums_tables.py
    others       the cases of TABLES[NAME], results/h200.json

A test compares the pages with the results.
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.fp32_errors import table as error_table
from benchmarks.report import measured, sums_tables
from tcgemm import _tables
from tcgemm.measure import command_line, results_file

DOCS = RESULTS.parents[1] / "docs"
GPU = "NVIDIA H200"
BETWEEN = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- /figures -->)", re.DOTALL)

# Name of the table -> {key of a case without the GPU: its text in front of the size}.
TABLES: dict[str, dict[str, str]] = {
    "dense": {
        "mm/bf16/TN/4096/4096/4096/1/f32/none/True/squares": "bf16",
        "mm/bf16/TN/8192/8192/8192/1/f32/none/True/squares": "bf16",
        "mm/bf16/TN/4095/4095/4095/1/f32/none/True/squares": "bf16",
        "mm/bf16/TN/16/4096/4096/1/f32/none/True/small-m": "bf16, few rows",
        "mm/bf16/TN/64/64/65536/1/f32/none/True/long-k": "bf16, long K",
        "linear/bf16/TN/4096/4096/4096/1/f32/bias+relu/True/epilogue": "bf16, bias, relu",
        "linear/bf16/TN/4096/4096/4096/1/f32/bias+residual/True/epilogue": "bf16, bias, residual",
        "mm/f64/TN/4096/4096/4096/1/f64/none/True/f64": "f64",
    },
    "eight-bits": {
        "mm/e4m3/TN/4096/4096/4096/1/promoted/tensor-scales/True/fp8": "e4m3, `tensor` scales",
        "mm/e4m3/TN/4096/4096/4096/1/fast/tensor-scales/True/fp8": 'the same, `"fast"`',
        "mm/e4m3/TN/4096/4096/4096/1/promoted/row-scales/True/scales": "e4m3, `row` scales",
        "mm/e4m3/TN/4096/4096/4096/1/promoted/1x128-scales/True/scales": "e4m3, `1x128` scales",
        "mm/e4m3/TN/4096/4096/4096/1/promoted/128x128-scales/True/scales": "e4m3, `128x128` scales",
        "mm/e4m3/TN/16/4096/4096/1/promoted/tensor-scales/True/fp8": "e4m3, few rows",
        "mm/s8/TN/4096/4096/4096/1/s32/none/True/int8": "int8, TN",
        "mm/s8/NN/4096/4096/4096/1/s32/none/True/int8": "int8, NN",
    },
    "sparse": {
        "mm/bf16/TN/8192/8192/8192/1/f32/sparse/True/sparse-mm": "bf16",
        "mm/bf16/TN/16/28672/4096/1/f32/sparse/True/sparse-mm": "bf16, few rows",
        "mm/e4m3/TN/8192/8192/8192/1/fast/sparse/True/sparse-mm": "e4m3",
        "mm/s8/TN/8192/8192/8192/1/s32/sparse/True/sparse-mm": "int8",
        "mm/tf32/TN/8192/8192/8192/1/f32/sparse/True/sparse-mm": "float32 as tf32 (1:2)",
    },
    "float32": {
        "mm/f32/TN/1024/1024/1024/1/f32/none/True/highest": "`highest`",
        "mm/f32/TN/4096/4096/4096/1/f32/none/True/highest": "`highest`",
        "mm/f32/TN/4096/4096/4096/1/f32/spread/True/highest": "`highest`, rows span 2^40",
        "linear/f32/TN/4096/4096/4096/1/f32/prepared/True/highest": "`highest`, prepared weight",
        "linear/f32/TN/16/4096/4096/1/f32/prepared/True/highest": "the same, few rows",
        "mm/f32/TN/128/128/32768/1/f32/none/True/highest": "`highest`, long K",
        "mm/tf32/TN/4096/4096/4096/1/f32/none/True/tf32": "`high`",
        "mm/tf32/TN/16/4096/4096/1/f32/none/True/tf32": "`high`, few rows",
    },
}
# Times of sizes beside 4096, relative to 4096 x 4096 x 4096: dtype -> the rest of the key.
RAGGED = {
    "bf16": "f32/none/True/squares",
    "tf32": "f32/none/True/tf32",
    "e4m3": "promoted/none/True/fp8",
    "s8": "s32/none/True/int8",
    "f64": "f64/none/True/f64",
}
RAGGED_SIZES = ((4095, 4096, 4096), (4096, 4095, 4096), (4096, 4097, 4096), (4096, 4096, 4095))
FULL = (4096, 4096, 4096)
ERROR_DEPTHS = (1, 64, 512, 4096)
Rows = dict[str, dict[str, Any]]


def rows_of(results: dict[str, Any]) -> Rows:
    """{key of a case without the GPU: its row and its details}."""
    gpu = f"/{GPU}"
    return {
        results_file.key(row).removesuffix(gpu): {
            **results["details"].get(results_file.key(row), {}),
            **row,
        }
        for row in results["rows"]
        if results_file.key(row).endswith(gpu)
    }


def microseconds(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def ratios(rows: Rows, name: str) -> str:
    """The table of times, and how many times torch's speed they are."""
    dense = name == "sparse"
    heads = [f"on an {GPU}", "m x n x k", "time", "x torch's speed", "torch's call"]
    heads += ["x torch's dense speed"] if dense else []
    lines = []
    for key, text in TABLES[name].items():
        row = rows[key]
        cells = [text, f"{row['m']} x {row['n']} x {row['k']}", microseconds(row["us"])]
        cells += [f"{row['ratio']:.2f}", row["baseline"]]
        cells += [f"{row.get('dense_us', row['baseline_us']) / row['us']:.2f}"] * dense
        lines.append(cells)
    return _tables.markdown(heads, lines)


def ragged(rows: Rows) -> str:
    """The table of sizes whose rows are no multiple of 16 bytes."""
    heads = ["time (4096 x 4096 x 4096: 1)", *(f"{m} x {n} x {k}" for m, n, k in RAGGED_SIZES)]
    lines = []
    for dtype, rest in RAGGED.items():
        us = {
            (m, n, k): rows[f"mm/{dtype}/TN/{m}/{n}/{k}/1/{rest}"]["us"]
            for m, n, k in (FULL, *RAGGED_SIZES)
        }
        lines.append([dtype, *(f"{us[size] / us[FULL]:.2f}" for size in RAGGED_SIZES)])
    return _tables.markdown(heads, lines)


def swap(results: dict[str, Any] | None) -> str:
    """The picture of a model after a swap, and its times; nothing without results."""
    if results is None:
        return ""
    variants = results["variants"]
    names = [variant["variant"] for variant in variants]
    us = {(row["variant"], row["tokens"], row["mode"]): row["us"] for row in results["rows"]}
    image = f"![Speed and memory of a model after swap_linear, {GPU}](../pictures/swap_h200.svg)"
    lines = []
    for mode, place in (("graph", "in a CUDA graph"), ("eager", "called from Python")):
        for count in sorted({count for _, count, _ in us}):
            times = [microseconds(us[name, count, mode]) for name in names]
            lines.append([f"{count} token{'s' * (count > 1)}, {place}", *times])
    memory = [f"{variant['weight_bytes'] / 1e9:.2f} GB" for variant in variants]
    differences = [f"{100 * variant['difference']:.2g} %" for variant in variants]
    lines += [["memory of the model", *memory], ["outputs differ from torch's by", *differences]]
    table = _tables.markdown([f"one forward on an {GPU}", *names], lines)
    return f"{image}\n\n{table}"


def tables(results: Path = RESULTS) -> dict[str, str]:
    """Name of a table -> its text."""
    name = results_file.file_name(GPU)
    rows = rows_of(results_file.load(results / name))
    errors = json.loads((results / "errors" / name).read_text())["rows"]
    texts = {title: ratios(rows, title) for title in TABLES}
    path = results / "swap" / name
    after = measured.load(path) if path.exists() else None
    texts |= {"f32-errors": error_table.markdown(errors, ERROR_DEPTHS)}
    return texts | {"ragged": ragged(rows), "swap": swap(after)} | sums_tables.tables()


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
