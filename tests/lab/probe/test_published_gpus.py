"""The check of the published tables, on records that are made of these tables."""

import copy

import pytest

from tcgemm import published
from tcgemm.lab.probe import checks

GPUS = {"A100": "NVIDIA A100-PCIE-40GB", "RTX 3070 Ti": "NVIDIA GeForce RTX 3070 Ti"}
GPUS["RTX 2080 Ti"] = "NVIDIA GeForce RTX 2080 Ti"


def as_records(gpu):
    """The records of a GPU that measures what the tables say."""
    lines = []
    for name in checks.TABLES[gpu]:
        is_sparse = name in ("VI", "VII")
        group, family = ("sparse", "mma.sp") if is_sparse else ("mma", "mma")
        for row, cells in published.table("003", name, gpu).items():
            type_a, result, shape = row.split()
            operation = " and.popc" if type_a == "b1" else ""
            record = {
                "group": group,
                "row": f"{family} {type_a} {type_a} {result} {shape}{operation}",
                "mode": "one",
                "chain": "c",
            }
            lines.append(record | {"warps": 1, "ilp": 1, "latency": cells["completion"], "rate": 0})
            for warps in (4, 8):
                cell = {
                    "ilp": int(cells[f"ILP, {warps} warps"]),
                    "latency": cells[f"latency, {warps} warps"],
                }
                lines.append(
                    record | {"warps": warps, "rate": cells[f"rate, {warps} warps"]} | cell
                )
    return {"header": {"gpu": GPUS[gpu], "arch": "Ampere"}, "records": lines}


@pytest.mark.parametrize("gpu", GPUS)
def test_a_gpu_of_the_tables_has_no_complaints(gpu):
    results = as_records(gpu)
    assert len(results["records"]) >= 9
    assert checks.sentences(results, (checks.documented,)) == []


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("warps", [4, 8])
def test_another_rate_is_named(gpu, warps):
    results = as_records(gpu)
    entry = copy.deepcopy(next(x for x in results["records"] if x["warps"] == warps))
    rate = entry["rate"]
    for scale, is_named in ((1.04, False), (0.96, False), (1.06, True), (0.94, True)):
        changes = results | {"records": [entry | {"rate": scale * rate}]}
        sentence = (
            f"documented: {entry['row']}, {warps} warps, ILP {entry['ilp']}: {scale * rate:.0f} "
            f"FMA/clk/SM, published {rate}."
        )
        assert checks.sentences(changes, (checks.documented,)) == [sentence] * is_named


def test_another_completion_is_named():
    results = as_records("A100")
    record = results["records"][0] | {"latency": 33.0}
    assert checks.sentences(results | {"records": [record]}, (checks.documented,)) == [
        "documented: mma f16 f16 f32 m16n8k16: 33.0 clocks, published 24.7."
    ]


def test_misprinted_rates_are_no_measure():
    """They contradict the latencies beside them by more than 1 %, and others do not."""
    misprints = set()
    for name in ("III", "IV", "V", "VI", "VII"):
        for row, cells in published.table("003", name).items():
            m, n, k = (int(size) for size in row.split()[2][1:].replace("n", "k").split("k"))
            for warps in (4, 8):
                work = warps * cells[f"ILP, {warps} warps"] * m * n * k
                if (
                    abs(cells[f"rate, {warps} warps"] * cells[f"latency, {warps} warps"] / work - 1)
                    > 0.0125
                ):
                    misprints.add((name, row, warps))
    # Table VII has a wrong latency there, and the right rate.
    assert misprints == checks.MISPRINTED | {("VII", "s8 s32 m16n8k64", 4)}
    results = as_records("A100")
    (wrong,) = [
        size
        for size in results["records"]
        if (size["row"], size["warps"]) == ("mma.sp f16 f16 f32 m16n8k16", 4)
    ]
    right = results | {"records": [wrong | {"rate": 1205.0}]}
    assert checks.sentences(right, (checks.documented,)) == []
