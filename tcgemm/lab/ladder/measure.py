"""Measures the steps of a ladder: first their results, then their time beside cuBLAS."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.emulate.rounding import round_to_tf32
from tcgemm.lab import progress, store
from tcgemm.lab.ladder import call, conflicts, machine_code, problem
from tcgemm.lab.ladder.steps import DOCUMENTS, SIZES, steps
from tcgemm.measure import errors, telemetry, timing
from tcgemm.measure.command_line import Interrupted
from tcgemm.measure.machine import facts
from tcgemm.measure.results import commit, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tcgemm.lab.ladder.problem import Problem
    from tcgemm.lab.ladder.steps import Step, Variant

    Results = dict[str, Any]
    Record = dict[str, Any]

KIND = "ladder"
MIN_MS = 20.0  # of a candidate in a repetition
REPETITIONS = 3
BUDGET = 6e10  # floating-point operations of a float64 reference
CUBLAS = "cuBLAS"


def run(
    documents: str | Sequence[str] = DOCUMENTS,
    size: int | tuple[int, int, int] | None = None,
    *,
    path: str | Path | None = None,
    resume: bool = False,
    min_ms: float = MIN_MS,
    repetitions: int = REPETITIONS,
) -> Results:
    """Measures ladders of GEMM kernels on the GPU of this machine, each step beside cuBLAS.

    Each variant multiplies a small problem of whole numbers first, whose result is exact, and then
    normal data, whose error is compared with its bound.

    Example:
        >>> from tcgemm.lab import ladder
        >>> ladder.run("004", 4096)["records"][0]["step"]  # doctest: +SKIP
        '004_1_0'

    Arguments:
        documents: "000", "001", "002", "003", "004", or several of them.
        size: M = N = K, or (M, N, K). None: the size of the document.
        path: a JSON file, written after each group of steps.
        resume: keep the records of the file and measure the others.
        min_ms: milliseconds of each candidate in a repetition.
        repetitions: how often the candidates of a dtype are measured, one repetition after the
            other. A time is the median of its repetitions, and beside it stands their range.

    Returns:
        The header, which has the GPU, driver and versions, and the list of records.

    Raises:
        ValueError: There is no GPU, ladder or size like that, or the file to resume is another
            GPU's or has another size.
        ImportError: No CUDA kernel was built.
        KeyboardInterrupt: Ctrl-C. Its attribute `result` has the records of complete groups.
    """
    names = check_documents(documents)
    check_size(size)
    if not isinstance(repetitions, int) or repetitions < 1:
        raise ValueError(f"repetitions is {repetitions!r}; expected a positive integer.")
    if not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA GPU.")
    sizes = {document: problem.sizes(size or SIZES[document]) for document in names}
    results = _start(path, resume, sizes)
    measured_keys = {(record["step"], record["variant"]) for record in results["records"]}
    groups = [
        (document, group)
        for document in names
        for group in problem.groups(steps(document))
        if any((step.name, variant.label) not in measured_keys for step, variant in group)
    ]
    total = sum(len(group) for _, group in groups)
    try:
        with progress.bar(total, "ladder", "kernel") as progress_bar, torch.inference_mode():
            for document, group in groups:
                keys = {(step.name, variant.label) for step, variant in group}
                rest = [x for x in results["records"] if (x["step"], x["variant"]) not in keys]
                records = list(_measure(group, sizes[document], min_ms, repetitions))
                results["records"] = rest + records
                if path is not None:
                    save(results, Path(path))
                if progress_bar is not None:
                    progress_bar.set_postfix_str(group[0][0].name)
                    progress_bar.update(len(group))
    except KeyboardInterrupt as error:
        raise Interrupted(_complete(results, path)) from error
    return _complete(results, path)


def _complete(results: Results, path: str | Path | None) -> Results:
    """The results in the order of the steps, with their speed-ups; written to the file."""
    order = {
        (step.name, variant.label): index
        for index, (step, variant) in enumerate(problem.every(DOCUMENTS))
    }
    results["records"].sort(key=lambda record: order[record["step"], record["variant"]])
    _compare(results["records"])
    if path is not None:
        save(results, Path(path))
    return results


def check_documents(documents: str | Sequence[str]) -> list[str]:
    """The ladders in order; ValueError names one that there is not."""
    names = [documents] if isinstance(documents, str) else list(documents)
    for name in names:
        steps(name)
    return [document for document in DOCUMENTS if document in names or not names]


def check_size(size: int | tuple[int, int, int] | None) -> None:
    """ValueError if a size is not positive."""
    for length in () if size is None else problem.sizes(size):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"size is {size!r}; expected a positive integer, or M, N and K.")


def _measure(
    group: Sequence[tuple[Step, Variant]],
    mnk: tuple[int, int, int],
    min_ms: float,
    repetitions: int,
) -> Iterator[Record]:
    """The records of steps with one dtype, result and layout."""
    records: dict[str, Record] = {}
    candidates: dict[str, timing.Call] = {}
    options: dict[str, Any] = {"device": "cuda", "min_ms": min_ms}
    data = None
    for step, variant in group:
        name = f"{step.name} {variant.label}"
        own = problem.own_size(step, variant, mnk)
        record = problem.record(step, variant, own)
        records[name] = record
        try:
            if refusal := call.check(step, variant, *own):
                raise ValueError(refusal)
            data = data if data is not None and data.mnk == own else problem.build(step, own)
            record |= call.launch(step, variant, data.a[0], data.b[0], data.out[0])
        except ValueError as error:
            record["refused"] = str(error)
            continue
        record |= {"refused": None, "conflicts": conflicts.of(step.name, variant.parameters)}
        if step.name == "000_hgemm":
            record["store_spacing"] = machine_code.store_spacing(variant.parameters[0])
        record |= _check(step, variant, data)
        candidates[name] = problem.candidate(step, variant, data)
        if step.name in problem.ALONE:  # sizes of its own
            alone = {name: candidates.pop(name)}
            samples = [timing.measure(alone, 1, **options)[name] for _ in range(repetitions)]
            _time(record, samples, data)
            data = None
    if candidates and data is not None:
        step = group[0][0]
        candidates[CUBLAS] = problem.cublas(step, data)
        sampler = telemetry.Sampler("cuda")
        found = [
            timing.measure(candidates, data.sets, **options, sampler=sampler)
            for _ in range(repetitions)
        ]
        of_cublas = [sample[CUBLAS].us for sample in found]
        for name in candidates:
            if name == CUBLAS:
                continue
            samples = [sample[name] for sample in found]
            _time(records[name], samples, data, sampler.clock_mhz)
            ratios = [them / own.us for them, own in zip(of_cublas, samples, strict=True)]
            records[name] |= {
                "cublas_us": statistics.median(of_cublas),
                "x_cublas": statistics.median(ratios),
                "x_cublas_range": [min(ratios), max(ratios)],
            }
    yield from records.values()


def _time(
    record: Record,
    samples: Sequence[timing.Timing],
    data: Problem,
    clock_mhz: float | None = None,
) -> None:
    m, n, k = data.mnk
    times = [sample.us for sample in samples]
    us = statistics.median(times)
    flops = 2.0 * m * n * k * record.pop("repeats")
    record |= {
        "us": us,
        "us_range": [min(times), max(times)],
        "iqr_us": statistics.median(sample.iqr_us for sample in samples),
        "tflops": flops / us / 1e6,
        "clock_mhz": clock_mhz,
    }
    record["percent"] = problem.percent(record, problem.ceilings(torch.cuda.get_device_name()))


def _check(step: Step, variant: Variant, data: Problem) -> Record:
    """Is a small product exact? How large is the error of a large one, and has it the bits
    of the first step?"""
    exact = problem.is_exact(step, variant)
    cycles = torch.zeros(1 << 22, dtype=torch.int64, device="cuda") if step.has_cycles else None
    out = data.out[0].fill_(float("nan"))
    call.launch(step, variant, data.a[0], data.b[0], out, cycles)
    record: Record = {"exact": exact, "error": None}
    if cycles is not None:
        record["cycles"] = int(cycles.max())
    if step.name not in problem.ALONE:
        rounding = round_to_tf32 if step.operands == "tf32" else torch.clone
        record["error"] = errors.error_ratio(
            out, rounding(data.a[0]), rounding(data.b[0]),
            accumulation=step.sums, dtype=step.operands, budget=BUDGET, products=step.products,
        )  # fmt: skip
        if data.first is None:
            data.first = out.clone()
        record["same_bits"] = torch.equal(out, data.first)
    return record


def _compare(records: list[Record]) -> None:
    """Adds the speed over the first step and over the best variant of the step before."""
    for document in DOCUMENTS:
        before = first = None
        for name in dict.fromkeys(step.name for step in steps(document) if step.is_rung):
            own = [x for x in records if x["step"] == name and x["is_rung"] and x.get("us")]
            for record in own:
                if record["m"] * record["n"] * record["k"] < 1 << 20:  # one tile: no speed
                    continue
                first = first or record["us"]
                record["x_first"] = first / record["us"]
                record["x_before"] = before and before / record["us"]
            times = [record["us"] for record in own if "x_first" in record]
            before = min(times) if times else before


def _start(
    path: str | Path | None, resume: bool, sizes: dict[str, tuple[int, int, int]]
) -> Results:
    header = facts("cuda") | {"commit": commit()}
    old = store.to_resume(path, resume, header["gpu"], load)
    records = [] if old is None else old["records"]
    for record in records:
        expected, size = sizes.get(record["document"]), (record["m"], record["n"], record["k"])
        if expected not in (None, size) and record["step"] not in problem.ALONE:
            raise ValueError(
                f"size is {problem.text_of(expected)}, but {path} has records of ladder "
                f"{record['document']} at {problem.text_of(size)}; resume with that size, or "
                "name another file."
            )
    return {"header": header, "records": records}


def stored() -> dict[str, Results]:
    """{name of the GPU: results} of the ladders that tcgemm has stored."""
    return {gpu: _with_percent(results) for gpu, results in store.results(KIND).items()}


def measured_or_stored(document: str) -> Results:
    """The results of a ladder on this GPU; without one, those that tcgemm has stored of an H200.

    It prints which of both they are. What is measured is written into this folder, as
    ladder-004.json.
    """
    if torch.cuda.is_available():
        path = f"ladder-{document}.json"
        results = run(document, path=path)
        print(f"Measured now on {results['header']['gpu']}, and written to {path}.")
        return results
    results = stored()["NVIDIA H200"]
    header = results["header"]
    print(
        f"No CUDA GPU is here: the times below are stored ones, measured on {header['gpu']} on "
        f"{header['date'][:10]}."
    )
    return results


def load(path: Path) -> Results:
    """The results of a file; ValueError if it has none."""
    try:
        results = json.loads(path.read_text())
        if isinstance(results["header"]["gpu"], str) and results["records"][0]["step"]:
            return _with_percent(results)
    except (ValueError, KeyError, TypeError, IndexError):
        pass
    raise ValueError(f"{path} has no ladders: tcgemm ladder --json FILE writes them.")


def _with_percent(results: Results) -> Results:
    """The results with the share of the probe's rate where the run had no probe of its GPU."""
    rates = problem.ceilings(results["header"]["gpu"])
    records = [
        record if record.get("percent") else record | {"percent": problem.percent(record, rates)}
        for record in results["records"]
    ]
    return results | {"records": records}


def save(results: Results, path: Path) -> None:
    """Writes a file with one record a line, or leaves the old one."""
    records = [
        {key: _short(value) for key, value in record.items()} for record in results["records"]
    ]
    write(path, {"header": results["header"], "records": records})


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
