"""The tables and pictures of docs/numerics/accumulation.md: what accumulators lose.

How the kernels add is from the catalog and the table of instructions, all else from
benchmarks/results/numerics/emulated.json, which `tcgemm numerics all --json FILE` writes.
"""

import json
from typing import Any

from benchmarks import RESULTS
from tcgemm import _plots, info
from tcgemm._tables import markdown
from tcgemm.emulate import tf32x2
from tcgemm.emulate.product import architecture
from tcgemm.emulate.sums import BLOCK, Kernel
from tcgemm.numerics.table import text

EMULATED = RESULTS / "numerics" / "emulated.json"
GPUS = ("H200", "A100", "L40S")
KEPT = {
    "FP32, toward zero": "24 bits, toward zero",
    "14 bits, toward zero": "14 bits, toward zero",
    "FP16, to nearest even": "11 bits, to nearest",
}
WHOLE = {  # accumulator -> what it does: step, bits, sum, partial sums
    "s32": ("any", "all", "exact modulo 2^32", "-"),
    "f64": ("1", "all", "53 bits, to nearest", "-"),
}


def emulated() -> Any:
    """The stored experiments with emulated GPUs, by name: a list of tables each."""
    return json.loads(EMULATED.read_text())


def _family(row: dict[str, Any]) -> str:
    """The name of the kernels without their tile: "sm90a_e4m3_f32_*_promoted"."""
    last = "_promoted" if row["promoted"] and row["terms"] == 1 else ""
    made = "tf32" if row["mainloop"] == "tf32x2" else row["input"]  # what terms are made of
    terms = f"_{made}x{row['terms']}" if row["terms"] > 1 else ""
    return f"`{row['arch']}_{row['input']}_{row['accumulator']}_*{last}{terms}`"


def _sums(row: dict[str, Any], gpu: str) -> tuple[str, ...]:
    """What an accumulator does: step, bits, sum, partial sums."""
    if row["accumulator"] in WHOLE:
        return WHOLE[row["accumulator"]]
    mma = Kernel(row, architecture(gpu), False).instruction()
    depth = {1: str(BLOCK), 2: "16 to 64"}.get(row["terms"], "32")
    if row["mainloop"] == "tf32x2":
        depth = str(tf32x2.CHAIN)
    is_partial = row["terms"] > 1 or row["promoted"]
    partial = f"every {depth} of k, in float32" if is_partial else "-"
    return str(mma.products), str(mma.fraction_bits), KEPT[str(mma.rounding)], partial


def kernel_sums() -> str:
    """One row for all kernels of the same sums. e5m2 adds as e4m3, and u8 as s8."""
    runs_on = {"sm90a": GPUS[:1], "sm80": GPUS, "sm89": GPUS[2:]}
    kernels: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for row in info.catalog():
        if {row["input"], row["input_b"]} & {"e5m2", "u8"} or row["weight_bits"]:
            continue
        for gpu in runs_on[row["arch"]]:
            sums = ("2:4 sparse" if row["sparse"] else "dense", *_sums(row, gpu))
            gpus = kernels.setdefault(sums, {}).setdefault(_family(row), [])
            if gpu not in gpus:
                gpus.append(gpu)
    rows = []
    for sums, families in kernels.items():
        for gpus in dict.fromkeys(tuple(gpus) for gpus in families.values()):
            names = [name for name, on in families.items() if tuple(on) == gpus]
            rows.append([", ".join(gpus), ", ".join(names), *sums])
    heads = ["GPU", "kernels", "a", "products in a step", "bits below the largest"]
    return markdown([*heads, "the sum keeps", "partial sums"], rows)


def _table(rows: list[dict[str, Any]], keys: list[str]) -> str:
    return markdown(keys, [[text(row[key]) for key in keys] for row in rows])


def tables() -> dict[str, str]:
    """Name of a table -> its text."""
    errors = emulated()
    outside, long = (table["rows"] for table in errors["outside"])
    single = [
        row
        for row in errors["tables"][0]["rows"]
        if row["operation"].startswith("accumulation")
        if (row["init"], row["beside"]) == ("low", "FP32")
    ]
    return {
        "kernel-sums": kernel_sums(),
        "long-sums": _table(long, list(long[0])),
        "outside-sums": _table(outside, list(outside[0])),
        "one-sum": _table(single, ["types", "operation", "published", "A100", "H200"]),
    }


def _picture(
    title: str, table: dict[str, Any], ends: dict[str, str], names: tuple[str, str], widest: float
) -> "_plots.Figure":
    """The curves of a table: a panel for each title, of the labels that end so.

    They are without what overflowed, and without float64, which is far below.
    """
    panels = {
        heading: {
            label.removesuffix(end): {int(x): y for x, y in points.items() if y is not None}
            for label, points in table["curves"].items()
            if label.endswith(end) and not label.startswith("float64")
        }
        for heading, end in ends.items()
    }
    return _plots.line_panels(title, panels, names, 2, yscale="log", widest=widest)


def sums() -> "_plots.Figure":
    """The error over K of every way to add."""
    ends = {"normal data": ", normal", "uniform data in [0, 1)": ", uniform"}
    names = ("K", "rms error, 2^-24 |A||B|")
    return _picture("Errors of long sums on an H200", emulated()["outside"][1], ends, names, 1.6)


def chain() -> "_plots.Figure":
    """The error of a chain of products on an emulated A100."""
    ends = {
        "rounded before both chains": ", low init, A100",
        "rounded on the GPU alone": ", FP32 init, A100",
    }
    title = "A chain of N products by mma.m16n8k8 on an A100"
    return _picture(title, emulated()["chain"][0], ends, ("N", "error / result"), 5)
