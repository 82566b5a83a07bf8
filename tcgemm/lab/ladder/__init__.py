"""Ladders of GEMM kernels, from the first attempt to what bounds the tensor cores.

Each ladder repeats a published document, one idea a step. `tcgemm ladder` measures
them, and shows their sources: csrc/lab.
"""

from tcgemm.lab.ladder.measure import measured_or_stored, run, stored
from tcgemm.lab.ladder.sources import difference, source
from tcgemm.lab.ladder.steps import Step, Variant, steps

__all__ = [
    "Step",
    "Variant",
    "difference",
    "measured_or_stored",
    "run",
    "source",
    "steps",
    "stored",
]
