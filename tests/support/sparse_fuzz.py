"""Damaged SparseTensor24: random changes of their parts, files and state_dicts, from a seed.

    python tests/support/sparse_fuzz.py SEED COUNT      runs every kind, as under a sanitizer

A damaged thing ends in an exception that says what is wrong, or is a tensor that works: `use` calls
what reads its metadata. Nothing may end the process or read outside of the tensors.
"""

import io
import pickle
import random
import sys
import zipfile

import torch

import tcgemm
from tcgemm import SparseTensor24

OPS = torch.ops.tcgemm
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)
SIZES = (1, 2, 3, 4, 7, 8, 9, 16, 33)
ODD_NUMBERS = (None, True, False, -1, -7, 0, 1, 3, 15, 17, 2**31, 2**40, 2**63 - 1, 1.5, "16", b"8")
ODD_WORDS = (None, "", "1:2", "2:4", "4:8", "2:4 ", 24, ["2:4"], b"2:4")
# The errors of torch's own unpickler for a damaged file.
OF_TORCH = (
    *(RuntimeError, pickle.UnpicklingError, EOFError, UnicodeDecodeError, OverflowError),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError),
)


class Calls:
    """An object whose pickle calls a function with arguments."""

    def __init__(self, function, arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def data(rng, shape, dtype):
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return torch.randint(0, 9, shape, generator=generator).to(torch.float32).to(dtype)


def random_bytes(rng, shape):
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def sparse(rng):
    """A sound SparseTensor24 of any kind."""
    dtype = rng.choice(DTYPES)
    shape = rng.choice(SIZES), rng.choice(SIZES)
    transposable = dtype is not torch.float32 and rng.random() < 0.5
    w = tcgemm.compress24(
        data(rng, shape, dtype),
        prune=True,
        transposable=transposable,
        dense_gradient=rng.random() < 0.3,
    )
    return w.t() if rng.random() < 0.3 else w


def odd_tensor(rng, tensor):
    """Another tensor in the place of one of the parts."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    changes = (
        lambda: None,
        lambda: tensor.tolist(),
        lambda: tensor[: rng.randrange(tensor.shape[0] + 1)],
        lambda: tensor[:, : rng.randrange(tensor.shape[-1] + 1)],
        lambda: tensor[:0],
        lambda: tensor.reshape(-1),
        lambda: tensor.reshape(-1)[:1].reshape(()),
        lambda: tensor[None],
        lambda: tensor.t(),
        lambda: tensor.t().contiguous().t(),
        lambda: tensor[:1].expand(tensor.shape[0], -1),
        lambda: tensor.to(rng.choice((*DTYPES, torch.float64, torch.int32, torch.bool))),
        lambda: tensor.to("meta"),
        lambda: torch.zeros_like(tensor, dtype=torch.complex64),
        lambda: torch.nn.Parameter(tensor, requires_grad=False),
        lambda: random_bytes(rng, tensor.shape),
        lambda: random_bytes(rng, (rng.choice(SIZES), rng.choice(SIZES))),
        lambda: torch.cat([tensor, tensor]),
        lambda: reaching_past_storage(tensor),
        lambda: sparse(rng),
    )
    try:
        return rng.choice(changes)()
    except (RuntimeError, IndexError):  # not every tensor has every change
        return torch.zeros(3, 3)


def reaching_past_storage(tensor):
    """A tensor whose storage has lost its end, as one that was freed."""
    other = tensor.clone()
    other.untyped_storage().resize_(max(0, other.untyped_storage().nbytes() // 2))
    return other


def damaged_arguments(rng):
    """The arguments that a pickle of a SparseTensor24 has for its constructor, some of them odd."""
    _function, arguments = sparse(rng).__reduce_ex__(2)
    arguments = list(arguments)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(len(arguments))
        if place in (1, 2):
            arguments[place] = odd_tensor(rng, arguments[place])
        elif place == 5 and isinstance(arguments[5], tuple) and rng.random() < 0.8:
            arguments[5] = tuple(odd_tensor(rng, tensor) for tensor in arguments[5])
        elif place == 4:
            arguments[4] = rng.choice(ODD_WORDS)
        else:
            arguments[place] = rng.choice(ODD_NUMBERS)
    return arguments


def use(w):
    """Calls what reads the metadata of a tensor, and returns whether its results have its shape."""
    if w.is_meta:
        return True
    rows, columns = w.shape
    k = min(columns, 4)
    options = {"out_dtype": torch.float32}
    x = torch.ones(2, columns).to(w.dtype)
    results = [
        (w.to_dense, (rows, columns)),
        (lambda: w.t().to_dense(), (columns, rows)),
        (lambda: w.clone().to_dense(), (rows, columns)),
        (lambda: w.float().to_dense(), (rows, columns)),
        (lambda: w.half().to_dense(), (rows, columns)),
        (lambda: (w * 2).to_dense(), (rows, columns)),
        (lambda: w.mask(torch.ones(rows, columns).to(w.dtype)).to_dense(), (rows, columns)),
        (lambda: tcgemm.linear(x, w, **options), (2, rows)),
        (lambda: tcgemm.mm(w, x.t().contiguous(), **options), (rows, 2)),
        (lambda: tcgemm.mm(w.t(), torch.ones(rows, k).to(w.dtype), **options), (columns, k)),
    ]
    is_right = True
    for call, shape in results:
        try:
            is_right = is_right and tuple(call().shape) == shape
        except (RuntimeError, NotImplementedError) as error:
            is_right = is_right and "INTERNAL ASSERT" not in str(error)
    return is_right


def constructor_call(rng):
    """from_parts, or the function that pickles call, with damaged arguments."""
    function, _arguments = sparse(rng).__reduce_ex__(2)
    arguments = damaged_arguments(rng)
    if rng.random() < 0.5:
        return lambda: function(*arguments)
    _version, values, metadata, k, pattern, transpose, *_options = arguments
    return lambda: SparseTensor24.from_parts(values, metadata, k, pattern, transpose=transpose)


def load(content):
    return torch.load(io.BytesIO(content), weights_only=True)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def file_of_damaged_arguments(rng):
    """A sound file whose call has damaged arguments."""
    function, _arguments = sparse(rng).__reduce_ex__(2)
    try:
        content = saved({"w": Calls(function, tuple(damaged_arguments(rng)))})
    except (RuntimeError, NotImplementedError):  # torch cannot save some of the odd tensors
        content = saved({"w": sparse(rng)})
    return lambda: load(content)["w"]


def damaged_file(rng):
    """A file some of whose bytes are others: of its pickle, its tensors, or anywhere."""
    content = saved({"w": sparse(rng)})
    if rng.random() < 0.2:
        content = change(rng, content)
        return lambda: load(content)["w"]
    part = rng.choice(("data.pkl", "data.pkl", "data/0", "data/1"))
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as new,
    ):
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, change(rng, text) if name.endswith(part) else text)
    return lambda: load(file.getvalue())["w"]


def change(rng, content):
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


def damaged_state(rng):
    """A layer that takes a damaged state_dict; its weight afterwards."""
    rows, columns = rng.choice(SIZES), rng.choice(SIZES)
    dtype = rng.choice((torch.float16, torch.bfloat16, torch.float32))
    options = {"learns": rng.random() < 0.3}
    layer = tcgemm.nn.SparseLinear24(columns, rows, dtype=dtype, **options)
    state = layer.state_dict()
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([key for key in state if key != "bias"])
        kind = rng.randrange(4)
        if kind == 0:
            del state[name]
        elif name.endswith("format") and kind < 3:
            numbers = [rng.choice((1, 2, 4, 0, -1, columns, 2**62)) for _ in range(3)]
            state[name] = torch.tensor(numbers[: rng.choice((3, 3, 3, 2, 0))])
        else:
            state[name] = odd_tensor(rng, state[name])
        if not [key for key in state if key != "bias"]:
            break

    def call():
        layer.load_state_dict(state)
        return layer.compressed

    return call


def random_metadata(rng):
    """A tensor whose metadata someone has written over."""
    w = sparse(rng)

    def call():
        w.metadata.copy_(random_bytes(rng, w.metadata.shape))
        if w.transposable:
            w.transposed_metadata.copy_(random_bytes(rng, w.transposed_metadata.shape))
        return w

    return call


def operator_call(rng):
    """An operator with metadata of random bytes and, often, of wrong shapes."""
    w = sparse(rng)
    w = w.t() if w.transposed else w
    rows, k = w.shape
    values, metadata = w.values, random_bytes(rng, w.metadata.shape)
    if rng.random() < 0.5:
        values = odd_tensor(rng, values)
    if rng.random() < 0.5:
        metadata = odd_tensor(rng, metadata)
    if not (isinstance(values, torch.Tensor) and isinstance(metadata, torch.Tensor)):
        values, metadata = w.values, w.metadata  # the dispatcher refuses what is no tensor
    if rng.random() < 0.3:
        k = rng.choice([number for number in ODD_NUMBERS if type(number) is int])
    x = torch.ones(2, w.shape[1]).to(w.dtype)

    def product():
        return OPS.scaled_mm(x, values.t(), sparse_b=metadata, out_dtype=torch.float32)

    calls = (
        lambda: OPS.decompress24(values, metadata, k, w.pattern),
        lambda: OPS.gather24(data(rng, (rows, w.shape[1]), w.dtype), metadata, w.pattern),
        lambda: OPS.tile24(metadata, k, w.pattern, w.dtype),
        lambda: OPS._linear24(values, metadata, x),
        product,
    )
    return rng.choice(calls)


KINDS = {
    function.__name__: function
    for function in (
        *(constructor_call, file_of_damaged_arguments, damaged_file, damaged_state),
        *(random_metadata, operator_call),
    )
}
# Kinds that end in our errors alone. torch and the unpickler refuse the others as well.
STRICT = ("constructor_call", "damaged_state")


def attempt(kind, seed):
    """Runs one damaged thing. Returns "refused" or "works"; raises AssertionError for the rest."""
    rng = random.Random(f"{kind} {seed}")
    call = KINDS[kind](rng)
    try:
        result = call()
    except Exception as error:
        allowed = RuntimeError if kind in STRICT else OF_TORCH
        assert isinstance(error, allowed), f"{kind} {seed}: {type(error).__name__}: {error}"
        text = str(error)
        assert "INTERNAL ASSERT" not in text, f"{kind} {seed}: {text}"
        if kind in STRICT:
            assert "tcgemm" in text or "state_dict" in text, f"{kind} {seed}: {text}"
        return "refused"
    if isinstance(result, SparseTensor24):
        assert use(result), f"{kind} {seed}: {result!r} has results of another shape"
    return "works"


def main():
    seed, count = map(int, sys.argv[1:])
    for kind in KINDS:
        outcomes = [attempt(kind, number) for number in range(seed, seed + count)]
        print(f"{kind}: {outcomes.count('refused')} refused, {outcomes.count('works')} work")


if __name__ == "__main__":
    main()
