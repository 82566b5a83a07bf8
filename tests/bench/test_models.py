"""The set `models` of the benchmarks: rows, failures, resuming, merging, tables and pictures."""

import json

import pytest
import torch

import benchmarks
from benchmarks import RESULTS, __main__, report
from benchmarks.models import cases, measure, record, run, training, variants
from benchmarks.report import models_picture, models_table, pictures

from support.bench_fixtures import report_pages, synthetic

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


def on_h200(results):
    """The results as if an H200 had made them, in a CUDA graph, too."""
    rows = []
    for row in results["rows"]:
        row = {**row, "gpu": "NVIDIA H200", "peak_bytes": 12_340_000_000}
        rows.append(row)
        if row["task"] == "decode":
            rows.append({**row, "mode": "graph", "ratio": row["ratio"] and row["ratio"] + 1})
    return {**results, "header": {**results["header"], "gpu": "NVIDIA H200"}, "rows": rows}


def test_rows_hold_every_task_and_variant(results):
    found = {}
    for row in results["rows"]:
        found.setdefault((row["task"], row["batch"]), []).append(row)
    assert {place: [row["variant"] for row in rows] for place, rows in found.items()} == {
        ("train", 4): TRAINED,
        ("decode", 1): DECODED,
        ("decode", 16): DECODED,
    }
    for (task, batch), rows in found.items():
        for row in rows:
            assert tuple(row) == record.KEYS and row["commit"] == "abc" and row["failure"] is None
            assert 0 < row["low_us"] <= row["us"] <= row["high_us"] and row["samples"] > 1
            assert row["ratio"] == pytest.approx(rows[0]["us"] / row["us"], rel=1e-2)
            tokens = batch * (row["tokens"] if task == "train" else 1)
            assert row["tokens_per_second"] == pytest.approx(tokens * 1e6 / row["us"], rel=1e-3)
    assert results["models"]["smoke"]["hidden"] == 64 and results["header"]["gpu"] == "cpu"
    assert "fused AdamW" in results["header"]["method"]


def test_the_loss_falls_and_is_near_to_torch_s(results):
    found = {row["variant"]: row for row in results["rows"] if row["task"] == "train"}
    (case,) = cases.cases(("smoke",), ("train",))
    device, count = torch.device("cpu"), measure.WARM_UP + 1 + 8
    batches = training.text(case, count + 1, 0)
    before = training.Training(case, variants.VARIANTS[0], device, batches, 0).outcome()["loss"]
    for row in found.values():
        assert row["loss"] < before - 0.03 and row["steps"] == count
        near = 0.005 if row["variant"] == "SparseLinear24 learning" else 0.0005
        assert row["loss"] == pytest.approx(found["torch"]["loss"], rel=near)
        assert row["error"] is None and row["samples"] == 8


def test_the_error_of_logits_is_that_of_the_weights(results):
    for batch in (1, 16):
        rows = [row for row in results["rows"] if row["batch"] == batch and row["error"]]
        error = {row["variant"]: row["error"] for row in rows}
        assert 0 < error["Linear"] < 0.01 and 0 < error["use"] < 0.01 and 0 < error["torch"] < 0.01
        assert 0.01 < error["QuantLinear e4m3"] < 0.05 < error["SparseLinear24"] < 0.5
        assert all(row["loss"] is None for row in rows)


@pytest.mark.slow
def test_compiled_models_have_rows(tmp_path):
    path = tmp_path / "cpu.json"
    names = "torch.compile,Linear compiled"
    assert __main__.main([*SMALL, "--variants", names, "--out", str(path)]) == 0
    found = [row for row in record.load(path)["rows"] if "compile" in row["variant"]]
    assert len(found) == 6 and not any(row["failure"] for row in found)
    assert {row["variant"] for row in found} == {"torch.compile", "Linear compiled"}


def test_variants_run_what_they_are_named():
    for variant in variants.VARIANTS:
        model = measure.training.build(cases.MODELS["smoke"], "cpu", torch.bfloat16)
        variant.apply(model)
        kind = type(model.blocks[0].mlp.gate)
        wanted = (variant.swap or {}).get("to", torch.nn.Linear)
        assert kind is wanted
        loses = kind.__name__ in ("Float8Linear", "QuantLinear", "SparseLinear24")
        assert type(model.head) is (torch.nn.Linear if loses else kind)
        with variant.session():
            assert variants.tcgemm.override.is_active() == variant.diverted
        assert not variants.tcgemm.override.is_active()
    default = {each.name for task in ("train", "decode") for each in variants.chosen(task)}
    assert default == set(variants.BY_NAME) - {"Linear compiled"}
    assert [each.name for each in variants.chosen("train", ("use",))] == ["torch", "use"]


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
    text = "\n".join(models_table.parts(record.load(path), None))
    assert "| failed |" in text and "4 x 32: RuntimeError: Failed to find C compiler." in text


def test_a_failure_after_the_warm_up_leaves_the_others(monkeypatch):
    step = measure.training.Training.__call__

    def late(work, index):
        if work.variant.name == "torch" and work.steps > measure.WARM_UP + 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        step(work, index)

    monkeypatch.setattr(measure.training.Training, "__call__", late)
    [case] = cases.cases(("smoke",), ("train",))
    conditions = measure.Conditions(torch.device("cpu"), "abc", steps=8, say=lambda text: None)
    rows = measure.measure(case, variants.chosen("train", ("Linear",)), conditions)
    assert rows[0]["failure"] == "OutOfMemoryError: CUDA out of memory." and not rows[0]["us"]
    assert rows[1]["us"] > 0 and rows[1]["ratio"] is None and rows[1]["loss"] < 5


def test_resume_measures_what_is_missing(path, tmp_path, capsys):
    copy = tmp_path / "copy.json"
    results = record.load(path)
    results["rows"] = [row for row in results["rows"] if row["batch"] != 16]
    record.save(results, copy)
    again = [*QUICK, "--out", str(copy), "--resume"]
    assert __main__.main(again) == 0
    assert "1 of 1 cases done, 0 rows failed." in capsys.readouterr().out
    assert len(record.load(copy)["rows"]) == len(TRAINED) + 2 * len(DECODED)
    assert __main__.main(again) == 0
    assert "0 of 0 cases done" in capsys.readouterr().out
    assert __main__.main([*again, "--minutes", "0", "--commit", "abd"]) == 0
    assert "0 of 3 cases done" in capsys.readouterr().out


def test_each_case_is_stored_when_it_is_measured(tmp_path, monkeypatch):
    seen = []

    def stops(case, chosen, conditions):
        seen.append(case)
        if len(seen) == 2:
            raise KeyboardInterrupt
        timed = dict.fromkeys(("us", "low_us", "high_us", "tokens_per_second"), 1.0)
        return [measure.row_of(case, "torch", "eager", conditions, **timed)]

    monkeypatch.setattr(run, "measure", stops)
    path = tmp_path / "one.json"
    with pytest.raises(KeyboardInterrupt):
        __main__.main([*QUICK, "--out", str(path)])
    assert [row["task"] for row in record.load(path)["rows"]] == ["train"]


def test_without_a_gpu_it_says_what_it_would_measure(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(run, "measure", None)
    assert __main__.main(["run", "--set", "models"]) == 0
    out = capsys.readouterr().out
    assert "need a GPU" in out and "--models smoke" in out
    for name in ("8B", "3B", "1B"):
        assert f"{name}, 4 blocks: train 4 x 2048, " in out
        assert f"{name}, 4 blocks: decode 16 x 1024, " in out
    assert "torch, torch.compile, use, Linear, Float8Linear, Float8Linear delayed, " in out
    assert __main__.main(["run", "--set", "models", "--models", "8B", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "need a GPU" not in out and "3B" not in out.split("stored:")[0]


def test_stored_results_are_printed(path, tmp_path, capsys, monkeypatch):
    record.save(on_h200(record.load(path)), record.path_of("NVIDIA H200", tmp_path))
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    assert __main__.main(["run", "--set", "models", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "stored: NVIDIA H200" in out and "12.34 GB" in out and "error 0.0" in out


def test_smoke_is_stored_only_where_out_says(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    small = [*SMALL, "--variants", "Linear", "--tasks", "train"]
    assert __main__.main(small) == 0
    assert "-> not stored" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert __main__.main([*small, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "models" / "cpu.json").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--models", "9B"], "--models 9B: there are 8B, 3B, 1B, smoke."),
        (["--variants", "fp4"], "--variants fp4: there are torch, torch.compile, use"),
        (["--tasks", "sleep"], "--tasks sleep: there are train, decode."),
        (["--layers", "0"], "--layers 0: expected at least 1."),
        (["--device", "tpu"], "--device tpu: expected cuda, cuda:1 or so, or cpu."),
        (["--set", "models,llm"], "has options of its own; leave out llm."),
    ],
)
def test_bad_options_get_a_sentence(words, sentence, capsys):
    with pytest.raises(SystemExit):
        __main__.main(["run", "--set", "models", *words])
    assert sentence in capsys.readouterr().err


def test_other_sets_name_the_set_of_models(capsys):
    with pytest.raises(SystemExit):
        __main__.main(["run", "--set", "model"])
    assert "smoke-sparse" in (err := capsys.readouterr().err) and ", models." in err


def test_another_file_is_refused(tmp_path, capsys):
    path = tmp_path / "h200.json"
    path.write_text(json.dumps({"header": {}, "rows": [{"op": "mm"}], "details": {}}))
    assert __main__.main([*QUICK, "--out", str(path)]) == 2
    assert "found {'op': 'mm'}; name another file" in capsys.readouterr().out


def test_merge_keeps_the_latest_rows(path, results, tmp_path, capsys):
    changed = on_h200(results)
    one, two, both = (tmp_path / name for name in ("one.json", "two.json", "both.json"))
    first = changed["rows"][0]
    record.save({**changed, "rows": [{**first, "us": 7.0}, changed["rows"][1]]}, one)
    failed = {**changed["rows"][1], "us": None, "failure": "it failed"}
    record.save({**changed, "rows": [{**first, "us": 8.0}, failed]}, two)
    assert __main__.main(["merge", str(one), str(two), "--out", str(both)]) == 0
    rows = record.load(both)["rows"]
    assert [row["us"] for row in rows] == [8.0, changed["rows"][1]["us"]], "a failure hides no time"
    with pytest.raises(SystemExit):
        __main__.main(["merge", str(one), str(RESULTS / "h200.json"), "--out", str(both)])
    assert "results of `run` and some results of the set `models`" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        __main__.main(["merge", str(one), str(path), "--out", str(both)])
    assert "different GPUs" in capsys.readouterr().err


def test_the_report_has_the_models(results, tmp_path):
    pages = report_pages(tmp_path, f"{report.BEGIN}\nold\n{report.END}\n")
    report.results_file.save(synthetic(), pages.folder / "h200.json")
    pages.write()
    assert "### Models" not in pages.page.read_text()
    new = tmp_path / "new.json"
    record.save(on_h200(results), new)
    report.main(
        ["--merge", str(new), "--results", str(pages.folder), "--root", str(tmp_path), "--no-plot"]
    )
    text = pages.page.read_text()
    assert "### Models" in text and "](pictures/models_h200.svg)" in text
    assert "](../../docs/pictures/models_h200.svg)" in (pages.folder / "h200.md").read_text()
    lines = text.splitlines()
    row = next(line for line in lines if line.startswith("| smoke, 1 blocks, 1 x 32, in a CUDA"))
    assert f"| | {' | '.join(DECODED)} |" in lines and f"| | {' | '.join(TRAINED)} |" in lines
    assert "12.34 GB" in row and " %" in row and "**2.00**" in row
    assert "| smoke, 1 blocks, 4 x 32 |" in text and "loss 4." in text


def test_the_picture_has_a_panel_for_each_task(results):
    measured = on_h200(results)
    text = models_picture.draw(measured)
    assert text == models_picture.draw(measured)
    for title in ("Training step, 4 x 32 tokens", "Decode, 1 sequence, in a CUDA graph"):
        assert f">{title}<" in text
    assert "called from Python" not in text and ">Decode, 16 sequences, in a CUDA graph<" in text
    for row in models_picture.shown(measured):
        if row["variant"] != "torch":
            assert f">{row['ratio']:.1f}<" in text and f">{row['variant']}<" in text
    more = [{**row, "variant": "fp8"} for row in measured["rows"] if row["variant"] == "use"]
    assert ">fp8<" in models_picture.draw({**measured, "rows": [*measured["rows"], *more]})


def test_every_file_of_models_has_a_picture(results, tmp_path):
    record.save(on_h200(results), record.path_of("NVIDIA H200", tmp_path))
    found = pictures.pictures(tmp_path)
    assert found["models_h200.svg"]().startswith("<svg")


def test_stored_results_are_whole():
    for path in (RESULTS / record.FOLDER).glob("*.json"):
        stored = record.load(path)
        assert stored["header"]["driver"] and stored["header"]["clocks"]
        assert {row["gpu"] for row in stored["rows"]} == {stored["header"]["gpu"]}
        for row in stored["rows"]:
            assert row["commit"] != "unknown" and row["model"] in stored["models"]
            assert (row["us"] is None) == (row["failure"] is not None)
            assert row["us"] is None or row["peak_bytes"] > 0


@pytest.mark.gpu
def test_a_gpu_measures_both_modes(tmp_path):
    sizes = cases.Sizes(2, 512, 1024, 8, 4, 1024, 256)
    device = torch.device("cuda", 0)
    conditions = measure.Conditions(device, "abc", steps=8, ms=20.0)
    for task, batch in (("train", 2), ("decode", 1)):
        case = cases.Case("tiny", sizes, task, batch, 256)
        chosen = [each for each in variants.chosen(task) if not each.compiled]
        rows = measure.measure(case, chosen, conditions)
        modes = {"train": {"eager"}, "decode": {"graph", "eager"}}[task]
        assert {row["mode"] for row in rows} == modes and len(rows) == len(modes) * len(chosen)
        for row in rows:
            assert row["failure"] is None and row["us"] > 0 and row["peak_bytes"] > 0
            least = case.weights * 2 * (4 if task == "train" else 0.5)
            assert least < row["peak_bytes"]
