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

from tcgemm.measure import command_line, machine, results_file

FOLDER = Path(__file__).parent / "notebooks"
TIMEOUT = 600  # seconds of a cell
FACTS = ("gpu", "driver", "torch", "cuda", "date")
NEEDED = "The notebooks run by nbclient: pip install nbclient ipykernel"


def paths() -> dict[str, Path]:
    """The file of each notebook by its name, the name without a suffix."""
    return {path.stem: path for path in sorted(FOLDER.rglob("*.ipynb"))}


def names() -> list[str]:
    """The names of the notebooks."""
    return sorted(paths())


def read(name: str) -> Any:
    """The notebook, as nbformat has it."""
    import nbformat

    return nbformat.read(paths()[name], as_version=4)


def execute(notebook: Any, folder: Path) -> None:
    """Runs every cell in the folder. CellExecutionError: a cell raised an error."""
    from nbclient import NotebookClient

    checkout = str(FOLDER.parents[1])
    paths = [checkout, *filter(None, [os.environ.get("PYTHONPATH")])]
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    # A progress bar would be stored with the outputs.
    own = {"PYTHONPATH": os.pathsep.join(paths), "TQDM_DISABLE": "1"}
    client.execute(env={**os.environ, **own})
    for cell in notebook.cells:  # times of the run would change each stored file
        cell.metadata.pop("execution", None)


def record(notebook: Any, device: str, commit: str | None) -> None:
    """Notes which commit and which machine made the outputs."""
    facts = machine.facts(device)
    notebook.metadata["tcgemm"] = {
        **{name: facts[name] for name in FACTS},
        "commit": commit or results_file.commit(),
    }


def main(arguments: Sequence[str]) -> int:
    parser = command_line.parser("benchmarks notebooks", __doc__)
    parser.add_argument("notebooks", nargs="*", help=f"{', '.join(names())} (all)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder of the results")
    parser.add_argument("--commit", help="the commit that runs, where there is no git")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.notebooks) - set(names()))
    if unknown:
        parser.error(f"there is no notebook {unknown[0]!r}; expected one of {', '.join(names())}.")
    try:
        import nbformat
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        parser.error(f"{error}. {NEEDED}")
    device = command_line.default_device()
    failure = False
    for name in options.notebooks or names():
        notebook = read(name)
        try:
            with tempfile.TemporaryDirectory() as folder:
                execute(notebook, Path(folder))
        except CellExecutionError as error:
            print(f"{name}: {error}")
            failure = True
            continue
        record(notebook, device, options.commit)
        path = options.out / paths()[name].relative_to(FOLDER)
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        print(f"{name}: executed on {notebook.metadata['tcgemm']['gpu']}", flush=True)
    return int(failure)
