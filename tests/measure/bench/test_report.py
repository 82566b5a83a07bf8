"""The pages and pictures that are written of results and of error tables."""

import shutil

import pytest

from benchmarks import RESULTS, current, report, targets
from benchmarks.experiments import errors
from benchmarks.report import f32_picture, f32_table, models, overview, tables
from tcgemm.measure import results, work
from tcgemm.measure.cases import cases as cases_of
from tcgemm.measure.results import Results
from tcgemm.measure.work import TORCH

from support.bench_fixtures import HEADER, highest, report_pages, row, row_of_model, synthetic
from support.source_tree import ROOT

FILES = sorted(RESULTS.glob("*.json"))


@pytest.fixture
def folder(tmp_path):
    pages = report_pages(tmp_path, f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    synthetic().save(pages.folder / "h200.json")
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
    case = cases_of("squares")[0]
    failed = work.failed(work.case_fields(case, "cuda"), RuntimeError("No kernel fits.\nmore"))
    assert failed["why"] == "tcgemm failed: No kernel fits."
    path = folder.folder / "elsewhere.txt"
    Results.of([failed | {"commit": "def"}], {"gpu": "NVIDIA H200", "torch": "2"}).save(path)
    folder.write("--merge", str(path))
    assert "1 cases failed" in folder.page.read_text()


def test_every_stored_product_has_a_table():
    for path in FILES:
        rows = overview.of_products(Results.load(path)).rows
        table_rows = [row for section in tables.SECTIONS for row in section.rows(rows)]
        names = {results.key(row) for row in table_rows}
        assert all(results.key(row) in names or ":" in row["set"] for row in rows)


def test_the_stored_results_are_small():
    """A page of 3 MB loads in a second; git keeps each version."""
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 3e6


def statements(rows):
    """All that pages and pictures state on the whole, as texts."""
    products = overview.of_products(rows)
    values = [
        overview.lines(rows),
        overview.table(rows),
        overview.measured_groups(rows),
        overview.summary(products),
        tables.cliffs(products),
        targets.outcomes(products),
        overview.products(rows),
        models.shown(rows),
        models.of_set(rows, "swap"),
    ]
    return list(map(repr, values))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_summary_rests_on_a_stale_row(path):
    rows = Results.load(path)
    stale = current.stale(rows)
    assert len(stale) > 50
    expected = statements(rows)
    for one in stale:
        one["us"], one["ratios"] = 1e9, dict.fromkeys(one["ratios"], 1e-9)
        one["repetitions"], one["clock_mhz"], one["power_w"] = [], 1.0, 1e9
        one["max_error_ratio"], one["exact"] = 0.5, one["exact"] and False
    assert statements(rows) == expected


def test_a_row_is_stale_without_todays_kernel_cluster_or_slices():
    case = cases_of("squares")[0]
    today = row(case, 10.0, {TORCH: 1.0})
    launch = today["kernel"]
    kernel, _, division = launch.partition("@")
    for name, is_stale in (
        (launch, False),
        (kernel, False),  # a row from before the cluster and the slices were stored
        (f"{kernel}@{'4' if division[0] != '4' else '1'}{division[1:]}", True),
        (f"{launch}0", True),
        ("sm80_bf16_f32_64x64x64_w1_s4_tn", True),
    ):
        assert current.is_stale(today | {"kernel": name}, "NVIDIA H200") == is_stale, name
    early = today | {"facts": {current.OUTDATED: "its weight was loaded early"}}
    assert current.is_stale(early, "NVIDIA H200")
    unknown = today | {"kernel": "sm120_bf16"}  # the planner does not know this GPU
    assert not current.is_stale(unknown, "NVIDIA RTX PRO 6000")
    host = row(next(c for c in cases_of("squares") if not c.graph), 10.0, {TORCH: 1.0})
    forced = row(next(iter(cases_of("squares", kernel="sm80"))), 10.0, {TORCH: 1.0})
    assert forced["kernel"].startswith("sm80_")
    assert not any(current.is_stale(one, "NVIDIA H200") for one in (host, forced))


def test_stale_rows_have_a_mark_and_a_footnote():
    one, two = (row(case, 10.0, {TORCH: 0.5}) for case in cases_of("small-m")[:2])
    two["kernel"] = "sm80_bf16_f32_64x64x64_w1_s4_tn"
    (title, table) = tables.parts(Results.of([one, two], HEADER), True)
    assert table.count(current.MARK) == 2 and table.endswith(current.FOOTNOTE)
    marked = next(
        line for line in table.splitlines() if line.startswith(f"| {tables.size_of(two)}")
    )
    assert title == "### Few rows" and f"**0.50** {current.MARK}" in marked
    assert overview.summary(Results.of([one, two], HEADER)).count("0.50") == 1
    (title, table) = tables.parts(Results.of([one], HEADER), True)
    assert current.MARK not in table


def test_a_stale_model_has_a_mark():
    rows = [
        row_of_model("models", name, us, **fields)
        for name, us, fields in (
            ("torch", 500.0, {"facts": {"peak_bytes": 2e9, "error": 0.02}}),
            ("Linear", 250.0, {"ratios": {TORCH: 2.0}, "facts": {current.OUTDATED: "older"}}),
            ("use", None, {"why": "RuntimeError: none"}),
        )
    ]
    text = "\n".join(models.parts(Results.of(rows, HEADER), []))
    assert "2000, **1.00**, 2.00 GB, 2 %" in text and f"4000, **2.00** {current.MARK} |" in text
    assert "| failed |" in text and current.FOOTNOTE in text
    assert "- use, decode, 8B, 4 blocks, 1 x 1024, in a CUDA graph: RuntimeError: none" in text
    assert [one["function"] for one in models.shown(Results.of(rows, HEADER))] == ["torch"]


@pytest.fixture(scope="module")
def found():
    """Rows of the set errors as of an H200, of exact results."""

    def product(a, b):
        return (a.double() @ b.double()).float()

    rows = [
        errors.measure(data, layout, 16, 16, k, "cpu", gemm=product)
        for data in f32_table.TITLES
        for layout in errors.LAYOUTS
        for k in f32_table.SHOWN
    ]
    for one in rows:
        one["kernel"] = current.planned(work.case_from(one), "H200")[1]
        one["commit"] = "abc"
    return Results.of(rows, HEADER)


def test_pages_have_errors_and_rates(tmp_path, found):
    pages = report_pages(tmp_path)
    highest().save(pages.folder / "h200.json")
    found.save(tmp_path / "shard.json")
    pages.write("--merge", str(tmp_path / "shard.json"))
    every = (pages.folder / "h200.md").read_text()
    line = "| f32 2048 to 8192 x torch.mm | 4.00 | **4.000** (4.000-4.000) | 4.000 | 0.90 | met |"
    assert line in every
    for text in (pages.page.read_text(), every):
        assert "us, **4.00** (4.00-4.00), 1.10 |" in text
        count = 12 * (len(f32_table.TITLES) - len(errors.NOT_COMPARED))
        assert f"{count} are right and err at most as torch's, max and rms." in text
    highest().save(pages.folder / "h200.json")
    pages.write()  # without rows of errors, pages have the rates alone
    assert "2^±20 an element" not in pages.page.read_text()


def test_pages_of_two_gpus_show_pictures_of_their_own(folder):
    shutil.copy(folder.folder / "h200.json", folder.folder / "h100.json")
    pictures = folder.root / report.PICTURES
    pictures.mkdir(parents=True)
    for gpu in ("h100", "h200"):
        (pictures / f"ratios_{gpu}.svg").touch()
    other = Results.load(folder.folder / "h100.json")
    other.header["gpu"] = "NVIDIA H100"
    other.save(folder.folder / "h100.json")
    folder.write()
    text = folder.page.read_text()
    assert "(pictures/ratios_h100.svg)" in text and "(pictures/ratios_h200.svg)" in text
    assert "(docs/pictures/ratios_h200.svg)" in folder.readme.read_text()
    assert "ratios_h100" not in folder.readme.read_text()


def test_a_picture_of_errors_and_rates(found):
    pytest.importorskip("matplotlib")

    def titles(measured):
        figure = f32_picture.errors_and_rates(measured)
        return {axes.get_title(loc="left") for axes in figure.axes}

    assert "normal" in titles(found) and "TFLOPS, TN" not in titles(found)
    both = Results.of([*found.rows, *highest().rows], HEADER)
    assert {"TFLOPS, TN", "TFLOPS, NN", "normal"} <= titles(both)
    assert f32_picture.errors_and_rates(highest()) is None
