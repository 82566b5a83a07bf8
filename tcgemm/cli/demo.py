"""python -m tcgemm demo"""

from tcgemm.demo import main


def run(arguments: list[str]) -> int:
    return main.main(arguments)
