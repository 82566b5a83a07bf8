"""The tables and the picture of published sizes, from results that are made up."""

import pytest

import benchmarks.__main__ as command
from benchmarks import published_sizes
from tcgemm.measure import results
from tcgemm.measure.cases import cases
from tcgemm.measure.work import case_fields

from support.bench_fixtures import row


def made_up(widths, ratio):
    """Results of the sizes with these widths; ratio(accumulation, family, width)."""
    found = results.Results(header={"gpu": "NVIDIA H200"})
    for case in cases("doc000"):
        width = min(case.m, case.n, case.k)
        if width not in widths:
            continue
        family, _ = published_sizes.family_of(case_fields(case, "cuda"))
        speed = ratio(case.accumulation, family, width)
        found.put(row(case, 10.0, {"torch": speed, "torch f32 sums": 1.1 * speed}, tflops=600.0))
    return found


def test_means_extremes_and_steps():
    ratios = {1024: 1.0, 1280: 1.21, 1536: 0.8, 2048: 1.0}

    def ratio(accumulation, family, width):
        return ratios[width] if (accumulation, family) == ("f16", "WxWx4W") else 1.5

    table = published_sizes.table(made_up(set(ratios), ratio))
    assert len(table.rows) == 14 and "NVIDIA H200" in table.title
    rows = {(line["sums"], line["M x N x K"]): line for line in table.rows}
    line = rows["f16", "WxWx4W"]
    assert line["x torch"] == pytest.approx((1.21 * 0.8) ** 0.25) and line["sizes"] == 4
    assert line["lowest"] == "0.80 at 1536" and line["highest"] == "1.21 at 1280"
    assert line["step"] == "+0 % at 1280"
    assert line["torch's step"] == "+51 % at 1536"  # 2048 is not adjacent to 1536
    assert rows["f32", "WxWx4W"]["x torch"] == pytest.approx(1.5)
    assert "makes torch 1.10 times as fast: its time is 0.909" in table.notes[0]
    assert "figure 8, RTX 2070, rectangles: 1.77 x cuBLAS 10.1" in "\n".join(table.notes)


def test_the_command(tmp_path, capsys):
    assert command.main(["doc000", "--results", str(tmp_path)]) == 0
    assert "run python -m benchmarks run --set doc000" in capsys.readouterr().out
    made_up({1024, 1280}, lambda *_: 1.25).save(tmp_path / "h200.json")
    pictures = tmp_path / "pictures"
    assert command.main(["doc000", "--results", str(tmp_path), "--plot", str(pictures)]) == 0
    assert "WxWx4W" in capsys.readouterr().out
    assert (pictures / "h200-doc000.png").stat().st_size > 10_000
