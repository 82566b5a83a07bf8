"""tcgemm demo: trains a small network, and checks and times products."""

from tcgemm.measure import demo


def run(arguments: list[str]) -> int:
    """Runs the demo, whose --help lists the options."""
    return demo.main(arguments)
