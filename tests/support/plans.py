"""The plans of the benchmarks' products, recorded, and the comparison with the record.

    python tests/support/plans.py compare    what is planned otherwise than recorded
    python tests/support/plans.py write      records the plans of the same problems anew

data/plans_h200.json has the problems themselves, as meta_problems.plan takes them, so that it
depends on no benchmark. Each refers to its plan on each GPU; many problems share one. A kernel that
was renamed since is looked up in data/row_names.json, {"old": "new"}. No GPU is needed.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT / "tests"), str(ROOT)]

from tcgemm.measure.results import write  # noqa: E402

from support import meta_problems  # noqa: E402

DATA = ROOT / "tests" / "data"
RECORD = DATA / "plans_h200.json"
DEVICES = ("H200", "H100", "A100")


def passes(plan):
    """The passes before the product, and the other kernels of split FP32, in order."""
    rows = []
    for kind in ("repack", "sums"):
        for operand in "ab":
            if fields := plan[f"{kind}_{operand}"]:
                rows.append({"pass": kind, "operand": operand, **fields})
    if split := plan["split"]:
        rows.append({"pass": "split", **split})
    return rows


def plan_of(device, problem):
    """The plan in the words of the record."""
    options = dict(problem)
    sizes = [options.pop(name) for name in ("dtype", "m", "n", "k")]
    try:
        plan = meta_problems.plan(device, *sizes, **options)
    except RuntimeError:
        return {"refused": True}
    return {
        "row": plan["kernel"],
        "grid": plan["grid"],
        "cluster": plan["cluster"],
        "tiles": [plan["tiles_m"], plan["tiles_n"]],
        "raster_group": plan["raster_group"],
        "swap": plan["swap_ab"],
        "vectors": [plan["vector_a"], plan["vector_b"]],
        "store": f"{plan['epilogue_path']}, {plan['store_path']}",
        "passes": passes(plan),
        "workspace": plan["workspace"],
    }


def load(path=RECORD):
    return json.loads(path.read_text())


def renamed(value, names):
    """The same with the kernels' names of now."""
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def recorded(problems, devices=DEVICES):
    """{case: problem} -> the record."""
    plans, numbers, cases = [], {}, {}
    for name, problem in problems.items():
        cases[name] = {"problem": problem, "plans": []}
        for device in devices:
            plan = plan_of(device, problem)
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
            new = plan_of(device, renamed(case["problem"], names))
            fields = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            wrong += [
                f"{name} on {device}: {key} was {old.get(key)}, is {new.get(key)}" for key in fields
            ]
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("write", "compare"))
    arguments = parser.parse_args()
    names = json.loads((DATA / "row_names.json").read_text())
    record = load()
    if arguments.mode == "write":
        problems = {name: renamed(case["problem"], names) for name, case in record["cases"].items()}
        write(RECORD, recorded(problems))
        return 0
    wrong = differences(record, names)
    print("\n".join([*wrong, f"{len(wrong)} differences in {len(record['cases'])} cases"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
