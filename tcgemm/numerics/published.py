"""Published figures of the experiments, with their sources.

DISSECTING  W. Sun, A. Li, T. Geng, S. Stuijk, H. Corporaal: Dissecting Tensor Cores via
            Microbenchmarks: Latency, Throughput and Numeric Behaviors. IEEE Transactions on
            Parallel and Distributed Systems 34(1), 2023; arXiv 2206.02874. On an A100.
"""

from typing import NamedTuple

DISSECTING = "Sun et al. 2023"


class Figure(NamedTuple):
    """A mean absolute difference of tables XII to XV."""

    table: str
    input: str  # the type of a and b
    accumulator: str
    operation: str
    init: str  # "low": all numbers are rounded before both computations; "FP32": on the GPU alone
    reference: str  # "FP32", or "FP32 to FP16" where the CPU's result is rounded
    value: float


def _rows(table: str, types: tuple[str, str], reference: str, *cells: float) -> list[Figure]:
    operations = ("multiplication", "inner product", "accumulation")
    keys = [(operation, init) for operation in operations for init in ("low", "FP32")]
    return [
        Figure(table, *types, *key, reference, value)
        for key, value in zip(keys, cells, strict=True)
    ]


# multiplication low, FP32; inner product low, FP32; accumulation low, FP32
TABLES = (
    *_rows("XII", ("bf16", "f32"), "FP32", 0, 1.29e-3, 0, 1.72e-3, 1.89e-8, 1.13e-3),
    *_rows("XIII", ("f16", "f32"), "FP32", 0, 1.59e-4, 0, 2.18e-4, 0, 1.36e-4),
    *_rows("XIV", ("f16", "f16"), "FP32", 1.22e-4, 1.94e-4, 1.81e-4, 2.99e-4, 1.81e-4, 2.99e-4),
    *_rows("XIV", ("f16", "f16"), "FP32 to FP16", 0, 1.67e-4, 0, 2.21e-4, 0, 2.21e-4),
    *_rows("XV", ("tf32", "f32"), "FP32", 0, 1.59e-4, 0, 2.17e-4, 0, 1.36e-4),
)

# Table XI: sign, exponent and fraction bits, and the bits of a register.
FORMATS = {
    "f32": (1, 8, 23, 32),
    "tf32": (1, 8, 10, 32),
    "f16": (1, 5, 10, 16),
    "bf16": (1, 8, 7, 16),
    "e4m3": (1, 4, 3, 8),
    "e5m2": (1, 5, 2, 8),
}
