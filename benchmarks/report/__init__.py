"""Writes the results into README.md, pages of docs/ and the pages of results/, and draws them.

python -m benchmarks report                      results/*.json -> pages and pictures
python -m benchmarks report --merge shard.json   first merges another run's rows into results/

In README.md, docs/index.md and docs/performance.md the text between two HTML comments is replaced.
A stale row (benchmarks/current.py) has a mark, and no summary rests on it.
"""

import os
from pathlib import Path

from benchmarks import RESULTS, targets
from benchmarks.report import f32, models, overview, tables
from tcgemm.measure import command_line, results
from tcgemm.measure.results import Results

BEGIN = "<!-- benchmarks: begin, written by python -m benchmarks report -->"
END = "<!-- benchmarks: end -->"
ROOT = RESULTS.parents[1]
FIRST_PAGES = ("README.md", "docs/index.md")  # of the repository and of the site
PAGE = "docs/performance.md"
PICTURES = "docs/pictures"
FIRST_GPU = "h200"  # the file whose numbers the first pages have
TARGETS_NOTE = (
    "Geometric means over cubes (f32: each cube; 2:4 of 16 bits and 1:2: all shapes), and the "
    "largest error over its bound."
)
TITLES = {  # of the pictures
    "ratios_{gpu}.svg": "x torch's speed by kind of product",
    "squares_{gpu}.png": "Square products, x torch's speed by size",
    "f32_{gpu}.png": "Errors by K, and rates by size",
    "models_{gpu}.svg": "Training and decode",
}


def replaced(path: Path, text: str) -> str:
    """The text of a page with what stands between the markers replaced."""
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} lacks the lines {BEGIN!r} and {END!r}; put both back.")
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}"


def images(page: Path, root: Path, gpu: str) -> list[list[str]]:
    """The lines that show each picture of TITLES on a page; [] for one that does not exist."""
    result, stem = [], results.file_name(gpu).removesuffix(".json")
    for name, title in TITLES.items():
        path = root / PICTURES / name.format(gpu=stem)
        line = f"![{title}, {gpu}]({os.path.relpath(path, page.parent)})"
        result.append([line] if path.exists() else [])
    return result


def page_parts(measured: Results, page: Path, root: Path) -> list[str]:
    """What docs/performance.md or results/<gpu>.md says of a GPU, without the title."""
    every, products = page != root / PAGE, overview.of_products(measured)
    kinds, squares, errors, whole = images(page, root, measured.header["gpu"])
    parts = [overview.summary(products)]
    parts += [] if every else [*kinds, overview.table(products)]
    parts += squares
    if every and (lines := targets.summary_lines(products)[0]):
        parts += ["### Targets", TARGETS_NOTE, "\n".join(lines)]
    if cliffs := tables.cliffs(products):
        parts += ["### Even times beside 4096", tables.CLIFF_NOTE, cliffs]
    depths = f32.DEPTHS if every else f32.SHOWN
    parts += f32.page_parts(measured, errors, depths)
    parts += tables.parts(products, every)
    return parts + models.parts(measured, whole)


def pages(root: Path, folder: Path) -> dict[Path, str]:
    """{path: text} of every page of the results in a folder, as they should be.

    They show the pictures that exist.
    """
    parts, texts = [], {}
    for path in sorted(folder.glob("*.json")):
        measured, page = Results.load(path), path.with_suffix(".md")
        gpu = measured.header["gpu"]
        texts[page] = "\n\n".join([f"# {gpu}", *page_parts(measured, page, root)]) + "\n"
        parts += [f"## {gpu}", *page_parts(measured, root / PAGE, root)]
        link = os.path.relpath(page, (root / PAGE).parent)
        parts.append(f"All tables: [{page.relative_to(root)}]({link}).")
        if path.stem == FIRST_GPU:
            for first in (root / name for name in FIRST_PAGES):
                image = images(first, root, gpu)[0]
                texts[first] = replaced(first, "\n\n".join([overview.lines(measured), *image]))
    texts[root / PAGE] = replaced(root / PAGE, "\n\n".join(parts))
    return texts


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = command_line.parser("python -m benchmarks report", __doc__)
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="result files of runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md and docs")
    parser.add_argument("--no-plot", action="store_true", help="nothing that needs matplotlib")
    options = parser.parse_args(argv)
    for path in options.merge:
        new = Results.load(path)
        target = options.results / results.file_name(new.header["gpu"])
        Results.load(target).merge(new).save(target)
    if not options.no_plot:
        from benchmarks.report import pictures

        folders = {"--results": options.results, "--out": options.root / PICTURES}
        pictures.main([str(word) for pair in folders.items() for word in pair])
    for path, text in pages(options.root, options.results).items():
        path.write_text(text)
        print(path)
    return 0
