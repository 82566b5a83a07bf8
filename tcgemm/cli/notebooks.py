"""tcgemm notebooks: copies the notebooks into a folder, to be opened by Jupyter.

    tcgemm notebooks                lists them
    tcgemm notebooks my-notebooks   copies them into a folder, which is made if it does not exist

They need packages that tcgemm does not: pip install 'tcgemm[notebooks]'. With a GPU they measure
it. Without one they show results that are stored with tcgemm, and say so.
"""

import json
import re
import sys
from pathlib import Path

from tcgemm import _shipped
from tcgemm.measure import command_line

PAGES = "https://github.com/tcgemm/tcgemm/blob/main/docs/"


def paths() -> dict[Path, Path]:
    """{path inside of the folder: path} of the notebooks; RuntimeError if there are none."""
    folder = _shipped.folder("benchmarks/notebooks", "notebooks", "**/*.ipynb", "notebooks")
    return {path.relative_to(folder): path for path in sorted(folder.rglob("*.ipynb"))}


def title(path: Path) -> str:
    """The first heading of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).split("\n")[0].removeprefix("# ")


def copy(path: Path, target: Path) -> None:
    """Copies a notebook. Links to pages of a checkout become links to the pages on the web."""
    text = path.read_text(encoding="utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(re.sub(r"\]\((?:\.\./)+docs/", f"]({PAGES}", text), encoding="utf-8")


def run(arguments: list[str]) -> int:
    """Copies or lists the notebooks; 1 if a file is there already."""
    parser = command_line.parser("tcgemm notebooks", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to copy them")
    parser.add_argument("--force", action="store_true", help="overwrite notebooks that are there")
    options = parser.parse_args(arguments)
    notebooks = paths()
    width = max(len(str(name)) for name in notebooks)
    if options.folder is None:
        for name, path in notebooks.items():
            print(f"{name!s:{width}}  {title(path)}")
        print("\ntcgemm notebooks FOLDER copies them.")
        return 0
    there = [str(name) for name in notebooks if (options.folder / name).exists()]
    if there and not options.force:
        print(
            f"tcgemm notebooks: {options.folder} has {', '.join(there)} already; name another "
            "folder, or pass --force to overwrite them.",
            file=sys.stderr,
        )
        return 1
    for name, path in notebooks.items():
        copy(path, options.folder / name)
        print(options.folder / name)
    return 0
