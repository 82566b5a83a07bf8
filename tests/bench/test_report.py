"""The pages and pictures that are written of results and of error tables."""

import importlib

import pytest

from benchmarks import RESULTS, published_sizes, report
from benchmarks.fp32_errors import measure as fp32_measure
from benchmarks.fp32_errors import table as fp32_table
from benchmarks.report import overview, svg, tables
from tcgemm.bench import protocol, results_file, run
from tcgemm.bench.case import Case
from tcgemm.bench.cases import cases as cases_of

from support.bench_fixtures import highest, measured, report_pages, row, synthetic
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
    assert "| | bf16 TN | bf16 NN | bf16 TT | bf16 NT | f16 TN | f16 NN |" in first
    assert "| 4095^3 | " in first and "**4.00**" in first
    assert "Furthest behind torch: " in first
    assert "[benchmarks/results/h200.md](../benchmarks/results/h200.md)" in first
    every = (folder.folder / "h200.md").read_text()
    assert "The sm80 kernels alone" in every and "| 32 of 64^3 | " in every
    folder.write()
    assert folder.page.read_text() == first
    folder.page.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the lines"):
        folder.write()


def test_readme_says_when_to_use_it(folder):
    folder.write()
    text = folder.readme.read_text()
    assert "odd sizes" not in text, "nothing was measured of int8, of which the same line tells"
    assert "![x torch's speed by kind of product, NVIDIA H200](benchmarks/results/h200-" in text
    picture = (folder.folder / "h200-ratios.svg").read_text()
    assert picture.count("<circle") == sum(
        map(overview.is_product, results_file.load(folder.folder / "h200.json")["rows"])
    )
    assert f'fill="{svg.RED}"' in picture and f'fill="{svg.GREEN}"' in picture


def test_pages_are_those_of_the_results():
    """README.md, docs/performance.md, the pages of results/ and the picture of ratios."""
    for path, text in report.pages(ROOT, RESULTS).items():
        assert path.read_text() == text, f"{path} is old: run python -m benchmarks report"


def test_page_tells_of_the_h100_once(folder):
    folder.write()
    assert "No products were measured beside torch's on an H100" in folder.page.read_text()
    results = synthetic()
    results["header"]["gpu"] = "NVIDIA H100 80GB HBM3"
    results_file.save(results, folder.folder / results_file.file_name(results["header"]["gpu"]))
    folder.write()
    text = folder.page.read_text()
    assert "## NVIDIA H100 80GB HBM3" in text and "No products were measured" not in text


def test_words_of_the_readme_hold():
    """It says where tcgemm is faster and where it is not; a new measurement may change that."""
    spans = overview.spans(results_file.load(RESULTS / "h200.json"))
    for name in ("f32", "int8_tn", "int8_other", "odd"):
        assert spans[name][0] > 1, name
    assert overview.mean(spans["sparse"]) > 1
    assert overview.mean(spans["long_k"]) < 1
    for name, most in (("aligned", 1.05), ("fp8", 1.05), ("few_rows", 1.1)):
        assert 0.95 < overview.mean(spans[name]) < most, name
        assert spans[name][0] < 1 < spans[name][-1], name


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
    found = report_pages(tmp_path)
    found.write()
    assert "Nothing was measured yet." in found.readme.read_text()
    assert "Nothing was measured yet." in found.page.read_text()


def test_every_stored_row_has_a_table():
    # `python -m benchmarks doc000` has the tables of its set.
    for path in RESULTS.glob("*.json"):
        rows = results_file.load(path)["rows"]
        shown = [row for section in tables.SECTIONS for row in section.rows(rows)]
        names = {results_file.key(row) for row in shown}
        rows = [row for row in rows if row["set"] != published_sizes.SET]
        assert all(results_file.key(row) in names or ":" in row["set"] for row in rows)


@pytest.fixture
def pages(tmp_path):
    """The text of docs/performance.md and of results/h200.md that the report writes of all sets."""
    found = report_pages(tmp_path)
    results = protocol.merge(synthetic(), measured())
    case = Case("mm", "e4m3", "NN", 4096, 4096, 4096, set="fp8", self_baseline="TN")
    refused = {"refused": "mat2 must be col_major", "own_ratio": 0.8}
    results_file.put(results, row(case, 150.0), refused)
    results_file.save(results, found.folder / "h200.json")
    found.write()
    return found.page.read_text(), (found.folder / "h200.md").read_text()


def test_report_has_the_dtypes(pages):
    target = "| s8 TN x torch._int_mm | 1.60 | **1.700** (1.700-1.700) | 1.700 | 0.90 | met |"
    assert target in pages[1] and target not in pages[0]
    for text in pages:
        assert "| e4m3 TN | e4m3 TN, fast acc | s8 TN | s8 NN |" in text
        assert "| e4m3 TN, 128x128 scales |" in text and "S, **1.06** (1.06-1.06), 0.99 |" in text
        assert "refused, 0.80 |" in text
        assert "| | M | N | K | all |" in text and "| e4m3 | 1.0" in text
    assert "Batched" in pages[1] and "Batched" not in pages[0]
    assert len(pages[0].splitlines()) < 250


def table():
    """An error table as of an H200, of exact results."""

    def product(a, b):
        return (a.double() @ b.double()).float()

    cases = [case for case in fp32_measure.plan("cpu", size=16) if case[-1] in fp32_table.SHOWN]
    rows = [fp32_measure.measure(*case, "cpu", gemm=product) for case in cases]
    return {"header": {"gpu": "NVIDIA H200", "commit": "abc"}, "rows": rows}


@pytest.fixture(scope="module")
def found():
    return table()


def test_pages_have_errors_and_rates(tmp_path, found):
    written = report_pages(tmp_path)
    results_file.save(highest(), written.folder / "h200.json")
    shard = tmp_path / "shard" / "table.json"
    fp32_table.save(shard, **found)
    written.write("--errors", str(shard))
    assert fp32_table.load(written.folder / "errors" / "h200.json") == found
    every = written.folder / "h200.md"
    met = "| f32 2048 to 8192 x torch.mm | 4.00 | **4.000** (4.000-4.000) | 4.000 | 0.90 | met |"
    assert met in every.read_text()
    for text in (written.page.read_text(), every.read_text()):
        assert "| f32 TN | f32 TN, prepared | f32 TN, spread | f32 NN | f32 NN, spread |" in text
        assert "us, **4.00** (4.00-4.00), 1.10 |" in text
        compared = 12 * (len(fp32_table.TITLES) - len(fp32_table.NOT_COMPARED))
        assert f"Of {compared} results (M = N = 16, TN and NN" in text
        assert f"{compared} are right and err at most as torch's, max and rms." in text
        assert "| 2^±20 an element | **" in text and "| 12 of 12 |" in text
    assert "| K = 4096 |" in written.page.read_text()
    assert "| K = 32 |" not in written.page.read_text() and "| K = 32 |" in every.read_text()
    (written.folder / "errors" / "h200.json").unlink()
    written.write()  # without an error table beside it, pages have the rates alone
    assert "2^±20 an element" not in written.page.read_text()


def test_a_cell_shows_what_is_wrong():
    errors_of = {"max": 0.8512, "rms": 0.0912, "wrong": 0}
    bad = {"max": None, "rms": 123.4, "wrong": 7}
    assert fp32_table._cell({"ours": errors_of, "theirs": bad}) == (
        "**0.85 / 0.091** (Inf / 123, 7 wrong)"
    )


def test_plot(folder):
    pytest.importorskip("matplotlib")
    plot = importlib.import_module("benchmarks.report.plots")
    path = plot.draw(synthetic(), folder.folder / "h200.png")
    assert path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 10_000
    few = {**synthetic(), "rows": [r for r in synthetic()["rows"] if r["m"] == 4095]}
    assert plot.draw(few, folder.folder / "few.png")
    assert plot.draw(results_file.empty(), folder.folder / "none.png") is None


def test_panels_of_the_plot(tmp_path):
    pytest.importorskip("matplotlib")
    plot = importlib.import_module("benchmarks.report.plots")
    results = measured()
    panels = plot._panels(plot.square_rows(results))
    assert [title for _, title in panels] == ["other dtypes"]
    assert {found["dtype"] for found in panels[0][0]} == {"s8", "e4m3", "tf32", "f64"}
    assert plot.draw(results, tmp_path / "x.png").stat().st_size > 10_000


def test_a_picture_of_errors_and_rates(tmp_path, found):
    pytest.importorskip("matplotlib")
    plot_errors = importlib.import_module("benchmarks.fp32_errors.plot")
    path = plot_errors.draw(found, highest(), tmp_path / "h200-f32.png")
    assert path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 20_000
    assert plot_errors.draw(found, results_file.empty(), tmp_path / "few.png")
    assert plot_errors.draw(None, highest(), tmp_path / "none.png") is None
    rates = plot_errors.cubes(highest(), "TN")
    assert [size for size, _ in rates["spread"]] == [2048, 4096, 8192]
    assert {size for size, _ in rates["ours"]} == {size for size, _ in rates["theirs"]}
