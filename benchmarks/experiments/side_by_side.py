"""A job of tcgemm.measure.run that measures several ways to do one step, side by side.

    build each variant, warm it up  ->  time all of them in alternating slices  ->  a row for each

A variant is a way to do the step: torch's layers, tcgemm's, compiled ones. Its row has the ratio to
each baseline, which is another variant. A variant that fails has the reason in its row, and the
others are measured. To build a model takes longer than to time it, so all repetitions of a job
follow one another.

    graph true    in a CUDA graph: the time of the GPU
    graph false   called from Python and waited for: host time included
"""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from tcgemm.measure import baseline, machine, results, telemetry, timing, work
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.run import Conditions
from tcgemm.measure.timing import Timing

WARM_UP = 3  # steps before the memory of a step is measured
ROUNDS = 4  # alternating slices of each variant in a repetition, where steps are waited for
COMPILED = " compiled"  # the end of the name of a variant that runs under torch.compile


class Step:
    """A step of one variant. A call does it once."""

    def __call__(self, index: int) -> object:
        """Does the step."""
        raise NotImplementedError

    def session(self) -> contextlib.AbstractContextManager[object]:
        """The block in which calls run."""
        return contextlib.nullcontext()

    def facts(self) -> Row:
        """What the row says beside times, after the measurement."""
        return {}


Build = Callable[[str], Step]  # a variant -> its step
Slice = Callable[[Step], list[float]]  # a step -> the microseconds of some calls of it


@dataclass
class SideBySide:
    """The job.

    Arguments:
        name (str): the job in a few words.
        case: the fields of every row's case; `function` and `graph` are added.
        variants: their names.
        builder: makes the data that all variants share on a device, and returns what builds one.
        baselines: the names of the variants that others are compared with. All are compared with
            the first one, compiled variants also with the others.
        repetitions (int): measurements of each variant.
        calls (int): calls of a slice, where they are waited for.
        captured: measured in a CUDA graph, too?
    """

    name: str
    case: Row
    variants: tuple[str, ...]
    builder: Callable[[torch.device], Build]
    baselines: tuple[str, ...] = ("torch", "torch compiled")
    repetitions: int = results.REPETITIONS
    calls: int = 10
    captured: bool = True

    def modes(self, device: torch.device) -> tuple[bool, ...]:
        """The values of `graph` that are measured."""
        return (True, False) if self.captured and device.type == "cuda" else (False,)

    def case_of(self, variant: str, graph: bool) -> Row:
        """The fields of a row that say what it is about."""
        first = {"set": self.case["set"], "function": variant, "graph": graph}
        return first | self.case

    def cases(self, device: torch.device) -> list[Row]:
        """The case of each row."""
        return [self.case_of(name, graph) for graph in self.modes(device) for name in self.variants]

    def plan(self, gpu: str) -> str:
        """The variants."""
        return ", ".join(self.variants)

    def measure(self, conditions: Conditions, aims: Aims, earlier: Row | None) -> list[Row]:
        """The rows, with all repetitions of each."""
        with machine.current(conditions.device):
            try:
                return self.rows(conditions)
            finally:
                release(conditions.device)

    def rows(self, conditions: Conditions, time_slice: Slice | None = None) -> list[Row]:
        """The rows. `time_slice` replaces the timer of steps that are waited for."""
        device = conditions.device
        build = self.builder(device)
        steps: dict[str, Step] = {}
        facts: dict[str, Row] = {}
        failures: dict[str, Row] = {}
        for name in self.variants:
            begin = time.perf_counter()
            with _reason_in(failures, name):
                steps[name], facts[name] = prepared(functools.partial(build, name), device)
            state = failures[name]["why"] if name in failures else "ready"
            print(f"  {name:28} {state} after {time.perf_counter() - begin:.1f} s", flush=True)
        parts = [
            row
            for graph in self.modes(device)
            for _ in range(self.repetitions)
            for row in self._repetition(steps, graph, conditions, time_slice)
        ]
        for name, step in steps.items():
            with _reason_in(failures, name), step.session():
                facts[name] |= step.facts()
        rows = []
        for case in self.cases(device):
            name, same = case["function"], [row for row in parts if case.items() <= row.items()]
            measured = [row for row in same if row["us"] is not None]
            if name in failures or not measured:
                rows.append(case | (failures.get(name) or same[0]))
                continue
            row = results.combined(measured[-1], [results.repetitions(row)[0] for row in measured])
            rows.append(row | {"facts": facts[name]})
        return rows

    def _repetition(
        self,
        steps: Mapping[str, Step],
        graph: bool,
        conditions: Conditions,
        time_slice: Slice | None,
    ) -> list[Row]:
        """A row for each variant; one that no CUDA graph captures has the reason."""
        device, sampler = conditions.device, telemetry.Sampler(conditions.device)
        refusals: dict[str, str] = {}
        if graph:
            calls = {name: functools.partial(_in_session, step) for name, step in steps.items()}
            common = {"device": device, "min_ms": conditions.ms, "sampler": sampler}
            try:
                timings = timing.measure(calls, 1, **common, refusals=refusals)
            except Exception as error:  # no graph captures the first one, or one does not replay
                reason: str = work.failed({}, error)["why"]
                timings, refusals = {}, dict.fromkeys(calls, reason) | refusals
        else:
            time_slice = time_slice or functools.partial(waited_us, device=device, calls=self.calls)
            timings = alternating(steps, time_slice, sampler, refusals)
        found = {name: self._times(name, timings) | sampler.fields() for name in timings}
        found |= {name: {"why": reason} for name, reason in refusals.items()}
        return [
            self.case_of(name, graph) | results.EMPTY | fields | {"date": machine.now()}
            for name, fields in found.items()
        ]

    def _times(self, name: str, timings: Mapping[str, Timing]) -> Row:
        """The time of a variant, and those of its baselines."""
        others = {
            other: timings[other]
            for other in self.baselines
            if other in timings
            and other != name
            and (other == self.baselines[0] or name.endswith(COMPILED))
        }
        return work.times(timings[name], others)


@contextlib.contextmanager
def _reason_in(failures: dict[str, Row], name: str) -> Iterator[None]:
    """Keeps the reason if the block raises an error. work.GpuLost is raised again."""
    try:
        yield
    except Exception as error:
        failures[name] = work.failed({}, error)


def prepared(build: Callable[[], Step], device: torch.device) -> tuple[Step, Row]:
    """(a step that has run some times, its memory in bytes: held between steps, and at the peak).

    The memory of the variants before it is the same before and in the step, so it does not count.
    """
    before = _allocated(device)
    step = build()
    with step.session():
        for index in range(WARM_UP):
            step(index)
        held = _allocated(device)
        if held is None or before is None:
            step(WARM_UP)
            return step, {}
        torch.cuda.reset_peak_memory_stats(device)
        step(WARM_UP)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return step, {"held_bytes": held - before, "peak_bytes": peak - before}


def _allocated(device: torch.device) -> int | None:
    """The bytes of all tensors on a GPU; None on the CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    gc.collect()
    return torch.cuda.memory_allocated(device)


def release(device: torch.device) -> None:
    """Frees what nobody holds, also the code that torch.compile keeps."""
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _in_session(step: Step, index: int) -> object:
    with step.session():
        return step(index)


def waited_us(step: Step, *, device: torch.device, calls: int) -> list[float]:
    """Microseconds of each of so many calls, until the GPU has done its work."""
    samples = []
    for index in range(calls):
        start = time.perf_counter()
        step(index)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append((time.perf_counter() - start) * 1e6)
    return samples


def alternating(
    steps: Mapping[str, Step],
    time_slice: Slice,
    sampler: telemetry.Sampler,
    refusals: dict[str, str],
) -> dict[str, Timing]:
    """{variant: its time} of ROUNDS slices in alternating order, after one that does not count.

    `refusals` gets the reason of a variant that raises an error; it has no time then.
    """
    samples: dict[str, list[float]] = {name: [] for name in steps}
    with sampler:
        for index in range(ROUNDS + 1):
            for name in list(samples)[:: -1 if index % 2 else 1]:
                try:
                    with steps[name].session():
                        values = time_slice(steps[name])
                except Exception as error:
                    refusals[name] = baseline.reason(error)
                    del samples[name]
                else:
                    samples[name] += values if index else []
    return {name: Timing.of(us) for name, us in samples.items()}


def difference(expected: torch.Tensor, result: torch.Tensor) -> float:
    """|result - expected| over |expected|, in the Frobenius norm."""
    expected, result = expected.float(), result.float()
    return float(f"{float((result - expected).norm() / expected.norm()):.3g}")
