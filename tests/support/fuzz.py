"""Random calls, checkpoints and files: each ends in a result or in a sentence, never in a crash.

    python tests/support/fuzz.py --cases 300                  a short run of every kind
    python tests/support/fuzz.py --kind files --case 17       one case again

`make sanitize-host CASES=20000 SEED=7` runs it with a library that sees every read and write beside
a tensor.

A case depends on the kind, the seed and its number alone. The last line of a run that died names
the case. An exception of another type than SENTENCES is reported as a failure, as is an empty text.
fuzz_damage.py has the cases that start from a sound tensor, layer or file.
"""

import argparse
import contextlib
import faulthandler
import os
import sys
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402

import tcgemm  # noqa: E402
from tcgemm.ops.epilogue import Epilogue  # noqa: E402

from support import fuzz_damage  # noqa: E402
from support.fuzz_damage import SENTENCES, check_sentence  # noqa: E402
from support.fuzz_draws import FLOATS, FP8, INT8, OTHERS, SIZES, Fuzzer  # noqa: E402
from support.fuzz_words import WORDS  # noqa: E402


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
            a = self.fuzz.values((self.m, self.k), self.a)
            return packed.t().described("packed_mm", a, Epilogue())[1]
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


def operators(fuzz: Fuzzer) -> None:
    """One call of one operator; out= starts as ones, and what surrounds it stays."""
    choices = all_operators()
    operator = choices[fuzz.number % len(choices)]
    product = Product(fuzz)
    pattern = fuzz.pick(WORDS["pattern"])
    arguments = operator._schema.arguments
    packed = {}
    if any(spec.name == "packed_b" for spec in arguments) and not fuzz.rarely():
        packed = product.packed_weight()
    tensors = {spec.name: argument(fuzz, product, spec, pattern) for spec in arguments}
    operator(**(tensors | packed))


KINDS = {
    function.__name__: function
    for function in (
        *(operators, fuzz_damage.state_dicts, fuzz_damage.parts, fuzz_damage.files),
        *(fuzz_damage.metadata, fuzz_damage.sparse_operators),
    )
}


def attempt(kind: str, seed: int, number: int) -> str:
    """Says "refused" or "works"; raises what is no sentence, and AssertionError."""
    try:
        KINDS[kind](Fuzzer(kind, seed, number))
    except SENTENCES as error:
        check_sentence(error)
        return "refused"
    return "works"


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
                KINDS[kind](Fuzzer(kind, options.seed, number))
                continue
            try:
                attempt(kind, options.seed, number)
            except Exception:
                failures += 1
                print(f"\n{traceback.format_exc()}", flush=True)
    print(f"\n{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
