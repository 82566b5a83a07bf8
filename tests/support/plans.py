"""The plans of the benchmarks' products, recorded, and the comparison with the record.

    python tests/support/plans.py compare    what is planned otherwise than recorded
    python tests/support/plans.py write      records the plans of the same problems anew

data/plans_h200.json has the problems themselves, as tcgemm.info.plan is asked for them, so that it
depends on no benchmark. Each refers to its plan on each GPU; many problems share one. A kernel that
was renamed since is looked up in data/row_names.json, {"old": "new"}. No GPU is needed, but the
catalog module.
"""

import argparse
import functools
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]

from tcgemm import info  # noqa: E402

DATA = ROOT / "tests" / "data"
RECORD = DATA / "plans_h200.json"
DEVICES = ("H200", "H100", "A100")
WIDTHS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16}  # others have 8
WORD = 128  # bits


def width(dtype):
    return WIDTHS.get(dtype, 8)


@functools.cache
def rows_by_name():
    return {row["name"]: row for row in info.catalog()}


def out_dtype(problem):
    """As the planner takes it where the problem has none."""
    if "out_dtype" in problem:
        return problem["out_dtype"]
    dtype = problem["dtype"]
    return {"s8": "s32", "u8": "s32", "e4m3": "bf16", "e5m2": "bf16"}.get(dtype, dtype)


def store_path(plan, problem):
    """How the result leaves the accumulators of the plan's kernel.

        straight         accumulators are the result, and go to columns in pairs
        unrolled         with scales, bias and relu, a fragment at a time in registers
        rolled           with everything that an epilogue has

    and then by TMA in boxes of rows or columns, to columns in pairs, in words of 16 bytes, or
    element by element. Results are contiguous.
    """
    row, out = rows_by_name()[plan["kernel"]], out_dtype(problem)
    words = problem.get("epilogue", ())
    swapped = plan["transposed"]
    m, n = (problem["n"], problem["m"]) if swapped else (problem["m"], problem["n"])
    # In the kernel's view a result is column-major where the sides are swapped.
    column_major = swapped and n > 1 and m > 1
    row_major = not swapped or m == 1 or n == 1
    pitch = m if column_major else n
    whole = pitch * width(out) % WORD == 0
    in_rows, in_columns = row_major and (whole or m == 1), not row_major and whole
    tma = row["arch"] == "sm90a" and row["accumulator"] != "f64"
    interleaved = bool(row["registers"] or row["sparse"])
    scaled = problem.get("scale_a") or problem.get("scale_b")
    plain = not words and not scaled and problem.get("alpha", 1.0) == 1.0

    box = 1024 // width(out)
    by_rows = tma and width(out) >= 16 and row["tile"][1] % box == 0 and in_rows and whole
    sent = row["input"] if width(row["input"]) == 16 else "bf16"
    by_columns = interleaved and tma and row["tile"][1] % 64 == 0 and out == sent and plain
    by_columns = by_columns and in_columns and not by_rows
    assert (by_rows or by_columns) == plan["store_tma"], (plan["kernel"], problem)
    if by_columns:
        return "unrolled, TMA columns"

    bias_fits = "bias" not in words or not swapped or interleaved
    fast = set(words) <= {"bias", "relu"} and bias_fits and (out != "s32" or plain)
    if not tma:
        fast = False
    if tma and interleaved and in_columns:
        if out == row["accumulator"] and plain:
            return "straight, columns"
        if fast and width(out) == 16:
            return "unrolled, columns"
    wide = "s32" if row["accumulator"] == "s32" else "f32"
    unrolled = fast and by_rows and (width(out) == 16 or (out == wide and not interleaved))
    to = "TMA rows" if by_rows else "words" if in_rows else "elements"
    if not by_rows and interleaved and in_columns:
        to = "columns"
    return ("unrolled, " if unrolled else "rolled, ") + to


def passes(plan):
    """What runs before the product, and for f32 in parts beside it, in order."""
    found = []
    for kind in ("prepare", "sums"):
        for operand in "ab":
            if given := plan[f"{kind}_{operand}"]:
                found.append({"pass": kind, "operand": operand, **given})
    if split := plan["split"]:
        found.append({"pass": "split", **split})
    return found


def planned(device, problem):
    """The plan in the words of the record."""
    options = dict(problem)
    sizes = [options.pop(name) for name in ("dtype", "m", "n", "k")]
    try:
        plan = info.plan(device, *sizes, **options)
    except RuntimeError:
        return {"refused": True}
    return {
        "row": plan["kernel"],
        "grid": plan["grid"],
        "cluster": plan["cluster"],
        "tiles": [plan["tiles_m"], plan["tiles_n"]],
        "group": plan["group"],
        "swap": plan["transposed"],
        "vectors": [plan["vector_a"], plan["vector_b"]],
        "store": store_path(plan, problem),
        "passes": passes(plan),
        "workspace": plan["workspace"],
    }


def load(path=RECORD):
    return json.loads(path.read_text())


def renamed(value, names):
    """The same with the kernels' names of now."""
    if isinstance(value, dict):
        return {key: renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


def recorded(problems, devices=DEVICES):
    """{case: problem} -> the record."""
    plans, numbers, cases = [], {}, {}
    for name, problem in problems.items():
        cases[name] = {"problem": problem, "plans": []}
        for device in devices:
            plan = planned(device, problem)
            number = numbers.setdefault(json.dumps(plan), len(plans))
            if number == len(plans):
                plans.append(plan)
            cases[name]["plans"].append(number)
    return {"devices": list(devices), "plans": plans, "cases": cases}


def differences(record, names, devices=DEVICES):
    """Sentences: which case is planned otherwise now, and in what."""
    wrong = []
    for name, case in record["cases"].items():
        for device, number in zip(record["devices"], case["plans"], strict=True):
            if device not in devices:
                continue
            old = renamed(record["plans"][number], names)
            new = planned(device, renamed(case["problem"], names))
            fields = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            wrong += [
                f"{name} on {device}: {key} was {old.get(key)}, is {new.get(key)}" for key in fields
            ]
    return wrong


def encoded(record):
    """A line a plan and a line a case."""
    plans = ",\n".join(json.dumps(plan) for plan in record["plans"])
    cases = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in record["cases"].items())
    head = f'{{"devices": {json.dumps(record["devices"])}'
    return f'{head},\n"plans": [\n{plans}\n],\n"cases": {{\n{cases}\n}}}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("write", "compare"))
    given = parser.parse_args()
    names = json.loads((DATA / "row_names.json").read_text())
    record = load()
    if given.mode == "write":
        problems = {name: renamed(case["problem"], names) for name, case in record["cases"].items()}
        RECORD.write_text(encoded(recorded(problems)))
        return 0
    wrong = differences(record, names)
    print("\n".join([*wrong, f"{len(wrong)} differences in {len(record['cases'])} cases"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
