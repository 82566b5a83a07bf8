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

from tcgemm.measure import machine, results, telemetry, timing, work
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.run import Conditions
from tcgemm.measure.timing import Timing

WARM_UP = 3  # steps before the memory of a step is measured
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


@dataclass
class SideBySide:
    """The job.

    Arguments:
        name (str): the job in a few words.
        case: the fields of every row's case; `function` and `graph` are added.
        variants: their names.
        builder: makes the data that all variants share on a device, and returns what builds one.
        repetitions (int): measurements of each variant.
        captured: measured in a CUDA graph, too?

    The baseline is the variant "torch"; compiled variants are compared with "torch compiled", too.
    """

    name: str
    case: Row
    variants: tuple[str, ...]
    builder: Callable[[torch.device], Build]
    repetitions: int = results.REPETITIONS
    captured: bool = True

    def cases(self, device: torch.device) -> list[Row]:
        """The case of each row."""
        first = {"set": self.case["set"]}
        return [
            first | {"function": name, "graph": graph} | self.case
            for graph in ((True, False) if self.captured and device.type == "cuda" else (False,))
            for name in self.variants
        ]

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

    def rows(self, conditions: Conditions) -> list[Row]:
        """The rows, of variants that are built, measured and asked for their facts."""
        build = self.builder(conditions.device)
        steps: dict[str, Step] = {}
        facts: dict[str, Row] = {}
        failures: dict[str, Row] = {}
        for name in self.variants:
            begin = time.perf_counter()
            with _reason_in(failures, name):
                steps[name], facts[name] = prepared(build, name, conditions.device)
            state = failures[name]["why"] if name in failures else "ready"
            print(f"  {name:28} {state} after {time.perf_counter() - begin:.1f} s", flush=True)
        cases = self.cases(conditions.device)
        parts = {
            graph: [self._repetition(steps, graph, conditions) for _ in range(self.repetitions)]
            for graph in dict.fromkeys(case["graph"] for case in cases)
        }
        for name, step in steps.items():
            with _reason_in(failures, name), step.session():
                facts[name] |= step.facts()
        rows = []
        for case in cases:
            name, graph = case["function"], case["graph"]
            same = [case | (failures.get(name) or part[name]) for part in parts[graph]]
            measured = [row for row in same if row["us"] is not None]
            if measured:
                repetitions = [results.repetitions(row)[0] for row in measured]
                same = [results.combined(measured[-1], repetitions) | {"facts": facts[name]}]
            rows.append(same[0])
        return rows

    def _repetition(
        self, steps: Mapping[str, Step], graph: bool, conditions: Conditions
    ) -> dict[str, Row]:
        """What is measured of each variant; one that no CUDA graph captures has the reason."""
        sampler = telemetry.Sampler(conditions.device)
        refusals: dict[str, str] = {}
        device = conditions.device if graph else torch.device("cpu")  # "cpu": the wall clock
        waits = conditions.device.type == "cuda" and not graph

        def call(step: Step, index: int) -> None:
            step(index)
            if waits:
                torch.cuda.synchronize(conditions.device)

        calls = {name: functools.partial(call, step) for name, step in steps.items()}
        common = {"device": device, "min_ms": conditions.ms, "sampler": sampler}
        sessions = {"session": lambda name: steps[name].session(), "refusals": refusals}
        try:
            timings = timing.measure(calls, 1, **common, **sessions)
        except Exception as error:  # a step fails later
            reason: str = work.failed({}, error)["why"]
            timings, refusals = {}, dict.fromkeys(steps, reason) | refusals
        found = {name: self._times(name, timings) | sampler.fields() for name in timings}
        found |= {name: {"why": reason} for name, reason in refusals.items()}
        date = {"date": machine.now()}
        return {name: results.EMPTY | fields | date for name, fields in found.items()}

    def _times(self, name: str, timings: Mapping[str, Timing]) -> Row:
        """The time of a variant, and those of its baselines."""
        baselines = ("torch", "torch compiled")[: 1 + name.endswith(COMPILED)]
        others = {
            other: timings[other] for other in baselines if other in timings and other != name
        }
        return work.times(timings[name], others)


@contextlib.contextmanager
def _reason_in(failures: dict[str, Row], name: str) -> Iterator[None]:
    """Keeps the reason if the block raises an error. work.GpuLost is raised again."""
    try:
        yield
    except Exception as error:
        failures[name] = work.failed({}, error)


def prepared(build: Build, name: str, device: torch.device) -> tuple[Step, Row]:
    """(a step that has run some times, its memory in bytes: held between steps, and at the peak).

    The memory of the variants before it is the same before and in the step, so it does not count.
    """
    before = _allocated(device)
    step = build(name)
    with step.session():
        for index in range(WARM_UP):
            step(index)
        held = _allocated(device)
        if device.type != "cuda":
            return step, {}
        torch.cuda.reset_peak_memory_stats(device)
        step(WARM_UP)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return step, {"held_bytes": held - before, "peak_bytes": peak - before}


def _allocated(device: torch.device) -> int:
    """The bytes of all tensors on a GPU; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    gc.collect()
    return torch.cuda.memory_allocated(device)


def release(device: torch.device) -> None:
    """Frees what nobody holds, also the code that torch.compile keeps."""
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def difference(expected: torch.Tensor, result: torch.Tensor) -> float:
    """|result - expected| over |expected|, in the Frobenius norm."""
    expected, result = expected.float(), result.float()
    return float(f"{float((result - expected).norm() / expected.norm()):.3g}")
