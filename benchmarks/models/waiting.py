"""The time of calls that are waited for, host time included, in alternating slices."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcgemm.measure import telemetry, timing

Call = Callable[[int], Any]
Slice = Callable[[Call], list[float]]  # a call -> the microseconds of some calls of it


def microseconds(call: Call, device: torch.device) -> float:
    """The time of one call until the GPU has done its work."""
    start = time.perf_counter()
    call(0)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e6


def sentence(error: BaseException) -> str:
    """The first line of an error that says something, at most 200 characters of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:200]


def time_alternately(
    calls: Mapping[str, Call],
    rounds: int,
    time_slice: Slice,
    sampler: telemetry.Sampler,
    failures: dict[str, str] | None = None,
) -> dict[str, timing.Timing]:
    """{name: Timing}. Each round has a slice of every call, in alternating order.

    A call may have a method session(): its slices run in that context. `failures` gets the sentence
    of a call that raises, which has no timing then. If it is None, the error is raised.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    with sampler:
        for index in range(rounds):
            for name in list(samples)[:: -1 if index % 2 else 1]:
                session = getattr(calls[name], "session", contextlib.nullcontext)
                try:
                    with session():
                        samples[name] += time_slice(calls[name])
                except Exception as error:
                    if failures is None:
                        raise
                    failures[name] = sentence(error)
                    del samples[name]
    return {name: timing.Timing.of(us, sum(us) / 1e3) for name, us in samples.items()}


def eager(
    calls: Mapping[str, Call],
    device: torch.device,
    ms: float,
    sampler: telemetry.Sampler,
    failures: dict[str, str] | None = None,
) -> dict[str, timing.Timing]:
    """{name: Timing} of slices of `ms` milliseconds in all, after a slice that does not count."""
    rounds = max(2, math.ceil(ms / timing.SLICE_MS))

    def time_slice(call: Call) -> list[float]:
        samples, begin = [], time.perf_counter()
        while not samples or (time.perf_counter() - begin) * 1e3 < ms / rounds:
            samples.append(microseconds(call, device))
        return samples

    first = time_alternately(calls, 1, time_slice, telemetry.Sampler(None), failures)
    return time_alternately({n: calls[n] for n in first}, rounds, time_slice, sampler, failures)
