"""The pages and pictures that are written of results and of error tables."""

import importlib

import pytest

from benchmarks import RESULTS, published_sizes, report
from benchmarks.fp32_errors import measure as fp32_measure
from benchmarks.fp32_errors import table as fp32_table
from benchmarks.report import tables
from tcgemm.measure import results_file, run
from tcgemm.measure.cases import cases as cases_of

from support.bench_fixtures import highest, report_pages, synthetic
from support.source_tree import ROOT


@pytest.fixture
def folder(tmp_path):
    pages = report_pages(tmp_path, f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    results_file.save(synthetic(), pages.folder / "h200.json")
    return pages


def test_report_writes_between_the_markers(folder):
    folder.write()
    for page in (folder.readme, folder.page):
        text = page.read_text()
        assert text.startswith(f"before\n{report.BEGIN}")
        assert text.endswith(f"{report.END}\nafter\n")
        assert "\nold\n" not in text
    first = folder.page.read_text()
    assert "| 4095^3 | " in first and "**4.00**" in first
    assert "| 32 of 64^3 | " in (folder.folder / "h200.md").read_text()
    folder.write()
    assert folder.page.read_text() == first
    folder.page.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the lines"):
        folder.write()


def test_pages_are_those_of_the_results():
    """README.md, docs/performance.md and the pages of results/."""
    pages = report.pages(ROOT, RESULTS)
    assert len(pages) > 3
    for path, text in pages.items():
        assert path.read_text() == text, f"{path} is old: run python -m benchmarks report"


def test_report_merges_shards_and_shows_failures(folder):
    shard = results_file.empty()
    shard["header"] = {"gpu": "NVIDIA H200", "torch": "2"}
    case = cases_of("squares")[0]
    row, detail = run.failed(case, "NVIDIA H200", "def", RuntimeError("No kernel fits.\nmore"))
    assert detail["error"] == "RuntimeError: No kernel fits."
    results_file.put(shard, row, detail)
    results_file.save(shard, folder.folder / "elsewhere.txt")
    folder.write("--merge", str(folder.folder / "elsewhere.txt"))
    assert "1 cases failed" in folder.page.read_text()


def test_report_of_nothing(tmp_path):
    pages = report_pages(tmp_path)
    pages.write()
    assert "Nothing was measured yet." in pages.readme.read_text()
    assert "Nothing was measured yet." in pages.page.read_text()


def test_every_stored_row_has_a_table():
    # `python -m benchmarks doc000` has the tables of its set.
    for path in RESULTS.glob("*.json"):
        rows = results_file.load(path)["rows"]
        table_rows = [row for section in tables.SECTIONS for row in section.rows(rows)]
        names = {results_file.key(row) for row in table_rows}
        rows = [row for row in rows if row["set"] != published_sizes.SET]
        assert all(results_file.key(row) in names or ":" in row["set"] for row in rows)


@pytest.fixture(scope="module")
def found():
    """An error table as of an H200, of exact results."""

    def product(a, b):
        return (a.double() @ b.double()).float()

    cases = [case for case in fp32_measure.plan("cpu", size=16) if case[-1] in fp32_table.SHOWN]
    rows = [fp32_measure.measure(*case, "cpu", gemm=product) for case in cases]
    return {"header": {"gpu": "NVIDIA H200", "commit": "abc"}, "rows": rows}


def test_pages_have_errors_and_rates(tmp_path, found):
    pages = report_pages(tmp_path)
    results_file.save(highest(), pages.folder / "h200.json")
    shard = tmp_path / "shard" / "table.json"
    fp32_table.save(shard, **found)
    pages.write("--errors", str(shard))
    assert fp32_table.load(pages.folder / "errors" / "h200.json") == found
    every = (pages.folder / "h200.md").read_text()
    line = "| f32 2048 to 8192 x torch.mm | 4.00 | **4.000** (4.000-4.000) | 4.000 | 0.90 | met |"
    assert line in every
    for text in (pages.page.read_text(), every):
        assert "us, **4.00** (4.00-4.00), 1.10 |" in text
        count = 12 * (len(fp32_table.TITLES) - len(fp32_table.NOT_COMPARED))
        assert f"{count} are right and err at most as torch's, max and rms." in text
    (pages.folder / "errors" / "h200.json").unlink()
    pages.write()  # without an error table beside it, pages have the rates alone
    assert "2^±20 an element" not in pages.page.read_text()


def test_plot(folder):
    pytest.importorskip("matplotlib")
    plot = importlib.import_module("benchmarks.report.plots")
    path = plot.draw(synthetic(), folder.folder / "h200.png")
    assert path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 10_000
    few = {**synthetic(), "rows": [r for r in synthetic()["rows"] if r["m"] == 4095]}
    assert plot.draw(few, folder.folder / "few.png")
    assert plot.draw(results_file.empty(), folder.folder / "none.png") is None


def test_a_picture_of_errors_and_rates(tmp_path, found):
    pytest.importorskip("matplotlib")
    plot_errors = importlib.import_module("benchmarks.fp32_errors.plot")
    path = plot_errors.draw(found, highest(), tmp_path / "h200-f32.png")
    assert path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 20_000
    assert plot_errors.draw(found, results_file.empty(), tmp_path / "few.png")
    assert plot_errors.draw(None, highest(), tmp_path / "none.png") is None
