"""The stored results keep the limits, and the command shows them without a GPU."""

import copy

import pytest

from tcgemm import cli, published
from tcgemm.lab import store
from tcgemm.lab.probe import checks, tables
from tcgemm.lab.probe.measure import expand

GPUS = ("A100", "RTX 3070 Ti", "RTX 2080 Ti")
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


def test_one_row_of_the_stored_tables(no_gpu, capsys, tmp_path):
    assert cli.main(["probe", "mma", "sparse", "--row", "f16", "--plot", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "HMMA.16816.F32 " in text and "HMMA.SP.16832.F32" in text and "IMMA" not in text
    picture = tmp_path / "mma.sp-f16-f16-f32-m16n8k32-NVIDIA-H200.png"  # latency beside rate
    assert picture.stat().st_size > 20_000
    file = store.FOLDER / "probe" / "h200.json"
    assert cli.main(["probe", "ldmatrix", "--stored", str(file), "--row", "x2"]) == 0
    text = capsys.readouterr().out
    assert "ldmatrix.x2.trans" in text and "ldmatrix.x4" not in text
    with pytest.raises(SystemExit):
        cli.main(["probe", "mma", "--stored", str(file), "--row", "m16n8k9"])
    assert "row is 'm16n8k9', which is in no name of mma" in capsys.readouterr().err


def test_all_columns_of_the_published_gpus_are_beside_ours():
    results = expand(store.results("probe")["NVIDIA H200"])
    beside = {
        table.title: table.rows for table in tables.of(results, ["mma", "sparse", "ldmatrix"])
    }
    dense = beside["mma.sync beside the published GPUs"]
    first = next(n for n, row in enumerate(dense) if row["instruction"] == "f16 f16 m16n8k8")
    part = dense[first : first + 4]
    assert [row["GPU"] for row in part] == ["NVIDIA H200", "A100", "RTX 3070 Ti", "RTX 2080 Ti"]
    for row, (table, gpu) in zip(part[1:], zip(("III", "IV", "V"), GPUS, strict=True), strict=True):
        cells = published.table("003", table, gpu)["f16 f16 m16n8k8"]
        assert len(cells) == 7
        assert all(row[head] == pytest.approx(cell, abs=0.5) for head, cell in cells.items())
        assert set(cells) < set(part[0])  # the heads name the warps: "ILP, 4 warps"
    emulated = next(row for row in dense if row["instruction"] == "s4 s32 m16n8k32")
    assert emulated["GPU"] == "NVIDIA H200, emulated"
    assert len(beside["mma.sp beside the published GPUs"]) == 3 * 8
    assert len(beside["ldmatrix beside the published GPUs"]) == 2 * 3


def test_the_generations(capsys):
    assert cli.main(["probe", "generations"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert (
        "wmma mma" in lines["Volta"] and "s4" in lines["Turing"] and "ldmatrix" in lines["Turing"]
    )
    assert "mma.sp" in lines["Ampere"] and " 256 " in lines["Ampere"] and "e4m3" in lines["Ada"]
    assert "wgmma.sp" in lines["Hopper"] and "s4" not in lines["Hopper"]
