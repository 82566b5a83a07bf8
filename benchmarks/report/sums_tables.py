"""The tables of docs/numerics/accumulation.md.

kernel-sums    how the kernels of the catalog add, from the catalog and the table of instructions
long-sums      errors over K, results/numerics/emulated.json
outside-sums   partial sums that are added outside of the tensor cores, of the same file
one-sum        one accumulation beside published figures, of the same file
"""

from typing import Any

from benchmarks.report import measured
from tcgemm import info
from tcgemm._tables import markdown
from tcgemm.emulate.product import architecture
from tcgemm.emulate.sums import BLOCK, Kernel
from tcgemm.numerics.table import text

GPUS = ("H200", "A100", "L40S")
KEPT = {
    "FP32, toward zero": "24 bits, toward zero",
    "14 bits, toward zero": "14 bits, toward zero",
    "FP16, to nearest even": "11 bits, to nearest",
}
PROMOTION = f"every {BLOCK} of k, in float32"


def _family(row: dict[str, Any]) -> str:
    """The name of the kernels without their tile: "sm90a_e4m3_f32_*_promoted"."""
    last = "_promoted" if row["promoted"] and row["terms"] == 1 else ""
    terms = f"_{row['input']}x{row['terms']}" if row["terms"] > 1 else ""
    return f"`{row['arch']}_{row['input']}_{row['accumulator']}_*{last}{terms}`"


def _sums(row: dict[str, Any], gpu: str) -> list[str]:
    """What an accumulator does: step, bits, sum, partial sums."""
    if row["accumulator"] == "s32":
        return ["any", "all", "exact modulo 2^32", "-"]
    if row["accumulator"] == "f64":
        return ["1", "all", "53 bits, to nearest", "-"]
    mma = Kernel(row, architecture(gpu), False).instruction()
    partial = "-"
    if row["terms"] > 1:
        partial = f"every {'16 to 64' if row['terms'] == 2 else 32} of k, in float32"
    elif row["promoted"]:
        partial = PROMOTION
    return [str(mma.products), str(mma.fraction_bits), KEPT[str(mma.rounding)], partial]


def kernel_sums() -> str:
    """One row for all kernels of the same sums. e5m2 adds as e4m3, and u8 as s8."""
    runs_on = {"sm90a": GPUS[:1], "sm80": GPUS, "sm89": GPUS[2:]}
    kernels: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for row in info.catalog():
        if row["input"] in ("e5m2", "u8") or row["input_b"] in ("e5m2", "u8") or row["weight_bits"]:
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


def _rows(table: dict[str, Any], keys: list[str]) -> list[list[str]]:
    return [[text(row[key]) for key in keys] for row in table["rows"]]


def tables() -> dict[str, str]:
    """Name of a table -> its text."""
    errors = measured.load(measured.EMULATED)
    outside, long = errors["outside"]
    single = errors["tables"][0]
    low = {"rows": [row for row in single["rows"] if row["operation"].startswith("accumulation")]}
    low["rows"] = [row for row in low["rows"] if (row["init"], row["beside"]) == ("low", "FP32")]
    keys = {
        "long-sums": (long, list(long["rows"][0])),
        "outside-sums": (outside, list(outside["rows"][0])),
        "one-sum": (low, ["types", "operation", "published", "A100", "H200"]),
    }
    return {
        "kernel-sums": kernel_sums(),
        **{name: markdown(heads, _rows(table, heads)) for name, (table, heads) in keys.items()},
    }
