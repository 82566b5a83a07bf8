"""Damaged parts, files and state_dicts of a SparseTensor24 end in a sentence, or in a tensor that
works, and never in a crash.
"""

import pytest

from support.sparse_fuzz import KINDS, attempt

COUNTS = {
    "constructor_call": 80,
    "file_of_damaged_arguments": 60,
    "damaged_file": 80,
    "damaged_state": 60,
    "random_metadata": 40,
    "operator_call": 200,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_things_are_refused_or_work(kind):
    outcomes = [attempt(kind, seed) for seed in range(COUNTS[kind])]
    assert "works" in outcomes
    assert ("refused" in outcomes) is (kind != "random_metadata")


def test_an_attempt_is_the_same_each_time():
    for kind in KINDS:
        assert attempt(kind, 7) == attempt(kind, 7)
