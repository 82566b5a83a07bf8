"""Models of a GEMM on a GPU: what bounds a tile, which memory feeds it, how accesses collide.

blocking   cycles of the tensor cores and of memory in a step of k (Yan, Wang and Chu 2020)
roofline   operations a byte of a tile, and the rates that it needs
banks      conflicts of shared memory, from the addresses of a warp's lanes

`tcgemm model` prints them for a GPU.
"""

from tcgemm.lab.model import banks, blocking, gpus, roofline

__all__ = ["banks", "blocking", "gpus", "roofline"]
