"""python -m benchmarks run: tcgemm.measure.run with the results, targets and experiments here."""

from __future__ import annotations

from collections.abc import Sequence

import benchmarks
from benchmarks import targets
from benchmarks.experiments import EXPERIMENTS
from tcgemm.measure import run


def main(argv: Sequence[str] | None = None) -> int:
    """Measures the sets of a command line; returns 1 if a case failed or was wrong, else 0."""
    options = {"folder": benchmarks.RESULTS, "targets": targets, "experiments": EXPERIMENTS}
    return run.main(argv, command="python -m benchmarks run", **options)
