"""The pages and pictures that are written of results and of error tables."""

import pytest

from benchmarks import RESULTS, current, report, targets
from benchmarks.report import f32, models, overview, tables
from tcgemm.measure import results, work
from tcgemm.measure.cases import cases as cases_of
from tcgemm.measure.results import Results
from tcgemm.measure.work import TORCH

from support.bench_fixtures import HEADER, highest, report_pages, row, row_of_model, synthetic
from support.source_tree import ROOT

FILES = sorted(RESULTS.glob("*.json"))


def test_report_writes_between_the_markers(tmp_path):
    pages = report_pages(tmp_path, f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    pictures = tmp_path / report.PICTURES
    pictures.mkdir(parents=True)
    for gpu in ("h100", "h200"):
        measured = synthetic()
        measured.header = HEADER | {"gpu": f"NVIDIA {gpu.upper()}"}
        measured.save(pages.folder / f"{gpu}.json")
        (pictures / f"ratios_{gpu}.svg").touch()
    pages.write()
    readme, home, page = (path.read_text() for path in (*pages.first_pages, pages.page))
    for text in (readme, home, page):
        assert text.startswith(f"before\n{report.BEGIN}")
        assert text.endswith(f"{report.END}\nafter\n") and "\nold\n" not in text
    assert "| 4095^3 | " in page and "**4.00**" in page
    assert "| 32 of 64^3 | " in (pages.folder / "h200.md").read_text()
    assert "(pictures/ratios_h100.svg)" in page and "(pictures/ratios_h200.svg)" in page
    assert "(docs/pictures/ratios_h200.svg)" in readme and "ratios_h100" not in readme + home
    assert home.replace("(pictures/", "(docs/pictures/") == readme
    pages.write()
    assert pages.page.read_text() == page
    case = work.case_fields(cases_of("squares")[0], "cuda")
    failed = work.failed(case, RuntimeError("No kernel fits.\nmore"))
    assert failed["why"] == "tcgemm failed: No kernel fits."
    Results.of([failed | {"commit": "def"}], HEADER).save(tmp_path / "shard")
    pages.write("--merge", str(tmp_path / "shard"))
    assert "1 cases failed" in pages.page.read_text()
    pages.page.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the lines"):
        pages.write()


def test_pages_are_those_of_the_results():
    pages = report.pages(ROOT, RESULTS)
    assert len(pages) > 3
    for path, text in pages.items():
        assert path.read_text() == text, f"{path} is old: run python -m benchmarks report"


def test_every_stored_product_has_a_table():
    for path in FILES:
        rows = overview.of_products(Results.load(path)).rows
        shown = {results.key(r) for section in tables.SECTIONS for r in section.rows(rows)}
        assert shown == {results.key(row) for row in rows}


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
    for fields, is_stale in (
        ({"kernel": launch}, False),
        ({"kernel": kernel}, False),  # from before the cluster and the slices were stored
        ({"kernel": f"{kernel}@{'4' if division[0] != '4' else '1'}{division[1:]}"}, True),
        ({"kernel": f"{launch}0"}, True),
        ({"kernel": "sm80_bf16_f32_64x64x64_w1_s4_tn"}, True),
        ({"facts": {current.OUTDATED: "its weight was loaded early"}}, True),
        (row(next(case for case in cases_of("squares") if not case.graph), 10.0), False),
        (row(cases_of("squares", kernel="sm80")[0], 10.0), False),
    ):
        assert current.is_stale(today | fields, "NVIDIA H200") == is_stale, fields
    assert not current.is_stale(today | {"kernel": "sm120_bf16"}, "a GPU without a plan")


def test_stale_rows_have_a_mark_and_a_footnote():
    one, two = (row(case, 10.0, {TORCH: 0.5}) for case in cases_of("small-m")[:2])
    two["kernel"] = "sm80_bf16_f32_64x64x64_w1_s4_tn"
    title, table = tables.parts(Results.of([one, two], HEADER), True)
    assert table.count(current.MARK) == 2 and table.endswith(current.FOOTNOTE)
    line = f"| {tables.size_of(two)} | 10 us, **0.50** {current.MARK} |"
    assert title == "### Few rows" and line in table.splitlines()
    assert overview.summary(Results.of([one, two], HEADER)).count("0.50") == 1
    assert current.MARK not in tables.parts(Results.of([one], HEADER), True)[1]


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
    assert [one["function"] for one in models.shown(Results.of(rows, HEADER))] == ["torch"]


def test_a_picture_of_errors_and_rates():
    pytest.importorskip("matplotlib")

    def titles(rows):
        figure = f32.errors_and_rates(Results.of(rows, HEADER))
        return {axes.get_title(loc="left") for axes in figure.axes} if figure else None

    stored = Results.load(RESULTS / "h200.json").rows
    found = [one for one in stored if one["set"] == "errors"]
    assert "normal" in titles(found) and "TFLOPS, TN" not in titles(found)
    assert {"TFLOPS, TN", "TFLOPS, NN", "normal"} <= titles([*found, *highest().rows])
    assert titles(highest().rows) is None
