"""Random calls, checkpoints and files: each ends in a result or in a sentence, never in a crash.

    python tests/support/fuzz.py --cases 300                  a short run of every kind
    python tests/support/fuzz.py --kind files --case 17       one case again

`make sanitize-host CASES=20000 SEED=7` runs it with a library that sees every read and write beside
a tensor.

A case depends on the kind, the seed and its number alone. The last line of a run that died names
the case. An exception of another type than SENTENCES is reported as a failure, as is an empty text.
"""

import argparse
import contextlib
import faulthandler
import io
import os
import random
import sys
import traceback
import warnings
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402

import tcgemm  # noqa: E402

from support.fuzz_words import WORDS  # noqa: E402

SENTENCES = (RuntimeError, TypeError, ValueError, NotImplementedError)
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
INT8 = (torch.int8, torch.uint8)
OTHERS = (
    torch.int64,
    torch.int32,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fnuz,
    torch.uint16,
)
SIZES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 140)


class Fuzzer:
    """The random choices of one case."""

    def __init__(self, text: str):
        self.random = random.Random(text)
        torch.manual_seed(self.random.randrange(2**32))

    def pick(self, choices):
        return self.random.choice(choices)

    def rarely(self, one_in: int = 8) -> bool:
        return self.random.randrange(one_in) == 0

    def number(self) -> float:
        special = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e300, float("inf"), float("nan"))
        return self.pick(special) if self.rarely(2) else self.random.uniform(-4, 4)

    def integer(self) -> int:
        special = (-1, 2**31, 2**40, 2**62, -(2**63), 2**63 - 1)
        return self.pick(special) if self.rarely() else self.pick(SIZES)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.pick(SIZES[:14]) for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3, 4))))

    def values(self, shape, dtype) -> torch.Tensor:
        if dtype in (torch.bool, torch.uint16):
            return torch.zeros(shape, dtype=dtype)
        if dtype.is_complex:
            return torch.randn(shape, dtype=dtype)
        if dtype.is_floating_point:
            return torch.randn(shape).to(dtype)
        return torch.randint(0, 255, shape, dtype=torch.int64).to(dtype)

    def tensor(self, shape=None, dtype=None) -> torch.Tensor:
        """A tensor of this shape in strides of every kind, sometimes of another shape or dtype."""
        if shape is None or self.rarely(20):
            shape = self.shape()
        if dtype is None or self.rarely(20):
            dtype = self.pick(FLOATS + FP8 + INT8 + OTHERS)
        way = self.random.randrange(16)
        if way == 0:
            return self.values(shape, dtype).to("meta")
        if way == 1 and len(shape) > 1:
            return self.values((*shape[:-2], shape[-1], shape[-2]), dtype).mT
        if way == 2 and shape:
            return self.values((*shape[:-1], 2 * shape[-1] + 1), dtype)[..., 1::2]
        if way == 3:
            return self.values((1,) * len(shape), dtype).expand(shape)
        if way == 4 and shape:
            return self.values((*shape[:-1], shape[-1] + 3), dtype)[..., 3:]
        if way == 5:
            strides = tuple(self.pick((0, 1, 2, 5)) for _ in shape)
            whole = sum(s * max(n - 1, 0) for s, n in zip(strides, shape, strict=True)) + 1
            return self.values((whole,), dtype).as_strided(shape, strides)
        if way == 6:
            return self.odd_tensor(shape)
        tensor = self.values(shape, dtype)
        if way == 7 and dtype.is_floating_point and dtype not in FP8:
            tensor.requires_grad_()
        return tensor

    def odd_tensor(self, shape) -> torch.Tensor:
        """Tensors that are no plain memory."""
        way = self.random.randrange(8)
        if way == 0:
            return torch.randn(shape, dtype=torch.complex64).conj().imag  # the negative bit
        if way >= 6:  # the storage ends before the tensor does
            tensor = torch.randn(shape)
            tensor.untyped_storage().resize_(self.pick((0, tensor.nbytes // 2)))
            return tensor
        if way == 1:
            return torch._efficientzerotensor(shape)
        if way == 2:
            return torch.randn(shape).to_sparse()
        if way == 3:
            return torch.nn.Parameter(torch.randn(shape))
        if way == 4:
            return torch.randn(shape, dtype=torch.complex64).conj()
        with torch.inference_mode():
            return torch.randn(shape)


# Operators with any arguments.


class Product:
    """The sizes and dtypes of one product, so that most arguments of a call fit together."""

    def __init__(self, fuzz: Fuzzer):
        self.fuzz = fuzz
        self.m, self.n, self.k = (fuzz.pick(SIZES) for _ in range(3))
        self.batch = () if fuzz.rarely(2) else (fuzz.pick((0, 1, 2, 3)),)
        self.a = fuzz.pick(FLOATS + FP8 + INT8)
        family = FP8 if self.a in FP8 else INT8 if self.a in INT8 else (self.a,)
        self.b = fuzz.pick(family)

    def shape(self, name: str) -> tuple[int, ...]:
        m, n, k, batch, pick = self.m, self.n, self.k, self.batch, self.fuzz.pick
        blocks = [-(-size // 128) for size in (m, n, k)]
        shapes = {
            "a": [(*batch, m, k), (m, k)],
            "b": [(*batch, k, n), (k, n)],
            "x": [(*batch, m, k), (m, k), (k,)],
            "weight": [(n, k)],
            "w": [(n, k)],
            "dense": [(n, k)],
            "bias": [(n,), (1, n), (m, 1)],
            "scale_a": [(), (m, 1), (m, blocks[2]), (blocks[0], blocks[2])],
            "scale_b": [(), (1, n), (blocks[2], n), (blocks[2], blocks[1])],
            "weight_scale": [(), (n, 1), (blocks[1], blocks[2])],
            "zero_a": [(m, 1), ()],
            "zero_b": [(1, n), ()],
            "scale_out": [()],
            "terms_b": [(pick((0, 1, 256, 4096)),)],
        }
        for name_of_result in ("c", "residual", "out"):
            shapes[name_of_result] = [(*batch, m, n), (m, n)]
        return pick(shapes.get(name, [(m, k)]))

    def dtype(self, name: str) -> torch.dtype:
        if name in ("b", "weight"):
            return self.b
        if name.startswith("zero"):
            return torch.int32
        if "scale" in name:
            return torch.float32
        if name == "terms_b":
            return torch.uint8
        if name in ("bias", "c", "residual", "out"):
            return self.fuzz.pick((self.a, torch.float32, torch.int32, torch.bfloat16))
        return self.a

    def compressed(self, name: str, pattern: str) -> torch.Tensor | None:
        """Values or metadata of a 2:4 operand; the metadata are at times random bytes."""
        rows = {"sparse_a": self.m, "sparse_b": self.n}.get(name, self.n)
        w = self.fuzz.values((rows, self.k), self.a)
        with contextlib.suppress(RuntimeError):
            values, metadata, _count = torch.ops.tcgemm.compress24(w, pattern, True)
            if name == "values":
                return values
            if self.fuzz.rarely(3):
                metadata = self.fuzz.values(metadata.shape, torch.uint8)
            return metadata
        return None

    def packed_weight(self) -> dict:
        """Packs a weight for packed_mm and explain: they take its bytes and its order."""
        pick = self.fuzz.pick
        self.a = pick((torch.bfloat16, torch.float16))
        w = self.fuzz.values((self.n, self.k), self.a)
        with contextlib.suppress(RuntimeError):
            packed = tcgemm.pack_weight(
                w,
                pick(("int4", "nf4", "mxfp4", "int8", "e4m3")),
                pick(("default", None, 16, 32, 64)),
                zero_points=self.fuzz.rarely(4),
            )
            return packed.t().described("fuzz")[1]
        return {}


def argument(fuzz: Fuzzer, product: Product, spec, pattern: str):
    """A value for one argument of a schema."""
    kind = str(spec.type)
    if kind in ("Tensor", "Optional[Tensor]"):
        if kind.startswith("Optional") and fuzz.rarely(2):
            return None
        if spec.name in ("values", "metadata", "sparse_a", "sparse_b") and not fuzz.rarely():
            tensor = product.compressed(spec.name, pattern)
            if tensor is not None:
                return tensor
        return fuzz.tensor(product.shape(spec.name), product.dtype(spec.name))
    if kind in ("str", "Optional[str]"):
        words = (pattern,) if spec.name == "pattern" else WORDS[spec.name]
        return fuzz.pick([word for word in words if word is not None or "Optional" in kind])
    if kind == "float":
        return fuzz.number()
    if kind == "bool":
        return fuzz.pick((True, False))
    if kind == "Optional[List[int]]":
        return None if fuzz.rarely(2) else [fuzz.integer() for _ in range(fuzz.pick((3, 3, 3, 2)))]
    if "Optional" in kind and fuzz.rarely(2):
        return None
    if spec.name in ("dtype", "out_dtype", "acc_dtype", "sum_dtype"):
        return fuzz.pick(FLOATS + FP8 + INT8 + OTHERS)
    if spec.name == "group_size" and not fuzz.rarely(4):
        return fuzz.pick((product.k, 1, 2, 16, 32, 64, 128))
    return product.k if spec.name == "k" and not fuzz.rarely() else fuzz.integer()


def all_operators() -> list:
    """Every overload of torch.ops.tcgemm that is registered."""
    names = sorted(
        name.split("::")[1]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("tcgemm::")
    )
    operators = []
    for name in names:
        packet, _, overload = name.partition(".")
        operators.append(getattr(getattr(torch.ops.tcgemm, packet), overload or "default"))
    return operators


def fuzz_operators(fuzz: Fuzzer, number: int) -> None:
    """One call of one operator; out= starts as ones, and what surrounds it stays."""
    operators = all_operators()
    operator = operators[number % len(operators)]
    product = Product(fuzz)
    pattern = fuzz.pick(WORDS["pattern"])
    arguments = operator._schema.arguments
    packed = {}
    if any(spec.name == "packed_b" for spec in arguments) and not fuzz.rarely():
        packed = product.packed_weight()
    tensors = {spec.name: argument(fuzz, product, spec, pattern) for spec in arguments}
    operator(**(tensors | packed))


# Layers and tensors with checkpoints that are not theirs.


def layers(fuzz: Fuzzer) -> torch.nn.Module:
    inputs, outputs = fuzz.pick(SIZES[1:]), fuzz.pick(SIZES[1:])
    dtype = fuzz.pick((torch.float32, torch.bfloat16, torch.float16))
    linear = torch.nn.Linear(inputs, outputs, bias=fuzz.pick((True, False)), dtype=dtype)
    kind = fuzz.pick(("linear", "quant", "sparse"))
    if kind == "linear":
        return tcgemm.nn.Linear(inputs, outputs, dtype=dtype).train(fuzz.pick((True, False)))
    if kind == "quant":
        quantized = fuzz.pick((torch.int8, *FP8))
        granularity = fuzz.pick(("row", "tensor", "128x128"))
        return tcgemm.nn.QuantLinear.from_linear(linear, dtype=quantized, granularity=granularity)
    return tcgemm.nn.SparseLinear24.from_linear(linear, learns=fuzz.pick((True, False)))


def sparse_tensor(fuzz: Fuzzer) -> torch.Tensor:
    dtype = fuzz.pick((*FLOATS[:3], *FP8, *INT8))
    w = fuzz.values((fuzz.pick(SIZES[1:]), fuzz.pick(SIZES[1:])), dtype)
    return tcgemm.compress24(w, prune=True)


def mutated(fuzz: Fuzzer, value):
    """A value that stands in the place of another one in a checkpoint."""
    way = fuzz.random.randrange(9)
    if way == 0:
        return fuzz.pick((None, 3, 2.5, "weight", b"bytes", [], {}, (1, 2), torch.int8))
    if not isinstance(value, torch.Tensor) or type(value) is tcgemm.SparseTensor24:
        return fuzz.tensor() if way < 5 else value
    if way == 1:
        return fuzz.tensor(tuple(value.shape))
    if way == 2:
        return fuzz.tensor(None, value.dtype)
    if way == 3 and value.dim():
        return value[: value.shape[0] // 2]
    if way == 4:
        return value.unsqueeze(0) if fuzz.rarely(2) else value.flatten()
    if way == 5 and value.dim() > 1:
        return value.mT.contiguous().mT
    if way == 6:
        return value.to("meta")
    if value.is_floating_point() or value.is_meta:
        return value.detach() * fuzz.number() if value.dtype in FLOATS else value
    return fuzz.values(value.shape, value.dtype)  # random metadata, random 8-bit values


def mutate(fuzz: Fuzzer, state: dict) -> dict:
    state = dict(state)
    for _ in range(fuzz.pick((1, 1, 2, 3))):
        name = fuzz.pick(sorted(state) or ["weight"])
        way = fuzz.random.randrange(8)
        if way == 0:
            state.pop(name, None)
        elif way == 1:
            state[fuzz.pick(("weight", "bias", "scale", "weight_scale", "other"))] = state.get(name)
        elif way == 2:
            state[name + fuzz.pick(("", "_scale", ".weight", "_extra_state"))] = fuzz.tensor()
        else:
            state[name] = mutated(fuzz, state.get(name))
    return state


def use(fuzz: Fuzzer, layer: torch.nn.Module) -> None:
    """Calls the layer, as a model does after it has loaded what it got."""
    dtype = fuzz.pick(FLOATS[:3])
    x = torch.randn(fuzz.pick((1, 3, 17)), layer.in_features).to(dtype)
    layer(x.requires_grad_(fuzz.pick((True, False))))
    layer.state_dict()
    repr(layer)


def fuzz_state_dicts(fuzz: Fuzzer, number: int) -> None:
    """A layer loads a mutated state_dict, of its own kind or of another one, and is called."""
    layer = layers(fuzz)
    source = layers(fuzz) if fuzz.rarely() else layer
    state = mutate(fuzz, source.state_dict())
    with contextlib.suppress(*SENTENCES):
        layer.load_state_dict(
            state, strict=fuzz.pick((True, False)), assign=fuzz.pick((True, False))
        )
    use(fuzz, layer)


def fuzz_parts(fuzz: Fuzzer, number: int) -> None:
    """Calls the function that pickle uses to restore a tensor, with arguments that nobody saved."""
    if fuzz.rarely(4):
        prepared = tcgemm.prepare(torch.randn(5, 9))
        function, arguments = prepared.__reduce__()
    else:
        function, arguments = sparse_tensor(fuzz).__reduce_ex__(2)
    arguments = list(arguments)
    for _ in range(fuzz.pick((1, 1, 2))):
        place = fuzz.random.randrange(len(arguments))
        arguments[place] = mutated(fuzz, arguments[place])
        if fuzz.rarely(5):
            arguments[place] = fuzz.integer()
    use_tensor(fuzz, function(*arguments))


def use_tensor(fuzz: Fuzzer, w) -> None:
    x = torch.randn(3, w.shape[1]).to(w.dtype)
    tcgemm.linear(x, w)
    if isinstance(w, tcgemm.SparseTensor24):
        w.to_dense()
        w.t().to_dense()
    repr(w)


# Files with bytes that nobody wrote.


def flip(fuzz: Fuzzer, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(fuzz.pick((1, 1, 2, 8))):
        if data:
            place = fuzz.random.randrange(len(data))
            data[place] = (
                data[place] ^ (1 << fuzz.random.randrange(8))
                if fuzz.rarely(2)
                else fuzz.random.randrange(256)
            )
    return bytes(data)


def flip_inside(fuzz: Fuzzer, content: bytes) -> bytes:
    """Flips bits of one record of the archive, and writes its checksum anew."""
    fresh = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(fresh, "w") as new:
        name = fuzz.pick([info.filename for info in old.infolist() if info.file_size])
        for info in old.infolist():
            record = old.read(info)
            new.writestr(info, flip(fuzz, record) if info.filename == name else record)
    return fresh.getvalue()


def fuzz_files(fuzz: Fuzzer, number: int) -> None:
    """torch.load(weights_only=True) of a file that was cut or changed, and a use of the result."""
    layer = layers(fuzz)
    content = io.BytesIO()
    saved = {"w": sparse_tensor(fuzz)} if fuzz.rarely(3) else layer.state_dict()
    torch.save(saved, content)
    data = content.getvalue()
    way = fuzz.random.randrange(4)
    if way == 0:
        data = data[: fuzz.random.randrange(len(data))]
    elif way == 1:
        data = flip(fuzz, data)
    else:
        data = flip_inside(fuzz, data)
    try:
        state = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # torch's own reader has exceptions of every type
        if "tcgemm/" in traceback.format_exc() and not isinstance(error, LOADING):
            raise
        return
    if not isinstance(state, dict):
        return
    if isinstance(state.get("w"), tcgemm.SparseTensor24):
        use_tensor(fuzz, state["w"])
        return
    with contextlib.suppress(*SENTENCES):
        layer.load_state_dict(state)
    use(fuzz, layer)


LOADING = (*SENTENCES, EOFError, KeyError, OSError, __import__("pickle").UnpicklingError)
KINDS = {
    "operators": fuzz_operators,
    "state_dicts": fuzz_state_dicts,
    "parts": fuzz_parts,
    "files": fuzz_files,
}


def run_case(kind: str, seed: int, number: int) -> str:
    """A complaint, or nothing."""
    try:
        KINDS[kind](Fuzzer(f"{kind} {seed} {number}"), number)
    except SENTENCES as error:
        text = str(error)
        if not text or "INTERNAL ASSERT" in text:
            return traceback.format_exc()
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, action="append", help="by default all")
    parser.add_argument("--cases", type=int, default=300, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="this case alone, with its exception")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    faulthandler.enable()
    torch.set_num_threads(1)
    failures = 0
    for kind in options.kind or KINDS:
        numbers = range(options.cases) if options.case is None else [options.case]
        for number in numbers:
            os.write(1, f"\r--kind {kind} --seed {options.seed} --case {number} ".encode())
            if options.case is not None:
                KINDS[kind](Fuzzer(f"{kind} {options.seed} {number}"), number)
            elif complaint := run_case(kind, options.seed, number):
                failures += 1
                print(f"\n{complaint}", flush=True)
    print(f"\n{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
