"""The plans of every product that the benchmarks measure are the recorded ones.

Who changes one on purpose writes the record anew (support/plans.py), and measures both plans.
"""

import copy
import json

import pytest

from support import bit_problems, plan_cases, plans

RECORD = plans.load()
NAMES = json.loads((plans.DATA / "row_names.json").read_text())
FEW = ("squares/bf16/TN/4096x4096x4096", "highest/f32/NN/8192x8192x8192")


def few():
    """A record of two cases."""
    return {**RECORD, "cases": {name: copy.deepcopy(RECORD["cases"][name]) for name in FEW}}


@pytest.mark.parametrize("device", plans.DEVICES)
def test_plans_are_the_recorded_ones(device):
    wrong = plans.differences(RECORD, NAMES, (device,))
    assert not wrong, "\n".join(wrong[:20])


def test_new_names_are_those_of_kernels():
    assert set(NAMES) <= set(bit_problems.recorded_rows())
    assert set(NAMES.values()) <= set(plan_cases.rows_by_name())


def test_the_record_has_every_store_path_and_pass():
    feasible = [plan for plan in RECORD["plans"] if "refused" not in plan]  # fp8 on an A100
    assert {plan["store"] for plan in feasible} == {
        "direct, column_pairs",
        "plain, tma_rows",
        "columns, tma_columns",
        "plain, tma_columns",
        "plain, column_pairs",
        "fused, tma_rows",
        "rolled, tma_rows",
        "rolled, column_pairs",
        "rolled, vectors",
        "rolled, elements",
        "slices, vectors",
    }
    assert {row["pass"] for plan in feasible for row in plan["passes"]} == {"repack", "split"}
    assert {plan["swap"] for plan in feasible} == {True, False}


FIELDS = ("row", "grid", "cluster", "tiles", "raster_group", "swap", "store", "passes", "workspace")


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_plan_is_reported(field):
    record = few()
    number = record["cases"][FEW[0]]["plans"][0]
    record["plans"] = copy.deepcopy(record["plans"])
    record["plans"][number][field] = "another"
    wrong = plans.differences(record, NAMES)
    assert [line for line in wrong if f"{FEW[0]} on H200: {field} was another" in line]
    assert plans.differences(few(), NAMES) == []


def test_a_changed_problem_is_reported():
    record = few()
    record["cases"][FEW[1]]["problem"]["precision"] = "high"
    assert plans.differences(record, NAMES)


def test_renamed_kernels_are_looked_up():
    record, row = few(), RECORD["plans"][RECORD["cases"][FEW[0]]["plans"][0]]["row"]
    record["plans"] = plans.renamed(record["plans"], {row: "an_older_name"})
    assert plans.differences(record, NAMES)
    assert plans.differences(record, {**NAMES, "an_older_name": NAMES.get(row, row)}) == []
