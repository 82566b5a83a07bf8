"""Merges files of one GPU: results of `run`, those of its set `models`, or recordings of `rows`.

    python -m benchmarks merge a.json b.json --out c.json

The first file is the oldest. A case that several files have at one commit keeps the repetitions of
all; at different commits the last file counts. `report --merge` does the same with the stored
results.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from benchmarks import recording
from benchmarks.models import record
from tcgemm.measure import command_line, protocol, results_file


class Kind(NamedTuple):
    """A kind of file, and what reads, merges and writes it."""

    words: str
    module: ModuleType  # has load(path) and save(results, path)
    merge: Callable  # (into, new) -> into


RECORDINGS = Kind("recordings of `rows`", recording, recording.merge)
MODELS = Kind("results of the set `models`", record, record.merge)
PRODUCTS = Kind("results of `run`", results_file, protocol.merge)


def kind_of(path):
    """The kind of a file."""
    content = json.loads(path.read_text())
    if "problems" in content:
        return RECORDINGS
    return MODELS if record.is_of_models(content) else PRODUCTS


def main(argv=None):
    parser = command_line.parser("benchmarks merge", __doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    for path in options.files:
        if not path.exists():
            parser.error(f"{path}: there is no such file.")
    kinds = sorted({kind_of(path) for path in options.files}, key=lambda kind: kind.words)
    if len(kinds) > 1:
        parser.error(f"some files are {' and some '.join(kind.words for kind in kinds)}.")
    kind = kinds[0]
    files = [kind.module.load(path) for path in options.files]
    if len({file["header"].get("gpu") for file in files}) > 1:
        parser.error("the files are of different GPUs.")
    target = files[0]
    for new in files[1:]:
        target = kind.merge(target, new)
    kind.module.save(target, options.out)
    print(f"{len(files)} files -> {options.out}")
    return 0
