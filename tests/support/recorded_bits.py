"""Records the bits of 2,000 results on a GPU, and compares a later version with the record.

    python tests/support/recorded_bits.py write   --out bits_h200.json
    python tests/support/recorded_bits.py compare --recorded bits_h200.json --out found.json

bit_problems.py has the problems. Their data come from a counter that is hashed on the CPU with
integers alone, so they are the same with every torch. For each result the record has the
first 16 digits of its SHA-256, or the sentence of the error, and the kernels that explain names.

A kernel that was renamed since is looked up in data/row_names.json, {"old": "new"}.
`--device cpu --count 50` runs the smallest problems without a GPU and without kernels.
"""

import argparse
import ctypes
import hashlib
import json
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402

import tcgemm  # noqa: E402
from tcgemm.measure.results import write  # noqa: E402

from support import bit_problems  # noqa: E402

OPS = torch.ops.tcgemm
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
TYPES |= {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
TYPES |= {"s8": torch.int8, "u8": torch.uint8, "s32": torch.int32}
POOL = 2**24 + 2**20
KERNEL = re.compile(r"\bsm\d+a?_[a-z0-9]+_(?:f16|f32|f64|s32)_\w+")


def digest(*tensors):
    """The first 16 digits of a hash of dtypes, shapes and elements."""
    sha = hashlib.sha256()
    for tensor in tensors:
        tensor = tensor.detach().contiguous().cpu()
        sha.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha.update(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
    return sha.hexdigest()[:16]


def hashed_words(count):
    """SplitMix64 of 0 .. count - 1, in 64-bit integers that wrap."""

    def shifted(x, bits):
        return x >> bits & (1 << 64 - bits) - 1

    words = torch.arange(1, count + 1, dtype=torch.int64) * (0x9E3779B97F4A7C15 - 2**64)
    words = (words ^ shifted(words, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    words = (words ^ shifted(words, 27)) * (0x94D049BB133111EB - 2**64)
    return words ^ shifted(words, 31)


class Data:
    """Tensors of a problem: slices of one pool of numbers, from places that its number decides."""

    def __init__(self, device):
        words = hashed_words(POOL)
        fields = [(words >> shift) & 0x1FFFFF for shift in (0, 21, 42)]
        # A sum of three uniform numbers of 21 bits: exact in f32, about normal, of deviation 1.
        normal = (fields[0] + fields[1] + fields[2] - 3 * 2**20).float() * 2.0**-20
        self.identity = digest(normal)
        self.normal = normal.to(device)
        self.bytes = (words >> 56).to(torch.int8).to(device)
        self.device = device
        self.seed(0)

    def seed(self, number):
        self.draw = bit_problems.Draw(10**6 + number)

    def values(self, shape, dtype):
        size = 1
        for extent in shape:
            size *= extent
        start = self.draw.below(POOL - size)
        if dtype in ("s8", "u8", "s32"):
            values = self.bytes[start : start + size].view(shape)
            return values.view(torch.uint8) if dtype == "u8" else values.to(TYPES[dtype])
        values = self.normal[start : start + size].view(shape)
        if dtype != "f64":
            return values.to(TYPES[dtype])
        low = self.normal[self.draw.below(POOL - size) :][:size].view(shape)
        return values.double() + low.double() * 2.0**-23

    def matrix(self, shape, dtype, *, mn_major=False, padded=False):
        """K-major rows, or their transpose's; padded: rows of whole words amid poison."""
        *batch, rows, cols = shape
        if mn_major:
            rows, cols = cols, rows
        values = self.values((*batch, rows, cols), dtype)
        if padded:
            storage = empty((*batch, rows, (cols + 15) // 16 * 16 + 16), dtype, self.device)
            storage[..., :cols].copy_(values)
            values = storage[..., :cols]
        return values.mT if mn_major else values

    def positive(self, shape):
        """Scales between 0.5 and 1.5, of eight bits each."""
        return (self.values(shape, "s8").float() + 256) / 256


def empty(shape, dtype, device):
    """Poison: NaN, or bytes of 0xB3."""
    poison = float("nan") if TYPES[dtype].is_floating_point else {"s8": -77, "u8": 179}.get(dtype)
    return torch.full(shape, -77 if poison is None else poison, dtype=TYPES[dtype], device=device)


def blocks(extent):
    return -(-extent // 128)


def scale(data, kind, extent, k):
    """As scale_a; scale_b is the transpose."""
    shapes = {"tensor": (1, 1), "row": (extent, 1), "1x128": (extent, blocks(k))}
    return data.positive(shapes.get(kind) or (blocks(extent), blocks(k)))


def addend(data, words, problem):
    dtype, kind = words
    m, n = problem["m"], problem["n"]
    shape = {"row": (1, n), "column": (m, 1), "whole": (*batch_of(problem), m, n)}[kind]
    return data.values(shape, dtype)


def batch_of(problem):
    return (problem["batch"],) if problem.get("batch") else ()


def options_of(data, problem):
    """The epilogue of a problem, as keywords of tcgemm.addmm or scaled_mm."""
    options = {name: problem[name] for name in ("activation", "alpha", "beta") if name in problem}
    for name in ("bias", "c", "residual"):
        if name in problem:
            options[name] = addend(data, problem[name], problem)
    if "bias" in options and problem["bias"][1] == "row":
        options["bias"] = options["bias"][0]
    for name, extent in (("a", problem["m"]), ("b", problem["n"])):
        if kind := problem.get(f"scale_{name}"):
            options[f"scale_{name}"] = scale(data, kind, extent, problem["k"])
        if kind := problem.get(f"zero_{name}"):
            zero = data.values((extent if kind == "row" else 1, 1), "s8")
            options[f"zero_{name}"] = zero.to(torch.int32)
    for name in ("scale_b", "zero_b"):
        if name in options:
            options[name] = options[name].mT
    if problem.get("scale_out"):
        options["scale_out"] = data.positive((1,))
    options["out_dtype"] = TYPES[problem["out"]]
    if problem.get("accumulator"):
        options["acc_dtype"] = TYPES[problem["accumulator"]]
    options["precision"] = problem["precision"]
    return options


def operands_of(data, problem):
    m, n, k, shared = problem["m"], problem["n"], problem["k"], problem.get("shared")
    batch_a = () if shared == "a" else batch_of(problem)
    batch_b = () if shared == "b" else batch_of(problem)
    layout, padded = problem["layout"], problem["padded"]
    a = data.matrix((*batch_a, m, k), problem["a"], mn_major=layout[1] == "T", padded=padded)
    b = data.matrix((*batch_b, k, n), problem["b"], mn_major=layout[0] == "T", padded=padded)
    return spread(problem, a, -2), spread(problem, b, -1)


def spread(problem, x, line):
    """Data that f16 terms do not hold: of rows, of elements, of Inf and NaN, of a few rows."""
    kind = problem.get("data")
    if not kind:
        return x
    rows, cols = torch.meshgrid(
        *(torch.arange(extent, device=x.device) for extent in x.shape), indexing="ij"
    )
    indices = rows if line == -2 else cols
    powers = {
        "rows": indices * 37 % 121 - 60,
        "elements": (rows * 29 + cols * 17) % 41 - 20,
        "few": torch.where((indices % 97 == 5) & ((rows + cols) % 3 == 0), -40, 0),
        "nonfinite": torch.zeros_like(indices),
    }[kind]
    x = torch.ldexp(x, powers).to(x.dtype)
    if kind == "nonfinite":
        x[3, 5], x[7, 2], x[11, 1] = float("inf"), float("nan"), float("-inf")
    return x


def result_of(problem, shape, device):
    """The tensor that the result is written to; None: the operator makes it."""
    kind = problem.get("stored")
    if kind is None:
        return None
    *batch, m, n = shape
    rows, cols = (n, m) if kind.startswith("column_major") else (m, n)
    pitch = cols + 1 + cols % 2 if "odd" in kind else (cols + 15) // 16 * 16 + 16
    out = empty((*batch, rows, pitch), problem["out"], device)[..., :cols]
    return out.mT if kind.startswith("column_major") else out


def explained(a, b, options, out, kernel):
    """The kernels that explain names, in its order."""
    names = ("bias", "activation", "residual", "alpha", "scale_a", "scale_b", "out_dtype")
    names += ("acc_dtype", "precision")
    if not a.is_cuda:
        return []
    try:
        keywords = {name: options[name] for name in names if name in options}
        text = tcgemm.explain(a, b, **keywords, out=out, kernel=kernel)
    except Exception as error:  # an answer beside the result, which says more
        return [f"no answer: {error}".splitlines()[0][:200]]
    return list(dict.fromkeys(KERNEL.findall(text)))


def multiply(data, problem, kernel):
    """scaled_mm with the kernel that is asked for: (tensors, kernels)."""
    if problem.get("sparse"):
        return multiply_sparse(data, problem, kernel)
    a, b = operands_of(data, problem)
    options = options_of(data, problem)
    out = result_of(problem, (*batch_of(problem), problem["m"], problem["n"]), data.device)
    return results_of_call(problem, a, b, options, out, kernel), explained(
        a, b, options, out, kernel
    )


def results_of_call(problem, a, b, options, out, kernel, **forms):
    keywords = {**options, **forms, "kernel_name": kernel}
    if problem.get("amax"):
        return OPS.scaled_mm_amax(a, b, **keywords)
    if out is None:
        return (OPS.scaled_mm(a, b, **keywords),)
    OPS.scaled_mm.out(a, b, **keywords, out=out)
    return (out,)


def sparse_operands(data, problem):
    """The sparse w (rows, K) and the dense x (columns, K). Batched is x alone."""
    side, k = problem["sparse"], problem["k"]
    types = problem["a"], problem["b"]
    extent = problem["m"] if side == "a" else problem["n"]
    s = tcgemm.compress24(data.matrix((extent, k), types[0]), prune=True)
    across = problem["n"] if side == "a" else problem["m"]
    major = problem["layout"][0] == "N"  # x is MN-major
    shape = (*batch_of(problem), across, k)
    return s, data.matrix(shape, types[1], mn_major=major, padded=problem["padded"])


def multiply_sparse(data, problem, kernel):
    """On side b the kernel's a is b's transpose."""
    side = problem["sparse"]
    s, x = sparse_operands(data, problem)
    a, b = (s.values, x.mT) if side == "a" else (x, s.values.t())
    tiles = s.tiles if s.values.is_cuda else s.metadata
    options = options_of(data, problem)
    out = result_of(problem, (*batch_of(problem), problem["m"], problem["n"]), data.device)
    results = results_of_call(problem, a, b, options, out, kernel, **{f"sparse_{side}": tiles})
    sides = (s, x.mT) if side == "a" else (x, s.t())
    return results, explained(*sides, options, out, kernel)


def function(data, problem, _kernel):
    """A public function, whose kernel the planner chooses."""
    a, b = operands_of(data, problem)
    options = options_of(data, problem)
    kernels = explained(a, b, options, None, None)
    if problem["call"] == "addmm":
        return (tcgemm.addmm(options.pop("c"), a, b, **options),), kernels
    if problem["call"] == "linear":
        return (tcgemm.linear(a, b.t(), **options),), kernels
    return (getattr(tcgemm, problem["call"])(a, b, **options),), kernels


def prepared(data, problem, _kernel):
    a, b = operands_of(data, problem)
    options = options_of(data, problem)
    w = tcgemm.prepare(b.t())
    kernels = explained(a, w.t(), options, None, None)
    return (tcgemm.mm(a, w.t(), **options), tcgemm.mm(a, b, **options)), kernels


def source(data, problem):
    return data.matrix((problem["m"], problem["k"]), problem["a"], mn_major=problem["transposed"])


def quantize(data, problem, _kernel):
    return tcgemm.quantize(source(data, problem), TYPES[problem["to"]], problem["granularity"]), []


def dequantize(data, problem, _kernel):
    values, factors = tcgemm.quantize(
        source(data, problem), TYPES[problem["to"]], problem["granularity"]
    )
    return (tcgemm.dequantize(values, factors),), []


def quantized_linear(data, problem, _kernel):
    x, w = source(data, problem), data.matrix((problem["n"], problem["k"]), problem["a"])
    options = {"dtype": TYPES[problem["to"]], "granularity": problem["granularity"]}
    return (tcgemm.quantized_linear(x, w, **options),), []


def prune24(data, problem, _kernel):
    method = "transposable" if problem["call"].endswith("transposable") else "magnitude"
    return (tcgemm.prune24(source(data, problem), method=method),), []


def compress24(data, problem, _kernel):
    s = tcgemm.compress24(source(data, problem), prune=True)
    tiles = (s.tiles,) if s.values.is_cuda else ()
    return (s.values, s.metadata, *tiles), []


def decompress24(data, problem, _kernel):
    return (tcgemm.compress24(source(data, problem), prune=True).to_dense(),), []


def linear24_operands(data, problem):
    """x, the sparse w of linear(x, w), and the epilogue that linear takes."""
    x, w = operands_of(data, problem)
    s = tcgemm.compress24(w.t(), prune=True)
    options = options_of(data, problem)
    options.pop("c", None)
    options.pop("beta", None)
    return x, s, options


def linear24(data, problem, _kernel):
    x, s, options = linear24_operands(data, problem)
    # linear takes no bias for each row of the result; mm runs the same kernel.
    rows = options.get("bias") is not None and options["bias"].dim() == 2
    result = tcgemm.mm(x, s.t(), **options) if rows else tcgemm.linear(x, s, **options)
    return (result,), explained(x, s.t(), options, None, None)


def mm24(data, problem, _kernel):
    a, b = operands_of(data, problem)
    s = tcgemm.compress24(a, prune=True)
    options = options_of(data, problem)
    return (tcgemm.mm(s, b, **options),), explained(s, b, options, None, None)


CALLS = {"scaled_mm": multiply, "prepared": prepared, "quantize": quantize, "mm24": mm24}
CALLS |= {"dequantize": dequantize, "quantized_linear": quantized_linear, "prune24": prune24}
CALLS |= {"prune24_transposable": prune24, "compress24": compress24, "linear24": linear24}
CALLS |= {"decompress24": decompress24}
CALLS |= dict.fromkeys(("mm", "addmm", "linear", "matmul", "bmm"), function)


def work(problem):
    return problem["m"] * problem.get("n", 1) * problem["k"] * problem.get("batch", 1)


def run(device, count, names):
    """The record of all problems, or of the `count` smallest."""
    torch.backends.cuda.matmul.allow_tf32 = False
    data = Data(device)
    problems = bit_problems.problems()
    if count < len(problems):
        problems = sorted(
            sorted(problems, key=work)[: 8 * count][::8], key=lambda problem: problem["id"]
        )
    results = {}
    for problem in problems:
        data.seed(problem["id"])
        kernel = problem.get("row")
        kernel = names.get(kernel, kernel) if device == "cuda" else None
        try:
            tensors, kernels = CALLS[problem["call"]](data, problem, kernel)
            result = {"bits": digest(*tensors), "kernels": kernels}
        except Exception as error:  # one problem does not end the record
            result = {"error": f"{type(error).__name__}: {error}"[:300]}
        results[str(problem["id"])] = result
        if device == "cuda" and "error" in result and "CUDA error" in result["error"]:
            break  # the context is lost, and every later problem would fail
    return {
        "pool": data.identity,
        "problems": digest_of(problems),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "results": results,
    }


def digest_of(descriptions):
    return hashlib.sha256(json.dumps(descriptions, sort_keys=True).encode()).hexdigest()[:16]


def differences(recorded, current, names):
    """(what is wrong, what is worth a look): sentences."""
    wrong = []
    wrong += [
        f"{key}: recorded {recorded[key]}, found {current[key]}"
        for key in ("pool", "problems")
        if recorded[key] != current[key]
    ]
    notes = []
    problems = {str(problem["id"]): problem for problem in bit_problems.problems()}
    missing = set(recorded["results"]) ^ set(current["results"])
    wrong += [f"problem {number} is in one of the two alone" for number in sorted(missing, key=int)]
    for number, old in recorded["results"].items():
        new = current["results"].get(number, old)
        if old.get("bits") != new.get("bits"):
            wrong.append(f"problem {number}: recorded {old}, found {new}, of {problems[number]}")
        elif old.get("error") != new.get("error"):
            notes.append(f"problem {number}: {old['error']!r} is now {new['error']!r}")
        elif [names.get(name, name) for name in old.get("kernels", ())] != new.get("kernels", []):
            notes.append(f"problem {number}: {old['kernels']} is now {new['kernels']}")
    return wrong, notes


def summary(record, names):
    results = record["results"].values()
    rows = {
        problem["id"]: problem["row"] for problem in bit_problems.problems() if "row" in problem
    }
    counts = {}
    other = []
    for number, result in record["results"].items():
        row = rows.get(int(number))
        if row and "bits" in result:
            counts[row] = counts.get(row, 0) + 1
            if result["kernels"] and names.get(row, row) not in result["kernels"]:
                other.append(number)
    errors = [f"  {key}: {v['error']}" for key, v in record["results"].items() if "error" in v]
    few = [row for row in set(rows.values()) if counts.get(row, 0) < 2]
    return "\n".join(
        [
            f"{len(results)} problems on {record['device']}, {len(errors)} refused, "
            f"{len(counts)} kernels, {len(few)} of them fewer than twice: {few[:10]}",
            f"explain names another kernel in {len(other)}: {other[:20]}",
            *errors[:40],
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("write", "compare"))
    parser.add_argument("--out", type=Path, help="where the record goes")
    parser.add_argument("--recorded", type=Path, help="the record to compare with")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--count", type=int, default=bit_problems.COUNT)
    arguments = parser.parse_args()
    names = json.loads((bit_problems.DATA / "row_names.json").read_text())
    begin = time.monotonic()
    record = run(arguments.device, arguments.count, names)
    if arguments.out:
        write(arguments.out, record)
    print(summary(record, names))
    print(f"{time.monotonic() - begin:.0f} s")
    if arguments.mode == "write":
        return 0
    recorded = json.loads((arguments.recorded or bit_problems.DATA / "bits_h200.json").read_text())
    wrong, notes = differences(recorded, record, names)
    print("\n".join([f"{len(wrong)} differences", *wrong[:50], f"{len(notes)} notes", *notes[:50]]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
