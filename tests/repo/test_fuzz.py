"""Some cases of tests/support/fuzz.py with the ordinary library. `make sanitize-host` is longer."""

import subprocess
import sys

from support.source_tree import ROOT


def test_random_calls_checkpoints_and_files_end_in_sentences():
    command = [sys.executable, "tests/support/fuzz.py", "--cases", "120"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
