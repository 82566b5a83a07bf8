"""Packed weights of saved files load with the same values."""

import pickle

import numpy
import pytest
import torch
from safetensors.torch import load_file

import tcgemm

from support.packed_weight_cases import CASES, IDS, TABLE
from support.packed_weight_files import COLUMNS, FOLDER, ROWS

EXPECTED = dict(numpy.load(FOLDER / "expected.npz"))


def has_the_values(packed, name):
    expected = torch.from_numpy(EXPECTED[name])
    values = packed.dequantize(torch.float32)
    return torch.allclose(values, expected, rtol=0, atol=2.0**-22 if "offsets" in name else 0)


def weights():
    """The saved weights by the way in which they are loaded."""
    return {
        "torch.load": torch.load(FOLDER / "weights.pt", weights_only=True),
        "pickle": pickle.loads((FOLDER / "weights.pickle").read_bytes()),
    }


@pytest.mark.parametrize("way", ["torch.load", "pickle"])
def test_weights(way):
    loaded = weights()[way]
    assert list(loaded) == IDS
    for name, packed in loaded.items():
        assert type(packed) is tcgemm.PackedWeight and has_the_values(packed, name)
        x = torch.ones(2, COLUMNS).half()
        assert torch.equal(tcgemm.linear(x, packed), tcgemm.linear(x, packed.dequantize()))


def test_layers():
    layers = torch.load(FOLDER / "layers.pt", weights_only=False)
    for name, layer in zip(IDS, layers, strict=True):
        assert type(layer) is tcgemm.nn.PackedLinear and has_the_values(layer.packed, name)


def test_states():
    state = load_file(FOLDER / "layers.safetensors")
    for index, (name, case) in enumerate(zip(IDS, CASES, strict=True)):
        if case.zeros == "offsets":  # no argument makes a new layer with offsets
            continue
        layer = tcgemm.nn.PackedLinear(
            COLUMNS,
            ROWS,
            format=case.format,
            group_size=case.group_size,
            zero_points=case.zeros == "points",
            table=TABLE if case.format == "table" else None,
        )
        prefix = f"{index}."
        layer.load_state_dict(
            {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
        )
        assert has_the_values(layer.packed, name)
        assert torch.equal(layer.bias, torch.arange(4.0))
