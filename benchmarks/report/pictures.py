"""Draws the pictures of docs/pictures/.

python -m benchmarks pictures

call.svg          the steps of a call, from Python to the kernel
sparse24.svg      the 2:4 format
step.svg          one step of a tensor core
sums.svg          errors of long sums, of benchmarks/results/numerics/emulated.json
chain.svg         errors of a chain of products, of the same file
swap_<gpu>.svg    a model after swap_linear, of benchmarks/results/swap/<gpu>.json
models_<gpu>.svg  training and decode of models, of benchmarks/results/models/<gpu>.json
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.models import record
from benchmarks.report import (
    call_picture,
    error_picture,
    models_picture,
    sparse_format,
    step_picture,
    style,
    swap_picture,
)
from tcgemm.measure import command_line

FOLDER = RESULTS.parents[1] / "docs" / "pictures"


def pictures(results: Path = RESULTS) -> dict[str, Callable[[], "style.Figure"]]:
    """File name -> what draws it."""
    result: dict[str, Callable[[], style.Figure]] = {
        "call.svg": call_picture.draw,
        "sparse24.svg": sparse_format.draw,
        "step.svg": step_picture.draw,
        "sums.svg": error_picture.draw_sums,
        "chain.svg": error_picture.draw_chain,
    }
    for path in sorted((results / "swap").glob("*.json")):
        draw = partial(swap_picture.draw, swap_picture.load(path))
        result[f"swap_{path.stem}.svg"] = draw
    for path in sorted((results / record.FOLDER).glob("*.json")):
        result[f"models_{path.stem}.svg"] = partial(models_picture.draw, record.load(path))
    return result


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("benchmarks pictures", __doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures().items():
        style.save(draw(), options.out / name)
        print(options.out / name)
    return 0
