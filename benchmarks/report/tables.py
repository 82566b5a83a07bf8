"""The sections of the pages about one GPU: Markdown tables of its rows.

A section shows the rows of some sets; SECTIONS lists them in the order of the pages. Losses are
shown like gains. A case without a result is a dash. A stale row has a mark, and a footnote below.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks import current
from benchmarks.report.overview import PACKED, ratio
from benchmarks.targets import EDGE, cliff_axis, set_of
from tcgemm import _tables
from tcgemm.measure import cases, results
from tcgemm.measure.case import OPERAND_TERMS, PASSES
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import TORCH

PLAIN_SQUARES = 512  # squares of multiples of this are one table, all others another
DRAWN = tuple(name for name in cases.GROUPS["drawn"] if name != "drawn-squares")
CLIFF_DTYPES = ("bf16", "e4m3", "s8", "tf32", "f64")
LONG_US = 1000.0  # from here on, a time is shown in milliseconds
LAYOUTS = ("TN", "NN", "TT", "NT")


def is_cube(row: Row) -> bool:
    """M = N = K?"""
    return row["m"] == row["n"] == row["k"]


def is_host_time(row: Row) -> bool:
    """Is it the host time of a call on a GPU? On the CPU, all rows are without a graph."""
    return not row["graph"] and row["kernel"] != "cpu"


def _any(row: Row) -> bool:
    return True


def _of_cliff(row: Row) -> bool:
    return row["dtype"] in CLIFF_DTYPES and cliff_axis(row) is not None


def _of_a_model(row: Row) -> bool:
    """Shapes of language models that are no cubes."""
    return (row["m"], row["n"], row["k"]) in cases.LLM_GRID and not is_cube(row)


def _of_8_bits(row: Row) -> bool:
    aligned = cliff_axis(row) in (None, "") and not _of_a_model(row)
    return aligned and not _against_tn(row) and (row["dtype"], row["epilogue"]) != ("e4m3", "")


def _against_tn(row: Row) -> bool:
    """Layouts that tensor cores cannot read, at the size where they are compared with TN."""
    return row["layout"] != "TN" and is_cube(row) and row["m"] == EDGE


def _other(row: Row) -> bool:
    """Rows of tf32 and f64 that no other table shows."""
    return cliff_axis(row) in (None, "") and row["layout"] in ("TN", "NN")


def _plain_square(row: Row) -> bool:
    return is_cube(row) and row["m"] % PLAIN_SQUARES == 0


def _ragged_square(row: Row) -> bool:
    return is_cube(row) and row["m"] % PLAIN_SQUARES != 0


def _product(row: Row) -> bool:
    return row["function"] not in PASSES


def _pass(row: Row) -> bool:
    return row["function"] in PASSES


class Section(NamedTuple):
    """A table: its title, the sets whose rows it shows, which of these rows, and a note.

    A cell has a rate or a time, the speed relative to torch, and relative to a further candidate,
    which the note names. `on_page`: docs/performance.md has it, too.
    """

    title: str
    sets: tuple[str, ...]  # (): host times of any set
    condition: Callable[[Row], bool] = _any
    on_page: bool = False
    note: str = ""

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that this table shows."""
        host = not self.sets
        candidates = [row for row in rows if host or set_of(row) in self.sets]
        return [row for row in candidates if is_host_time(row) == host and self.condition(row)]


SECTIONS = (
    Section(
        "8 bits",
        ("int8", "fp8"),
        _of_8_bits,
        True,
        "fp8 (e4m3) with promoted sums, or with the fast accumulator, beside torch._scaled_mm, and "
        "int8 (s8) beside torch._int_mm. The third number of s8 NN: x the speed of tcgemm's TN.",
    ),
    Section(
        "fp8 with scales",
        ("scales",),
        lambda row: not _of_a_model(row),
        True,
        "e4m3 beside torch._scaled_mm with the same scales. The third number of row scales: x "
        "tcgemm's speed with one scale for the tensor.",
    ),
    Section(
        "fp8 of language models (M x N x K)",
        ("fp8", "scales"),
        _of_a_model,
        False,
        "e4m3 with promoted sums, or with the fast accumulator, beside torch._scaled_mm.",
    ),
    Section("tf32 and float64", ("tf32", "f64"), _other, True),
    Section(
        "float32 with all its bits",
        ("highest",),
        _any,
        True,
        'precision="highest" beside torch.mm with TF32 forbidden. Spread: elements of a row '
        "differ by up to 2^40. Prepared: the weight is one of tcgemm.prepare, and the third number "
        "is x the speed without it.",
    ),
    Section(
        "Layouts that tensor cores do not read",
        ("int8", "fp8", "tf32"),
        _against_tn,
        True,
        "Tensor cores read 8-bit and tf32 operands along K alone, which is TN. The third number: x "
        "the speed of tcgemm's TN.",
    ),
    Section("Squares", ("squares",), _plain_square, True),
    Section("Squares that are not multiples of 512", ("squares",), _ragged_square, True),
    Section("Sizes beside 4096", ("squares", "fp8", "int8", "tf32", "f64"), _of_cliff),
    Section("GEMMs of language models (M x N x K)", ("llm",)),
    Section("Few rows", ("small-m",), _any, True),
    Section("Small results with a long K", ("long-k",), _any, True),
    Section("Batched", ("batch",)),
    Section("Irregular and random shapes", ("random",)),
    Section(
        "Squares, each size in two pairs of layout and dtype that a seed draws", ("drawn-squares",)
    ),
    Section("Shapes that a seed draws for each family of cases", DRAWN),
    Section(
        "Packed weights",
        (PACKED,),
        _any,
        True,
        "16-bit x with a weight of 4 or 8 bits and a scale for so many elements, or for a row. "
        "After the time: x the speed of torch.mm and of tcgemm with the weight in 16 bits, and of "
        "torch's int4 product.",
    ),
    Section(
        "2:4 sparse weights, tf32 1:2",
        ("sparse-mm",),
        _product,
        True,
        "Rates count the operations of the dense product. After the rate: x the speed of "
        "cuSPARSELt (tf32: of torch's dense product), of tcgemm's dense product, and of torch's.",
    ),
    Section(
        "Pruning and compressing",
        ("sparse-mm",),
        _pass,
        True,
        "Beside torch._cslt_compress of a pruned weight and torch._sparse_semi_structured_tile.",
    ),
    Section(
        "Linear with a fused epilogue",
        ("epilogue",),
        _any,
        False,
        "Beside torch's calls one after another. bias+relu is beside torch._addmm_activation, "
        "residual beside torch.addmm, and the third number of bias+gelu_tanh is x the speed of "
        "torch._addmm_activation.",
    ),
    Section("Forward, and forward with backward, of a linear layer", ("train",)),
    Section(
        "Host time of one call",
        (),
        _any,
        True,
        "2:4 sparse: beside a weight of to_sparse_semi_structured. The third number: x the "
        "speed of tcgemm's dense linear.",
    ),
)


def size_of(row: Row) -> str:
    """The size in a table: "4096^3", "32 of 64^3", "64 x 48 x 32"."""
    if _pass(row):
        return f"{row['m']} x {row['k']}"
    size = f"{row['m']}^3" if is_cube(row) else f"{row['m']} x {row['n']} x {row['k']}"
    return size if row["batch"] == 1 else f"{row['batch']} of {size}"


def _terms(row: Row, *, of_operands: bool) -> list[str]:
    """The terms of a row's epilogue that describe the operands, or the other terms."""
    terms = filter(None, row["epilogue"].split("+"))
    return [term.replace("-", " ") for term in terms if _is_of_operands(term) == of_operands]


def _is_of_operands(term: str) -> bool:
    return term in OPERAND_TERMS or term.startswith("packed-")


def line_of(row: Row) -> str:
    """The label of a table's line: operator, size, epilogue."""
    operator = "" if row["function"] in ("mm", "bmm") else f"{row['function']} "
    extra = "+".join(_terms(row, of_operands=False))
    return f"{operator}{size_of(row)}" + (f", {extra}" if extra else "")


def column_of(row: Row) -> str:
    """The title of a table's column: dtype, layout, accumulation, kind of operands."""
    plain = ("f32", "f64", "s32", "promoted")
    accumulation = [] if row["accumulation"] in plain else [f"{row['accumulation']} acc"]
    special = [term for term in _terms(row, of_operands=True) if term != "tensor scales"]
    return ", ".join([f"{row['dtype']} {row['layout']}", *accumulation, *special])


def _range(row: Row) -> str:
    """ " (0.97-0.99)": the lowest and the highest ratio of several repetitions."""
    low, high = results.span(row) or (0.0, 0.0)
    return f" ({low:.2f}-{high:.2f})" if len(results.repetitions(row)) > 1 else ""


def _time(row: Row) -> str:
    """The rate of a large product; the time of a small one."""
    if row["tflops"] is not None and row["tflops"] >= 100 and row["m"] > 512:
        return f"{row['tflops']:.0f} {'TOPS' if row['accumulation'] == 's32' else 'TFLOPS'}"
    us = row["us"]
    return f"{us / 1000:.3g} ms" if us >= LONG_US else f"{us:.3g} us"


def cell(row: Row | None, mark: str = "") -> str:
    """'712 TFLOPS, **0.98** (0.97-0.99)', or microseconds for a small GEMM; "-" without a time.

    The speed relative to torch is the median of the repetitions, with their range.
    """
    if row is None or row["us"] is None:
        return "-"
    parts = [_time(row)]
    if (speed := ratio(row)) is not None:
        parts.append(f"**{speed:.2f}**{_range(row)}")
    elif TORCH in row["refused"]:
        parts.append("refused")
    own = [name for name in row["ratios"] if name.startswith("tcgemm")]
    others = [name for name in row["ratios"] if name != TORCH and name not in own]
    parts += [f"{row['ratios'][name]:.2f}" for name in (*own, *others)]
    text = ", ".join(parts)
    if "kept" in row["facts"]:
        text += f", {100 * row['facts']['kept']:.2f} % of the sum of magnitudes"
    if "torch_kept" in row["facts"]:
        text += f" (torch {100 * row['facts']['torch_kept']:.2f} %)"
    return f"{text} {mark}" if mark else text


def _column_order(row: Row) -> tuple[bool, str, int, str]:
    return row["dtype"] != "bf16", row["dtype"], LAYOUTS.index(row["layout"]), column_of(row)


def pivot(rows: Iterable[Row], gpu: str) -> str:
    """A table: one line a size, one column a dtype and layout; and the footnote of stale rows."""
    rows = sorted(rows, key=lambda r: (r["batch"] * r["m"] * r["n"] * r["k"], line_of(r)))
    columns = list(dict.fromkeys(column_of(row) for row in sorted(rows, key=_column_order)))
    marks = {results.key(row): current.MARK for row in rows if current.reason(row, gpu)}
    cells = {
        (line_of(row), column_of(row)): cell(row, marks.get(results.key(row), "")) for row in rows
    }
    lines = dict.fromkeys(line_of(row) for row in rows)
    texts = [[line, *(cells.get((line, column), "-") for column in columns)] for line in lines]
    table = _tables.markdown(["", *columns], texts)
    return f"{table}\n\n{current.FOOTNOTE}" if marks else table


def parts(measured: Results, sections: Sequence[Section]) -> list[str]:
    """Titles, notes and tables of the sections that have rows."""
    gpu, result = measured.header.get("gpu", ""), []
    for section in sections:
        if selection := section.rows(measured.rows):
            result += [f"### {section.title}", *filter(None, [section.note])]
            result.append(pivot(selection, gpu))
    return result


def forced_parts(measured: Results) -> list[str]:
    """The same of the rows with a forced kernel, such as the set "squares:sm80"."""
    gpu, result = measured.header.get("gpu", ""), []
    forced = [row for row in measured.rows if ":" in row["set"]]
    for name in sorted({row["set"].partition(":")[2] for row in forced}):
        rows = [row for row in forced if row["set"].endswith(f":{name}")]
        result += [f"### The {name} kernels alone", pivot(rows, gpu)]
    return result
