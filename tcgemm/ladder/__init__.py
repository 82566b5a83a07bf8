"""Ladders of GEMM kernels, from the first attempt to what bounds the tensor cores.

Each ladder repeats a published document, one idea a step. `python -m tcgemm ladder` measures
them, and shows their sources: csrc/ladder.
"""

from tcgemm.ladder.measure import run, stored
from tcgemm.ladder.sources import difference, source
from tcgemm.ladder.steps import Step, Variant, steps

__all__ = ["Step", "Variant", "difference", "run", "source", "steps", "stored"]
