"""Merges results of `run` on one GPU.

    python -m benchmarks merge a.json b.json --out c.json

The first file is the oldest. A case that several files have at one commit keeps the repetitions of
all; at different commits the last file counts. `report --merge` does the same with the stored
results.
"""

import functools
from pathlib import Path

from tcgemm.measure import command_line
from tcgemm.measure.results import Results


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = command_line.parser("python -m benchmarks merge", __doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    if missing := [path for path in options.files if not path.exists()]:
        parser.error(f"{missing[0]}: there is no such file.")
    parts = [Results.load(path) for path in options.files]
    if len({part.header.get("gpu") for part in parts}) > 1:
        parser.error("the files are of different GPUs.")
    functools.reduce(Results.merge, parts).save(options.out)
    print(f"{len(options.files)} files -> {options.out}")
    return 0
