"""Draws the pictures of docs/pictures/: the rows of PICTURES.

python -m benchmarks pictures

A picture of measured rows has the name of its file of results, so that GPUs have pictures of
their own. Stale rows are in none of them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import RESULTS
from benchmarks.report import diagrams, f32_picture, measured, overview
from tcgemm import _plots
from tcgemm.measure import command_line
from tcgemm.measure.results import Results

FOLDER = RESULTS.parents[1] / "docs" / "pictures"
EMULATED = "numerics/emulated.json"
ROWS = "*.json"  # the results of each GPU


class Picture(NamedTuple):
    """A picture of the documentation.

    Attributes:
        name: the file; {gpu} stands for the stem of the source.
        draw: makes the figure, of the content of the source if there is one; None draws none.
        source: a pattern of files in benchmarks/results; each gives a picture.
    """

    name: str
    draw: Callable[..., "_plots.Figure | None"]
    source: str = ""


PICTURES = (
    Picture("call.svg", diagrams.call),
    Picture("sparse24.svg", diagrams.sparse24),
    Picture("step.svg", diagrams.step),
    Picture("sums.svg", measured.sums, EMULATED),
    Picture("chain.svg", measured.chain, EMULATED),
    Picture("swap_{gpu}.svg", measured.swap, ROWS),
    Picture("models_{gpu}.svg", measured.models, ROWS),
    Picture("ratios_{gpu}.svg", overview.picture, ROWS),
    Picture("squares_{gpu}.png", measured.squares, ROWS),
    Picture("f32_{gpu}.png", f32_picture.errors_and_rates, ROWS),
)


def drawn(results: Path = RESULTS) -> Iterator[tuple[str, Any]]:
    """(file name, figure) of every picture."""
    for name, draw, source in PICTURES:
        if not source:
            yield name, draw()
        for path in sorted(results.glob(source)) if source else ():
            content = Results.load(path) if source == ROWS else measured.load(path)
            if figure := draw(content):
                yield name.format(gpu=path.stem), figure


def draw_all(results: Path, out: Path) -> None:
    """Draws the pictures of a folder of results into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn(results):
        _plots.save(figure, out / name)
        print(out / name)


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = command_line.parser("benchmarks pictures", __doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    options = parser.parse_args(argv)
    draw_all(RESULTS, options.out)
    return 0
