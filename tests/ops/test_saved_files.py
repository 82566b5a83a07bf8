"""Saved files of each format load with the same bits in every later tcgemm.

tests/support/saved_files.py says what is in tests/data/saved. Where the tcgemm that wrote a file
loaded it with weights_only=True, so does every later one.
"""

import json
import pickle
import pickletools

import numpy
import pytest
import safetensors.torch
import torch

import tcgemm
from tcgemm import saved_names

from support import saved_files
from support.cases import reloaded
from support.saved_files import FLAGS, FOLDER, bits, empty, file_of

FACTS = json.loads((FOLDER / "facts.json").read_text())
EXPECTED = dict(numpy.load(FOLDER / "expected.npz"))
TENSORS = tuple(FACTS["flags"])
PREPARED = ("prepared", "prepared transpose")
MODELS = ("linear", "swapped", *saved_files.QUANT, *saved_files.SPARSE)


def same(tensor, name):
    """Has the tensor the dtype, the shape and the bits of the expected one?"""
    expected = EXPECTED[f"{name}:{tensor.dtype}"]
    return tensor.shape == expected.shape and numpy.array_equal(bits(tensor), expected)


def plain(name):
    """An expected tensor of float32, float16 or bfloat16."""
    key = next(key for key in EXPECTED if key.startswith(f"{name}:"))
    dtype = getattr(torch, key.rpartition("torch.")[2])
    return torch.from_numpy(EXPECTED[key]).view(dtype)


def load(name):
    return torch.load(file_of(name, "pt"), weights_only=name in FACTS["weights_only"])


def pickled():
    return pickle.loads(file_of("all", "pickle").read_bytes())


def check_tensor(w, name):
    assert {flag: getattr(w, flag) for flag in FLAGS} == FACTS["flags"][name]
    assert isinstance(w, torch.nn.Parameter) is (name == "parameter")
    with torch.no_grad():
        assert same(w.to_dense(), f"{name}/dense")
    assert same(w.values, f"{name}/values")
    assert same(w.metadata, f"{name}/metadata")


def check_prepared(weight, name):
    assert weight.fresh
    assert weight.transposed is (name == "prepared transpose")
    assert same(weight.weight, f"{name}/dense")


def check_state(state, name):
    keys = {key.rpartition(":")[0] for key in EXPECTED if key.startswith(f"{name}/state/")}
    later = {"0.weight.refresh"}  # a layer without it begins to count
    state = {key: tensor for key, tensor in state.items() if key not in later}
    assert keys == {f"{name}/state/{key}" for key in state}
    for key, tensor in state.items():
        assert same(tensor, f"{name}/state/{key}"), key


def check_result(model, name):
    with torch.no_grad():
        assert same(model(plain(f"{name}/x")), f"{name}/result")


def check_model(model, name):
    check_state(model.state_dict(), name)
    check_result(model, name)
    check_state(reloaded(model, weights_only=False).state_dict(), name)


def test_what_loaded_with_weights_only():
    states = {f"{name} state" for name in MODELS}
    assert states | {"tensors"} <= set(FACTS["weights_only"])


@pytest.mark.parametrize("name", TENSORS)
def test_a_sparse_tensor_loads(name):
    check_tensor(load("tensors")[name], name)


@pytest.mark.parametrize("name", PREPARED)
def test_a_prepared_weight_loads(name):
    check_prepared(load(name), name)


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_model_loads(name):
    check_model(load(name), name)


@pytest.mark.parametrize("name", FACTS["pickled"])
def test_a_pickle_loads(name):
    value = pickled()[name]
    check = check_tensor if name in TENSORS else check_prepared if name in PREPARED else check_model
    check(value, name)


@pytest.mark.parametrize("form", ("torch.save", "safetensors"))
@pytest.mark.parametrize("name", MODELS)
def test_a_state_dict_loads(name, form):
    if form == "torch.save":
        state = load(f"{name} state")
    else:
        state = safetensors.torch.load_file(file_of(name, "safetensors"))
    check_state(state, name)
    model = empty(name).eval()
    model.load_state_dict(state)
    check_result(model, name)


@pytest.mark.parametrize("name", FACTS["exported"])
def test_an_exported_program_loads(name):
    check_result(torch.export.load(file_of(name, "pt2")).module(), name)


def names_in(value):
    """The names of tcgemm that a pickle of the value contains."""
    strings, names = [], set()
    for code, argument, _ in pickletools.genops(pickle.dumps(value)):
        if code.name == "STACK_GLOBAL":
            names.add(".".join(strings[-2:]))
        if isinstance(argument, str):
            strings.append(argument)
    return {name for name in names if name.startswith("tcgemm")}


@pytest.mark.parametrize("name", FACTS["pickled"])
def test_new_files_contain_names_that_never_change(name):
    restored = {f"tcgemm.saved_names.{word}" for word in saved_names.WRITTEN}
    layers = {f"tcgemm.nn.{word}" for word in tcgemm.nn.__all__}
    names = names_in(pickled()[name])
    assert names and names <= restored | layers


def test_functions_are_pickled_by_their_public_names():
    assert names_in(tcgemm.mm) == {"tcgemm.mm"}
