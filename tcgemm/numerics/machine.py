"""What multiplies in an experiment: the emulated tensor cores of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tcgemm import emulate, info
from tcgemm.emulate.product import architecture


@dataclass(frozen=True)
class Machine:
    """Runs tensor-core instructions.

    Attributes:
        name (str): the column of the tables: "A100".
        architecture (str): whose instructions it has: "Ampere".
        multiply: (name of the instruction, a, b, c or None) -> a @ b + c, as emulate.mma.
    """

    name: str
    architecture: str
    multiply: Callable[[str, Tensor, Tensor, Tensor | None], Tensor]


def emulated(gpu: str) -> Machine:
    """The tensor cores of a GPU of tcgemm.info.devices(), computed on this CPU."""
    gpus = {row["name"].lower(): row["name"] for row in info.devices()}
    if gpu.lower() not in gpus:
        names = ", ".join(gpus.values())
        raise ValueError(f"{gpu!r} is no GPU that is known here; expected one of {names}.")
    arch = architecture(gpu)

    def multiply(instruction: str, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        return emulate.mma(a, b, c, instruction=instruction, arch=arch)

    return Machine(gpus[gpu.lower()], arch, multiply)
