"""The tables of stored or new records, beside published figures of other GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcgemm import published
from tcgemm.lab.probe import checks, rows
from tcgemm.lab.probe.groups import convergence
from tcgemm.numerics.table import Curve, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tcgemm.emulate.table import Instruction

    Record = dict[str, Any]

SUN, YAN = (published.DOCUMENTS[number].short for number in ("003", "000"))
UNIT = "Rates are FMA a clock and SM; those of sparse instructions count the zeros."
CLOCKS = "Latencies are clocks. 4 and 8 warps: the least ILP within 3 % of the best rate."


def opcodes(record: Record) -> str:
    """ "HMMA.16816.F32" or "2 HMMA.1688.F32 of 17: EMULATED"."""
    of = " + ".join(
        f"{count} {name}" if count > 1 else name for name, count in record["sass"].items() if count
    )
    if record["native"]:
        return of
    total = record.get("instructions")
    return f"EMULATED ({of or 'no tensor cores'}{f' of {total}' if total else ''})"


def _rounded(rate: float | None) -> float | None:
    """A rate with four digits or more without its fraction, which tables would print as 1e+03."""
    return round(rate) if rate is not None and rate >= 1000 else rate


def _points(part: Sequence[Record]) -> dict[str, Any]:
    lone = checks.at(part, 1, 1)
    fields: dict[str, Any] = {"completion": lone and lone["latency"]}
    for warps in (4, 8):
        point = convergence(part, warps)
        for name, key in (("ILP", "ilp"), ("latency", "latency"), ("rate", "rate")):
            value = point[key] if point else None
            fields[f"{name}, {warps} warps"] = _rounded(value) if key == "rate" else value
    return fields


def beside_published(title: str, points: dict[str, Record], numbers: dict[str, str]) -> list[Table]:
    """The published lines of each instruction, with all their columns, below the line of a GPU.

    Arguments:
        title: what was measured.
        points: {name of a published row: the GPU that was measured, its completion and its two
            points of convergence}.
        numbers: {published GPU: its table}.

    Returns:
        One table, or none where nothing was published.
    """
    lines = []
    for name, own in points.items():
        there = {
            other: cells
            for other, number in numbers.items()
            if (cells := published.table("003", number, other).get(name))
        }
        if there:
            lines.append({"instruction": name} | own)
            lines += [
                {"instruction": "", "GPU": other}
                | {head: _rounded(value) for head, value in cells.items()}
                for other, cells in there.items()
            ]
    tables_of = ", ".join(f"{number} ({other})" for other, number in numbers.items())
    unit = "Rates are bytes a clock and SM." if numbers == SUN_LOADS else UNIT
    notes = [unit, CLOCKS, f"Tables of {SUN}: {tables_of}."]
    return [Table(f"{title} beside the published GPUs", lines, notes)] if lines else []


def _loops(group: str, title: str, numbers: dict[str, str]) -> Callable[..., list[Table]]:
    def tables(results: dict[str, Any]) -> list[Table]:
        lines, points = [], {}
        for row, part in checks.cells(results["records"], group).items():
            best = max(part, key=lambda record: record["rate"])
            peak = best["peak"] if best["native"] else None
            name = rows.published(row)
            line: Record = {"instruction": row.split(" ", 1)[1], "SASS": opcodes(part[0])}
            line |= _points(part)
            line["% of peak"] = peak and round(100 * best["rate"] / peak)
            lines.append(line)
            if name:
                mark = "" if part[0]["native"] else ", emulated"
                points[name] = {"GPU": f"{results['header']['gpu']}{mark}"} | _points(part)
        if not lines:
            return []
        notes = [UNIT, CLOCKS, "% of peak: of the best cell; not for emulated instructions."]
        gpu = results["header"]["gpu"]
        table = Table(f"{title} on {gpu}", lines, notes)
        return [table, *beside_published(title, points, numbers)]

    return tables


def chains(results: dict[str, Any]) -> list[Table]:
    """CPI and the latencies of the chains: table I of Yan, Wang and Chu."""
    records = results["records"]
    of = [record for record in records if (record["group"], record["mode"]) == ("mma", "one")]
    lines = []
    for row, part in checks.cells(of, "mma").items():
        if not part[0]["native"]:
            continue
        latencies = {
            record["chain"]: record["latency"]
            for record in of
            if (record["row"], record["warps"], record["ilp"]) == (row, 1, 1)
        }
        if len(latencies) < 2:
            continue
        name = rows.published(row)
        best = max(record["rate"] for record in part)
        line: Record = {"instruction": row.split(" ", 1)[1], "CPI": 4 * checks.of_row(row) / best}
        line |= {f"chain {chain}": latencies.get(chain) for chain in ("c", "a0", "a1")}
        for column in ("CPI", "latency first half", "latency second half"):
            line[f"RTX 2070 {column}"] = name and published.figure(
                "000", "I", row=name, column=column, gpu="RTX 2070"
            )
        lines.append(line)
    notes = [
        "CPI: clocks of an instruction in one of the four parts of an SM, 4 FMA / best rate.",
        "Chains: one warp, ILP 1; the result is the next accumulator (c), or its first or second "
        "register the first of the next a. These include the MOV that ptxas puts between them.",
        f"The last columns are table I of {YAN}: stall counts of SASS.",
    ]
    title = f"Clocks of an mma.sync on {results['header']['gpu']}"
    return [Table(title, lines, notes)] if lines else []


def wgmma(results: dict[str, Any]) -> list[Table]:
    """The rates of wgmma over n and the number of warpgroups."""
    records = results["records"]
    part = [record for record in records if (record["group"], record["mode"]) == ("wgmma", "one")]
    lines, curves = {}, {}
    for record in part:
        key = (record["base"], record["a"], record["n"])
        line = lines.setdefault(
            key,
            {"instruction": record["row"].split(" ", 1)[1], "a": record["a"], "completion": None}
            | {f"{groups} groups": None for groups in (1, 2, 3)}
            | {"% of peak": None},
        )
        if record["ilp"] == 1 and record["warps"] == 4:
            line["completion"] = record["latency"]
        elif record["ilp"] > 1:
            line[f"{record['warps'] // 4} groups"] = record["rate"]
            if record["peak"]:
                share = round(100 * record["rate"] / record["peak"])
                line["% of peak"] = max(share, line["% of peak"] or 0)
            if record["warps"] == 8:
                label = f"{record['base']}, {record['a']}"
                curves.setdefault((label, record["a"]), {})[record["n"]] = record["rate"]
    if not lines:
        return []
    notes = [
        UNIT,
        "SS has a in shared memory, RS in registers. Completion is one instruction with its "
        "commit and wait, of one warpgroup; the rates are those of 16 in a group.",
    ]
    plots = [
        Curve(label, label.split(",")[0], of == "RS", dict(sorted(points.items())))
        for (label, of), points in curves.items()
    ]
    title = f"wgmma on {results['header']['gpu']}"
    return [Table(title, list(lines.values()), notes, plots, ("n", "FMA a clock and SM"))]


def _shared(group: str, title: str) -> Callable[..., list[Table]]:
    def tables(results: dict[str, Any]) -> list[Table]:
        cells = checks.cells(results["records"], group)
        gpu = results["header"]["gpu"]
        rates, latencies, collisions, points = [], [], [], {}
        for row, part in cells.items():
            own = _points(checks.free(part))
            points[row] = {"GPU": gpu} | own
            rates.append({"access": row} | own)
            lone = {
                record["predicted_cycles"]: record["latency"]
                for record in part
                if record["warps"] == record["ilp"] == 1 and "layout" not in record
            }
            document = row.removeprefix("ld.shared.")
            latencies.append(
                {"access": row}
                | {str(ways): lone.get(ways) for ways in (1, 2, 4, 8, 16, 32)}
                | {
                    f"A100 {ways}": published.figure(
                        "003", "X", row=document, column=str(ways), gpu="A100"
                    )
                    for ways in (1, 2, 4, 8)
                }
            )
            collisions += [
                {
                    "access": row,
                    "addresses": record.get("layout", f"{record.get('factor')} widths apart"),
                    "predicted": record["predicted_cycles"],
                    "measured": record["measured_cycles"],
                }
                for record in part
                if checks.is_swept(record)
            ]
        if not rates:
            return []
        notes = ["Rates are bytes a clock and SM.", CLOCKS]
        result = [Table(f"{title} without conflicts on {gpu}", rates, notes)]
        notes = [
            "Clocks of one access in a chain. The columns are the cycles of its phases in the "
            f"banks. A100: table X of {SUN}."
        ]
        result.append(Table(f"Latency with conflicts on {gpu}", latencies, notes))
        if collisions:
            notes = [
                "Cycles of an access: those of tcgemm.lab.model.banks, and of 16 warps with 4 each."
            ]
            result.append(Table(f"Conflicts on {gpu}", collisions, notes))
        return [*result, *beside_published(title, points, SUN_LOADS)]

    return tables


def cpi(results: dict[str, Any]) -> list[Table]:
    """Tables III to V of Yan, Wang and Chu."""
    lines = []
    for record in results["records"]:
        if record["group"] != "global":
            continue
        space, _, width = record["row"].rpartition(" ")
        number = "III" if space.startswith("LDG") else "IV"
        figure = published.figure("000", number, row=space, column=width, gpu="RTX 2070")
        lines.append(
            {
                "access": record["row"],
                "CPI": record["cpi"],
                "B/clk": record["rate"],
                "in a row": record["ilp"],
                "clocks": record["cycles"],
                "with data": record["cycles_to_data"],
                "RTX 2070": figure,
            }
        )
    notes = [
        "One warp. CPI is the difference of two numbers of accesses over the clocks between them: "
        "until the last is issued (STS), or until its data are there.",
        f"A thread has 255 registers, so fewer wide loads stand in a row. RTX 2070: {YAN}.",
    ]
    title = f"Clocks of loads and stores on {results['header']['gpu']}"
    return [Table(title, lines, notes)] if lines else []


def bandwidth(results: dict[str, Any]) -> list[Table]:
    """Table II of Yan, Wang and Chu."""
    lines = []
    for record in results["records"]:
        if record["group"] != "bandwidth":
            continue
        row = record["row"].split(",")[0]
        line: Record = {
            "traffic": record["row"],
            "MB": record["bytes"] / 1e6,
            "GB/s": round(record["rate"]),
        }
        for gpu in published.gpus("000", "II"):
            line[gpu] = published.figure("000", "II", row=row, column="value", gpu=gpu)
        lines.append(line)
    notes = [
        f"A copy counts what it reads and writes. RTX 2070 and T4: table II of {YAN}.",
        "One 512 KB: the blocks of an SM read the same lines at about the same time, so one answer "
        "of L2 can serve several of them. The rate of L2 is that of the larger buffer.",
    ]
    title = f"Bandwidth of {results['header']['gpu']}"
    return [Table(title, lines, notes)] if lines else []


def layout(results: dict[str, Any]) -> list[Table]:
    """Where the elements are."""
    lines = [
        {
            "instruction": record["row"],
            "a": record.get("a"),
            "elements": record["elements"],
            "elsewhere": record["wrong"],
            "selector": record.get("selector") if "metadata_lanes" in record else None,
            "metadata in lanes t": ",".join(map(str, record.get("metadata_lanes", []))),
            "copies": ",".join(map(str, record.get("copies", {}).values())),
            "as mma": ",".join(record.get("as_mma", [])),
        }
        for record in results["records"]
        if record["group"] == "layout"
    ]
    notes = [
        "Elements of a that were found at another place than PTX's layouts have. Lanes are "
        "4 g + t; the selector of mma.sp says which of them have the metadata.",
        "wgmma has a in registers (RS) or in shared memory (SS).",
        "Of wmma, copies are how often fragments a, b and c have each element; some are those of "
        "mma.sync, 8 columns after the others.",
    ]
    title = f"Fragment layouts on {results['header']['gpu']}"
    return [Table(title, lines, notes)] if lines else []


def instructions() -> Table:
    """What ptxas makes of the instructions of PTX, by architecture: csrc/isa/native.h."""
    by_arch = {arch: rows.by_label(arch) for arch in rows.TARGETS}
    lines = []
    for label in dict.fromkeys(name for of_arch in by_arch.values() for name in of_arch):
        of_label = {arch: of_arch.get(label) for arch, of_arch in by_arch.items()}
        first = next(mma for mma in of_label.values() if mma)
        if first.input != first.input_b or first.input in rows.SAME:
            continue
        lines.append({"instruction": label} | {arch: _text(mma) for arch, mma in of_label.items()})
    notes = [
        "The tensor-core instructions of one PTX instruction. An emulation has others beside them: "
        "conversions, shifts and additions. - is where the table of instructions has none.",
        f"Mixed types are left out; {', '.join(rows.SAME)} are as {', '.join(rows.SAME.values())}.",
    ]
    return Table("What ptxas makes of tensor-core instructions", lines, notes)


def _text(mma: Instruction | None) -> str:
    if mma is None:
        return "-"
    text = f"{mma.opcode_count} {mma.opcode}" if mma.opcode_count else "no tensor cores"
    return text if mma.is_native else f"{text}, emulated"


SUN_LOADS = {"A100": "IX"}
SUN_DENSE = {"A100": "III", "RTX 3070 Ti": "IV", "RTX 2080 Ti": "V"}
SUN_SPARSE = {"A100": "VI", "RTX 3070 Ti": "VII"}
TABLES: dict[str, tuple[Callable[..., list[Table]], ...]] = {
    "mma": (_loops("mma", "mma.sync", SUN_DENSE), chains),
    "sparse": (_loops("sparse", "mma.sp", SUN_SPARSE),),
    "wgmma": (wgmma,),
    "wmma": (_loops("wmma", "wmma", {}),),
    "ldmatrix": (_shared("ldmatrix", "ldmatrix"),),
    "shared": (_shared("shared", "Shared loads and stores"),),
    "global": (cpi,),
    "bandwidth": (bandwidth,),
    "layout": (layout,),
}


def of(results: dict[str, Any], groups: Sequence[str]) -> list[Table]:
    """The tables of some groups; those without records have none."""
    return [table for group in groups for build in TABLES[group] for table in build(results)]
