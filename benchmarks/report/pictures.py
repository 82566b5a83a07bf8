"""Draws the pictures of docs/pictures/: the rows of PICTURES.

python -m benchmarks pictures

A picture of measured rows has the name of its file of results, so that GPUs have pictures of
their own. Stale rows are in none of them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.report import diagrams, f32, models, overview, sums
from tcgemm import _plots
from tcgemm.measure import command_line
from tcgemm.measure.results import Results

FOLDER = RESULTS.parents[1] / "docs" / "pictures"
# The file -> what makes its figure. {gpu}: a picture for each file of results, from its Results,
# where it has such rows.
PICTURES: dict[str, Callable[..., "_plots.Figure | None"]] = {
    "sparse24.svg": diagrams.sparse24,
    "step.svg": diagrams.step,
    "sums.svg": sums.sums,
    "chain.svg": sums.chain,
    "swap_{gpu}.svg": models.swap,
    "models_{gpu}.svg": models.models,
    "ratios_{gpu}.svg": overview.picture,
    "squares_{gpu}.png": overview.squares,
    "f32_{gpu}.png": f32.errors_and_rates,
}


def drawn(folder: Path) -> Iterator[tuple[str, Any]]:
    """(file name, figure) of every picture of a folder of results."""
    for name, draw in PICTURES.items():
        if "{gpu}" not in name:
            yield name, draw()
            continue
        for path in sorted(folder.glob("*.json")):
            if figure := draw(Results.load(path)):
                yield name.format(gpu=path.stem), figure


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = command_line.parser("python -m benchmarks pictures", __doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn(options.results):
        _plots.save(figure, options.out / name)
        print(options.out / name)
    return 0
