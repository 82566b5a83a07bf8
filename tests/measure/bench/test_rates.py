"""The set rates, on the CPU."""

import pytest

from support.bench_fixtures import run_on_cpu


def test_every_load_has_its_rate(tmp_path, capsys):
    arguments = ("--set", "rates,errors", "--max-size", "32", "--repetitions", "1")
    status, rows = run_on_cpu(tmp_path / "cpu.json", *arguments)
    assert status == 0
    assert "154 of 154 cases done, 0 failed or wrong." in capsys.readouterr().out
    rows = [row for row in rows if row["set"] == "rates"]
    assert sum(row["function"] == "mm" for row in rows) == 2 and len(rows) == 2 + 2 + 4 + 1
    for row in rows:
        assert row["us"] > 0 and row["ratios"]["torch" if "m" in row else "itself"] > 0
        if row["function"] == "copy":
            rate = 2 * row["bytes"] / row["us"] / 1e3
            assert row["gbps"] == pytest.approx(rate, rel=1e-2)
