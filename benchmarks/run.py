"""python -m benchmarks run: tcgemm.measure.run with the results and the targets of this checkout.

The set `models` is measured by benchmarks.models.run, which has options of its own.
"""

import sys

import benchmarks
from benchmarks import targets
from tcgemm.measure import run

MODELS = "models"


def sets_of(argv):
    """The names that --set gives in a command line."""
    sets = []
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        sets += after.split(",") if word == "--set" else []
        sets += word.removeprefix("--set=").split(",") if word.startswith("--set=") else []
    return sets


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if MODELS in sets_of(argv):
        from benchmarks.models import run as models_run

        return models_run.main(argv)
    options = {"folder": benchmarks.RESULTS, "targets": targets, "more": (MODELS,)}
    return run.main(argv, command="benchmarks run", **options)
