"""The operands of a step, what its result must be, and cuBLAS on the same operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tcgemm import published
from tcgemm.lab import store
from tcgemm.lab.ladder import call
from tcgemm.lab.ladder.steps import steps
from tcgemm.measure import baseline, operands
from tcgemm.measure.operands import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from tcgemm.lab.ladder.steps import Step, Variant
    from tcgemm.measure.timing import Call

    Pair = tuple[Step, Variant]

DEVICE = "cuda"
PEAK = "001_peak"
ALONE = (PEAK, "001_1_single", "001_2_row")  # they have sizes of their own, and no cuBLAS
PEAK_SIZE = 4096  # rows and columns of 001_peak
PUBLISHED = ("3 stages", "3 stages, warps of 64x32")  # variants that the document has
MAX_EXACT = 2  # integers of the operands; float16 sums take 1


@dataclass
class Problem:
    """Operands and results in so many copies that they do not fit into L2."""

    mnk: tuple[int, int, int]
    a: Pool
    b: Pool
    out: Pool
    first: Tensor | None = None

    @property
    def sets(self) -> int:
        """The number of copies."""
        return len(self.out)


def sizes(size: int | tuple[int, int, int]) -> tuple[int, int, int]:
    """(M, N, K)."""
    return (size, size, size) if isinstance(size, int) else size


def text_of(mnk: tuple[int, int, int]) -> str:
    """ "4096x4096x4096"."""
    return "x".join(map(str, mnk))


def every(documents: Iterable[str]) -> Iterator[Pair]:
    """The variants of all steps."""
    for document in documents:
        for step in steps(document):
            for variant in step.variants:
                yield step, variant


def groups(of: Sequence[Step]) -> list[list[Pair]]:
    """Variants of one dtype, sum, result and layout, which share operands and cuBLAS."""
    pairs: dict[tuple[Any, ...], list[Pair]] = {}
    for step in of:
        lone_step = step.name if step.name in ALONE else ""
        key = (step.operands, step.sums, step.result, step.layout, lone_step)
        pairs.setdefault(key, []).extend((step, variant) for variant in step.variants)
    return list(pairs.values())


def own_size(step: Step, variant: Variant, mnk: tuple[int, int, int]) -> tuple[int, int, int]:
    """The sizes of a step: those that are asked for, or the only ones that it takes."""
    if step.name == PEAK:
        return PEAK_SIZE, PEAK_SIZE, variant.parameters[0]
    _, largest = call.sizes(step, variant)
    m, n, k = (limit or size for limit, size in zip(largest, mnk, strict=True))
    return m, n, k


def build(
    step: Step, mnk: tuple[int, int, int], integers: int = 0, sets: int | None = None
) -> Problem:
    """Operands of normal data, or of integers of at most so much."""
    m, n, k = mnk
    dtype, result = operands.DTYPES[step.operands], operands.DTYPES[step.result]
    size = (m * k + k * n) * dtype.itemsize + m * n * result.itemsize
    sets = sets or operands.sets_past_cache(size, DEVICE)
    flip_a, flip_b = operands.is_transposed(step.layout)
    a = Pool(sets, (m, k), dtype, DEVICE, transposed=flip_a)
    b = Pool(sets, (k, n), dtype, DEVICE, transposed=flip_b)
    out = Pool(sets, (m, n), result, DEVICE, transposed=flip_a and flip_b)
    for x in (*a, *b):
        if integers:
            operands.fill_integers(x, integers)
        else:
            operands.fill_normal(x)
    return Problem(mnk, a, b, out)


def candidate(step: Step, variant: Variant, data: Problem) -> Call:
    """The step as a call of tcgemm.measure.timing."""

    def launch(index: int) -> object:
        return call.launch(step, variant, data.a[index], data.b[index], data.out[index])

    return launch


def cublas(step: Step, data: Problem) -> Call:
    """torch.mm with the dtype of the result, and with the sums that the step has."""
    result = operands.DTYPES[step.result]

    def multiply(index: int) -> object:
        a, b, out = data.a[index], data.b[index], data.out[index]
        if result is not a.dtype:
            return torch.mm(a, b, out_dtype=result, out=out)
        with baseline.settings(a, tf32=step.operands == "tf32", fp16_sums=step.sums == "f16"):
            return baseline.product(a, b, out)

    return multiply


def small(step: Step, variant: Variant) -> tuple[int, int, int]:
    """Small sizes that a step takes, all different where it takes more than one."""
    multiples, largest = call.sizes(step, variant)
    result: list[int] = []
    for multiple, limit, count in zip(multiples, largest, (3, 2, 5), strict=True):
        size = limit or multiple * count
        while not limit and size in result:
            size += multiple
        result.append(size)
    if step.name == PEAK:
        result[2] = variant.parameters[0]
    return result[0], result[1], result[2]


def repeats(step: Step, variant: Variant) -> int:
    """How often a step adds the product of its operands."""
    return variant.parameters[1] if step.name == PEAK else 1


def is_exact(step: Step, variant: Variant) -> bool:
    """Does a step compute the exact product of integers, for M, N and K that differ?"""
    data = build(step, small(step, variant), 1 if step.sums == "f16" else MAX_EXACT, sets=1)
    out = data.out[0].fill_(float("nan"))
    call.launch(step, variant, data.a[0], data.b[0], out)
    expected = torch.mm(data.a[0].double(), data.b[0].double()) * repeats(step, variant)
    return torch.equal(out.double(), expected)


def record(step: Step, variant: Variant, mnk: tuple[int, int, int]) -> dict[str, Any]:
    """What is known of a variant before it runs."""
    m, n, k = mnk
    return {
        "document": step.document,
        "step": step.name,
        "variant": variant.label,
        "m": m,
        "n": n,
        "k": k,
        "operands": step.operands,
        "sums": step.sums,
        "ceiling": step.ceiling,
        "is_rung": step.is_rung,
        "repeats": repeats(step, variant),
    } | _published(step, variant)


def _published(step: Step, variant: Variant) -> dict[str, Any]:
    """The document's figure of a variant, in TFLOP/s, or in clocks for 003."""
    fields: dict[str, Any] = {"published": None, "published_gpu": None, "published_unit": "TFLOP/s"}
    document = step.document
    if step.name in ("001_5_shared_a", "001_6_shared_ab"):
        tile, number = variant.parameters
        is_padding = step.name == "001_5_shared_a"
        table, row = ("2", f"{tile}x{tile}x4") if is_padding else ("3", f"{tile}x{tile}")
        column = f"pad {number}" if is_padding else f"k {number}"
    elif document == "003":
        table = "XVII" if step.name == "003_permuted" else "XVI"
        row, column, fields["published_unit"] = step.name, "clocks", "clocks"
    elif document in ("002", "004") and variant.label in ("", "rows in x", *PUBLISHED):
        table, row = "kernels", step.name
        column = "GFLOP/s" if document == "002" else "TFLOP/s"
    else:
        return fields
    for gpu in published.gpus(document, table):
        value = published.figure(document, table, row=row, column=column, gpu=gpu)
        if value is not None:
            scale = 1e-3 if column == "GFLOP/s" else 1
            return fields | {"published": scale * value, "published_gpu": gpu}
    return fields


def percent(record: dict[str, Any], rates: dict[str, float]) -> float | None:
    """The share of the rate of a record's instruction, at the clock of the record; None where one
    of these is not known. `rates`: the result of `ceilings`.
    """
    rate, clock = rates.get(record["ceiling"]), record.get("clock_mhz")
    if not rate or not clock or not record.get("tflops"):
        return None
    return 100 * record["tflops"] * 1e12 / (2 * rate * 1e6 * clock)


def ceilings(gpu: str) -> dict[str, float]:
    """FMA a clock of all SMs, of each instruction that the stored probe of a GPU measured."""
    results = store.results("probe").get(gpu)
    if results is None:
        return {}
    rates: dict[str, float] = {}
    for entry in results["records"]:
        if "rate" in entry:
            rates[entry["row"]] = max(entry["rate"], rates.get(entry["row"], 0.0))
    return {row: rate * results["header"]["processors"] for row, rate in rates.items()}
