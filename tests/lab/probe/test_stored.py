"""The stored results keep the limits, and the command shows them without a GPU."""

import copy

import pytest

from tcgemm import cli
from tcgemm.lab import store
from tcgemm.lab.probe import checks
from tcgemm.lab.probe.measure import expand

STORED = sorted(store.results("probe"))


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def test_both_gpus_are_stored():
    assert STORED == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]


@pytest.mark.parametrize("gpu", STORED)
def test_stored_results_keep_the_limits(gpu):
    results = expand(store.results("probe")[gpu])
    assert len(results["records"]) > 2000
    assert checks.sentences(results, checks.LIMITS) == []


@pytest.mark.parametrize("gpu", STORED)
def test_a_broken_record_among_them_is_found(gpu):
    results = copy.deepcopy(expand(store.results("probe")[gpu]))
    record = next(entry for entry in results["records"] if entry["group"] == "mma")
    record["rate"] *= 1.1
    assert len(checks.sentences(results, checks.LIMITS)) >= 1


def test_everything_is_shown_without_a_gpu(no_gpu, capsys):
    assert cli.main(["probe", "all"]) == 0
    text = capsys.readouterr().out
    assert "torch finds no CUDA GPU" in text and "These contradict" not in text
    for gpu in STORED:
        assert all(f"{title} on {gpu}" in text for title in ("mma.sync", "wgmma", "wmma"))
        assert f"Bandwidth of {gpu}" in text
    assert "one answer of L2 can serve several of them" in text
