"""The calls that a tcgemm.use takes, by dtype, by size, by a table; its report and errors."""

import json
from types import SimpleNamespace

import pytest
import torch

import tcgemm
from tcgemm.override import choices

from support.uses import integers


def is_taken(u, *shape, dtype=torch.float32, layout="NN"):
    """Does the use take a product of this size?"""
    m, n, k = shape
    before = u.report().taken
    a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype)
    b = b.t().contiguous().t() if layout[0] == "T" else b
    torch.mm(a, b)
    return u.report().taken > before


def reason(u):
    (row,) = u.report().rows
    return row.reason


@pytest.mark.parametrize("dtypes", [(torch.bfloat16,), ("bf16",), ["bfloat16"], "torch.bfloat16"])
def test_dtypes(dtypes):
    with tcgemm.use(dtypes=dtypes) as u:
        assert is_taken(u, 4, 5, 6, dtype=torch.bfloat16)
        assert not is_taken(u, 4, 5, 6)
    assert u.report().reasons == {"torch.float32 is not among dtypes": 1}


def test_min_size():
    with tcgemm.use(min_size=8) as u:
        assert is_taken(u, 8, 8, 8)
        assert not is_taken(u, 8, 7, 64)
    assert u.report().reasons == {"m, n or k is below min_size, 8": 1}


def test_min_flops():
    with tcgemm.use(min_flops=2 * 8**3) as u:
        assert is_taken(u, 8, 8, 8)
        assert not is_taken(u, 8, 8, 7)
        torch.bmm(integers(2, 8, 4), integers(2, 4, 8))
    assert u.report().taken == 2


def row(ratio, m, n, k, dtype="f32", layout="TN", batch=1):
    sizes = {"batch": batch, "m": m, "n": n, "k": k}
    return {"function": "mm", "dtype": dtype, "layout": layout, **sizes, "ratios": {"torch": ratio}}


ROWS = [row(1.3, 64, 64, 64), row(0.5, 8, 8, 8), row(1.0, 8, 8, 8, layout="NN"), row(None, 1, 1, 1)]


@pytest.mark.parametrize("form", ["list", "object", "file", "mapping"])
def test_table(form, tmp_path):
    saved = {"version": 1, "facts": {}, "rows": ROWS}
    file = tmp_path / "table.json"
    file.write_text(json.dumps(saved))
    forms = {"list": ROWS, "object": SimpleNamespace(rows=ROWS), "file": file, "mapping": saved}
    with tcgemm.use(table=forms[form]) as u:
        assert is_taken(u, 64, 64, 64, layout="TN")
        assert is_taken(u, 128, 64, 32, layout="TN")  # its nearest row is 64 x 64 x 64
        assert not is_taken(u, 8, 16, 8, layout="TN")
        assert is_taken(u, 8, 16, 8)
        assert not is_taken(u, 8, 16, 8, dtype=torch.float64)
    assert set(u.report().reasons) == {
        "torch is faster at the nearest size of the table, 8 x 8 x 8: tcgemm has 0.50 of its speed",
        "the table has no row of f64 in layout NN",
    }


def test_the_table_knows_batches():
    rows = [row(0.5, 8, 8, 8, layout="NN"), row(2.0, 8, 8, 8, layout="NN", batch=64)]
    with tcgemm.use(table=rows) as u:
        torch.bmm(integers(32, 8, 8), integers(32, 8, 8))
        torch.bmm(integers(2, 8, 8), integers(2, 8, 8))
    assert (u.report().taken, u.report().left) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"function": "QuantLinear"},
        {"epilogue": "tensor-scales+sparse"},
        {"epilogue": "prepared"},
        {"accumulation": "f16"},
        {"ratios": {}},
        {"dtype": "f64"},
        {"layout": "NN"},
    ],
)
def test_rows_about_something_else_do_not_decide(other):
    rows = [row(0.5, 64, 64, 64), {**row(2.0, 8, 8, 8), **other}]
    with tcgemm.use(table=rows) as u:
        assert not is_taken(u, 8, 8, 8, layout="TN")


@pytest.mark.parametrize("wrong", [{"max_error_ratio": 1.5}, {"exact": False}])
def test_a_size_at_which_tcgemm_was_wrong_is_torchs(wrong):
    with tcgemm.use(table=[{**row(2.0, 8, 8, 8), **wrong}]) as u:
        assert not is_taken(u, 8, 8, 8, layout="TN")
    assert reason(u) == "at the nearest size of the table, 8 x 8 x 8, tcgemm was wrong"


def test_fast_sums_of_float8_have_their_own_rows():
    e4m3 = torch.float8_e4m3fn
    a, b = integers(32, 16, dtype=e4m3), integers(48, 16, dtype=e4m3).t()
    rows = [
        {**row(0.9, 32, 48, 16, dtype="e4m3"), "accumulation": "promoted"},
        {**row(1.2, 32, 48, 16, dtype="e4m3"), "accumulation": "fast"},
    ]
    with tcgemm.use(table=rows) as u:
        for fast in (False, True):
            one = torch.ones(())
            torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    report = u.report()
    assert [r.dtype for r in report.rows if r.reason is None] == ["e4m3 fast"]


def test_a_comparison_is_a_table(tmp_path):
    result = tcgemm.compare([(8, 8, 8)], dtypes=("f32",), against=("torch",), seconds=0.01)
    result.save(tmp_path / "table.json")
    for table in (result, tmp_path / "table.json"):
        with tcgemm.use(table=table) as u:
            expected = result.rows[0]["ratios"]["torch"] >= 1
            assert is_taken(u, 8, 8, 8, layout="TN") is expected


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"dtypes": ("complex64",)}, ValueError, "dtypes has 'complex64', but products are taken"),
        ({"dtypes": (torch.int32,)}, ValueError, "dtypes has torch.int32"),
        ({"dtypes": (3,)}, ValueError, "dtypes has 3"),
        ({"min_size": -1}, ValueError, "min_size must be a number that is not negative"),
        ({"min_flops": "many"}, ValueError, "min_flops must be a number .* is 'many'"),
        ({"min_flops": float("nan")}, ValueError, "min_flops must be"),
        ({"table": 3}, TypeError, "table must be what tcgemm.compare returns"),
        ({"table": [1, 2]}, TypeError, "table must be what tcgemm.compare returns"),
        ({"table": [{"dtype": "f32"}]}, ValueError, "a row of table has no 'layout'"),
        ({"table": "/nowhere/table.json"}, FileNotFoundError, "nowhere"),
    ],
)
def test_errors(options, error, text):
    with pytest.raises(error, match=text):
        tcgemm.use(**options)


def test_the_report_has_text_fields_and_html():
    with tcgemm.use() as u:
        for _ in range(3):
            torch.mm(integers(4, 5), integers(5, 6))
        torch.bmm(integers(2, 4, 5), integers(2, 5, 6))
        torch.mm(integers(4, 5, dtype=torch.int32), integers(5, 6, dtype=torch.int32))
    report = u.report()
    assert (report.taken, report.left) == (4, 1)
    assert report.flops_taken == 5 * 2 * 4 * 5 * 6 and report.flops_left == 0
    first = report.rows[0]
    assert (first.function, first.dtype, first.sizes, first.calls) == ("mm", "f32", (1, 4, 6, 5), 3)
    assert first.reason is None and first.flops == 3 * 2 * 4 * 5 * 6
    lines = str(report).split("\n")
    assert lines[0] == "tcgemm.use: 4 products taken (100.0% of the FLOPs), 1 left to torch"
    assert lines[2].split() == ["mm", "f32", "4", "x", "6", "x", "5", "3", "tcgemm"]
    assert "tcgemm has no product of torch.int32 in this function" in lines[-1]
    assert repr(report) == str(report)
    html = report._repr_html_()
    assert html.count("<tr>") == 4 and "<td>2 x 4 x 6 x 5</td>" in html


def test_an_empty_report():
    with tcgemm.use() as u:
        pass
    assert str(u.report()) == "tcgemm.use: 0 products taken, 0 left to torch"
    assert "<table>" in u.report()._repr_html_()


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(choices, "ENTRIES", 8)
    monkeypatch.setattr(choices, "COUNTS", 4)
    with tcgemm.use() as u:
        for k in range(1, 21):
            torch.mm(torch.ones(2, k), torch.ones(k, 3))
            assert len(u.choices.entries) <= 8
    report = u.report()
    assert report.taken == 20 and len(report.rows) == 5
    assert [r.calls for r in report.rows if r.sizes is None] == [16]
