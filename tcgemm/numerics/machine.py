"""What multiplies in an experiment: the emulated tensor cores of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcgemm import emulate, info
from tcgemm.emulate.product import GPU_OF

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


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

    def has(self, instruction: str) -> bool:
        """Is the instruction one of this GPU?"""
        return any(row.name == instruction for row in emulate.instructions(self.architecture))


def emulated(gpu: str) -> Machine:
    """The tensor cores of a GPU of tcgemm.info.devices(), computed on this CPU."""
    known = {row["name"].lower(): row for row in info.devices()}
    if gpu.lower() not in known:
        names = ", ".join(row["name"] for row in known.values())
        raise ValueError(f"{gpu!r} is no GPU that is known here; expected one of {names}.")
    row = known[gpu.lower()]
    architecture = GPU_OF[row["compute_capability"]]

    def multiply(instruction: str, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        return emulate.mma(a, b, c, instruction=instruction, arch=architecture)

    return Machine(row["name"], architecture, multiply)
