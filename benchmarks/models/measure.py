"""One case -> a row for each variant. The variants are measured in alternating order."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.models import decoding, training, waiting
from benchmarks.models.cases import Case
from benchmarks.models.record import CASE, KEYS, Row
from benchmarks.models.variants import BASELINE, TRAIN, Variant
from tcgemm.measure import machine, telemetry, timing

WARM_UP, ROUNDS = 3, 4  # steps; slices of a training
Work = training.Training | decoding.Decoding
Factory = Callable[[Variant], Work]


@dataclass
class Conditions:
    """What all cases of a run share."""

    device: torch.device
    commit: str
    steps: int = 20  # of a training, spread over the rounds
    ms: float = 400.0  # of a variant in decode
    seed: int = 0
    say: Callable[[str], Any] = print
    reader: telemetry.Reader | None = field(default=None, repr=False)


@dataclass
class Prepared:
    """A variant that has taken its first steps."""

    work: Work
    peak_bytes: int | None


def factory(case: Case, conditions: Conditions) -> Factory:
    """What makes the work of a variant; data that all variants share is made here."""
    device, seed = conditions.device, conditions.seed
    if case.task == TRAIN:
        count = WARM_UP + 1 + steps_a_round(conditions) * ROUNDS + 1
        batches = training.text(case, count, seed).to(device)
        return lambda variant: training.Training(case, variant, device, batches, seed)
    ids = decoding.prompt(case, device, seed)
    exact = decoding.exact_logits(case, device, ids, seed)
    return lambda variant: decoding.Decoding(case, variant, device, ids, exact, seed)


def steps_a_round(conditions: Conditions) -> int:
    return max(1, conditions.steps // ROUNDS)


def release(device: torch.device) -> None:
    """Frees what nobody holds, also the code that torch.compile keeps."""
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def prepare(build: Factory, variant: Variant, device: torch.device) -> Prepared:
    """Builds and warms up a variant, and measures the memory of a step.

    The memory of the variants before it is the same before and in the step, so it does not count.
    """
    cuda = device.type == "cuda"
    if cuda:
        gc.collect()
        torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device) if cuda else 0
    work = build(variant)
    with work.session():
        for _ in range(WARM_UP):
            work(0)
        if cuda:
            torch.cuda.synchronize(device)
            gc.collect()
            torch.cuda.reset_peak_memory_stats(device)
        work(0)
    if not cuda:
        return Prepared(work, None)
    torch.cuda.synchronize(device)
    return Prepared(work, torch.cuda.max_memory_allocated(device) - before)


def prepare_all(
    case: Case, variants: list[Variant], conditions: Conditions
) -> tuple[dict[str, Prepared], dict[str, str]]:
    """({name: prepared variant}, {name: why it failed})."""
    ready: dict[str, Prepared] = {}
    failures: dict[str, str] = {}
    try:
        build = factory(case, conditions)
    except Exception as error:
        return ready, {variant.name: waiting.sentence(error) for variant in variants}
    for variant in variants:
        begin = time.perf_counter()
        try:
            ready[variant.name] = prepare(build, variant, conditions.device)
        except Exception as error:
            failures[variant.name] = waiting.sentence(error)
            word = f"failed: {failures[variant.name]}"
        else:
            word = f"ready after {time.perf_counter() - begin:.1f} s"
        if variant.name in failures:
            gc.collect()  # the frames of the error held the tensors
            if conditions.device.type == "cuda":
                torch.cuda.empty_cache()
        conditions.say(f"  {variant.name:24} {word}")
    return ready, failures


def timings_of(
    case: Case, mode: str, works: dict[str, Any], conditions: Conditions, failures: dict[str, str]
) -> tuple[dict[str, timing.Timing], telemetry.Sampler]:
    """{name: Timing}; `failures` gets the variants that cannot be measured in this mode."""
    device, ms = conditions.device, conditions.ms
    sampler = telemetry.Sampler(conditions.reader)
    if case.task == TRAIN:

        def time_slice(call: waiting.Call) -> list[float]:
            return [waiting.microseconds(call, device) for _ in range(steps_a_round(conditions))]

        return waiting.time_alternately(works, ROUNDS, time_slice, sampler, failures), sampler
    if mode == "eager":
        return waiting.eager(works, device, ms, sampler, failures), sampler
    calls = {name: work.captured for name, work in works.items()}
    try:
        timings = timing.measure(
            calls, 1, device=device, min_ms=ms, sampler=sampler, refusals=failures
        )
    except Exception as error:
        failures |= {name: waiting.sentence(error) for name in calls if name not in failures}
        timings = {}
    return timings, sampler


def outcome_of(work: Work, failures: dict[str, str], name: str) -> dict[str, Any]:
    """The loss or the error of a variant; nothing if that raises."""
    try:
        return work.outcome()
    except Exception as error:
        failures[name] = waiting.sentence(error)
        return {}


def row_of(case: Case, name: str, mode: str, conditions: Conditions, **results: Any) -> Row:
    """A row with the fields KEYS; those that are not given are None."""
    gpu = machine.gpu_name(conditions.device)
    place = (gpu, case.model, case.sizes.blocks, case.task, case.batch, case.tokens, mode, name)
    fields = dict(zip(CASE, place, strict=True)) | results
    fields |= {"commit": conditions.commit, "date": machine.now()}
    return {key: fields.get(key) for key in KEYS}


def measure(case: Case, variants: list[Variant], conditions: Conditions) -> list[Row]:
    """The rows of a case: one for each mode and variant."""
    with machine.current(conditions.device):
        ready, failures = prepare_all(case, variants, conditions)
        try:
            rows = _rows(case, variants, conditions, ready, failures)
        finally:
            ready.clear()
            release(conditions.device)
    return rows


def _rows(
    case: Case,
    variants: list[Variant],
    conditions: Conditions,
    ready: dict[str, Prepared],
    failures: dict[str, str],
) -> list[Row]:
    measurements = {}
    for mode in case.modes(conditions.device):
        refusals = dict(failures)
        works = {name: prepared.work for name, prepared in ready.items()}
        measurements[mode] = (*timings_of(case, mode, works, conditions, refusals), refusals)
    faults: dict[str, str] = {}
    outcomes = {name: outcome_of(prepared.work, faults, name) for name, prepared in ready.items()}
    rows = []
    for mode, (timings, sampler, refusals) in measurements.items():
        baseline = timings.get(BASELINE)
        for name in (variant.name for variant in variants):
            if name not in timings or name in faults:
                reason = refusals.get(name) or faults.get(name)
                rows.append(row_of(case, name, mode, conditions, failure=reason))
                continue
            sample = timings[name]
            results = {
                "us": round(sample.us, 2),
                "low_us": round(sample.low_us, 2),
                "high_us": round(sample.high_us, 2),
                "samples": sample.samples,
                "tokens_per_second": round(case.tokens_a_step * 1e6 / sample.us, 1),
                "ratio": float(f"{baseline.us / sample.us:.4g}") if baseline else None,
                "peak_bytes": ready[name].peak_bytes,
                "clock_mhz": sampler.clock_mhz,
                "power_w": sampler.power_w,
            }
            rows.append(row_of(case, name, mode, conditions, **results, **outcomes[name]))
    return rows
