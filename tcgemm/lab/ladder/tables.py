"""The tables of new or stored records, beside the documents' figures of other GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcgemm import published
from tcgemm.lab.ladder.steps import PADDINGS, TILES, steps
from tcgemm.numerics.table import Curve, Table, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    Record = dict[str, Any]

A100 = "A100-PCIE-40GB"
GRIDS: dict[str, tuple[str, tuple[int, ...], str]] = {
    "001_5_shared_a": ("pad", PADDINGS, "2"),
    "001_6_shared_ab": ("k", TILES, "3"),
}
PEAK = "001_peak"
SPACING = (
    "HMMA between stores: between two STS.128 of the machine code, and how often. Where it is not "
    "the distance of the source, ptxas moved the stores, and figure 4 of the document is not "
    "reproduced."
)


def of(results: dict[str, Any], documents: Sequence[str]) -> list[Table]:
    """The tables of some ladders; one without records has none."""
    tables = []
    for document in documents:
        records = [record for record in results["records"] if record["document"] == document]
        if records:
            tables.append(_ladder(document, records, results["header"]["gpu"]))
        tables += [
            _grid(step, own, results["header"]["gpu"])
            for step in GRIDS
            if (own := [record for record in records if record["step"] == step])
        ]
        if peak := [record for record in records if record["step"] == PEAK and record.get("us")]:
            tables.append(_plateau(peak, results["header"]["gpu"]))
    return tables


def table_of_steps(document: str) -> Table:
    """The steps of a ladder, without results."""
    lines = [
        {"step": step.name, "idea": step.idea, "operands": step.operands, "sums": step.sums}
        | {"variants": len(step.variants)}
        for step in steps(document)
    ]
    return Table(_title(document), lines, [])


def _title(document: str) -> str:
    return f"Ladder {document}: {published.DOCUMENTS[document].short}"


def _ladder(document: str, records: list[Record], gpu: str) -> Table:
    lines, refusals = [], []
    first = next((record["published"] for record in records if record["published"]), None)
    ideas = {
        (step.name, variant.label): step.idea
        for step in steps(document)
        for variant in step.variants
    }
    for record in records:
        is_grid = record["step"] in GRIDS
        if record["step"] == PEAK or (is_grid and record is not _best(records, record["step"])):
            continue
        name = f"{record['step']} {record['variant']}".strip()
        if record["refused"]:
            refusals.append(f"{name}: {record['refused']}")
            continue
        idea = ideas[record["step"], record["variant"]]
        lines.append(_line(name, record, first) | {"idea": idea})
    size = max(records, key=lambda record: record["m"] * record["n"] * record["k"])
    title = f"{_title(document)}, {size['m']}x{size['n']}x{size['k']} on {gpu}"
    notes = [
        "x before: over the best variant of the step before. error: over its bound. conflicts: "
        "cycles of a phase of an access to shared memory, 1 without conflicts.",
        "% of peak: of the rate that the probe measured of the same instruction, at the clock of "
        "this run.",
        *refusals,
    ]
    if document == "000":
        notes.insert(2, SPACING)
    if any("us_range" in record for record in records):
        notes.insert(1, "us: the median of the repetitions. us range: of their medians.")
    if any("tensor_percent" in record for record in records):
        notes.insert(2, _tensor_note(document))
    curves = [
        Curve("tcgemm.lab.ladder", "ladder", False, _rates(lines, "TFLOP/s")),
        Curve("cuBLAS", "cuBLAS", True, _rates(lines, "cuBLAS TFLOP/s")),
    ]
    heads = list(dict.fromkeys(head for line in lines for head in line))
    heads = [head for head in heads if head not in ("cuBLAS TFLOP/s", "idea")]
    lines = [{head: line.get(head) for head in (*heads, "idea")} for line in lines]
    if not lines:
        lines = [{"step": "none was measured"}]
    return Table(title, lines, notes, curves, ("step", "TFLOP/s"))


def _rates(lines: list[Record], key: str) -> dict[int, float]:
    return {index: line[key] for index, line in enumerate(lines) if line[key]}


def _line(name: str, record: Record, first: float | None) -> Record:
    line: Record = {"step": name, "us": record["us"]}
    if "us_range" in record:
        line["us range"] = _range(record["us_range"])
    line["TFLOP/s"] = record["tflops"]
    for column, key in (("before", "x_before"), ("first", "x_first"), ("cuBLAS", "x_cublas")):
        line[f"x {column}"] = record.get(key)
    if "x_cublas_range" in record:
        line["x cuBLAS range"] = _range(record["x_cublas_range"])
    line["cuBLAS TFLOP/s"] = record.get("x_cublas") and record["tflops"] / record["x_cublas"]
    line |= {"% of peak": record["percent"], "error": record["error"]}
    if "cycles" in record:
        line["cycles"] = record["cycles"]
    ways = record.get("conflicts") or {}
    line["conflicts"] = ", ".join(f"{access} {count}" for access, count in ways.items()) or "-"
    if "store_spacing" in record:
        counts = (record["store_spacing"] or {}).items()
        line["HMMA between stores"] = " ".join(f"{n} x{count}" for n, count in counts) or "-"
    if stalls := record.get("stalls"):
        reason = max(stalls, key=lambda key: stalls[key])
        line["stall"] = f"{reason} {stalls[reason]:.1f}"
    if "tensor_percent" in record:
        line["tensor pipe %"] = record["tensor_percent"]
    line |= {"registers": record["registers"], "shared": record["shared_bytes"]}
    figure = record["published"]
    line[f"published {record['published_unit']}"] = figure
    is_time = record["published_unit"] == "clocks"
    line["published x first"] = figure and first and (first / figure if is_time else figure / first)
    return line


def _tensor_note(document: str) -> str:
    note = "tensor pipe %: of the cycles, those with active tensor cores, by Nsight Compute."
    if document != "004":
        return note
    cells = published.table("004", "profiler")["004_3_1"]
    return (
        f"{note} The document has {cells['tensor pipe %']} % for 004_3_1, at "
        f"{cells['% of peak']} % of the peak with float32 sums. On GeForce float32 sums have half "
        "the rate of float16 sums, and half of the share is near the counter."
    )


def _range(pair: Sequence[float]) -> str:
    """ "643 to 690"."""
    return " to ".join(text(value) for value in pair)


def _best(records: list[Record], step: str) -> Record | None:
    own = [record for record in records if record["step"] == step and record.get("us")]
    return max(own, key=lambda record: record["tflops"], default=None)


def _grid(step: str, records: list[Record], gpu: str) -> Table:
    column, values, number = GRIDS[step]
    cells = {record["variant"]: record for record in records}
    lines, notes = [], [f"{A100}: table {number} of {published.DOCUMENTS['001'].short}."]
    for tile in TILES:
        line: Record = {"tile": f"{tile}x{tile}"}
        for value in values:
            label = f"{tile}x{tile}x4, pad {value}" if column == "pad" else f"{tile}x{tile}x{value}"
            cell = cells.get(label, {})
            line[f"{column} {value}"] = cell.get("tflops")
            if column == "pad":
                line[f"ways {value}"] = cell.get("conflicts", {}).get("LDS a")
            if cell.get("refused"):
                notes.append(f"{label}: {cell['refused']}")
        for value in values:
            row = f"{tile}x{tile}x4" if column == "pad" else f"{tile}x{tile}"
            line[f"A100 {value}"] = published.figure(
                "001", number, row=row, column=f"{column} {value}", gpu=A100
            )
        lines.append(line)
    return Table(f"TFLOP/s of {step} on {gpu}", lines, notes)


def _plateau(records: list[Record], gpu: str) -> Table:
    lines: dict[int, Record] = {}
    curves: dict[str, dict[int, float]] = {}
    for record in records:
        instruction, count = record["variant"].removesuffix(" times").split(", ")
        lines.setdefault(int(count), {"times": int(count)})[instruction] = record["tflops"]
        curves.setdefault(instruction, {})[int(count)] = record["tflops"]
    heads = list(curves)
    rows = [{"times": None} | dict.fromkeys(heads) | line for line in lines.values()]
    level = published.figure("001", "figure 1", row="001_peak many", column="TFLOP/s", gpu=A100)
    notes = [f"The document's curve levels off at {level} TFLOP/s on an {A100}."]
    plots = [Curve(name, name, False, points) for name, points in curves.items()]
    axes = ("products of one load", "TFLOP/s")
    return Table(f"TFLOP/s of {PEAK} on {gpu}", rows, notes, plots, axes)
