"""How long a call takes: kernel time without the host, and host time without the kernel.

    build      warm up  ->  capture one CUDA graph of calls that rotate over the operand sets
    measure    one slice each to warm up  ->  A | B  ->  B | A  ->  A | B  ...  ->  medians

A graph leaves out the host's 10 us per call. The candidates alternate within one process, and the
order alternates too, because clock and temperature drift by more than the differences that are
measured. A slice lasts about 100 ms, because power and clock follow a change of load within that
time. On the CPU, the same functions use the wall clock.

Another process that takes the CPU stops threads of this one, and the others wait for them: 10 ms in
a call of microseconds. The system counts such involuntary context switches. A sample of the wall
clock with more than one in SWITCH_US is disturbed, and does not count where there are others.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tcgemm.measure.telemetry import Sampler

# A call takes the index of the operand set that it works on. Its result is ignored.
Call = Callable[[int], object]
Slice = Callable[[float], "list[Sample]"]  # milliseconds -> samples
SLICE_MS = 100.0  # one candidate's slice of a round
FIRST_MS = 200.0  # one candidate's time before a measurement may end early
GRAPH_US = 20000.0  # kernel time in one graph: the gap between two replays is small beside it
MAX_CALLS = 4096  # calls in one graph
SWITCH_US = 20000.0  # a quiet machine has fewer involuntary context switches than one in this time


class Sample(NamedTuple):
    """Microseconds per call, and whether other processes had the CPU meanwhile."""

    us: float
    disturbed: bool = False


@dataclass(frozen=True)
class Timing:
    """Microseconds per call: the median of the samples and their interquartile range.

    `disturbed` is the share of samples in which other processes had the CPU. They do not count,
    unless it is 1.
    """

    us: float
    iqr_us: float
    disturbed: float = 0.0

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Timing:
        """The timing of these samples."""
        quiet = [sample.us for sample in samples if not sample.disturbed]
        disturbed = 1 - len(quiet) / len(samples)
        counted = quiet or [sample.us for sample in samples]
        if len(counted) == 1:
            return cls(counted[0], 0.0, disturbed)
        low, middle, high = statistics.quantiles(counted, n=4, method="inclusive")
        return cls(middle, high - low, disturbed)


def _switches() -> int:
    """The involuntary context switches of all threads of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def wall_clock(run: Callable[[], object], calls: int = 1) -> Sample:
    """The time of run(), which makes so many calls, by the wall clock."""
    switches, start = _switches(), time.perf_counter()
    run()
    us = (time.perf_counter() - start) * 1e6
    return Sample(us / calls, (_switches() - switches) * SWITCH_US > us)


def events_us(function: Callable[[], object]) -> float:
    """Microseconds between two CUDA events around the function, at least 1."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    function()
    last.record()
    last.synchronize()
    return max(1.0, first.elapsed_time(last) * 1e3)


@contextlib.contextmanager
def _graph_slices(call: Call, sets: int, graph_us: float = GRAPH_US) -> Iterator[Slice]:
    """One candidate on a GPU, in a graph of calls, each on the next operand set."""
    # The first call creates handles and workspaces and sets kernel attributes, which is forbidden
    # in a capture. torch requires a side stream for the warm-up before a capture.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for index in range(3):
            call(index % sets)
        us = events_us(lambda: [call(index % sets) for index in range(4)]) / 4
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    wanted, most = math.ceil(graph_us / (us * sets)), max(1, MAX_CALLS // sets)
    calls = sets * min(wanted, most)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for index in range(calls):
            call(index % sets)
    replay_us = events_us(graph.replay)

    def time_slice(ms: float) -> list[Sample]:
        """Samples from replays that run back to back."""
        replays = max(1, math.ceil(ms * 1e3 / replay_us))
        events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        events[-1].synchronize()
        pairs = itertools.pairwise(events)
        return [Sample(first.elapsed_time(last) * 1e3 / calls) for first, last in pairs]

    try:
        yield time_slice
    finally:
        graph.reset()


@contextlib.contextmanager
def _host_slices(call: Call, sets: int) -> Iterator[Slice]:
    """One candidate on the CPU. A sample has as many calls as run in a millisecond."""
    indices = itertools.cycle(range(sets))

    def run(calls: int) -> None:
        for index in itertools.islice(indices, calls):
            call(index)

    run(1)
    calls = max(1, math.ceil(1e3 / max(0.1, wall_clock(functools.partial(run, 1)).us)))

    def time_slice(ms: float) -> list[Sample]:
        samples: list[Sample] = []
        while sum(sample.us for sample in samples) * calls < ms * 1e3:
            samples.append(wall_clock(functools.partial(run, calls), calls))
        return samples

    yield time_slice


def measure(
    candidates: Mapping[str, Call],
    sets: int,
    *,
    device: torch.device | str,
    min_ms: float = 300.0,
    graph_us: float = GRAPH_US,
    sampler: Sampler | None = None,
    refusals: dict[str, str] | None = None,
    needed: str | None = None,
    enough: Callable[[Mapping[str, Timing]], bool] | None = None,
    session: Callable[[str], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> dict[str, Timing]:
    """Measures the time of each candidate: {name: call} -> {name: Timing}.

    Example:
        >>> from tcgemm.measure import timing
        >>> a = [torch.randn(64, 64) for _ in range(2)]
        >>> calls = {"mm": lambda i: tcgemm.mm(a[i], a[i]), "add": lambda i: a[i] + a[i]}
        >>> found = timing.measure(calls, 2, device="cpu", min_ms=20.0)
        >>> found["mm"].us > 0
        True

    Arguments:
        candidates (dict): calls by name. call(i) works on operand set i, 0 <= i < sets.
        sets (int): the number of operand sets.
        device: "cuda" captures the calls in CUDA graphs; "cpu" uses the wall clock.
        min_ms (float): the time of one candidate in milliseconds, in slices of about SLICE_MS. One
            more slice before that does not count: during it the clock rises from idle to the value
            that the load allows. A candidate whose samples are all disturbed gets as much again.
        graph_us (float): the kernel time of one graph in microseconds. A short graph is captured
            sooner, and the 10 us between two replays are a larger share of its time.
        sampler (telemetry.Sampler): samples clock and power during the slices that count.
        refusals (dict): gets the reason of each candidate that no CUDA graph can capture. If it is
            None, such a candidate raises RuntimeError.
        needed (str): the candidate that raises it also with refusals.
        enough: gets the timings after FIRST_MS of each candidate, and ends the measurement there if
            it returns True. None measures all of min_ms.
        session: the block in which the calls of a candidate run, by its name. To enter it takes no
            part in a time.
    """
    captures = torch.device(device).type == "cuda"
    graphs = functools.partial(_graph_slices, graph_us=graph_us)
    slices_of = graphs if captures else _host_slices
    rounds = 2 * math.ceil(min_ms / (2 * SLICE_MS))  # each order as often as the reverse
    slice_ms = min_ms / rounds
    first = 2 * math.ceil(FIRST_MS / (2 * slice_ms))
    slices: dict[str, Slice] = {}
    with contextlib.ExitStack() as stack:
        for name, call in candidates.items():
            try:
                with session(name):
                    slices[name] = stack.enter_context(slices_of(call, sets))
            except Exception as error:
                if refusals is None or name == needed:
                    raise
                refusals[name] = f"{'(in a CUDA graph) ' * captures}{error}".split("\n")[0]
        for name, time_slice in slices.items():
            with session(name):
                time_slice(slice_ms)
        stack.enter_context(sampler or contextlib.nullcontext())
        samples: dict[str, list[Sample]] = {name: [] for name in slices}
        for index in range(2 * rounds):
            if index >= rounds and all(map(_has_quiet, samples.values())):
                break
            for name in sorted(slices, reverse=index % 2 == 1):
                with session(name):
                    samples[name] += slices[name](slice_ms)
            if enough and slices and index + 1 == first and enough(_timings(samples)):
                break
    return _timings(samples)


def _has_quiet(samples: Sequence[Sample]) -> bool:
    return not all(sample.disturbed for sample in samples)


def _timings(samples: Mapping[str, Sequence[Sample]]) -> dict[str, Timing]:
    return {name: Timing.of(of_name) for name, of_name in samples.items()}


def host_time(
    candidates: Mapping[str, Call],
    sets: int,
    *,
    device: torch.device | str,
    calls: int = 50,
    batches: int = 20,
) -> dict[str, Timing]:
    """Measures the host time of one call of each candidate: {name: call} -> {name: Timing}.

    There is no CUDA graph, and no call waits for a kernel: 50 calls fit into the launch queue, and
    the GPU is synchronised between batches, outside the timed region. As many calls run untimed
    before each batch, because another candidate evicts code and data from the caches: after calls
    of half a millisecond, a call of tcgemm takes 2 to 4 us longer.
    """
    cuda = torch.device(device).type == "cuda"

    def run(call: Call) -> None:
        for index in range(calls):
            call(index % sets)

    samples: dict[str, list[Sample]] = {name: [] for name in candidates}
    for _ in range(batches):
        for name, call in candidates.items():
            run(call)
            if cuda:
                torch.cuda.synchronize(device)
            samples[name].append(wall_clock(functools.partial(run, call), calls))
    if cuda:
        torch.cuda.synchronize(device)
    return _timings(samples)
