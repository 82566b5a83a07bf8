"""Files that tcgemm saves, and what they hold as plain numbers.

    python tests/support/saved_files.py write      writes tests/data/saved with the tcgemm installed

The tag 0.1.0 freezes the files under tests/data/saved: every later tcgemm has to load them with the
same bits. Before it, a change of a format writes them anew. The expected numbers are in
expected.npz. They do not come from tcgemm: all values are small integers, so that every product is
exact, and float64 products of plain torch give the expected results.
"""

import json
import pickle
import sys
from pathlib import Path

import numpy
import safetensors.torch
import torch
from torch import nn

import tcgemm

FOLDER = Path(__file__).resolve().parent.parent / "data" / "saved"
FLAGS = ("pattern", "transposed", "transposable", "dense_gradient", "requires_grad")
INPUTS, OUTPUTS = 16, 8
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor):
    """The bits of a plain tensor, as a numpy array of integers."""
    tensor = tensor.detach().contiguous()
    return tensor.view(BITS[tensor.element_size()]).numpy()


def integers(*shape, low=2, high=4):
    """Random integers of both signs, whose magnitude is from low to high, in float64."""
    sign = torch.randint(0, 2, shape) * 2 - 1
    return (torch.randint(low, high + 1, shape) * sign).double()


def pattern_mask(rows, columns, pattern):
    """A mask of the pattern; a mask of "2:4" has the pattern along its columns as well."""
    if pattern == "1:2":
        positions = torch.randint(0, 2, (rows, columns // 2, 1))
        return (torch.arange(2) == positions).reshape(rows, columns)
    block = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)).bool()
    return block[torch.randperm(4)].repeat(rows // 4, columns // 4)


def sparse_tensors():
    """Name -> (SparseTensor24, the dense matrix that it stands for)."""
    cases = {}

    def add(name, dtype, pattern=None, transposed=False, **options):
        pattern = pattern or ("1:2" if dtype is torch.float32 else "2:4")
        dense = (integers(8, INPUTS).abs() * pattern_mask(8, INPUTS, pattern)).to(dtype)
        w = tcgemm.compress24(dense, pattern=pattern, **options)
        cases[name] = (w.t(), dense.t()) if transposed else (w, dense)

    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    ):
        add(str(dtype).removeprefix("torch."), dtype)
    add("float32 of 2:4", torch.float32, "2:4")
    add("transposed", torch.bfloat16, transposed=True)
    add("transposable", torch.float16, transposable=True)
    add("dense gradient", torch.bfloat16, dense_gradient=True)
    add("leaf", torch.bfloat16)
    cases["leaf"][0].requires_grad_(True)
    add("parameter", torch.float16)
    cases["parameter"] = (nn.Parameter(cases["parameter"][0]), cases["parameter"][1])
    return cases


def prepared():
    """Name -> (Prepared, its weight)."""
    weight = integers(OUTPUTS, INPUTS).float()
    return {
        "prepared": (tcgemm.prepare(weight), weight),
        "prepared transpose": (tcgemm.prepare(weight).t(), weight),
    }


def layer_of(weight, bias, dtype=torch.float32):
    """The torch.nn.Linear with these numbers."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, dtype=dtype)
    layer.weight.data = weight.to(dtype)
    if bias is not None:
        layer.bias.data = bias.to(dtype)
    return layer


def empty(name):
    """A model of the structure of models()[name], for load_state_dict."""
    sparse = tcgemm.nn.SparseLinear24
    size = (INPUTS, OUTPUTS)
    if name == "linear":
        return nn.Sequential(
            tcgemm.nn.Linear(*size, activation="relu"),
            tcgemm.nn.Linear(OUTPUTS, 4, bias=False, prepare=False),
        )
    if name == "swapped":
        return nn.Sequential(nn.Linear(*size), nn.ReLU())
    if name.startswith("quant "):
        dtype, granularity = QUANT[name]
        options = {"dtype": dtype, "granularity": granularity, "activation": "relu"}
        return nn.Sequential(tcgemm.nn.QuantLinear(*size, **options))
    dtype, options = SPARSE[name]
    options = {key: value for key, value in options.items() if value != "mask"}
    layer = sparse(*size, dtype=dtype, **options)
    return nn.Sequential(layer)


QUANT = {
    "quant int8": (torch.int8, "row"),
    "quant e4m3": (torch.float8_e4m3fn, "128x128"),
    "quant e5m2": (torch.float8_e5m2, "tensor"),
}
LIMITS = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344}
SPARSE = {
    "sparse frozen": (torch.bfloat16, {}),
    "sparse f32": (torch.float32, {}),
    "sparse transposable": (torch.float16, {"method": "transposable"}),
    "sparse learning": (torch.bfloat16, {"learns": True, "refresh_every": 3}),
    "sparse mask": (
        torch.float32,
        {"method": "mask", "learns": True, "gradient": "straight_through"},
    ),
}


def models():
    """Name -> (model, x, result)."""
    rows = {}
    x = integers(4, INPUTS)
    weight, bias = integers(OUTPUTS, INPUTS), integers(OUTPUTS)
    hidden = torch.relu(x @ weight.T + bias)

    second = integers(4, OUTPUTS)
    model = empty("linear")
    model[0].weight.data, model[0].bias.data = weight.float(), bias.float()
    model[1].weight.data = second.float()
    rows["linear"] = (model, x.float(), (hidden @ second.T).float())

    model = nn.Sequential(layer_of(weight, bias), nn.ReLU())
    tcgemm.swap_linear(model)
    rows["swapped"] = (model, x.float(), hidden.float())

    for name, (dtype, granularity) in QUANT.items():
        # The largest magnitude of each row is the limit, so that every scale is one.
        x8, w8 = x.clone(), weight.clone()
        x8[:, 0] = w8[:, 1] = LIMITS[dtype]
        plain = layer_of(w8, bias)
        plain.activation = "relu"
        layer = tcgemm.nn.QuantLinear.from_linear(plain, dtype, granularity)
        result = torch.relu(x8 @ w8.T + bias).float()
        rows[name] = (nn.Sequential(layer), x8.float(), result)

    for name, (dtype, options) in SPARSE.items():
        mask = pattern_mask(OUTPUTS, INPUTS, "1:2" if dtype is torch.float32 else "2:4")
        dense = torch.where(mask, weight, weight.sign())
        if options.get("method") == "mask":
            options = {**options, "mask": mask}
        layer = tcgemm.nn.SparseLinear24.from_linear(layer_of(dense, bias, dtype), **options)
        result = (x @ (dense * mask).T + bias).to(dtype)
        rows[name] = (nn.Sequential(layer), x.to(dtype), result)
    return {name: (model.eval(), *tensors) for name, (model, *tensors) in rows.items()}


def file_of(name, suffix):
    return FOLDER / f"{name.replace(' ', '-')}.{suffix}"


def loads_weights_only(path):
    try:
        torch.load(path, weights_only=True)
    except pickle.UnpicklingError:
        return False
    return True


def is_pickled(value):
    """torch 2.11 cannot load what plain pickle makes of a float8 tensor; torch.save can."""
    try:
        pickle.loads(pickle.dumps(value))
    except AttributeError:
        return False
    return True


def write():
    """Writes every file, and checks that the results are the expected ones before."""
    torch.manual_seed(24)
    FOLDER.mkdir(parents=True, exist_ok=True)
    expected, flags, weights_only, exported = {}, {}, [], []

    def save(value, name):
        torch.save(value, file_of(name, "pt"))
        if loads_weights_only(file_of(name, "pt")):
            weights_only.append(name)

    tensors = sparse_tensors()
    for name, (w, dense) in tensors.items():
        flags[name] = {flag: getattr(w, flag) for flag in FLAGS}
        expected |= {f"{name}/dense": dense, f"{name}/values": w.values}
        expected |= {f"{name}/metadata": w.metadata}
    save({name: w for name, (w, _) in tensors.items()}, "tensors")
    whole = {name: w for name, (w, _) in tensors.items()}

    for name, (weight, dense) in prepared().items():
        expected[f"{name}/dense"] = dense
        save(weight, name)
        whole[name] = weight

    for name, (model, x, result) in models().items():
        with torch.no_grad():
            assert torch.equal(model(x), result), name
        expected |= {f"{name}/x": x, f"{name}/result": result}
        state = model.state_dict()
        expected |= {f"{name}/state/{key}": tensor for key, tensor in state.items()}
        save(model, name)
        save(state, f"{name} state")
        safetensors.torch.save_file(state, file_of(name, "safetensors"))
        whole[name] = model
        try:
            program = torch.export.export(model, (x,))
        except Exception as error:
            print(f"{name} is not exported: {type(error).__name__}: {error}"[:200])
        else:
            torch.export.save(program, file_of(name, "pt2"))
            exported.append(name)

    whole = {name: value for name, value in whole.items() if is_pickled(value)}
    file_of("all", "pickle").write_bytes(pickle.dumps(whole))
    arrays = {f"{name}:{tensor.dtype}": bits(tensor) for name, tensor in expected.items()}
    numpy.savez_compressed(FOLDER / "expected.npz", **arrays)
    facts = {"flags": flags, "weights_only": weights_only, "exported": exported}
    facts["pickled"] = list(whole)
    (FOLDER / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        raise SystemExit(__doc__)
    write()
