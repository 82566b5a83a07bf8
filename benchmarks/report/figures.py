"""Writes the measured figures of the guides and of docs/numerics/.

    python -m benchmarks figures

A table between <!-- figures: NAME --> and <!-- /figures --> is written from the results of an H200:

    f32-errors   errors of f32 products
    ragged       times of sizes beside 4096
    swap         the picture and the times of a model after a swap
    *-sums       what accumulators lose: sums.py
    others       the cases of TABLES[NAME]
"""

import re
from pathlib import Path

from benchmarks import RESULTS, current
from benchmarks.report import f32, models, overview, sums
from benchmarks.report.tables import cliffs, marked_table, time
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
ERROR_DEPTHS = (1, 64, 512, 4096)


def ratios(measured: Results, name: str) -> str:
    """The table of times, and how many times torch's speed they are."""
    is_sparse = name == "sparse"
    lines = []
    for key, text in TABLES[name].items():
        row = measured.by_key[key]
        size = f"{row['m']} x {row['n']} x {row['k']}"
        speed = f"{row['ratios'][TORCH]:.2f}{current.mark(row, GPU)}"
        cells = [text, size, time(row["us"]), speed, row["baselines"][TORCH]["name"]]
        dense = row["ratios"].get(DENSE, row["ratios"][TORCH])
        lines.append(cells + [f"{dense:.2f}"] * is_sparse)
    heads = [f"on an {GPU}", "m x n x k", "time", "x torch's speed", "torch's call"]
    return marked_table(heads + ["x torch's dense speed"] * is_sparse, lines)


def tables() -> dict[str, str]:
    """Name of a table -> its text."""
    measured = Results.load(results.path_in(RESULTS, GPU))
    errors = f32.rows_of(current.without_stale(measured).rows)
    return {
        **{name: ratios(measured, name) for name in TABLES},
        "f32-errors": f32.markdown(errors, ERROR_DEPTHS),
        "ragged": cliffs(overview.of_products(measured)),
        "swap": models.swap_table(measured),
        **sums.tables(),
    }


def pages(docs: Path = DOCS) -> list[Path]:
    """The pages that may have tables."""
    return [path for name in ("guides", "numerics") for path in sorted((docs / name).glob("*.md"))]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("python -m benchmarks figures", __doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of pages")
    options = parser.parse_args(argv)
    texts = tables()
    for page in pages(options.docs):
        text = page.read_text()
        page.write_text(BETWEEN.sub(lambda m: f"{m[1]}{texts[m[2]]}\n{m[3]}", text))
    return 0
