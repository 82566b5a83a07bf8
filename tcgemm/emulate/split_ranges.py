"""The exponent ranges of the rows of float32 operands, and the choice of terms that follows.

csrc/core/split_fp32.h has the rules. csrc/kernels/passes/split_fp32_shape.cuh says which rows share
a statistics word, and csrc/kernels/passes/split_fp32_second.cuh makes the decision of the words.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

THREADS = 256  # of a CTA, kSplitThreads
VECTOR = 4  # elements in 16 bytes
THREAD_VECTORS = 8  # that a thread holds
MIN_BLOCKS = 256
MAX_CLUSTER = 8
MOST_WORDS = 512  # kMaxSplitStatistics
F16_SPREAD = 28  # the largest spread of a row that is not wide for float16 terms
MOST_EXPONENT = 40  # kMaxInRangeExponent
# float16 terms serve fewer wide rows than this in a word, and fewer words that count any.
TOO_WIDE_ROWS, TOO_WIDE_WORDS = 4, 16
WIDE, OUT_OF_RANGE, TOO_WIDE = 1, 1 << 11, 1 << 21  # counters that share one integer


class Ranges(NamedTuple):
    """Of rows (..., M, K): int32 and bool (..., M)."""

    high: Tensor  # the exponent of the largest element; 0 of a row that is zero or not finite
    spread: Tensor  # high, less the exponent of the smallest element that is not zero
    finite: Tensor  # the row holds neither Inf nor NaN

    def wide(self, most: int) -> Tensor:
        """The finite rows that span more than 2^most."""
        return (self.spread > most) & self.finite


def ranges_of(x: Tensor) -> Ranges:
    """The ranges of the rows of x."""
    finite = x.isfinite().all(-1)
    magnitude = x.double().abs()
    has_range = finite & (magnitude > 0).any(-1)
    # Subnormal numbers have their own exponents, down to -149.
    largest = _exponent(magnitude.amax(-1).where(has_range, 1.0))
    smallest = magnitude.where(magnitude > 0, torch.inf).amin(-1)
    return Ranges(largest, largest - _exponent(smallest.where(has_range, 1.0)), finite)


def use_bf16(ranges: tuple[Ranges, Ranges], mn_major: tuple[bool, bool], k: int) -> bool:
    """The decision of the second pass: True if the rows are too wide for float16 terms."""
    counts = 0
    for operand, is_strip in zip(ranges, mn_major, strict=True):
        wide, out_of_range = statistics(operand, is_strip, k)
        counts += WIDE * int((wide > 0).sum())
        counts += TOO_WIDE * int((wide >= TOO_WIDE_ROWS).sum())
        counts += OUT_OF_RANGE * int(out_of_range.sum())
    # 1024 words out of range carry into the counter of words that are too wide, as on the GPU.
    return counts >= TOO_WIDE or counts % OUT_OF_RANGE >= TOO_WIDE_WORDS


def statistics(ranges: Ranges, mn_major: bool, k: int) -> tuple[Tensor, Tensor]:
    """Of each statistics word: the wide rows that it counts, and whether a row is out of range."""
    rows = ranges.high.shape[-1]
    batch = ranges.high.numel() // rows
    index = torch.arange(batch * rows, device="cpu")
    if mn_major:
        columns = VECTOR << _log_strip_vectors(rows, k, batch)
        unit = index // rows * -(-rows // columns) + index % rows // columns
    else:
        unit = index // (THREADS >> _log_threads_per_row(rows, k, batch))
    words = min(int(unit[-1]) + 1, MOST_WORDS)  # a CTA or cluster has every so many units
    wide = ranges.wide(F16_SPREAD).flatten().long()
    out_of_range = (~ranges.finite | (ranges.high.abs() > MOST_EXPONENT)).flatten().long()
    empty = torch.zeros(words, dtype=torch.int64, device="cpu")
    counts = (empty.index_add(0, unit % words, flags) for flags in (wide, out_of_range))
    return next(counts), next(counts) > 0


def _log_threads_per_row(rows: int, k: int, batch: int) -> int:
    """log_threads_per_row of csrc/kernels/passes/split_fp32_shape.cuh."""
    least = MIN_BLOCKS * THREADS
    vectors, rows = -(-k // VECTOR), min(rows * batch, least)
    log = 3
    while (
        1 << log < THREADS
        and vectors > 1 << log
        and (vectors > THREAD_VECTORS << log or rows << log < least)
    ):
        log += 1
    return log


def _log_strip_vectors(rows: int, k: int, batch: int) -> int:
    """log_strip_vectors of csrc/kernels/passes/split_fp32_shape.cuh."""
    strips = -(-rows // (8 * VECTOR)) * batch
    return 2 if k > 4096 or strips * MAX_CLUSTER < MIN_BLOCKS else 3


def _exponent(x: Tensor) -> Tensor:
    return torch.frexp(x).exponent - 1
