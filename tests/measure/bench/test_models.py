"""The set `models` of the benchmarks: rows, failures, resuming and merging."""

import pytest
import torch

from benchmarks import __main__
from benchmarks.models import cases, measure, record, training, variants

SMALL = ["run", "--set", "models", "--models", "smoke", "--device", "cpu", "--ms", "2"]
SMALL += ["--steps", "8", "--commit", "abc"]
FAST = "use,Linear,Float8Linear,Float8Linear delayed,QuantLinear e4m3,SparseLinear24"
FAST += ",SparseLinear24 learning"  # nothing compiled
QUICK = [*SMALL, "--variants", FAST]
TRAINED = ["torch", "use", "Linear", "Float8Linear", "Float8Linear delayed"]
TRAINED += ["SparseLinear24 learning"]
DECODED = ["torch", "use", "Linear", "QuantLinear e4m3", "SparseLinear24"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "cpu.json"
    assert __main__.main([*QUICK, "--out", str(path)]) == 0
    return path


@pytest.fixture
def results(path):
    return record.load(path)


def test_rows_hold_every_task_and_variant(results):
    groups = {}
    for row in results["rows"]:
        groups.setdefault((row["task"], row["batch"]), []).append(row)
    assert {place: [row["variant"] for row in rows] for place, rows in groups.items()} == {
        ("train", 4): TRAINED,
        ("decode", 1): DECODED,
        ("decode", 16): DECODED,
    }
    for (task, batch), rows in groups.items():
        for row in rows:
            assert tuple(row) == record.KEYS and row["commit"] == "abc" and row["failure"] is None
            assert 0 < row["low_us"] <= row["us"] <= row["high_us"] and row["samples"] > 1
            assert row["ratio"] == pytest.approx(rows[0]["us"] / row["us"], rel=1e-2)
            tokens = batch * (row["tokens"] if task == "train" else 1)
            assert row["tokens_per_second"] == pytest.approx(tokens * 1e6 / row["us"], rel=1e-3)
    assert results["models"]["smoke"]["hidden"] == 64 and results["header"]["gpu"] == "cpu"
    assert "fused AdamW" in results["header"]["method"]


def test_the_loss_falls_and_is_near_to_torch_s(results):
    rows = {row["variant"]: row for row in results["rows"] if row["task"] == "train"}
    (case,) = cases.cases(("smoke",), ("train",))
    device, count = torch.device("cpu"), measure.WARM_UP + 1 + 8
    batches = training.text(case, count + 1, 0)
    before = training.Training(case, variants.VARIANTS[0], device, batches, 0).outcome()["loss"]
    for row in rows.values():
        assert row["loss"] < before - 0.03 and row["steps"] == count
        near = 0.005 if row["variant"] == "SparseLinear24 learning" else 0.0005
        assert row["loss"] == pytest.approx(rows["torch"]["loss"], rel=near)
        assert row["error"] is None and row["samples"] == 8


def test_the_error_of_logits_is_that_of_the_weights(results):
    for batch in (1, 16):
        rows = [row for row in results["rows"] if row["batch"] == batch and row["error"]]
        error = {row["variant"]: row["error"] for row in rows}
        assert 0 < error["Linear"] < 0.01 and 0 < error["use"] < 0.01 and 0 < error["torch"] < 0.01
        assert 0.01 < error["QuantLinear e4m3"] < 0.05 < error["SparseLinear24"] < 0.5
        assert all(row["loss"] is None for row in rows)


@pytest.mark.nightly
def test_compiled_models_have_rows(tmp_path):
    path = tmp_path / "cpu.json"
    names = "torch.compile,Linear compiled"
    assert __main__.main([*SMALL, "--variants", names, "--out", str(path)]) == 0
    rows = [row for row in record.load(path)["rows"] if "compile" in row["variant"]]
    assert len(rows) == 6 and not any(row["failure"] for row in rows)
    assert {row["variant"] for row in rows} == {"torch.compile", "Linear compiled"}


def test_variants_run_what_they_are_named():
    for variant in variants.VARIANTS:
        model = measure.training.build(cases.MODELS["smoke"], "cpu", torch.bfloat16)
        variant.apply(model)
        kind = type(model.blocks[0].mlp.gate)
        expected = (variant.swap or {}).get("to", torch.nn.Linear)
        assert kind is expected
        loses = kind.__name__ in ("Float8Linear", "QuantLinear", "SparseLinear24")
        assert type(model.head) is (torch.nn.Linear if loses else kind)
        with variant.session():
            assert variants.tcgemm.override.is_active() == variant.diverted
        assert not variants.tcgemm.override.is_active()
    default = {choice.name for task in ("train", "decode") for choice in variants.select(task)}
    assert default == set(variants.BY_NAME) - {"Linear compiled"}
    assert [choice.name for choice in variants.select("train", ("use",))] == ["torch", "use"]


def test_a_variant_that_fails_has_a_sentence(tmp_path, capsys, monkeypatch):
    apply = variants.Variant.apply

    def broken(variant, model):
        if variant.name == "Linear":
            raise RuntimeError("Failed to find C compiler.\nSet CC.")
        apply(variant, model)

    monkeypatch.setattr(variants.Variant, "apply", broken)
    path = tmp_path / "one.json"
    assert __main__.main([*QUICK, "--tasks", "train", "--out", str(path)]) == 1
    assert "1 of 1 cases done, 1 rows failed." in capsys.readouterr().out
    rows = {row["variant"]: row for row in record.load(path)["rows"]}
    assert list(rows) == TRAINED
    assert rows["Linear"]["failure"] == "RuntimeError: Failed to find C compiler."
    assert all(rows["Linear"][name] is None for name in ("us", "ratio", "loss"))
    assert all(rows[name]["us"] for name in TRAINED if name != "Linear")


def test_a_failure_after_the_warm_up_leaves_the_others(monkeypatch):
    step = measure.training.Training.__call__

    def late(work, index):
        if work.variant.name == "torch" and work.steps > measure.WARM_UP + 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        step(work, index)

    monkeypatch.setattr(measure.training.Training, "__call__", late)
    [case] = cases.cases(("smoke",), ("train",))
    conditions = measure.Conditions(torch.device("cpu"), "abc", steps=8, say=lambda text: None)
    rows = measure.measure(case, variants.select("train", ("Linear",)), conditions)
    assert rows[0]["failure"] == "OutOfMemoryError: CUDA out of memory." and not rows[0]["us"]
    assert rows[1]["us"] > 0 and rows[1]["ratio"] is None and rows[1]["loss"] < 5


def test_resume_measures_what_is_missing(path, tmp_path, capsys):
    copy = tmp_path / "copy.json"
    results = record.load(path)
    results["rows"] = [row for row in results["rows"] if row["batch"] != 16]
    record.save(results, copy)
    arguments = [*QUICK, "--out", str(copy), "--resume"]
    assert __main__.main(arguments) == 0
    assert "1 of 1 cases done, 0 rows failed." in capsys.readouterr().out
    assert len(record.load(copy)["rows"]) == len(TRAINED) + 2 * len(DECODED)


def test_merge_keeps_the_latest_rows(path, tmp_path):
    results = record.load(path)
    first, second = results["rows"][:2]
    failure = {**second, "us": None, "failure": "it failed"}
    early, late, merged = (tmp_path / name for name in ("one.json", "two.json", "both.json"))
    record.save({**results, "rows": [{**first, "us": 7.0}, second]}, early)
    record.save({**results, "rows": [{**first, "us": 8.0}, failure]}, late)
    assert __main__.main(["merge", str(early), str(late), "--out", str(merged)]) == 0
    times = [row["us"] for row in record.load(merged)["rows"]]
    assert times == [8.0, second["us"]], "a failure hides no time"


@pytest.mark.gpu
def test_a_gpu_measures_both_modes(tmp_path):
    sizes = cases.Sizes(2, 512, 1024, 8, 4, 1024, 256)
    device = torch.device("cuda", 0)
    conditions = measure.Conditions(device, "abc", steps=8, ms=20.0)
    for task, batch in (("train", 2), ("decode", 1)):
        case = cases.Case("tiny", sizes, task, batch, 256)
        selection = [variant for variant in variants.select(task) if not variant.compiled]
        rows = measure.measure(case, selection, conditions)
        modes = {"train": {"eager"}, "decode": {"graph", "eager"}}[task]
        assert {row["mode"] for row in rows} == modes and len(rows) == len(modes) * len(selection)
        for row in rows:
            assert row["failure"] is None and row["us"] > 0 and row["peak_bytes"] > 0
            least = case.weights * 2 * (4 if task == "train" else 0.5)
            assert least < row["peak_bytes"]
