"""Draws the pictures of docs/pictures/: the rows of PICTURES.

python -m benchmarks pictures

A picture of measured rows has the name of its file of results, so that GPUs have pictures of
their own.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import RESULTS
from benchmarks.report import diagrams, measured
from tcgemm import _plots
from tcgemm.measure import command_line

FOLDER = RESULTS.parents[1] / "docs" / "pictures"


class Picture(NamedTuple):
    """A picture of the documentation.

    Attributes:
        name: the file; {gpu} stands for the stem of the source.
        draw: makes the figure, of the content of the source if there is one.
        source: a pattern of files in benchmarks/results; each gives a picture.
    """

    name: str
    draw: Callable[..., "_plots.Figure"]
    source: str = ""


PICTURES = (
    Picture("call.svg", diagrams.call),
    Picture("sparse24.svg", diagrams.sparse24),
    Picture("step.svg", diagrams.step),
    Picture("sums.svg", measured.sums, "numerics/emulated.json"),
    Picture("chain.svg", measured.chain, "numerics/emulated.json"),
    Picture("swap_{gpu}.svg", measured.swap, "swap/*.json"),
    Picture("models_{gpu}.svg", measured.models, "models/*.json"),
)


def drawn(results: Path = RESULTS) -> Iterator[tuple[str, Any]]:
    """(file name, figure) of every picture."""
    for name, draw, source in PICTURES:
        if not source:
            yield name, draw()
            continue
        for path in sorted(results.glob(source)):
            yield name.format(gpu=path.stem), draw(measured.load(path))


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("benchmarks pictures", __doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn():
        _plots.save(figure, options.out / name)
        print(options.out / name)
    return 0
