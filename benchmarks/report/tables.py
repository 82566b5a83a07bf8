"""The sections of the pages about one GPU: Markdown tables of its rows.

A section shows the rows of some sets; SECTIONS lists them in the order of the pages. Losses are
shown like gains. A case without a result is a dash. A stale row has a mark, and a footnote below.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks import current
from benchmarks.targets import is_cube, set_of
from tcgemm import _tables
from tcgemm.measure import cases, results
from tcgemm.measure.case import FORWARD, OPERAND_TERMS, PASSES
from tcgemm.measure.cases import CLIFF
from tcgemm.measure.operands import LAYOUTS
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

PACKED = "packed"  # the set of products with packed weights
DRAWN = tuple(name for name in cases.GROUPS["drawn"] if name != "drawn-squares")
EDGE = 4096  # the aligned size of a cliff
CLIFF_AXES = ("M", "N", "K", "all")
CLIFF_NOTE = (
    f"The slowest of 4096 and {', '.join(map(str, CLIFF))} in M, N, K or all three, over the "
    "fastest: 1 is ideal. TMA reads rows whose length is a multiple of 16 bytes. Where K is none, "
    "operands are copied first."
)


def every(row: Row) -> bool:
    """True: the condition of those that take every row."""
    return True


def is_pass(row: Row) -> bool:
    """Is it the time of a pass that prunes or compresses?"""
    return row["function"] in PASSES


def ratio(row: Row) -> float | None:
    """x times torch's speed; None if torch was not measured."""
    return row["ratios"].get(TORCH)


def cliff_axis(row: Row) -> str | None:
    """ "M", "N", "K" or "all": the sizes beside 4096; "": none is; None: no part of a cliff."""
    plain = (row["function"], row["layout"], row["epilogue"]) == ("mm", "TN", "")
    changed = [name for name in "mnk" if row[name] != EDGE]
    if not plain or any(row[name] not in CLIFF for name in changed):
        return None
    if len(changed) < 2:
        return "".join(changed).upper()
    return "all" if is_cube(row) else None


def _is_even(row: Row) -> bool:
    """Is the row no part of a cliff, or the aligned one?"""
    return cliff_axis(row) in (None, "")


def _of_a_model(row: Row) -> bool:
    """Shapes of language models that are no cubes."""
    return (row["m"], row["n"], row["k"]) in cases.LLM_GRID and not is_cube(row)


def _against_tn(row: Row) -> bool:
    """Layouts that tensor cores cannot read, at the size where they are compared with TN."""
    return row["layout"] != "TN" and is_cube(row) and row["m"] == EDGE


def _of_8_bits(row: Row) -> bool:
    elsewhere = _of_a_model(row) or _against_tn(row)
    return _is_even(row) and not elsewhere and (row["dtype"], row["epilogue"]) != ("e4m3", "")


class Section(NamedTuple):
    """A table. A cell has a rate or a time, and the speed relative to torch and to a further
    candidate, which NOTES names."""

    title: str
    sets: Sequence[str]  # (): host times of any set
    condition: Callable[[Row], bool] = every  # which of their rows it shows
    on_page: bool = True  # docs/performance.md has it, too

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that this table shows. On the CPU, no row without a graph is a host time."""
        host = not self.sets
        rows = [row for row in rows if host == (not row["graph"] and row["kernel"] != "cpu")]
        rows = [row for row in rows if host or set_of(row) in self.sets]
        return [row for row in rows if self.condition(row)]


SECTIONS = (
    Section("8 bits", ("int8", "fp8"), _of_8_bits),
    Section("fp8 with scales", ("scales",), lambda row: not _of_a_model(row)),
    Section("fp8 of language models (M x N x K)", ("fp8", "scales"), _of_a_model, False),
    Section(
        "tf32 and float64",
        ("tf32", "f64"),
        lambda row: _is_even(row) and row["layout"] in FORWARD,
    ),
    Section("float32 with all its bits", ("highest",)),
    Section("Layouts that tensor cores do not read", ("int8", "fp8", "tf32"), _against_tn),
    Section("Squares", ("squares",), is_cube),
    Section(
        "Sizes beside 4096",
        ("squares", "fp8", "int8", "tf32", "f64"),
        lambda row: row["dtype"] != "f16" and cliff_axis(row) is not None,
        on_page=False,
    ),
    Section("GEMMs of language models (M x N x K)", ("llm",), on_page=False),
    Section("Few rows", ("small-m",)),
    Section("Small results with a long K", ("long-k",)),
    Section("Batched", ("batch",), on_page=False),
    Section("Irregular and random shapes", ("random",), on_page=False),
    Section("Squares that a seed draws", ("drawn-squares",), on_page=False),
    Section("Shapes that a seed draws for each family of cases", DRAWN, on_page=False),
    Section("Packed weights", (PACKED,)),
    Section("2:4 sparse weights, tf32 1:2", ("sparse-mm",), lambda row: not is_pass(row)),
    Section("Pruning and compressing", ("sparse-mm",), is_pass),
    Section("Linear with a fused epilogue", ("epilogue",), on_page=False),
    Section("Forward, and forward with backward, of a linear layer", ("train",), on_page=False),
    Section("Host time of one call", ()),
    Section("The sm80 kernels alone", ("squares:sm80",), on_page=False),
)
# Title of a section -> what its cells have.
NOTES = {
    "8 bits": (
        "fp8 (e4m3) with promoted sums, or with the fast accumulator, beside torch._scaled_mm, and "
        "int8 (s8) beside torch._int_mm. The third number of s8 NN: x the speed of tcgemm's TN."
    ),
    "fp8 with scales": (
        "e4m3 beside torch._scaled_mm with the same scales. The third number of row scales: x "
        "tcgemm's speed with one scale for the tensor."
    ),
    "fp8 of language models (M x N x K)": (
        "e4m3 with promoted sums, or with the fast accumulator, beside torch._scaled_mm."
    ),
    "float32 with all its bits": (
        'precision="highest" beside torch.mm with TF32 forbidden. Spread: elements of a row '
        "differ by up to 2^40. Prepared: the weight is one of tcgemm.prepare, and the third number "
        "is x the speed without it."
    ),
    "Layouts that tensor cores do not read": (
        "Tensor cores read 8-bit and tf32 operands along K alone, which is TN. The third number: x "
        "the speed of tcgemm's TN."
    ),
    "Packed weights": (
        "16-bit x with a weight of 4 or 8 bits and a scale for so many elements, or for a row. "
        "After the time: x the speed of torch.mm and of tcgemm with the weight in 16 bits, and of "
        "torch's int4 product."
    ),
    "2:4 sparse weights, tf32 1:2": (
        "Rates count the operations of the dense product. After the rate: x the speed of "
        "cuSPARSELt (tf32: of torch's dense product), of tcgemm's dense product, and of torch's."
    ),
    "Pruning and compressing": (
        "Beside torch._cslt_compress of a pruned weight and torch._sparse_semi_structured_tile."
    ),
    "Linear with a fused epilogue": (
        "Beside torch's calls one after another. bias+relu is beside torch._addmm_activation, "
        "residual beside torch.addmm, and the third number of bias+gelu_tanh is x the speed of "
        "torch._addmm_activation."
    ),
    "Host time of one call": (
        "2:4 sparse: beside a weight of to_sparse_semi_structured. The third number: x the "
        "speed of tcgemm's dense linear."
    ),
}


def marked_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with the footnote of stale rows if a cell has their mark."""
    table = _tables.markdown(heads, lines)
    return f"{table}\n\n{current.FOOTNOTE}" if current.MARK in table else table


def grid(
    cells: Mapping[tuple[str, str], str], columns: Iterable[str] | None = None, corner: str = ""
) -> str:
    """A marked_table of the texts at (line, column); "-" stands where there is none.

    Its columns are those of the cells where none are named. The corner is the title of the lines.
    """
    lines = dict.fromkeys(line for line, _ in cells)
    heads = [*(columns or dict.fromkeys(column for _, column in cells))]
    texts = ([line, *(cells.get((line, head), "-") for head in heads)] for line in lines)
    return marked_table([corner, *heads], texts)


def size_of(row: Row) -> str:
    """The size in a table: "4096^3", "32 of 64^3", "64 x 48 x 32"."""
    if is_pass(row):
        return f"{row['m']} x {row['k']}"
    size = f"{row['m']}^3" if is_cube(row) else f"{row['m']} x {row['n']} x {row['k']}"
    return size if row["batch"] == 1 else f"{row['batch']} of {size}"


def _terms(row: Row) -> tuple[list[str], list[str]]:
    """The terms of a row's epilogue that describe the operands, and the other terms."""
    operands, others = [], []
    for term in filter(None, row["epilogue"].split("+")):
        is_of_operands = term in OPERAND_TERMS or term.startswith("packed-")
        (operands if is_of_operands else others).append(term.replace("-", " "))
    return operands, others


def line_of(row: Row) -> str:
    """The label of a table's line: operator, size, epilogue."""
    operator = "" if row["function"] in ("mm", "bmm") else f"{row['function']} "
    extra = "+".join(_terms(row)[1])
    return f"{operator}{size_of(row)}" + (f", {extra}" if extra else "")


def column_of(row: Row) -> str:
    """The title of a table's column: dtype, layout, accumulation, kind of operands."""
    plain = ("f32", "f64", "s32", "promoted")
    accumulation = [] if row["accumulation"] in plain else [f"{row['accumulation']} acc"]
    special = [term for term in _terms(row)[0] if term != "tensor scales"]
    return ", ".join([f"{row['dtype']} {row['layout']}", *accumulation, *special])


def time(us: float) -> str:
    """ "12.5 us", "1.25 ms"."""
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def cell(row: Row) -> str:
    """'712 TFLOPS, **0.98** (0.97-0.99)', or the time of a small product; "-" without a time.

    The speed relative to torch is the median of the repetitions, with their range.
    """
    if row["us"] is None:
        return "-"
    unit = "TOPS" if row["accumulation"] == "s32" else "TFLOPS"
    is_large = (row["tflops"] or 0) >= 100 and row["m"] > 512
    parts = [f"{row['tflops']:.0f} {unit}" if is_large else time(row["us"])]
    if (speed := ratio(row)) is not None:
        low, high = results.span(row) or (speed, speed)
        several = len(results.repetitions(row)) > 1
        parts.append(f"**{speed:.2f}**" + (f" ({low:.2f}-{high:.2f})" if several else ""))
    elif TORCH in row["refused"]:
        parts.append("refused")
    others = sorted(row["ratios"], key=lambda name: not name.startswith("tcgemm"))
    parts += [f"{row['ratios'][name]:.2f}" for name in others if name != TORCH]
    text = ", ".join(parts)
    if "kept" in row["facts"]:
        text += f", {100 * row['facts']['kept']:.2f} % of the sum of magnitudes"
    if "torch_kept" in row["facts"]:
        text += f" (torch {100 * row['facts']['torch_kept']:.2f} %)"
    return text


def pivot(rows: Iterable[Row], gpu: str) -> str:
    """A table: one line a size, one column a dtype and layout. bf16 comes first."""
    rows = sorted(rows, key=lambda r: (r["batch"] * r["m"] * r["n"] * r["k"], line_of(r)))
    columns = {
        (row["dtype"] != "bf16", row["dtype"], LAYOUTS.index(row["layout"]), column_of(row))
        for row in rows
    }
    cells = {(line_of(row), column_of(row)): cell(row) + current.mark(row, gpu) for row in rows}
    return grid(cells, [name for *_, name in sorted(columns)])


def parts(measured: Results, every_section: bool) -> list[str]:
    """Titles, notes and tables of the sections that have rows: of docs/performance.md, or all."""
    gpu, result = measured.header.get("gpu", ""), []
    for section in SECTIONS:
        if (every_section or section.on_page) and (rows := section.rows(measured.rows)):
            note = [NOTES[section.title]] if section.title in NOTES else []
            result += [f"### {section.title}", *note, pivot(rows, gpu)]
    return result


def cliffs(measured: Results) -> str:
    """The table of the slowest over the fastest size around 4096, by what is varied, or ""."""
    times: dict[tuple[str, str | None], list[float]] = {}
    for row in current.without_stale(measured).rows:
        if row["us"] and ":" not in row["set"]:
            times.setdefault((row["dtype"], cliff_axis(row)), []).append(row["us"])
    cells = {}
    for dtype, axis in itertools.product(sorted({dtype for dtype, _ in times}), CLIFF_AXES):
        some, edge = times.get((dtype, axis), []), times.get((dtype, ""), [])
        if edge and len(some) == len(CLIFF):
            cells[dtype, axis] = f"{max(some + edge) / min(some + edge):.2f}"
    return grid(cells, CLIFF_AXES) if cells else ""
