"""The problems whose bits are recorded on a GPU: the same in every version, and over every kernel.

The record is written and compared by support/recorded_bits.py. Here are its parts that need no GPU.
"""

import copy
from collections import Counter

import pytest

from support import bit_problems, recorded_bits

PROBLEMS = bit_problems.problems()
# Digests of the problems and of the data of the record. A change of either makes it worthless.
DIGEST = "90e62f440324f6d9"
POOL = "9ecb527521dfeeba"


def test_problems_are_those_of_the_record():
    assert len(PROBLEMS) == bit_problems.COUNT
    assert bit_problems.problems() == PROBLEMS
    assert recorded_bits.digest_of(PROBLEMS) == DIGEST


def test_every_kernel_has_problems():
    times = Counter(one["row"] for one in PROBLEMS if "row" in one)
    assert set(times) == set(bit_problems.recorded_rows())
    assert min(times.values()) >= 2


def test_problems_are_of_every_kind():
    assert {one["layout"] for one in PROBLEMS if "layout" in one} == set(bit_problems.LAYOUTS)
    assert {one.get("activation") for one in PROBLEMS} == {None, *bit_problems.ACTIVATIONS}
    assert {one["out"] for one in PROBLEMS if "out" in one} >= {*recorded_bits.TYPES} - {"u8"}
    assert {one.get("sparse") for one in PROBLEMS} == {None, "a", "b"}
    names = ("bias", "c", "residual", "alpha", "scale_a", "scale_b", "scale_out", "amax")
    for name in (*names, "zero_a", "zero_b", "batch", "stored"):
        assert sum(name in one for one in PROBLEMS) >= 30, name
    stored = {one.get("stored") for one in PROBLEMS}
    assert stored >= {None, "padded", "odd_pitch", "column_major", "column_major_odd"}


@pytest.fixture(scope="module")
def record():
    return recorded_bits.run("cpu", 12, {})


def test_data_are_those_of_the_record(record):
    assert record["pool"] == POOL


def test_a_second_run_gives_the_same_bits(record):
    assert len(record["results"]) == 12
    assert all("bits" in result for result in record["results"].values())
    assert recorded_bits.run("cpu", 12, {}) == record
    assert recorded_bits.differences(record, record, {}) == ([], [])


def test_differences_are_reported(record):
    number = next(iter(record["results"]))
    for change in ({"bits": "0" * 16, "kernels": []}, {"error": "RuntimeError: no"}):
        other = copy.deepcopy(record)
        other["results"][number] = change
        wrong, _notes = recorded_bits.differences(record, other, {})
        assert len(wrong) == 1
        assert f"problem {number}" in wrong[0]
    for name in ("pool", "problems"):
        wrong, _notes = recorded_bits.differences(record, record | {name: "other"}, {})
        assert len(wrong) == 1
    fewer = copy.deepcopy(record)
    del fewer["results"][number]
    assert recorded_bits.differences(record, fewer, {})[0]


def test_renamed_kernels_are_looked_up(record):
    number = next(iter(record["results"]))
    old, new = copy.deepcopy(record), copy.deepcopy(record)
    old["results"][number]["kernels"] = ["sm80_old"]
    new["results"][number]["kernels"] = ["sm80_new"]
    assert recorded_bits.differences(old, new, {"sm80_old": "sm80_new"}) == ([], [])
    assert len(recorded_bits.differences(old, new, {})[1]) == 1
