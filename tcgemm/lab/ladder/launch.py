"""python -m tcgemm.lab.ladder.launch DOCUMENT SIZE: each variant once, for Nsight Compute.

The variants run in the order of their steps. One that this size or this GPU does not allow is left
out; its line on standard output says so.
"""

from __future__ import annotations

import sys

import torch

from tcgemm.lab.ladder import call, problem


def main(document: str, size: int) -> None:
    """Launches the kernels of a ladder."""
    for step, variant in problem.every([document]):
        mnk = problem.own_size(step, variant, problem.sizes(size))
        data = problem.build(step, mnk, sets=1)
        try:
            call.launch(step, variant, data.a[0], data.b[0], data.out[0])
            print(f"launched\t{step.name}\t{variant.label}")
        except ValueError as error:
            print(f"refused\t{step.name}\t{variant.label}\t{error}")
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
