"""tcgemm bench: measures sets of cases against torch."""

from tcgemm.measure import run as bench
from tcgemm.measure.amx import avoid_forbidden_amx


def run(arguments: list[str]) -> int:
    """Runs tcgemm.measure.run, whose --help lists the options."""
    if sentence := avoid_forbidden_amx():
        print(sentence)
    return bench.main(arguments)
