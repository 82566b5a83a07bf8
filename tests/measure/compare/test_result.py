"""The result of tcgemm.compare: text, HTML, pandas frame, picture and file."""

import itertools
import json
import re
import sys
from xml.etree import ElementTree

import pytest

from tcgemm.measure import results
from tcgemm.measure.case import Case
from tcgemm.measure.compare import Comparison, load

from support import bench_fixtures
from support.error_asserts import assert_error_message

CASE = Case("mm", "bf16", "TN", 4096, 4096, 4096)


BOTH = {"torch": 1.1, "torch.compile": 1.0}


def row(ratios=BOTH, **fields):
    usual = {"gbps": 503.3, "why": "the lowest estimate"}
    return bench_fixtures.row(CASE, 200.0, ratios, **usual | fields)


FACTS = {"gpu": "NVIDIA H200", "driver": "580.1", "torch": "2.11.0", "tcgemm": "0.1.0", "date": "x"}
NONE = dict.fromkeys(("kernel", "us", "iqr_us", "tflops", "gbps", "clock_mhz", "power_w"))
NONE |= {"max_error_ratio": None, "exact": None, "ratios": {}, "baselines": {}, "why": "no kernel"}
ROWS = [
    row(),
    row({"torch": 0.9}, dtype="e4m3", refused={"torch.compile": "mat2 <must> be & so"}),
    row(m=16, batch=4, max_error_ratio=7.0, exact=False),
    row(m=8) | NONE,
]


@pytest.fixture
def result():
    return Comparison([dict(row) for row in ROWS], dict(FACTS))


def test_text(result):
    text = str(result)
    assert repr(result) == text
    lines = text.splitlines()
    assert lines[0] == "tcgemm 0.1.0 on NVIDIA H200 (driver 580.1), torch 2.11.0, x"
    titles = ["x torch", "x torch.compile", "error", "kernel", "TFLOP/s", "GB/s", "MHz", "W", "± %"]
    assert all(title in lines[1] for title in titles) and "epilogue" not in lines[1]
    assert "4x16x4096x4096" in lines[4] and "1.100" in lines[2] and "0.900" in lines[3]
    assert "x torch: geometric mean 1.029 (0.900 to 1.100, 3 rows)" in text
    assert "row 2: torch.compile did not run: mat2 <must> be & so" in text
    assert "row 3: WRONG RESULT" in text and "row 4: no kernel" in text
    assert "row 1, 2, 3: the lowest estimate" in text
    assert str(Comparison([])).startswith("tcgemm ")


@pytest.mark.parametrize(("ratio", "is_told"), [(1518.0, True), (0.02, True), (19.9, False)])
def test_a_ratio_beyond_20_has_a_sentence(ratio, is_told):
    far = row({"torch": ratio})
    times = f"200.0 us beside {200 * ratio:.1f} us"
    sentence = f"x torch is {ratio:.4g}, beyond a factor of 20: {times}; measure it again"
    for text in (str(Comparison([far], dict(FACTS))), results.line("mm", far)):
        assert (sentence in text) is is_told


def test_dropped_samples_have_a_sentence():
    some = Comparison([row(facts={"busy_samples": share}) for share in (0.37, 0.02, 0.98)], {})
    assert "row 1, 2: other processes had the CPU in less than half of the samples, wh" in str(some)
    assert "row 3: other processes had the CPU in more than half of the samples, which" in str(some)


def test_html(result):
    cells = [*ElementTree.fromstring(f"<p>{result._repr_html_()}</p>").itertext()]
    assert "4096x4096x4096" in cells and "x torch.compile" in cells
    assert any("mat2 <must> be & so" in cell for cell in cells)


def test_pandas(result):
    pandas = pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 4
    assert list(frame["x torch"])[:2] == [1.1, 0.9] and frame["torch us"][0] == pytest.approx(220.0)
    assert frame["torch.compile refused"][1] == "mat2 <must> be & so"
    assert not any(isinstance(value, dict) for value in frame.iloc[0])


def test_plot(result, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    ax = result.plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        *("tcgemm", "torch", "torch.compile")
    ]
    assert len(ax.patches) == 9 and ax.get_xlabel() == "TFLOP/s"
    widths = [patch.get_width() for patch in ax.patches]
    assert widths[:4] == pytest.approx([687.2, 687.2, 687.2, 687.2 / 1.1])
    ax.figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
    axes = pyplot.figure().subplots()
    assert result.plot(axes) is axes
    named = Comparison([row(facts={"weight": "int4"}, epilogue="bias")]).plot()
    assert [text.get_text() for text in named.get_yticklabels()] == [
        "bf16 x int4 TN 4096x4096x4096 bias"
    ]
    pyplot.close("all")
    pieces = ["tcgemm.compare: ", "no row with a time", "nothing to plot"]
    with pytest.raises(RuntimeError, match=".*".join(pieces)):
        Comparison([ROWS[3]]).plot()


@pytest.mark.parametrize("own", [True, False], ids=["own axes", "the caller's"])
def test_many_sizes_stay_readable(own):
    """No two names overlap, and the shortest bar is seen."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    sizes = [64 * 2**step for step in range(8)] * 3
    rows = [row(m=m, tflops=m / 20) for m in sizes]
    axes = None if own else pyplot.figure(figsize=(6, 4)).subplots()
    ax = Comparison(rows, dict(FACTS)).plot(axes)
    ax.figure.canvas.draw()
    names = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert len(names) == len(rows)
    tops = sorted((box.y0, box.y1) for box in names)
    assert all(below[1] <= above[0] + 1 for below, above in itertools.pairwise(tops))
    bars = [patch.get_window_extent() for patch in ax.patches]
    assert min(bar.width for bar in bars) > 3
    legend, area = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.y0 >= area.y1 - 1 and legend.y1 <= ax.title.get_window_extent().y0 + 1
    pyplot.close("all")


@pytest.mark.parametrize(
    ("module", "call"), [("pandas", "to_pandas"), ("matplotlib", "plot")], ids=["pandas", "plot"]
)
def test_optional_packages_are_named(result, monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)  # so that its import fails
    pieces = [f"tcgemm.compare: {call} needs {module}", f"pip install {module}"]
    assert_error_message(getattr(result, call), pieces)


def test_a_file_holds_everything(result, tmp_path):
    path = tmp_path / "h200.json"
    result.save(path)
    text = json.loads(path.read_text())
    assert text["header"] == FACTS and len(text["rows"]) == len(ROWS)
    assert "batch" not in text["rows"][0] and text["rows"][2]["batch"] == 4
    copy = load(path)
    assert copy == result and str(copy) == str(result)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"rows": {}, "header": {}}', "has no header and list of rows"),
        ('{"rows": [{"m": 1}], "header": {}}', "a row without function or us"),
        ('{"rows": [{"function": "mm", "us": 1, "m": 1}], "header": {}}', "without dtype, layout"),
        ('{"rows": [3], "header": {}}', "a row without function"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(RuntimeError, match=rf"^tcgemm.compare: {re.escape(str(path))} .*{words}"):
        load(path)
    assert_error_message(lambda: load(path), ["pass a file"])
