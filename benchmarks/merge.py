"""Merges files of one GPU: results of `run`, or recordings of `rows`.

    python -m benchmarks merge a.json b.json --out c.json

The first file is the oldest. A case that several files have at one commit keeps the repetitions of
all; at different commits the last file counts. `report --merge` does the same with the stored
results.
"""

import argparse
import json
from pathlib import Path

from benchmarks import recording
from tcgemm.bench import protocol, results_file


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks merge",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    for path in options.files:
        if not path.exists():
            parser.error(f"{path}: there is no such file.")
    kinds = {"problems" in json.loads(path.read_text()) for path in options.files}
    if len(kinds) > 1:
        parser.error("some files are results of `run` and some recordings of `rows`.")
    kind, merge = (recording, recording.merge) if kinds.pop() else (results_file, protocol.merge)
    files = [kind.load(path) for path in options.files]
    if len({file["header"].get("gpu") for file in files}) > 1:
        parser.error("the files are of different GPUs.")
    into = files[0]
    for new in files[1:]:
        into = merge(into, new)
    kind.save(into, options.out)
    print(f"{len(files)} files -> {options.out}")
    return 0
