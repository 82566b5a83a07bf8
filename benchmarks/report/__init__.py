"""Writes the results into README.md, docs/performance.md and the pages of results/, and draws them.

python -m benchmarks report                      results/*.json -> pages and pictures
python -m benchmarks report --merge shard.json   first merges another run's rows into results/
python -m benchmarks report --errors table.json  and an error table of `errors`

results/<gpu>.json --overview--> results/<gpu>-ratios.svg; the H200's: README.md, when to use it
                   |---tables--> docs/performance.md: some sections
                   |-----------> results/<gpu>.md: every section, targets
                   |-measured--> results/<gpu>.png: speed relative to torch by size
results/models/<gpu>.json -----> the same two pages: training and decode of models
results/errors/<gpu>.json -----> the same two pages, results/<gpu>-f32.png: errors by K, rates

In README.md and docs/performance.md the text between two HTML comments is replaced.
"""

from pathlib import Path

from benchmarks import RESULTS, published_sizes
from benchmarks.fp32_errors import plot as error_plot
from benchmarks.fp32_errors import table as error_table
from benchmarks.merge import MODELS, RECORDINGS, kind_of
from benchmarks.models import record
from benchmarks.report import measured, models_table, overview, tables
from tcgemm import _plots
from tcgemm.measure import command_line, results_file

BEGIN = "<!-- benchmarks: begin, written by python -m benchmarks report -->"
END = "<!-- benchmarks: end -->"
ROOT = RESULTS.parents[1]
README = "README.md"
PAGE = "docs/performance.md"
README_GPU = "h200"  # the file whose numbers README.md has
NOTHING = "Nothing was measured yet."
WITHOUT_H100 = """## NVIDIA H100

No products were measured beside torch's on an H100. The planner uses measured rates of its memory,
its L2 and its tensor cores ([GPUs that the planner knows](dev/devices.md))."""


def load(path):
    """The results of a file without published sizes, which have a command of their own."""
    results = results_file.load(path)
    rows = [row for row in results["rows"] if row["set"] != published_sizes.SET]
    return {**results, "rows": rows}


def draw(folder):
    """Writes the pictures of products into a folder of results."""
    for path in folder.glob("*.json"):
        results = load(path)
        fp32 = error_table.load(error_table.path_of(results["header"]["gpu"], folder))
        figures = {
            "-ratios.svg": overview.picture(results),
            ".png": measured.squares(results),
            "-f32.png": error_plot.errors_and_rates(fp32, results),
        }
        for end, figure in figures.items():
            if figure is not None:
                _plots.save(figure, path.with_name(path.stem + end))


def replaced(path, text):
    """The text of a page with what stands between the markers replaced."""
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} lacks the lines {BEGIN!r} and {END!r}; put both back.")
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}"


def readme_text(results, picture):
    """README's part: when to use tcgemm, and the picture if it exists."""
    if picture is None:
        return overview.lines(results)
    gpu = results["header"].get("gpu", "?")
    image = f"![x torch's speed by kind of product, {gpu}](benchmarks/results/{picture})"
    return f"{overview.lines(results)}\n\n{image}"


def pages(root, folder):
    """{path: text} of every page of the results in a folder, as they should be.

    They show the pictures of `draw` that exist.
    """
    readme, parts, texts = NOTHING, [], {}
    for path in sorted(folder.glob("*.json")):
        results = load(path)
        fp32 = error_table.load(error_table.path_of(results["header"]["gpu"], folder))
        names = [f"{path.stem}{end}" for end in ("-ratios.svg", ".png", "-f32.png")]
        images = [name if path.with_name(name).exists() else None for name in names]
        models = record.load(folder / record.FOLDER / path.name)
        drawing = f"pictures/models_{path.stem}.svg"
        sections = models_table.parts(models, f"../../docs/{drawing}")
        text = tables.markdown(results, fp32, images)
        texts[path.with_suffix(".md")] = "\n\n".join([text, *sections]) + "\n"
        parts.append(tables.page(results, fp32, images, models_table.parts(models, drawing)))
        if path.stem == README_GPU and overview.measured_groups(results):
            readme = readme_text(results, images[0])
    if parts and not any(path.stem.startswith("h100") for path in texts):
        parts.append(WITHOUT_H100)
    texts[root / README] = replaced(root / README, readme)
    texts[root / PAGE] = replaced(root / PAGE, "\n\n".join(parts) or NOTHING)
    return texts


def parse(argv):
    parser = command_line.parser("benchmarks report", __doc__)
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="result files of runs")
    parser.add_argument("--errors", type=Path, nargs="+", default=[], help="error tables of runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md and docs")
    parser.add_argument("--no-plot", action="store_true", help="nothing that needs matplotlib")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    for path in options.merge:
        kind = kind_of(path)
        if kind is RECORDINGS:
            raise SystemExit(f"--merge {path}: these are {kind.words}; put them into results/rows.")
        new = kind.module.load(path)
        gpu = new["header"]["gpu"]
        target = options.results / results_file.file_name(gpu)
        target = record.path_of(gpu, options.results) if kind is MODELS else target
        kind.module.save(kind.merge(kind.module.load(target), new), target)
    for path in options.errors:
        new = error_table.load(path)
        error_table.save(error_table.path_of(new["header"]["gpu"], options.results), **new)
    if not options.no_plot:
        draw(options.results)
    for path, text in pages(options.root, options.results).items():
        path.write_text(text)
        print(path)
    return 0
