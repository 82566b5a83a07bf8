"""Recorded results of tensor-core instructions on an H200: tests/data/tensor_cores.

One file an instruction; raw bits as unsigned integers of the element's size. a (cases, M, stored
columns), b (cases, N, K), c and d (cases, M, N), the kind of inputs of each case, and for a sparse
a the four metadata bits that all its groups share, repeated to 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tcgemm.emulate import instruction, table
from tcgemm.emulate.instruction import TORCH

FOLDER = Path(__file__).resolve().parents[1] / "data" / "tensor_cores"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def tensor(words: np.ndarray, dtype: str) -> torch.Tensor:
    """The elements with these bits; `dtype` is a name as in instructions()."""
    signed = words.view(f"i{words.itemsize}" if words.itemsize > 1 else "u1")
    return torch.from_numpy(signed.copy()).view(TORCH[dtype])


def bits(x: torch.Tensor) -> torch.Tensor:
    """The elements' bits as integers of their size."""
    return x.contiguous().view(WORDS[x.element_size()])


@dataclass
class Recording:
    """The operands as mma() takes them, and the recorded results."""

    name: str
    instruction: str
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor | None
    d: torch.Tensor
    metadata: torch.Tensor | None
    satfinite: bool
    category: np.ndarray

    def operands(self) -> dict:
        named = {"a": self.a, "b": self.b, "c": self.c, "metadata": self.metadata}
        return {**named, "satfinite": self.satfinite}

    def wrong(self, result: torch.Tensor) -> torch.Tensor:
        """Which elements have other bits; NaN of float64 equals NaN."""
        wrong = bits(result) != bits(self.d)
        is_nan = result.isnan() & self.d.isnan()
        return wrong & ~is_nan if self.d.dtype is torch.float64 else wrong


def multiply(mma, *operands, changes, **options):
    """a @ b + c by the instruction, whose arithmetic has some other numbers."""
    row = table.rows()[mma.arch, mma.name][1]
    arithmetic = table.Arithmetic.from_buffer_copy(row.arithmetic)
    for field, value in changes.items():
        setattr(arithmetic, field, value)
    return instruction.multiply(mma, *operands, arithmetic=arithmetic, **options)


def metadata_bytes(nibble: np.ndarray, tf32: bool) -> np.ndarray:
    """The metadata bytes of SparseTensor24 for the hardware's four bits of a group."""
    if tf32:  # the pair 0, 1 or 2, 3 of 16-bit halves
        return np.where(nibble == 0x4, 0x00, 0x55).astype(np.uint8)
    return nibble | nibble << 4


def load(name: str) -> Recording:
    file = np.load(FOLDER / f"{name}.npz")
    text = {key: str(file[key]) for key in ("a_dtype", "b_dtype", "accumulator", "instruction")}
    sparse, tf32 = "_sp_" in name, text["a_dtype"] == "tf32"
    shape = "m16n8" if text["instruction"] == "mma" else "m64nN"
    k = file["b"].shape[2] // int(file["chained"])
    family = text["instruction"] + (".sp" if sparse else "")
    metadata = None
    if sparse:
        metadata = metadata_bytes((file["metadata"] & 15).astype(np.uint8), tf32)
        cases, m, stored = file["a"].shape
        metadata = torch.from_numpy(metadata.repeat(m * stored // 4).reshape(cases, m, stored // 4))
    c = tensor(file["c"], text["accumulator"]) if file["scale_d"] else None
    return Recording(
        name=name,
        instruction=f"{family}.{shape}k{k}.{text['accumulator']}.{text['a_dtype']}"
        f".{text['b_dtype']}",
        a=tensor(file["a"], text["a_dtype"]),
        b=tensor(file["b"], text["b_dtype"]).mT,
        c=c,
        d=tensor(file["d"], text["accumulator"]),
        metadata=metadata,
        satfinite=bool(file["satfinite"]),
        category=file["category"],
    )
