"""The sets of models, models and swap, on small sizes."""

import pytest
import torch

import tcgemm
from benchmarks.experiments import models
from tcgemm.measure import run

from support.bench_fixtures import run_on_cpu


def measured(path, *arguments):
    """{(task, batch, tokens): {variant: row}} of a run on the CPU."""
    status, rows = run_on_cpu(path, "--max-size", "64", "--ms", "2", *arguments)
    found = {}
    for row in rows:
        place = (row["task"], row.get("batch"), row["tokens"])
        found.setdefault(place, {})[row["function"]] = row
    return status, found


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    """The rows of models that nothing compiles."""
    path = tmp_path_factory.mktemp("models") / "cpu.json"
    with pytest.MonkeyPatch.context() as patch:
        original = models.names_of
        patch.setattr(
            models,
            "names_of",
            lambda task: tuple(name for name in original(task) if "compiled" not in name),
        )
        status, found = measured(path, "--set", "models", "--repetitions", "1")
    assert status == 0
    return found


def test_rows_hold_every_task_and_variant(eager):
    assert set(eager) == {("train", 4, 32), ("decode", 1, 32), ("decode", 16, 32)}
    trained = ["torch", "use", "Linear", "Float8Linear", "Float8Linear delayed"]
    assert set(eager["train", 4, 32]) == {*trained, "SparseLinear24 learning"}
    decoded = {"torch", "use", "Linear", "QuantLinear e4m3", "QuantLinear int8", "SparseLinear24"}
    decoded |= {"PackedLinear int4", "PackedLinear e4m3"}
    for batch in (1, 16):
        rows = eager["decode", batch, 32]
        assert set(rows) == decoded
        for name, row in rows.items():
            assert row["us"] > 0 and (name == "torch" or row["ratios"]["torch"] > 0)


def test_the_loss_falls_and_is_near_to_torch_s(eager, monkeypatch):
    rows = eager["train", 4, 32]
    case = models.Case("small", models.SMALL, models.TRAIN, 4, 32)
    monkeypatch.setattr(models, "STEPS", 0)
    before = models.Training(case, models.text(case), "torch", torch.device("cpu")).loss
    for row in rows.values():
        assert row["facts"]["steps"] == 24
        assert row["facts"]["loss"] < before - 0.03
        near = 0.02 if row["function"] == "SparseLinear24 learning" else 0.0005
        assert row["facts"]["loss"] == pytest.approx(rows["torch"]["facts"]["loss"], rel=near)


def test_the_error_of_logits_is_that_of_the_weights(eager):
    for batch in (1, 16):
        error = {name: row["facts"]["error"] for name, row in eager["decode", batch, 32].items()}
        assert all(0 < error[name] < 0.01 for name in ("torch", "use", "Linear"))
        assert 0.01 < error["QuantLinear e4m3"] < 0.05 < error["SparseLinear24"] < 0.5
        assert 0.001 < error["QuantLinear int8"] < error["QuantLinear e4m3"]


@pytest.mark.nightly
def test_compiled_models_have_rows(tmp_path):
    status, found = measured(tmp_path / "cpu.json", "--set", "swap", "--repetitions", "1")
    assert status == 0 and set(found) == {("forward", 1, 1), ("forward", 1, 32)}
    for rows in found.values():
        compiled = [name for name in rows if name.endswith(" compiled")]
        assert len(compiled) == 5 and "torch compiled" in compiled
        for name in compiled:
            eager = rows[name.removesuffix(" compiled")]["facts"]["error"]
            assert rows[name]["facts"]["error"] == pytest.approx(eager, rel=0.5)
        assert set(rows["PackedLinear int4 compiled"]["ratios"]) == {"torch", "torch compiled"}


def test_variants_run_what_they_are_named():
    case = models.Case("small", models.SMALL, models.FORWARD, 1, 32)
    for name, variant in models.VARIANTS.items():
        step = models.ModelStep(case, name, torch.device("cpu"))
        kind = type(step.model.blocks[0].mlp.gate)
        assert kind is (variant.swap or {"to": torch.nn.Linear})["to"]
        loses = kind not in (torch.nn.Linear, tcgemm.nn.Linear)
        assert type(step.model.head) is (torch.nn.Linear if loses else kind)
        with step.session():
            assert tcgemm.override.is_active() == variant.diverted
        assert not tcgemm.override.is_active()


@pytest.mark.gpu
def test_a_gpu_measures_models_in_both_modes(tmp_path):
    device = torch.device("cuda", 0)
    sizes = models.Sizes(2, 512, 1024, 8, 4, 1024, 256)
    for task, batch in ((models.TRAIN, 2), (models.DECODE, 1), (models.FORWARD, 1)):
        job = models.job("tiny", models.Case("tiny", sizes, task, batch, 256), 1)
        rows = job.measure(run.Conditions(device, 20.0), {}, None)
        modes = {False} if task == models.TRAIN else {True, False}
        assert {row["graph"] for row in rows} == modes
        assert len(rows) == len(modes) * len(models.names_of(task))
        held = {row["function"]: row["facts"]["held_bytes"] for row in rows}
        for row in rows:
            assert row["us"] > 0, row["why"]
            assert 0 < row["facts"]["held_bytes"] <= row["facts"]["peak_bytes"]
        if task == models.FORWARD:
            assert held["QuantLinear e4m3"] < 0.8 * held["torch"]
            assert held["PackedLinear int4"] < 0.65 * held["torch"]  # codes and order both
            assert held["SparseLinear24"] < 0.9 * held["torch"]
