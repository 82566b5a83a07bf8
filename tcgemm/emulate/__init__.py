"""What tensor cores compute, bit for bit, on a CPU.

instructions(arch)     the tensor-core instructions, and how a GPU adds their products
mma(a, b, c, ...)      the bits of an instruction, or of a chain of them along k

The arithmetic is a table of numbers for each generation of GPUs (csrc/emulate/models.h);
docs/guides/numerics.md explains it.
"""

from tcgemm.emulate.instruction import mma
from tcgemm.emulate.table import Instruction, instructions

__all__ = ["Instruction", "instructions", "mma"]
