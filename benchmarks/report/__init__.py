"""Writes the results into the README and the pages of results/, and draws them.

python -m benchmarks report                      results/*.json -> README tables, results/*.png
python -m benchmarks report --merge shard.json   first merges another run's rows into results/
python -m benchmarks report --errors table.json  and an error table of `errors`

results/<gpu>.json --tables--> README.md, between two HTML comments: targets and some sections
                   |---------> results/<gpu>.md: every section
                   |--plots--> results/<gpu>.png: speed relative to torch by size
results/errors/<gpu>.json ---> the same two pages, results/<gpu>-f32.png: errors by K, rates
"""

import argparse
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.fp32_errors import table as error_table
from benchmarks.report.tables import markdown
from tcgemm.bench import protocol, results_file

BEGIN = "<!-- benchmarks: begin, written by python -m benchmarks report -->"
END = "<!-- benchmarks: end -->"
README = RESULTS.parents[1] / "README.md"


def draw(path, results, found):
    """The file names of both pictures; None if there is nothing to draw."""
    from benchmarks.fp32_errors import plot  # needs matplotlib, which tables do not
    from benchmarks.report import plots

    drawn = plots.draw(results, path.with_suffix(".png"))
    curves = plot.draw(found, results, path.with_name(f"{path.stem}-f32.png"))
    return tuple(picture and picture.name for picture in (drawn, curves))


def write_readme(readme, text):
    """Replaces the text between the markers."""
    old = readme.read_text()
    if BEGIN not in old or END not in old:
        raise ValueError(f"{readme} lacks the lines {BEGIN!r} and {END!r}; put both back.")
    before, rest = old.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    readme.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def parse(argv):
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks report", description=__doc__, formatter_class=text
    )
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="result files of runs")
    parser.add_argument("--errors", type=Path, nargs="+", default=[], help="error tables of runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--no-plot", action="store_true", help="tables only")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    for path in options.merge:
        new = results_file.load(path)
        target = options.results / results_file.file_name(new["header"]["gpu"])
        results_file.save(protocol.merge(results_file.load(target), new), target)
    for path in options.errors:
        new = error_table.load(path)
        error_table.save(error_table.path_of(new["header"]["gpu"], options.results), **new)
    parts = []
    for path in sorted(options.results.glob("*.json")):
        results = results_file.load(path)
        found = error_table.load(error_table.path_of(results["header"]["gpu"], options.results))
        images = (None, None) if options.no_plot else draw(path, results, found)
        page = path.with_suffix(".md")
        page.write_text(markdown(results, found, images) + "\n")
        parts.append(markdown(results, found, images, page=page.name))
    write_readme(options.readme, "\n\n".join(parts) or "Nothing was measured yet.")
    print(f"{len(parts)} result files -> {options.readme}")
    return 0
