"""The measuring tools: operands, error bounds that can fail, the timer, files, tables, plot."""

import copy
import importlib
import json
import math
import re
import time

import pytest
import torch

import tcgemm
from benchmarks import __main__ as benchmarks_main
from benchmarks import report, results_file, run, workloads
from benchmarks.cases import cases as cases_of
from benchmarks.report import tables
from tcgemm.cli import bench
from tcgemm.testing import kernel_name, numerics, operands, telemetry, timing

from support.bench_fixtures import synthetic

# Operands.


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_layout_letters(layout, batch):
    data = operands.Operands.build(
        layout, 5, 6, 7, dtype=torch.float32, device="cpu", batch=batch, sets=2
    )
    lead = (batch,) if batch > 1 else ()
    a, b, out = data.a[1], data.b[1], data.out[1]
    assert (a.shape, b.shape, out.shape) == ((*lead, 5, 7), (*lead, 7, 6), (*lead, 5, 6))
    assert b.stride()[-2:] == ((1, 7) if layout[0] == "T" else (6, 1))
    assert a.stride()[-2:] == ((1, 5) if layout[1] == "T" else (7, 1))
    assert out.is_contiguous()


def test_sets_are_aligned_and_apart():
    pool = operands.Pool(3, (5, 7), torch.float16, "cpu")
    starts = [pool[index].storage_offset() * 2 for index in range(3)]
    assert [start % operands.ALIGNMENT for start in starts] == [0, 0, 0]
    pool.memory.zero_()
    pool[0].fill_(1)
    assert pool[1].sum() == 0


def test_rotation_leaves_the_cache(monkeypatch):
    monkeypatch.setattr(operands, "cache_bytes", lambda device: 60 << 20)
    assert operands.sets_past_cache(1 << 20, "cuda") * (1 << 20) > 120 << 20
    assert operands.sets_past_cache(1 << 30, "cuda") == 2
    assert operands.sets_past_cache(1, "cuda") == operands.MAX_SETS


@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_matrices_in_a_layout(layout):
    a, b = torch.randn(5, 7), torch.randn(7, 6)
    data = operands.Operands.build(layout, 5, 6, 7, dtype=a.dtype, device="cpu", sets=1)
    found = operands.in_layout(layout, a, b)
    assert [x.stride() for x in found] == [data.a[0].stride(), data.b[0].stride()]
    assert torch.equal(found[0], a) and torch.equal(found[1], b)


def test_unknown_layout_is_named():
    with pytest.raises(ValueError, match="'XX' is none of TN, NN, TT, NT"):
        operands.Operands.build("XX", 1, 1, 1, dtype=torch.float32, device="cpu")


# Errors.


def right_product(dtype=torch.float32, m=96, n=40, k=128, layout="TN"):
    data = operands.Operands.build(layout, m, n, k, dtype=dtype, device="cpu", sets=1)
    data.normal(torch.Generator().manual_seed(1)).poison()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    data.out[0].copy_(torch.mm(data.a[0].to(wide), data.b[0].to(wide)))
    return data.a[0], data.b[0], data.out[0]


def ratio_of(out, a, b, **options):
    kind = "f64" if a.dtype == torch.float64 else "f32"
    return numerics.error_ratio(out, a, b, **{"accumulation": kind, **options})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_right_results_are_within_the_bound(dtype):
    a, b, out = right_product(dtype)
    assert 0 < ratio_of(out, a, b) < 1
    if dtype in (torch.float32, torch.float64):
        assert ratio_of(out, a, b) < 0.21


def zero_tile(a, b, out):
    out[16:32, 8:16] = 0


def dropped_step(a, b, out):
    out.copy_(torch.mm(a[:, 16:].float(), b[16:].float()))


def swapped_rows(a, b, out):
    out[[0, 1]] = out[[1, 0]]


def unwritten(a, b, out):
    out[-1, -1] = math.nan


@pytest.mark.parametrize("fault", [zero_tile, dropped_step, swapped_rows, unwritten])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_fault_is_outside_the_bound(fault, dtype):
    a, b, out = right_product(dtype)
    fault(a, b, out)
    assert not ratio_of(out, a, b) <= 1


def test_a_budget_samples_rows_evenly():
    assert len(numerics.sample_rows(10_000, 10.0, 1.0)) == 1000
    rows = numerics.sample_rows(4096, 1e9, 1.0)
    assert len(rows) == 256 and rows[0] == 0 and rows[-1] == 4095
    assert int(rows.diff().max()) < 64  # no tile of 64 rows is skipped
    a, b, out = right_product(m=4096)
    out[1024:1088] = 0
    assert ratio_of(out, a, b, budget=1.0) > 1


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_the_bound_follows_the_epilogue(activation):
    a, b, out = right_product()
    bias, residual = torch.randn(40), torch.randn(96, 40)
    fused = numerics.ACTIVATIONS[activation](out + bias) + residual
    options = {"bias": bias, "activation": activation, "residual": residual}
    assert ratio_of(fused, a, b, **options) < 1
    fused[3, 3] += 0.01
    assert ratio_of(fused, a, b, **options) > 1


def test_exactness_is_bitwise():
    data = operands.Operands.build("NN", 40, 24, 512, dtype=torch.bfloat16, device="cpu", sets=1)
    a, b, out = data.integers().a[0], data.b[0], data.out[0]
    out.copy_(torch.mm(a.float(), b.float()))
    assert numerics.is_exact(out, a, b)
    out[0, 0] = torch.nextafter(out[0, 0].float(), torch.tensor(math.inf)) + 1
    assert not numerics.is_exact(out, a, b)


# Timing.


def test_a_slower_candidate_takes_longer():
    calls = {name: [] for name in ("fast", "slow")}

    def sleeper(name, seconds):
        def call(index):
            calls[name].append(index)
            time.sleep(seconds)

        return call

    candidates = {"fast": sleeper("fast", 0.0005), "slow": sleeper("slow", 0.002)}
    found = timing.measure(candidates, 3, device="cpu", min_ms=60)
    assert 400 < found["fast"].us < found["slow"].us < 20_000
    assert min(timings.total_ms for timings in found.values()) >= 60
    assert found["slow"].samples >= 4 and found["slow"].iqr_us >= 0
    assert set(calls["fast"]) == {0, 1, 2}  # it rotates over the sets


def test_host_time_counts_a_call():
    found = timing.host_time(
        {"x": lambda i: time.sleep(0.001)}, 1, device="cpu", calls=2, batches=3
    )
    assert 900 < found["x"].us < 20_000


def test_host_time_is_not_that_of_a_call_after_another():
    last = []

    def caller(name):
        def call(index):
            time.sleep(0.001 if last == [name] else 0.1)
            last[:] = [name]

        return call

    candidates = {name: caller(name) for name in ("one", "another")}
    found = timing.host_time(candidates, 1, device="cpu", calls=2, batches=2)
    assert max(each.us for each in found.values()) < 40_000


def test_sampler_takes_medians_and_stops():
    class Reader:
        def read(self):
            return 1500.0, 650.0

    with telemetry.Sampler(Reader(), period=0.001) as sampler:
        time.sleep(0.05)
    assert (sampler.clock_mhz, sampler.power_w) == (1500.0, 650.0)
    assert not sampler._thread.is_alive()
    with telemetry.Sampler(telemetry.open_reader("cpu")) as nothing:
        pass
    assert nothing.clock_mhz is None and nothing.power_w is None


@pytest.mark.gpu
def test_graph_timing_on_a_gpu():
    data = operands.Operands.build("TN", 512, 512, 512, dtype=torch.bfloat16, device="cuda")
    data.normal()
    assert data.sets * 3 * 512 * 512 * 2 > 2 * operands.cache_bytes("cuda")
    sampler = telemetry.Sampler(telemetry.open_reader("cuda"))

    def product(i):
        torch.mm(data.a[i], data.b[i], out=data.out[i])

    same = {"first": product, "second": product}
    for _ in range(5):  # other processes on the GPU can spoil one
        found = timing.measure(same, data.sets, device="cuda", min_ms=200, sampler=sampler)
        ratio = found["first"].us / found["second"].us
        if 0.9 < ratio < 1.1:
            break
    assert 0.9 < ratio < 1.1
    assert 1 < found["first"].us < 100
    if sampler.samples:  # neither NVML nor nvidia-smi need be there
        assert sampler.clock_mhz > 100 and sampler.power_w > 10


# Result files.


def test_kernel_name_is_that_of_explain():
    a = torch.empty(512, 512, dtype=torch.bfloat16, device="meta")
    name = kernel_name(a, a.t(), device="H200")
    assert name.startswith("sm") and f" {name} (row " in tcgemm.explain(a, a.t(), device="H200")
    assert kernel_name(a[:0], a) == "cpu"


def test_rows_have_the_public_keys(tmp_path):
    public = (
        "op dtype layout m n k batch kernel accumulation epilogue graph set us tflops rival "
        "rival_us ratio max_error_ratio exact gpu commit clock_mhz power_w"
    )
    assert list(results_file.KEYS) == public.split()
    path = tmp_path / results_file.file_name("NVIDIA H200")
    assert path.name == "h200.json"
    results = synthetic()
    results_file.save(results, path)
    again = results_file.load(path)
    assert json.loads(path.read_text())["rows"] == again["rows"]
    assert sorted(map(results_file.key, again["rows"])) == sorted(
        map(results_file.key, results["rows"])
    )
    bad = copy.deepcopy(results)
    bad["rows"][0]["speed"] = 1
    path.write_text(json.dumps(bad))
    with pytest.raises(ValueError, match="has not the keys"):
        results_file.load(path)


def test_merge_keeps_the_latest_row_of_a_case():
    old, new = synthetic(), results_file.empty()
    row = {**old["rows"][0], "us": 1.0, "commit": "def"}
    results_file.put(new, row, {"date": "tomorrow"})
    new["header"] = {"gpu": "NVIDIA H200", "torch": "3"}
    count = len(old["rows"])
    results_file.merge(old, new)
    assert len(old["rows"]) == count and old["rows"][0] == row
    assert old["header"]["torch"] == "3"
    assert old["details"][results_file.key(row)] == {"date": "tomorrow"}


def test_commit_is_named_or_unknown(monkeypatch, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", results_file.commit())
    monkeypatch.setattr(results_file, "RESULTS", tmp_path / "no" / "checkout")
    assert results_file.commit() == "unknown"


# The report.


@pytest.fixture
def folder(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    results_file.save(synthetic(), tmp_path / "h200.json")
    return tmp_path


def test_report_writes_between_the_markers(folder):
    readme = folder / "README.md"
    arguments = ["--results", str(folder), "--readme", str(readme), "--no-plot"]
    assert report.main(arguments) == 0
    first = readme.read_text()
    assert first.startswith(f"before\n{report.BEGIN}") and first.endswith(f"{report.END}\nafter\n")
    assert "\nold\n" not in first
    assert "| | bf16 TN | bf16 NN | bf16 TT | bf16 NT | f16 TN | f16 NN |" in first
    assert "| 4095^3 | " in first and "**4.00**" in first
    assert "Furthest behind torch: " in first and "[benchmarks/results/h200.md]" in first
    every = (folder / "h200.md").read_text()
    assert "The sm80 kernels alone" in every and "| 32 of 64^3 | " in every
    report.main(arguments)
    assert readme.read_text() == first
    readme.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the lines"):
        report.main(arguments)


def test_report_merges_shards_and_shows_failures(folder):
    shard = results_file.empty()
    shard["header"] = {"gpu": "NVIDIA H200", "torch": "2"}
    case = cases_of("squares")[0]
    row, detail = run.failed(case, "NVIDIA H200", "abc", RuntimeError("No kernel fits.\nmore"))
    assert detail["error"] == "RuntimeError: No kernel fits."
    results_file.put(shard, row, detail)
    results_file.save(shard, folder / "elsewhere.txt")
    arguments = ["--results", str(folder), "--readme", str(folder / "README.md"), "--no-plot"]
    report.main(["--merge", str(folder / "elsewhere.txt"), *arguments])
    assert "1 cases failed" in (folder / "README.md").read_text()


def test_report_of_nothing(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(report.BEGIN + report.END)
    report.main(["--results", str(tmp_path), "--readme", str(readme)])
    assert "Nothing was measured yet." in readme.read_text()


def test_every_stored_row_has_a_table():
    for path in results_file.RESULTS.glob("*.json"):
        rows = results_file.load(path)["rows"]
        shown = [row for section in tables.SECTIONS for row in section.rows(rows)]
        names = {results_file.key(row) for row in shown}
        assert all(results_file.key(row) in names or ":" in row["set"] for row in rows)


def test_plot(folder):
    pytest.importorskip("matplotlib")
    plot = importlib.import_module("benchmarks.report.plots")
    path = plot.draw(synthetic(), folder / "h200.png")
    assert path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 10_000
    few = {**synthetic(), "rows": [r for r in synthetic()["rows"] if r["m"] == 4095]}
    assert plot.draw(few, folder / "few.png")
    assert plot.draw(results_file.empty(), folder / "none.png") is None


# The command.


def run_small(capsys, *arguments):
    status = run.main(["--device", "cpu", "--ms", "2", "--commit", "abc", *arguments])
    return status, capsys.readouterr().out


def test_a_run_measures_resumes_and_records(tmp_path, capsys, monkeypatch):
    arguments = ("--set", "smoke", "--layout", "TN,NT", "--out", str(tmp_path))
    status, out = run_small(capsys, *arguments)
    assert status == 0 and "12 of 12 cases done, 0 failed or wrong." in out
    path = tmp_path / "cpu.json"
    rows = results_file.load(path)["rows"]
    assert len(rows) == 12 and all(row["exact"] and row["ratio"] > 0 for row in rows)
    assert all(0 < row["max_error_ratio"] <= 1 and not row["graph"] for row in rows)
    before = path.read_text()
    status, out = run_small(capsys, *arguments, "--resume")
    assert "12 of 12 cases done" in out and path.read_text() == before
    assert not results_file.load(tmp_path / "cpu.json")["rows"][0]["clock_mhz"]
    elsewhere = (*arguments[:-1], str(tmp_path / "shard"), "--resume")
    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    status, out = run_small(capsys, *elsewhere)
    assert "12 of 12 cases done" in out and not (tmp_path / "shard").exists()
    status, out = run_small(capsys, *arguments, "--minutes", "0")
    assert "0 of 12 cases done" in out and "--resume measures the other cases" in out


def test_a_run_goes_on_after_a_failing_case(tmp_path, capsys, monkeypatch):
    original = workloads.Workload.call_tcgemm

    def call_tcgemm(self, index, keep=True):
        if self.case.m == 65:
            raise RuntimeError("No kernel fits.")
        if self.case.m == 64:
            self.operands.out[index].zero_()
        else:
            original(self, index, keep)

    monkeypatch.setattr(workloads.Workload, "call_tcgemm", call_tcgemm)
    arguments = ("--set", "smoke", "--layout", "TN", "--dtype", "f32", "--out", str(tmp_path))
    status, out = run_small(capsys, *arguments)
    assert status == 1 and "RuntimeError: No kernel fits." in out and "NOT EXACT" in out
    assert "3 of 3 cases done, 2 failed or wrong." in out
    rows = {row["m"]: row for row in results_file.load(tmp_path / "cpu.json")["rows"]}
    assert rows[65]["us"] is None and rows[64]["max_error_ratio"] > 1 and rows[1]["exact"]


def test_targets_say_pass_or_miss():
    case = next(case for case in cases_of("squares") if case.target == 0.93)
    assert run.verdict(case, {"ratio": 0.94}).strip() == "PASS (0.93)"
    assert run.verdict(case, {"ratio": 0.92}).strip() == "MISS (0.93)"
    assert run.verdict(cases_of("llm")[0], {"ratio": 0.5}) == ""


def test_the_timer_is_checked_against_itself(capsys):
    calibration = importlib.import_module("benchmarks.calibrate")
    assert calibration.main(["--device", "cpu", "--ms", "20"]) == 0
    out = capsys.readouterr().out
    assert "torch.mm 512^3: " in out and "copy: " in out and "host time of torch.mm" in out


def test_the_command_line_runs_the_benchmarks_of_the_checkout(capfd):
    assert bench.run(["--set", "long-k", "--dry-run", "--device", "cpu"]) == 0
    assert capfd.readouterr().out.count("long-k mm bf16 TN") == 3
    assert benchmarks_main.main(["measure"]) == 2
    assert "run        measure sets" in capfd.readouterr().out


def test_cases_limited_in_size_are_no_results(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    status, out = run_small(capsys, "--set", "llm", "--max-size", "32")
    assert status == 0 and "not stored" in out and "1 of 1 cases done" in out
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_refused(capsys):
    with pytest.raises(SystemExit):
        run.parse(["--set", "circles"])
    assert "--set circles: there are dense, dtypes, sparse, all, squares" in capsys.readouterr().err
