"""Packed weights as tcgemm saves them.

    python tests/support/packed_weight_files.py write     writes tests/data/saved/packed

As with the files beside them, the tag 0.1.0 freezes them: every later tcgemm has to load them with
the same values. The expected ones come from packed_weight_order.dense, which reads the bits one by
one.
"""

import pickle
import sys
from pathlib import Path

import numpy
import safetensors.torch
import torch

import tcgemm

from support import packed_weight_order
from support.packed_weight_cases import CASES, IDS

FOLDER = Path(__file__).resolve().parent.parent / "data" / "saved" / "packed"
ROWS, COLUMNS = 4, 128


def write():
    """Writes every file."""
    torch.manual_seed(28)
    FOLDER.mkdir(parents=True)
    weights = {
        name: case.pack(torch.randn(ROWS, COLUMNS).half())
        for name, case in zip(IDS, CASES, strict=True)
    }
    expected = {
        name: packed_weight_order.dense(value).float().numpy() for name, value in weights.items()
    }
    numpy.savez_compressed(FOLDER / "expected.npz", **expected)
    torch.save(weights, FOLDER / "weights.pt")
    (FOLDER / "weights.pickle").write_bytes(pickle.dumps(weights))
    layers = torch.nn.ModuleList(
        tcgemm.nn.PackedLinear.from_packed(value, torch.arange(4.0)) for value in weights.values()
    )
    torch.save(layers, FOLDER / "layers.pt")
    safetensors.torch.save_file(layers.state_dict(), FOLDER / "layers.safetensors")


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        raise SystemExit(__doc__)
    write()
