"""Checkpoints, files and parts of tensors that were damaged, for fuzz.py.

A damaged thing ends in an exception that says what is wrong, or is a tensor or a layer that works:
`use_tensor` and `use_layer` call what reads its metadata.
"""

import io
import pickle
import traceback
import zipfile

import torch

import tcgemm

from support.fuzz_draws import FLOATS, FP8, INT8, SIZES, Fuzzer

OPS = torch.ops.tcgemm
SENTENCES = (RuntimeError, TypeError, ValueError, NotImplementedError)
LOADING = (*SENTENCES, EOFError, KeyError, OSError, pickle.UnpicklingError)
# What torch's own reader and unpickler raise as well.
OF_TORCH = (*LOADING, OverflowError, LookupError, AttributeError, AssertionError)
DTYPES = (*FLOATS[:3], *FP8, *INT8)  # of sparse tensors
ODD_NUMBERS = (None, True, False, -1, -7, 0, 1, 3, 15, 17, 2**31, 2**40, 2**63 - 1, 1.5, "16", b"8")
ODD_WORDS = (None, "", "1:2", "2:4", "4:8", "2:4 ", 24, ["2:4"], b"2:4")
ODD_VALUES = (None, 3, 2.5, "weight", b"bytes", [], {}, (1, 2), torch.int8)
PREPARED = tcgemm.prepare(torch.ones(5, 9))


def check_sentence(error: Exception, *words: str) -> None:
    """The text of an error says something, and has one of the words."""
    text = str(error)
    assert text and "INTERNAL ASSERT" not in text, f"{type(error).__name__}: {text}"
    assert not words or any(word in text for word in words), f"{type(error).__name__}: {text}"


def sparse_tensor(fuzz: Fuzzer) -> tcgemm.SparseTensor24:
    """A sound one of any kind."""
    dtype = fuzz.pick(DTYPES)
    w = tcgemm.compress24(
        fuzz.values((fuzz.pick(SIZES[1:]), fuzz.pick(SIZES[1:])), dtype),
        prune=True,
        transposable=dtype is not torch.float32 and fuzz.rarely(2),
        dense_gradient=fuzz.rarely(3),
    )
    return w.t() if fuzz.rarely(3) else w


def layers(fuzz: Fuzzer) -> torch.nn.Module:
    inputs, outputs = fuzz.pick(SIZES[1:]), fuzz.pick(SIZES[1:])
    dtype = fuzz.pick((torch.float32, torch.bfloat16, torch.float16))
    linear = torch.nn.Linear(inputs, outputs, bias=fuzz.pick((True, False)), dtype=dtype)
    kind = fuzz.pick(("linear", "quant", "sparse", "sparse"))
    if kind == "linear":
        return tcgemm.nn.Linear(inputs, outputs, dtype=dtype).train(fuzz.pick((True, False)))
    if kind == "quant":
        quantized = fuzz.pick((torch.int8, *FP8))
        granularity = fuzz.pick(("row", "tensor", "128x128"))
        return tcgemm.nn.QuantLinear.from_linear(linear, dtype=quantized, granularity=granularity)
    return tcgemm.nn.SparseLinear24.from_linear(linear, learns=fuzz.pick((True, False)))


# What stands in the place of something else.


def reaching_past_storage(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose storage has lost its end, as one that was freed."""
    other = tensor.clone()
    other.untyped_storage().resize_(other.untyped_storage().nbytes() // 2)
    return other


def ends_early(x) -> bool:
    """Its storage is too small. torch itself copies parameters, and reads past such an end."""
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or not x.numel():
        return False
    if type(x) is tcgemm.SparseTensor24:
        return any(map(ends_early, x.tensors().values()))
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return (x.storage_offset() + last + 1) * x.element_size() > x.untyped_storage().nbytes()


def damaged_tensor(fuzz: Fuzzer, tensor: torch.Tensor):
    below = fuzz.random.randrange
    changes = (
        lambda: fuzz.pick(ODD_VALUES),
        lambda: tensor.tolist(),
        lambda: tensor[: below(tensor.shape[0] + 1)],
        lambda: tensor[..., : below(tensor.shape[-1] + 1)],
        lambda: tensor[:0],
        lambda: tensor.flatten(),
        lambda: tensor.flatten()[:1].reshape(()),
        lambda: tensor[None],
        lambda: tensor.mT,
        lambda: tensor.mT.contiguous().mT,
        lambda: tensor[:1].expand_as(tensor),
        lambda: tensor.to(fuzz.pick((*DTYPES, torch.float64, torch.int32, torch.bool))),
        lambda: tensor.to("meta"),
        lambda: torch.zeros_like(tensor, dtype=torch.complex64),
        lambda: torch.nn.Parameter(tensor, requires_grad=False),
        lambda: tensor.detach() * fuzz.number(),
        lambda: fuzz.values(tensor.shape, tensor.dtype),
        lambda: fuzz.values(tensor.shape, torch.uint8),  # random metadata
        lambda: fuzz.values((fuzz.pick(SIZES), fuzz.pick(SIZES)), torch.uint8),
        lambda: torch.cat([tensor, tensor]),
        lambda: reaching_past_storage(tensor),
        lambda: sparse_tensor(fuzz),
        lambda: fuzz.tensor(),
        lambda: fuzz.tensor(tuple(tensor.shape)),
        lambda: fuzz.tensor(None, tensor.dtype),
    )
    try:
        return fuzz.pick(changes)()
    except (RuntimeError, IndexError):  # not every tensor has every change
        return torch.zeros(3, 3)


def damaged(fuzz: Fuzzer, value):
    """What stands in the place of a value of a checkpoint, or of an argument of its pickle."""
    if isinstance(value, tuple) and not fuzz.rarely(5):
        return tuple(damaged(fuzz, item) for item in value)
    if isinstance(value, torch.Tensor) and type(value) is not tcgemm.SparseTensor24:
        return value if ends_early(value) else damaged_tensor(fuzz, value)
    if fuzz.rarely():
        return fuzz.pick((*ODD_VALUES, fuzz.integer(), fuzz.tensor()))
    return fuzz.pick(ODD_WORDS if isinstance(value, str) else ODD_NUMBERS)


def damaged_state(fuzz: Fuzzer, layer: torch.nn.Module) -> dict:
    state = dict(layer.state_dict())
    for _ in range(fuzz.pick((1, 1, 2, 3))):
        name = fuzz.pick(sorted(state) or ["weight"])
        way = fuzz.random.randrange(8)
        if way == 0:
            state.pop(name, None)
        elif way == 1:
            state[fuzz.pick(("weight", "bias", "scale", "weight_scale", "other"))] = state.get(name)
        elif way == 2:
            state[name + fuzz.pick(("", "_scale", ".weight", "_extra_state"))] = fuzz.tensor()
        elif name.endswith("format") and not fuzz.rarely(3):
            numbers = [fuzz.pick((1, 2, 4, 0, -1, layer.in_features, 2**62)) for _ in range(3)]
            state[name] = torch.tensor(numbers[: fuzz.pick((3, 3, 3, 2, 0))])
        else:
            state[name] = damaged(fuzz, state.get(name))
    return {name: x for name, x in state.items() if "." in name or not ends_early(x)}


def call_of_pickle(fuzz: Fuzzer) -> tuple:
    """(function, arguments) that restore a tensor, with arguments that nobody saved."""
    value = PREPARED if fuzz.rarely() else sparse_tensor(fuzz)
    function, arguments = value.__reduce_ex__(2)
    arguments = list(arguments)
    for _ in range(fuzz.pick((1, 1, 1, 2, 3))):
        place = fuzz.random.randrange(len(arguments))
        arguments[place] = damaged(fuzz, arguments[place])
    return function, tuple(arguments)


# Uses of what was made of it.


def use_tensor(fuzz: Fuzzer, w) -> None:
    """Calls what reads the metadata of a tensor; the results have its shape."""
    repr(w)
    rows, columns = w.shape
    x = torch.ones(2, columns).to(w.dtype)
    if not isinstance(w, tcgemm.SparseTensor24):
        assert tcgemm.linear(x, w).shape == (2, rows)
        return
    if w.is_meta:
        return
    k = min(columns, 4)
    options = {"out_dtype": torch.float32}
    results = (
        (w.to_dense, (rows, columns)),
        (lambda: w.t().to_dense(), (columns, rows)),
        (lambda: w.clone().to_dense(), (rows, columns)),
        (lambda: w.float().to_dense(), (rows, columns)),
        (lambda: w.half().to_dense(), (rows, columns)),
        (lambda: (w * 2).to_dense(), (rows, columns)),
        (lambda: w.mask(torch.ones(rows, columns).to(w.dtype)).to_dense(), (rows, columns)),
        (lambda: tcgemm.linear(x, w), (2, rows)),
        (lambda: tcgemm.linear(x, w, **options), (2, rows)),
        (lambda: tcgemm.mm(w, x.t().contiguous(), **options), (rows, 2)),
        (lambda: tcgemm.mm(w.t(), torch.ones(rows, k).to(w.dtype), **options), (columns, k)),
    )
    for call, shape in results:
        try:
            found = tuple(call().shape)
            assert found == shape, f"{w!r} has a result of shape {found}, not {shape}"
        except RuntimeError as error:
            check_sentence(error)


def use_layer(fuzz: Fuzzer, layer: torch.nn.Module) -> None:
    """Calls the layer, as a model does after it has loaded what it got."""
    if isinstance(layer, tcgemm.nn.SparseLinear24):
        use_tensor(fuzz, layer.compressed)
    dtype = fuzz.pick(FLOATS[:3])
    x = torch.randn(fuzz.pick((1, 3, 17)), layer.in_features).to(dtype)
    layer(x.requires_grad_(fuzz.pick((True, False))))
    layer.state_dict()
    repr(layer)


def load_state(fuzz: Fuzzer, layer: torch.nn.Module, state: dict, **options) -> None:
    """Loads, and uses the layer also where it refuses the state."""
    refused = None
    try:
        layer.load_state_dict(state, **options)
    except RuntimeError as error:
        check_sentence(error, "tcgemm", "state_dict", "meta tensor")
        refused = error
    use_layer(fuzz, layer)
    if refused:
        raise refused


# The cases.


def state_dicts(fuzz: Fuzzer) -> None:
    """A layer loads a damaged state_dict, of its own kind or of another one, and is called."""
    layer = layers(fuzz)
    source = layers(fuzz) if fuzz.rarely() else layer
    options = {"strict": fuzz.pick((True, True, False)), "assign": fuzz.pick((True, False))}
    load_state(fuzz, layer, damaged_state(fuzz, source), **options)


def parts(fuzz: Fuzzer) -> None:
    """Calls from_parts, or the function that pickle uses, with arguments that nobody saved."""
    function, arguments = call_of_pickle(fuzz)
    prepared = function is PREPARED.__reduce_ex__(2)[0]
    try:
        if prepared or fuzz.rarely(2):
            w = function(*arguments)
        else:
            _version, values, metadata, k, pattern, transpose, *_options = arguments
            w = tcgemm.SparseTensor24.from_parts(values, metadata, k, pattern, transpose=transpose)
    except RuntimeError as error:
        check_sentence(error, *(() if prepared else ("tcgemm",)))
        raise
    use_tensor(fuzz, w)


def metadata(fuzz: Fuzzer) -> None:
    """A tensor whose metadata someone has written over."""
    w = sparse_tensor(fuzz)
    w.metadata.copy_(fuzz.values(w.metadata.shape, torch.uint8))
    if w.transposable:
        shape = w.transposed_metadata.shape
        w.transposed_metadata.copy_(fuzz.values(shape, torch.uint8))
    use_tensor(fuzz, w)


def sparse_operators(fuzz: Fuzzer) -> None:
    """An operator with metadata of random bytes and, often, of wrong shapes."""
    w = sparse_tensor(fuzz)
    w = w.t() if w.transposed else w
    rows, k = w.shape
    sound = w.values, fuzz.values(w.metadata.shape, torch.uint8)
    values, metadata = (tensor if fuzz.rarely(2) else damaged(fuzz, tensor) for tensor in sound)
    if not (isinstance(values, torch.Tensor) and isinstance(metadata, torch.Tensor)):
        values, metadata = sound  # the dispatcher refuses what is no tensor
    if fuzz.rarely(3):
        k = fuzz.pick([number for number in ODD_NUMBERS if type(number) is int])
    dense = fuzz.values((rows, w.shape[1]), w.dtype)
    x = torch.ones(2, w.shape[1]).to(w.dtype)
    options = {"sparse_b": metadata, "out_dtype": torch.float32}
    call = fuzz.pick(
        (
            lambda: OPS.decompress24(values, metadata, k, w.pattern),
            lambda: OPS.gather24(dense, metadata, w.pattern),
            lambda: OPS.tile24(metadata, k, w.pattern, w.dtype),
            lambda: OPS._linear24(values, metadata, x),
            lambda: OPS.scaled_mm(x, values.t(), **options),
        )
    )
    try:
        call()
    except AttributeError:  # scaled_mm reads the parts of an operand, which `values` is not
        if not isinstance(metadata, tcgemm.SparseTensor24):
            raise


# Files with bytes that nobody wrote.


class Calls:
    """An object whose pickle calls a function with arguments."""

    def __init__(self, function, arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def saved(value) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def sound_or_damaged(fuzz: Fuzzer, layer: torch.nn.Module) -> dict:
    """What a file holds: the state of the layer, or a tensor, whose parts may be damaged."""
    if fuzz.rarely(3):
        return layer.state_dict()
    if fuzz.rarely(2):
        return {"w": sparse_tensor(fuzz)}
    value = {"w": Calls(*call_of_pickle(fuzz))}
    try:
        saved(value)
    except (RuntimeError, NotImplementedError):  # torch cannot save some of the odd tensors
        return {"w": sparse_tensor(fuzz)}
    return value


def flip(fuzz: Fuzzer, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(fuzz.pick((1, 1, 2, 4, 8)) if data else 0):
        place = fuzz.random.randrange(len(data))
        flipped = data[place] ^ (1 << fuzz.random.randrange(8))
        data[place] = flipped if fuzz.rarely(2) else fuzz.random.randrange(256)
    return bytes(data)


def flip_inside(fuzz: Fuzzer, content: bytes) -> bytes:
    """Flips bits of one record of the archive, often its pickle, and writes its checksum anew."""
    fresh = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(fresh, "w") as new:
        names = [info.filename for info in old.infolist() if info.file_size]
        pickles = [name for name in names if name.endswith("data.pkl")]
        name = fuzz.pick(pickles if fuzz.rarely(3) else names)
        for info in old.infolist():
            record = old.read(info)
            new.writestr(info, flip(fuzz, record) if info.filename == name else record)
    return fresh.getvalue()


def files(fuzz: Fuzzer) -> None:
    """torch.load(weights_only=True) of a file that was cut or changed, and a use of the result."""
    layer = layers(fuzz)
    content = saved(sound_or_damaged(fuzz, layer))
    way = fuzz.random.randrange(5)
    if way == 0:
        content = content[: fuzz.random.randrange(len(content))]
    elif way == 1:
        content = flip(fuzz, content)
    elif way < 4:
        content = flip_inside(fuzz, content)
    try:
        state = torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        allowed = LOADING if "tcgemm/" in traceback.format_exc() else OF_TORCH
        assert isinstance(error, allowed), f"{type(error).__name__}: {error}"
        assert "INTERNAL ASSERT" not in str(error), str(error)
        raise RuntimeError(f"The file is refused: {error}") from error
    if isinstance(state, dict) and "w" not in state:
        load_state(fuzz, layer, state)
    elif isinstance(state, dict) and isinstance(state["w"], torch.Tensor):
        use_tensor(fuzz, state["w"])
