"""Some cases of tests/support/fuzz.py with the ordinary library. `make sanitize-host` is longer."""

import subprocess
import sys

from support.source_tree import ROOT


def test_random_calls_checkpoints_and_files_end_in_sentences():
    command = [sys.executable, "tests/support/fuzz.py", "--cases", "120"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
