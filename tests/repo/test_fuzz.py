"""Some cases of tests/support/fuzz.py with the ordinary library. `make sanitize-host` is longer."""

import subprocess
import sys

import pytest

from support.fuzz import KINDS, attempt
from support.source_tree import ROOT

# Random calls of operators change settings of the planner, so they need a process of their own.
IN_PROCESS = [kind for kind in KINDS if kind != "operators"]


def test_random_calls_checkpoints_and_files_end_in_sentences():
    command = [sys.executable, "tests/support/fuzz.py", "--cases", "120"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", IN_PROCESS)
def test_damaged_things_are_refused_or_work(kind):
    outcomes = [attempt(kind, 1, number) for number in range(80)]
    assert "works" in outcomes
    assert ("refused" in outcomes) is (kind != "metadata")


def test_an_attempt_is_the_same_each_time():
    for kind in IN_PROCESS:
        assert attempt(kind, 0, 7) == attempt(kind, 0, 7)
