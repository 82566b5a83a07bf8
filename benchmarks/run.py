"""python -m benchmarks run: tcgemm.bench.run with the results and the targets of this checkout."""

import benchmarks
from benchmarks import targets
from tcgemm.bench import run


def main(argv=None):
    folder = benchmarks.RESULTS
    return run.main(argv, folder=folder, targets=targets, prog="python -m benchmarks run")
