"""The stored results keep the limits, have their share of the probe's rate, and are shown."""

import copy
import dataclasses

import pytest

from tcgemm import cli
from tcgemm.lab import ladder, store
from tcgemm.lab.ladder import checks, problem, tables
from tcgemm.lab.ladder.steps import DOCUMENTS, HGEMM_TILES, MODELLED, STEPS
from tcgemm.lab.model import blocking, gpus
from tcgemm.lab.probe.measure import expand

STORED = sorted(store.results("ladder"))


def test_both_gpus_are_stored():
    assert STORED == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]


@pytest.mark.parametrize("gpu", STORED)
def test_stored_results_keep_the_limits(gpu):
    results = ladder.stored()[gpu]
    assert {record["step"] for record in results["records"]} == {step.name for step in STEPS}
    assert checks.sentences(results, checks.LIMITS) == []
    # The paddings of 001_5 have the order of the computed conflicts.
    assert checks.sentences(results, (checks.paddings,)) == []


@pytest.mark.parametrize("gpu", STORED)
def test_a_broken_record_among_them_is_found(gpu):
    results = copy.deepcopy(ladder.stored()[gpu])
    for name in ("000_hgemm", "002_3_thread2d"):
        next(row for row in results["records"][1:] if row["step"] == name)["same_bits"] = False
    assert len(checks.sentences(results, checks.LIMITS)) == 2


@pytest.mark.parametrize("gpu", STORED)
def test_every_timed_step_has_its_share_of_the_rate(gpu):
    """The H100's were measured before its probe was stored; they get it when they are read."""
    records = ladder.stored()[gpu]["records"]
    with_rate = [record for record in records if record.get("clock_mhz") and record["ceiling"]]
    assert len(with_rate) > 40
    assert all(0 < record["percent"] < 100 for record in with_rate)
    (table,) = tables.of(ladder.stored()[gpu], ["004"])
    assert all(line["% of peak"] for line in table.rows)


def test_the_share_is_that_of_the_probe():
    """4096^3 in 400 us at 1500 MHz, of 1024 FMA a clock on each of 100 SMs."""
    (step,) = [step for step in STEPS if step.name == "004_2_1"]
    record = problem.record(step, step.variants[0], (4096, 4096, 4096))
    record |= {"tflops": 2 * 4096**3 / 400e-6 / 1e12, "clock_mhz": 1500.0}
    rates = {"mma f16 f16 f32 m16n8k16": 1024 * 100.0}
    expected = 100 * 2 * 4096**3 / 400e-6 / (2 * 1024 * 100 * 1.5e9)
    assert problem.percent(record, rates) == pytest.approx(expected)
    for missing in ({"clock_mhz": None}, {"tflops": None}, {"ceiling": None}, {"ceiling": "x"}):
        assert problem.percent(record | missing, rates) is None


def test_stored_shares_stay_and_missing_ones_come(monkeypatch):
    probe = {"header": {"processors": 100}, "records": [{"row": "mma f16", "rate": 512.0}]}
    fields = {"ceiling": "mma f16", "tflops": 51.2, "clock_mhz": 1000.0}
    records = [fields | {"percent": 7.0}, fields | {"percent": None}, fields | {"ceiling": None}]
    stored = {"NVIDIA X": {"header": {"gpu": "NVIDIA X"}, "records": records}}
    monkeypatch.setattr(
        store, "results", lambda kind: stored if kind == "ladder" else {"NVIDIA X": probe}
    )
    shares = [record["percent"] for record in ladder.stored()["NVIDIA X"]["records"]]
    assert shares == [7.0, pytest.approx(50.0), None]
    assert records[1]["percent"] is None  # the stored object is as it was


def test_everything_is_shown_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["ladder"]) == 0
    text = capsys.readouterr().out
    assert "torch finds no CUDA GPU" in text and "These results are wrong" not in text
    for gpu in STORED:
        assert text.count(f" on {gpu}") >= len(DOCUMENTS)


def test_the_blocking_model_finds_a_fastest_tile():
    """By the costs that the probe measures of the pipe, and of a lone instruction."""
    gpu = "NVIDIA H200"
    probe = expand(store.results("probe")[gpu])
    clocks = {record["row"]: record["cpi"] for record in probe["records"] if "cpi" in record}
    pipe = gpus.of_probe(probe)
    lone = dataclasses.replace(pipe, load_shared=clocks["LDS 32"], store_shared=clocks["STS 128"])
    records = {record["variant"]: record for record in ladder.stored()[gpu]["records"]}
    times = [records[label]["us"] for label in HGEMM_TILES[:MODELLED]]
    for costs in (pipe, lone):
        bounds = [blocking.bound(tile, costs) for tile in blocking.TILES]
        rates = [
            max(bound.tensor, bound.memory) / (bound.tile.m * bound.tile.n) for bound in bounds
        ]
        assert times[rates.index(min(rates))] < 1.001 * min(times)
