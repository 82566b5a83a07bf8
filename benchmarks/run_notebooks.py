"""Executes the notebooks of benchmarks/notebooks and keeps their outputs.

    python -m benchmarks notebooks                     every notebook, in place
    python -m benchmarks notebooks 002_ladder          one of them
    python -m benchmarks notebooks --out FOLDER        into another folder

Each notebook stores the GPU, the versions, the commit and the date of the run of its outputs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tcgemm.measure import command_line, machine, results

FOLDER = Path(__file__).parent / "notebooks"
PATHS = {path.stem: path for path in sorted(FOLDER.rglob("*.ipynb"))}  # by name
FACTS = ("gpu", "driver", "torch", "cuda", "date")


def executed(name: str) -> Any:
    """The notebook after a run of every cell in a new folder, as nbformat has it.

    CellExecutionError: a cell raised an error.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(PATHS[name], as_version=4)
    paths = [str(FOLDER.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    # A progress bar would be stored with the outputs.
    own = {"PYTHONPATH": os.pathsep.join(paths), "TQDM_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place)
        client.execute(env={**os.environ, **own})
    for cell in notebook.cells:  # times of the run would change each stored file
        cell.metadata.pop("execution", None)
    return notebook


def main(arguments: Sequence[str]) -> int:
    """Executes the notebooks of a command line; returns 1 if a cell raised an error, else 0."""
    parser = command_line.parser("python -m benchmarks notebooks", __doc__)
    names = ", ".join(sorted(PATHS))
    parser.add_argument("notebooks", nargs="*", help=f"{names} (all)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder of the results")
    parser.add_argument("--commit", help="the commit that runs, where there is no git")
    options = parser.parse_args(arguments)
    for name in options.notebooks:
        if name not in PATHS:
            parser.error(f"there is no notebook {name!r}; expected one of {names}.")
    try:
        import nbformat
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        parser.error(f"{error}. The notebooks run by nbclient: pip install nbclient ipykernel")
    facts = machine.facts(command_line.default_device())
    source = {name: facts[name] for name in FACTS} | {"commit": options.commit or results.commit()}
    failure = False
    for name in options.notebooks or sorted(PATHS):
        try:
            notebook = executed(name)
        except CellExecutionError as error:
            print(f"{name}: {error}")
            failure = True
            continue
        notebook.metadata["tcgemm"] = source
        path = options.out / PATHS[name].relative_to(FOLDER)
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        print(f"{name}: executed on {source['gpu']}", flush=True)
    return int(failure)
