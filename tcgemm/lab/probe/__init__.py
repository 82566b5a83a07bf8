"""What the tensor cores and memories of a GPU do, instruction by instruction.

`run` measures the GPU of this machine, by kernels of PTX text that its driver compiles. `python -m
tcgemm probe` prints the tables, beside published figures.
"""

from tcgemm.lab.probe.measure import run

__all__ = ["run"]
