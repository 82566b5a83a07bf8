"""Markdown tables of a results file, for docs/performance.md and for results/<gpu>.md.

A table shows the rows of some sets; SECTIONS lists them in the order of the pages. Losses are shown
like gains. A case without a result is a dash. If only a part of the sets was measured, its part of
the tables is written.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import targets
from benchmarks.fp32_errors import table as error_table
from benchmarks.report import overview
from tcgemm import _tables
from tcgemm.measure import cases, protocol, results_file
from tcgemm.measure.case import OPERAND_TERMS, PASSES
from tcgemm.measure.cases import CLIFF

PLAIN_SQUARES = 512  # squares of multiples of this are one table, all others another
DRAWN = tuple(name for name in cases.GROUPS["drawn"] if name != "drawn-squares")
CLIFF_DTYPES = ("bf16", "e4m3", "s8", "tf32", "f64")


def is_host_time(row):
    """Host time of a call on a GPU. On the CPU, all rows are without a graph."""
    return not row["graph"] and row["gpu"] != "cpu"


def is_cube(row):
    return row["m"] == row["n"] == row["k"]


def _of_cliff(row):
    return row["dtype"] in CLIFF_DTYPES and targets.cliff_axis(row) is not None


def _of_a_model(row):
    """Shapes of language models that are no cubes."""
    return (row["m"], row["n"], row["k"]) in cases.LLM_GRID and not is_cube(row)


def _of_8_bits(row):
    aligned = targets.cliff_axis(row) in (None, "") and not _of_a_model(row)
    return aligned and not _against_tn(row) and (row["dtype"], row["epilogue"]) != ("e4m3", "none")


def _against_tn(row):
    """Layouts that tensor cores cannot read, at the size where they are compared with TN."""
    return row["layout"] != "TN" and is_cube(row) and row["m"] == targets.EDGE


def _other(row):
    """Rows of tf32 and f64 that no other table shows."""
    return targets.cliff_axis(row) in (None, "") and row["layout"] in ("TN", "NN")


@dataclass(frozen=True)
class Section:
    """A table: its title, the sets whose rows it shows, which of these rows, and a note.

    A cell has a rate or a time, the speed relative to torch, and relative to the second baseline,
    which the note names.
    """

    name: str
    title: str
    sets: tuple
    condition: Callable = lambda row: True
    note: str = ""
    on_page: bool = False  # of docs/performance.md

    def rows(self, rows):
        """The rows that this table shows."""
        host = self.name == "host"
        candidates = [row for row in rows if host or results_file.set_of(row) in self.sets]
        return [row for row in candidates if is_host_time(row) == host and self.condition(row)]


SECTIONS = (
    Section(
        "8 bits",
        "8 bits",
        ("int8", "fp8"),
        _of_8_bits,
        "fp8 (e4m3) with promoted sums, or with the fast accumulator, beside torch._scaled_mm, and "
        "int8 (s8) beside torch._int_mm. The third number of s8 NN: x the speed of tcgemm's TN.",
        on_page=True,
    ),
    Section(
        "scales",
        "fp8 with scales",
        ("scales",),
        lambda row: not _of_a_model(row),
        "e4m3 beside torch._scaled_mm with the same scales. The third number of row scales: x "
        "tcgemm's speed with one scale for the tensor.",
        on_page=True,
    ),
    Section(
        "e4m3 of models",
        "fp8 of language models (M x N x K)",
        ("fp8", "scales"),
        _of_a_model,
        "e4m3 with promoted sums, or with the fast accumulator, beside torch._scaled_mm.",
    ),
    Section("tf32, f64", "tf32 and float64", ("tf32", "f64"), _other, on_page=True),
    Section(
        "highest",
        "float32 with all its bits",
        ("highest",),
        note='precision="highest" beside torch.mm with TF32 forbidden. Spread: elements of a row '
        "differ by up to 2^40. Prepared: the weight is one of tcgemm.prepare, and the third number "
        "is x the speed without it.",
        on_page=True,
    ),
    Section(
        "other layouts",
        "Layouts that tensor cores do not read",
        ("int8", "fp8", "tf32"),
        _against_tn,
        "Tensor cores read 8-bit and tf32 operands along K alone, which is TN. The third number: x "
        "the speed of tcgemm's TN.",
        on_page=True,
    ),
    Section(
        "squares",
        "Squares",
        ("squares",),
        lambda row: is_cube(row) and row["m"] % PLAIN_SQUARES == 0,
        on_page=True,
    ),
    Section(
        "ragged squares",
        "Squares that are not multiples of 512",
        ("squares",),
        lambda row: is_cube(row) and row["m"] % PLAIN_SQUARES != 0,
        on_page=True,
    ),
    Section(
        "cliff",
        "Sizes beside 4096",
        ("squares", "fp8", "int8", "tf32", "f64"),
        _of_cliff,
    ),
    Section("llm", "GEMMs of language models (M x N x K)", ("llm",)),
    Section("small-m", "Few rows", ("small-m",), on_page=True),
    Section("long-k", "Small results with a long K", ("long-k",), on_page=True),
    Section("batch", "Batched", ("batch",)),
    Section("random", "Irregular and random shapes", ("random",)),
    Section(
        "drawn squares",
        "Squares, each size in two pairs of layout and dtype that a seed draws",
        ("drawn-squares",),
    ),
    Section("drawn", "Shapes that a seed draws for each family of cases", DRAWN),
    Section(
        "sparse-mm",
        "2:4 sparse weights, tf32 1:2",
        ("sparse-mm",),
        lambda row: row["op"] not in PASSES,
        "Rates count the operations of the dense product. After the rate: x the speed of "
        "cuSPARSELt (tf32: of torch's dense product), of tcgemm's dense product, and of torch's.",
        on_page=True,
    ),
    Section(
        "sparse passes",
        "Pruning and compressing",
        ("sparse-mm",),
        lambda row: row["op"] in PASSES,
        "Beside torch._cslt_compress of a pruned weight and torch._sparse_semi_structured_tile.",
        on_page=True,
    ),
    Section(
        "epilogue",
        "Linear with a fused epilogue",
        ("epilogue",),
        note="Beside torch's calls one after another. bias+relu is beside torch._addmm_activation, "
        "residual beside torch.addmm, and the third number of bias+gelu_tanh is x the speed of "
        "torch._addmm_activation.",
    ),
    Section("train", "Forward, and forward with backward, of a linear layer", ("train",)),
    Section(
        "host",
        "Host time of one call",
        (),
        note="2:4 sparse: beside a weight of to_sparse_semi_structured. The third number: x the "
        "speed of tcgemm's dense linear.",
        on_page=True,
    ),
)
LONG_US = 1000.0  # from here on, a time is shown in milliseconds
LAYOUTS = ("TN", "NN", "TT", "NT")


def size_of(row):
    if row["op"] in PASSES:
        return f"{row['m']} x {row['k']}"
    size = f"{row['m']}^3" if is_cube(row) else f"{row['m']} x {row['n']} x {row['k']}"
    return size if row["batch"] == 1 else f"{row['batch']} of {size}"


def _terms(row, *, of_operands):
    """The terms of a row's epilogue that describe the operands, or the other terms."""
    terms = [] if row["epilogue"] == "none" else row["epilogue"].split("+")
    selection = [term for term in terms if (term in OPERAND_TERMS) == of_operands]
    return [term.replace("-", " ") for term in selection]


def line_of(row):
    """The label of a table's line: operator, size, epilogue."""
    operator = "" if row["op"] in ("mm", "bmm") else f"{row['op']} "
    extra = "+".join(_terms(row, of_operands=False))
    return f"{operator}{size_of(row)}" + (f", {extra}" if extra else "")


def column_of(row):
    plain = ("f32", "f64", "s32", "promoted")
    accumulation = [] if row["accumulation"] in plain else [f"{row['accumulation']} acc"]
    special = [term for term in _terms(row, of_operands=True) if term != "tensor scales"]
    return ", ".join([f"{row['dtype']} {row['layout']}", *accumulation, *special])


def _range(row, detail):
    """ " (0.97-0.99)": the lowest and the highest ratio of several repetitions."""
    if len(protocol.repetitions(row, detail)) < 2:
        return ""
    low, high = protocol.span(row, detail)
    return f" ({low:.2f}-{high:.2f})"


def cell(row, detail):
    """'712 TFLOPS, **0.98** (0.97-0.99)', or microseconds for a small GEMM.

    The speed relative to torch is the median of the repetitions, with their range.
    """
    if row is None or row["us"] is None:
        return "-"
    is_rate = row["tflops"] is not None and row["tflops"] >= 100 and row["m"] > 512
    unit = "TOPS" if row["accumulation"] == "s32" else "TFLOPS"
    text = f"{row['tflops']:.0f} {unit}" if is_rate else f"{row['us']:.3g} us"
    if row["us"] >= LONG_US and not is_rate:
        text = f"{row['us'] / 1000:.3g} ms"
    if row["ratio"] is not None:
        text += f", **{row['ratio']:.2f}**{_range(row, detail)}"
    elif "refused" in detail:
        text += ", refused"
    for name in ("self_baseline_ratio", "dense_ratio", "fused_ratio"):
        text += f", {detail[name]:.2f}" if name in detail else ""
    if "kept" in detail:
        text += f", {100 * detail['kept']:.2f} % of the sum of magnitudes"
    if "baseline_kept" in detail:
        text += f" (torch {100 * detail['baseline_kept']:.2f} %)"
    return text


def _column_order(row):
    return row["dtype"] != "bf16", row["dtype"], LAYOUTS.index(row["layout"]), column_of(row)


def pivot(rows, details):
    """A Markdown table: one line a size, one column a dtype and layout."""
    rows = sorted(rows, key=lambda r: (r["batch"] * r["m"] * r["n"] * r["k"], line_of(r)))
    lines = list(dict.fromkeys(line_of(row) for row in rows))
    order = sorted(rows, key=_column_order)
    columns = list(dict.fromkeys(column_of(row) for row in order))
    by_place = {(line_of(row), column_of(row)): row for row in rows}
    texts = []
    for name in lines:
        group = [by_place.get((name, column)) for column in columns]
        cells = [cell(row, details.get(results_file.key(row), {}) if row else {}) for row in group]
        texts.append([name, *cells])
    return _tables.markdown(["", *columns], texts)


# The words of an outcome in a table. "so far" is added where repetitions are missing.
WORDS = {"PASS": "met", "MISS": "missed", "UNCLEAR": "not clear"}


def _mean_range(outcome):
    """The range of the mean, where there are several repetitions."""
    low, high = outcome.span
    return f" ({low:.3f}-{high:.3f})" if max(map(len, outcome.repetitions)) > 1 else ""


def target_table(results):
    """The targets of whole sets: geometric mean, lowest shape, largest error."""
    rows = []
    for outcome in targets.outcomes(results):
        figures = ["-", "-"]
        if outcome.ratios:
            figures = [f"**{outcome.mean:.3f}**{_mean_range(outcome)}", f"{outcome.lowest:.3f}"]
        error = f"{max(outcome.errors):.2f}" if outcome.errors else "-"
        word, *rest = outcome.word.split(" ", 1)
        word = " ".join([WORDS.get(word, word), *rest])
        rows.append((outcome.name, f"{outcome.least:.2f}", *figures, error, word))
    heads = ("x", "target", "reached", "lowest", "error", "")
    return _tables.markdown(heads, rows) if rows else None


def cliff_table(results):
    """Slowest over fastest of the sizes around 4096, by the size that is varied."""
    cliffs = targets.cliffs(results)
    if not cliffs:
        return None
    axes = targets.CLIFF_AXES
    rows = [
        [dtype, *(f"{spreads[axis]:.2f}" if axis in spreads else "-" for axis in axes)]
        for dtype, spreads in cliffs.items()
    ]
    return _tables.markdown(["", *axes], rows)


def losses(rows, count=5):
    """The cases with the lowest speed relative to torch."""
    behind = sorted((r for r in rows if r["ratio"] and r["ratio"] < 1), key=lambda r: r["ratio"])
    return [
        f"{r['op']} {r['dtype']} {r['layout']} {size_of(r)} {r['ratio']:.2f} ({r['kernel']})"
        for r in behind[:count]
    ]


def summary(results):
    """The conditions of the measurement, and the result on the whole."""
    head, rows = results["header"], results["rows"]
    compared = [row for row in rows if row["ratio"]]
    details = results["details"]
    spans = [protocol.span(row, details.get(results_file.key(row), {})) for row in compared]
    words = [protocol.claim(span, 1.0) for span in spans]
    commits = sorted({row["commit"] for row in rows})
    text = (
        f"{head.get('gpu')}, driver {head.get('driver')}, torch {head.get('torch')}, "
        f"CUDA {head.get('cuda')}, commit {', '.join(commits)}. "
        f"Of {len(compared)} cases tcgemm is at least as fast as torch in {words.count('PASS')} "
        f"and slower in {words.count('MISS')}, in all of their repetitions."
    )
    clocks = [row["clock_mhz"] for row in rows if row["clock_mhz"]]
    powers = [row["power_w"] for row in rows if row["power_w"]]
    if clocks and powers:
        text += (
            f" SM clock {min(clocks):.0f}-{max(clocks):.0f} MHz, "
            f"power up to {max(powers):.0f} W while measuring."
        )
    failures = [row for row in rows if row["us"] is None or row["exact"] is False]
    if failures:
        text += f" {len(failures)} cases failed: see results/{results_file.file_name(head['gpu'])}."
    slowest = losses(rows)
    if slowest:
        text += "\n\nFurthest behind torch: " + "; ".join(slowest) + "."
    return text


def _section_parts(results, *, every):
    """Titles, notes and tables of all sections, or of the sections in docs/performance.md."""
    parts = []
    for section in SECTIONS:
        selection = section.rows(results["rows"])
        if selection and (section.on_page or every):
            parts += [f"### {section.title}", *filter(None, [section.note])]
            parts.append(pivot(selection, results["details"]))
    return parts


def _cliff_parts(results):
    if not (text := cliff_table(results)):
        return []
    sizes = ", ".join(map(str, CLIFF))
    note = (
        f"The slowest of 4096 and {sizes} in M, N, K or all three, over the fastest: 1 is ideal. "
        "TMA reads rows whose length is a multiple of 16 bytes. Where K is none, operands are "
        "copied first."
    )
    return ["### Even times beside 4096", note, text]


def page(results, fp32, images, models=()):
    """docs/performance.md's part about one GPU.

    fp32: the error table; images: see markdown; models: the parts about models.
    """
    gpu = results["header"].get("gpu", "?")
    folder = "../benchmarks/results/"
    overall, ratios, curves = (image and folder + image for image in images)
    parts = [f"## {gpu}", summary(results)]
    if overall:
        parts += [f"![x torch's speed by kind of product, {gpu}]({overall})"]
    parts.append(overview.table(results))
    if ratios:
        parts.append(f"![Speed relative to torch by size, {gpu}]({ratios})")
    parts += _cliff_parts(results)
    parts += error_table.page_parts(fp32, curves, error_table.SHOWN)
    parts += _section_parts(results, every=False)
    parts += models
    name = results_file.file_name(gpu).replace(".json", ".md")
    parts.append(f"All tables: [benchmarks/results/{name}]({folder}{name}).")
    return "\n\n".join(parts)


def markdown(results, fp32, images):
    """Every table of one results file, and of the error table `fp32` of the same GPU.

    images: the file names of the pictures of groups, of ratios and of errors, or None for each.
    """
    gpu = results["header"].get("gpu", "?")
    _, ratios, curves = images
    parts = [f"# {gpu}", summary(results)]
    if ratios:
        parts.append(f"![Speed relative to torch by size, {gpu}]({ratios})")
    if text := target_table(results):
        note = (
            "Geometric means over cubes (f32: each cube; 2:4 of 16 bits and 1:2: all shapes), and "
            "the largest error over its bound."
        )
        parts += ["### Targets", note, text]
    parts += _cliff_parts(results)
    parts += error_table.page_parts(fp32, curves, error_table.DEPTHS)
    parts += _section_parts(results, every=True)
    kernel_rows = [row for row in results["rows"] if ":" in row["set"]]
    for name in sorted({row["set"].split(":")[1] for row in kernel_rows}):
        rows = [row for row in kernel_rows if row["set"].split(":")[1] == name]
        parts += [f"### The {name} kernels alone", pivot(rows, results["details"])]
    return "\n\n".join(parts)
