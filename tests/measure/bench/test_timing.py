"""The timer and the sampler of clock and power."""

import contextlib
import sys
import time

import pytest
import torch

from tcgemm.measure import operands, telemetry, timing


def sleeper(calls, name, seconds):
    """A call that notes its operand set and sleeps."""

    def call(index):
        calls.append((name, index))
        time.sleep(seconds)

    return call


def test_a_slower_candidate_takes_longer():
    calls = []
    candidates = {"fast": sleeper(calls, "fast", 0.0005), "slow": sleeper(calls, "slow", 0.002)}
    result = timing.measure(candidates, 3, device="cpu", min_ms=60)
    assert 400 < result["fast"].us < result["slow"].us < 20_000
    assert result["slow"].iqr_us >= 0
    assert set(calls) == {(name, i) for name in candidates for i in range(3)}  # it rotates
    assert sum(name == "slow" for name, _ in calls) * result["slow"].us > 60_000


def test_a_measurement_ends_early_where_that_is_enough():
    asked = []

    def enough(timings):
        asked.append(timings)
        return len(timings) == 1

    # Milliseconds, 120 before the slices that count.
    for names, least, most in ((("tcgemm",), 290, 400), (("tcgemm", "torch"), 450, 600)):
        calls = []
        candidates = {name: sleeper(calls, name, 0.01) for name in names}
        timing.measure(candidates, 1, device="cpu", min_ms=400.0, enough=enough)
        assert least <= 10 * sum(name == "tcgemm" for name, _ in calls) < most
    assert [len(timings) for timings in asked] == [1, 2]


def test_samples_of_a_busy_machine_are_dropped():
    busy, quiet = timing.Sample(10_000.0, True), [timing.Sample(us) for us in (6.0, 7.0, 8.0)]
    assert timing.Timing.of([busy, *quiet]) == timing.Timing(7.0, 1.0, 0.25)
    assert timing.Timing.of([busy]) == timing.Timing(10_000.0, 0.0, 1.0)  # there is no other


@pytest.mark.parametrize(("lost", "disturbed"), [(0, False), (1, True), (3, True)])
def test_the_wall_clock_asks_who_had_the_cpu(monkeypatch, lost, disturbed):
    counts = iter([5, 5 + lost])
    monkeypatch.setattr(timing, "_switches", lambda: next(counts))
    sample = timing.wall_clock(lambda: time.sleep(0.002), calls=2)
    assert sample.disturbed is disturbed and 1000 < sample.us < 20_000


def test_a_candidate_without_a_quiet_sample_gets_more_time(monkeypatch):
    """The samples of the first 0.2 seconds are disturbed, then none."""
    end, clock = time.perf_counter() + 0.2, timing.wall_clock

    def wall_clock(run, calls=1):
        return clock(run, calls)._replace(disturbed=time.perf_counter() < end)

    monkeypatch.setattr(timing, "wall_clock", wall_clock)
    result = timing.measure({"one": sleeper([], "one", 0.02)}, 1, device="cpu", min_ms=100.0)
    assert 0 < result["one"].disturbed < 1


def test_host_time_is_not_that_of_a_call_after_another():
    last = []

    def caller(name):
        def call(index):
            time.sleep(0.001 if last == [name] else 0.1)
            last[:] = [name]

        return call

    candidates = {name: caller(name) for name in ("one", "another")}
    result = timing.host_time(candidates, 1, device="cpu", calls=2, batches=2)
    assert all(900 < sample.us < 40_000 for sample in result.values())


def test_sampler_takes_medians_and_stops(monkeypatch):
    lines = ["1400, 640", "1500, 650", "1600, [N/A]", "1500, 660", "15"]
    command = [sys.executable, "-uc", f"print(*{lines}, sep=chr(10)); import time; time.sleep(60)"]
    monkeypatch.setattr(telemetry.Sampler, "command", lambda sampler: command)
    with telemetry.Sampler("cuda") as sampler:
        time.sleep(1)
    assert (sampler.clock_mhz, sampler.power_w) == (1500.0, 650.0)
    assert sampler._process.poll() is not None
    monkeypatch.setattr(telemetry.Sampler, "command", lambda sampler: ["no-such-program"])
    for device in ("cuda", "cpu"):
        with telemetry.Sampler(device) as nothing:
            pass
        assert nothing.clock_mhz is None and nothing.power_w is None


def test_candidates_that_no_graph_captures_are_left_out_with_the_reason(monkeypatch):
    closed = []
    host_slices = timing._host_slices

    @contextlib.contextmanager
    def graph_slices(call, sets):
        if call is refuse:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        with host_slices(call, sets) as time_slice:
            yield time_slice
        closed.append(call)

    def run(index):
        time.sleep(0.0001)

    def refuse(index):
        raise AssertionError

    monkeypatch.setattr(timing, "_host_slices", graph_slices)
    common, refusals = {"device": "cpu", "min_ms": 2}, {}
    result = timing.measure({"tcgemm": run, "torch": refuse}, 2, refusals=refusals, **common)
    assert list(result) == ["tcgemm"] and closed == [run]
    assert refusals["torch"].endswith("when stream is capturing")
    first, refusals = {"tcgemm": refuse, "torch": run}, {}
    assert list(timing.measure(first, 2, refusals=refusals, **common)) == ["torch"]
    assert list(refusals) == ["tcgemm"]
    assert timing.measure({"tcgemm": refuse}, 2, refusals={}, enough=all, **common) == {}
    needed = {"refusals": {}, "needed": "tcgemm"}
    for candidates, options in (
        ({"tcgemm": run, "torch": refuse}, {}),
        (first, {}),
        (first, needed),
    ):
        with pytest.raises(RuntimeError, match="stream is capturing"):
            timing.measure(candidates, 2, **common, **options)


@pytest.mark.alone
@pytest.mark.gpu
def test_graph_timing_on_a_gpu():
    data = operands.Operands.build("TN", 512, 512, 512, dtype=torch.bfloat16, device="cuda")
    data.normal()
    assert data.sets * 3 * 512 * 512 * 2 > 2 * operands.cache_bytes("cuda")
    sampler = telemetry.Sampler("cuda")

    def product(i):
        torch.mm(data.a[i], data.b[i], out=data.out[i])

    same = {"first": product, "second": product}
    for _ in range(5):  # other processes on the GPU can spoil one
        result = timing.measure(same, data.sets, device="cuda", min_ms=200, sampler=sampler)
        ratio = result["first"].us / result["second"].us
        if 0.9 < ratio < 1.1:
            break
    assert 0.9 < ratio < 1.1
    assert 1 < result["first"].us < 100
    if sampler.clock_mhz:  # nvidia-smi need not be there
        assert sampler.clock_mhz > 100 and sampler.power_w > 10
