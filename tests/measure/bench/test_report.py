"""The pages and pictures that are written of results and of error tables."""

import pytest

from benchmarks import RESULTS, published_sizes, report
from benchmarks.fp32_errors import measure as fp32_measure
from benchmarks.fp32_errors import table as fp32_table
from benchmarks.fp32_errors.plot import errors_and_rates
from benchmarks.report import measured, tables
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


def test_squares():
    pytest.importorskip("matplotlib")
    rows = synthetic()["rows"]
    figure = measured.squares(synthetic())
    shown = sum(len(line.get_xdata()) for axes in figure.axes for line in axes.get_lines()[:-1])
    assert shown == len(measured.square_rows(synthetic())) > 0
    few = {**synthetic(), "rows": [row for row in rows if row["m"] == 4095]}
    assert measured.squares(few)
    assert measured.squares(results_file.empty()) is None


def test_a_picture_of_errors_and_rates(found):
    pytest.importorskip("matplotlib")
    titles = [axes.get_title("left") for axes in errors_and_rates(found, highest()).axes]
    assert {"normal", "TFLOPS, TN"} <= set(titles)
    assert errors_and_rates(found, results_file.empty())
    assert errors_and_rates(None, highest()) is None


def test_the_pictures_of_a_folder_have_the_name_of_the_gpu(folder):
    pytest.importorskip("matplotlib")
    report.draw(folder.folder)
    names = {path.name for path in folder.folder.iterdir() if path.suffix in (".png", ".svg")}
    assert names == {"h200-ratios.svg", "h200.png"}
