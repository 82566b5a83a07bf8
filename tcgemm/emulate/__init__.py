"""What tensor cores compute, bit for bit, on a CPU.

instructions(arch)     the tensor-core instructions, and how a GPU adds their products
mma(a, b, c, ...)      the bits of an instruction, or of a chain of them along k
mm(a, b, ...)          the bits of tcgemm.mm on a GPU

The arithmetic is a table of numbers for each generation of GPUs (csrc/emulate/models.h);
docs/numerics/tensor-cores.md explains it.
"""

from tcgemm.emulate.instruction import mma
from tcgemm.emulate.product import mm
from tcgemm.emulate.table import Instruction, instructions

__all__ = ["Instruction", "instructions", "mm", "mma"]
