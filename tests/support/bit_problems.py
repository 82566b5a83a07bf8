"""The problems whose results are recorded bit by bit: plain descriptions, made from their numbers.

    problem(number) -> {"row": "sm90a_bf16_...", "layout": "TN", "m": 384, ..}

A description depends on its number and on the recorded names of the kernels (data/rows.json)
alone. No torch generator and no planner takes part, so that every version of tcgemm asks the same.
Most problems name the kernel that has to serve them; the others go through the public functions and
leave the choice to the planner.
"""

import json
import re
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
COUNT = 2000
STEPS = {"sm90a": (0, 1, 2, 3, 4), "sm89": (1, 3, 4), "sm80": (1, 3, 4)}  # problems a kernel
# Of a kernel that its result reaches transposed.
MIRRORED = {"TN": "TN", "NT": "NT", "NN": "TT", "TT": "NN"}
LAYOUTS = ("TN", "NN", "TT", "NT")
# Fixed: another one would draw other problems than the recorded ones.
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
FP8, INT8, HALVES = ("e4m3", "e5m2"), ("s8", "u8"), ("f16", "bf16")
NAME = re.compile(
    r"(?P<arch>sm80|sm89|sm90a)_(?P<a>tf32|f16|bf16|f32|f64|e4m3|e5m2|s8|u8)"
    r"(?:x(?P<b>e4m3|e5m2|s8|u8))?_(?P<accumulator>f16|f32|f64|s32)"
    r"_(?P<tile>\d+x\d+x\d+)_w\d_s(?P<stages>\d+)_(?P<layout>[tn]{2})"
    r"(?:_(?P<more>promoted|blocks|registers|parts2|parts3|sparse))?"
)


def recorded_rows():
    """The names of all kernels, as they were when the bits were recorded."""
    return json.loads((DATA / "rows.json").read_text())


def mix64(word):
    """SplitMix64: a number of 64 bits whose bits all depend on all of `word`."""
    mask = 2**64 - 1
    word = (word + 0x9E3779B97F4A7C15) & mask
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & mask
    return word ^ word >> 31


class Draw:
    """Choices that follow from a seed."""

    def __init__(self, seed):
        self.word = mix64(seed)

    def below(self, limit):
        self.word = mix64(self.word)
        return (self.word >> 16) % limit

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, values):
        return values[self.below(len(values))]

    def chance(self, percent):
        return self.below(100) < percent


def parse(name):
    match = NAME.fullmatch(name).groupdict()
    a, suffix = match["a"], match["more"] or ""
    b = match["b"] or a
    split = suffix.startswith("parts") or a == "f32"
    stored = {"tf32": "f32"}
    precision = "high" if a == "tf32" else "highest" if split else None
    if a in FP8 and suffix in ("", "sparse"):
        precision = "fast"
    return {
        "name": name,
        "arch": match["arch"],
        "a": "f32" if split else stored.get(a, a),
        "b": "f32" if split else stored.get(b, b),
        "accumulator": "f32" if split else match["accumulator"],
        "precision": precision,
        "tile": tuple(int(size) for size in match["tile"].split("x")),
        "stages": int(match["stages"]),
        "layout": match["layout"].upper(),
        "more": suffix,
        "tma": match["arch"] == "sm90a" and a not in ("f32", "f64"),
        "k_major_only": a in ("tf32", *FP8, *INT8),
    }


def outs(a):
    """Dtypes of results; the first is the default."""
    if a == "f64":
        return ("f64",)
    if a in INT8:
        return ("s32", "bf16", "f16", "f32", "s8")
    first = "bf16" if a in FP8 else a
    return tuple(dict.fromkeys((first, "f32", "bf16", "f16", "e4m3", "e5m2")))


def sizes(row, step, draw):
    """m, n, k in the terms of a tile."""
    m, n, k = row["tile"]
    depth = row["stages"]
    odd = draw.between(1, 31)
    choices = (
        (2 * m, 2 * n, (depth + 2) * k),
        (2 * m + odd, n + draw.between(1, 40), 2 * k + k // 2 + draw.between(0, 9)),
        (m + 8 * draw.between(1, 9), n + 8 * draw.between(1, 9), 3 * k + 16),
        (m - draw.between(1, 9), 2 * n - draw.between(1, 9), k + draw.between(1, 70)),
        (draw.between(1, 1500), draw.between(1, 1500), draw.between(1, 900)),
        (16 * draw.between(1, 60), 16 * draw.between(1, 60), 32 * draw.between(1, 40)),
        (draw.between(1, 4), n + odd, 8 * draw.between(1, 300)),
        (3 * m - 16, 2 * n + 16, (160 if row["tma"] and n <= 128 else 40) * k),
        (9 * m + 8, 4 * n + 16, 2 * k),
    )
    m, n, k = choices[step if step < 4 else draw.below(len(choices))]
    return m, n, k + 128 if row["more"] == "blocks" and k <= 128 else k


def addends(draw, result, often):
    """c, bias and residual: their dtypes, and what of the result they have."""
    if result == "s32":
        types = ("s32",)
    else:
        types = ("f32", "f16", "bf16", "f64")[: 4 if result == "f64" else 3]
    fields = {}
    if draw.chance(often):
        fields["bias"] = [draw.pick(types), draw.pick(("row", "row", "column"))]
    if draw.chance(often // 2):
        fields["c"] = [draw.pick(types), draw.pick(("whole", "whole", "row", "column"))]
        fields["beta"] = draw.pick((1.0, -3.0, 2.0) if result == "s32" else (1.0, 0.5, -3.0))
    if draw.chance(often // 2):
        fields["residual"] = [draw.pick(types), draw.pick(("whole", "whole", "row"))]
    if draw.chance(often // 2):
        fields["activation"] = "relu" if result == "s32" else draw.pick(ACTIVATIONS)
    if draw.chance(often // 3):
        fields["alpha"] = draw.pick((2.0, -1.0) if result == "s32" else (0.25, -1.5, 0.01))
    return fields


BLOCKS = (("1x128", "128x128"), ("128x128", "1x128"), ("1x128", "row"), ("tensor", "128x128"))
BLOCKS += (("128x128", "128x128"), ("1x128", "1x128"), ("128x128", ""), ("row", "1x128"))
LINES = (("row", "row"), ("tensor", "row"), ("row", ""), ("", "row"), ("tensor", "tensor"))


def scales(draw, row, result, often):
    """Scales of the operands and of the result, zero points and amax."""
    fields = {}
    of_a, of_b = "", ""
    if row["more"] == "blocks":
        of_a, of_b = draw.pick(BLOCKS)
    elif result != "s32" and draw.chance(often):
        of_a, of_b = draw.pick(LINES)
    if of_a:
        fields["scale_a"] = of_a
    if of_b:
        fields["scale_b"] = of_b
    if row["a"] in INT8 and row["more"] != "sparse" and draw.chance(often):
        for name in ("zero_a", "zero_b"):
            if draw.chance(70):
                fields[name] = draw.pick(("tensor", "row"))
    if result == "s32":
        return fields
    if draw.chance(often // 2):
        fields["scale_out"] = True
    if draw.chance(often // 2) and not row["more"].startswith("parts"):
        fields["amax"] = True
    return fields


def of_row(row, step, draw):
    """A problem that this kernel serves."""
    m, n, k = sizes(row, step, draw)
    types = outs(row["a"])
    result = types[0] if step in (0, 1) else draw.pick(types)
    problem = {"call": "scaled_mm", "row": row["name"], "m": m, "n": n, "k": k, "out": result}
    problem |= {"a": row["a"], "b": row["b"], "accumulator": row["accumulator"]}
    problem["precision"] = row["precision"]
    often = (0, 60, 100, 30, 50, 50)[step % 6]
    problem |= addends(draw, result, often)
    problem |= scales(draw, row, result, (0, 0, 20, 100, 50, 30)[step % 6])
    small = m * n * k < 2e8
    if small and draw.chance(20):
        problem["batch"] = draw.between(2, 5)
        problem["shared"] = draw.pick(("", "", "a", "b"))
    if row["more"] == "sparse":
        return of_sparse(row, problem, step, draw)
    layout = row["layout"]
    if row["more"] == "registers":
        layout = ("TT", "NN")[step % 2]
    elif row["k_major_only"] and step >= 3 and draw.chance(50):
        layout = draw.pick(LAYOUTS)
    # A copy of an operand is K-major, so kernels of other layouts take what TMA can read.
    problem["padded"] = layout != "TN" or draw.chance(60)
    if "amax" not in problem and step >= 2 and draw.chance(50):
        problem["stored"] = draw.pick(("padded", "odd_pitch", "column_major", "column_major_odd"))
        if problem["stored"].startswith("column_major") and row["more"] != "registers":
            layout = MIRRORED[layout]
            problem["a"], problem["b"] = problem["b"], problem["a"]
    problem["layout"] = layout
    return problem


def of_sparse(row, problem, step, draw):
    """The sparse operand is w (rows, K), on side a w @ x, on side b x @ w.t()."""
    problem["sparse"] = "ab"[step % 2]
    if problem.get("shared") == problem["sparse"] or "batch" in problem:
        problem["shared"] = problem["sparse"]
    problem["layout"] = row["layout"]  # TN: x is K-major
    problem["padded"] = row["layout"] != "TN" or draw.chance(60)
    if problem["sparse"] == "b":
        if not problem.get("batch"):
            problem["m"], problem["n"] = problem["n"], problem["m"]
        if "amax" not in problem and step >= 2 and draw.chance(40):
            problem["stored"] = draw.pick(("padded", "odd_pitch", "column_major"))
    return problem


# Problems that go through the public functions.

KINDS = (("f16", None, None), ("f16", "f16", None), ("bf16", None, None), ("f64", None, None))
KINDS += tuple(("f32", None, word) for word in ("highest", "high", "medium"))
KINDS += tuple((dtype, None, word) for dtype in FP8 for word in ("promoted", "fast"))
KINDS += (("s8", None, None), ("u8", None, None))


def of_function(step, draw):
    dtype, accumulator, precision = KINDS[step % len(KINDS)]
    call = ("mm", "addmm", "linear", "matmul", "bmm")[step // 2 % 5]
    limit = 1024 if dtype == "f64" else 2048
    shape = draw.pick(("aligned", "aligned", "odd", "few rows", "large"))
    m, n, k = (16 * draw.between(1, limit // 16) for _ in range(3))
    if shape == "odd":
        m, n, k = (draw.between(1, 1500) for _ in range(3))
    elif shape == "few rows":
        m = draw.between(1, 64)
    elif shape == "large" and dtype != "f64":
        m, n, k = 4096, 4096, draw.pick((1024, 2048))
    problem = {"call": call, "m": m, "n": n, "k": k, "a": dtype, "b": dtype, "precision": precision}
    problem["accumulator"] = accumulator
    problem["out"] = draw.pick(outs(dtype))
    problem["layout"] = "TN" if call == "linear" else LAYOUTS[step % 4]
    problem["padded"] = False
    problem |= addends(draw, problem["out"], 40)
    if call != "addmm":
        for name in ("c", "beta"):
            problem.pop(name, None)
    elif "c" not in problem:
        problem["c"] = ["s32" if problem["out"] == "s32" else "f32", "whole"]
    if call == "linear" and "bias" in problem:
        problem["bias"][1] = "row"
    if call == "bmm" or (call == "matmul" and draw.chance(50)):
        problem["m"], problem["n"], problem["k"] = (draw.between(1, 300) for _ in range(3))
        problem["batch"] = draw.between(2, 9)
    return problem


def of_wide_data(step, draw):
    """f32 products whose data decide what is multiplied: recomputed tiles, or other terms."""
    problem = of_function(4, draw)
    problem |= {"call": "mm", "precision": "highest", "layout": LAYOUTS[step % 4]}
    problem["data"] = ("rows", "elements", "nonfinite", "few")[step // 4 % 4]
    for name in ("batch", "c", "beta"):
        problem.pop(name, None)
    problem["m"], problem["n"], problem["k"] = (draw.between(100, 700) for _ in range(3))
    return problem


def of_prepared(step, draw):
    problem = {"call": "prepared", "m": draw.between(1, 600), "n": 8 * draw.between(8, 200)}
    problem |= {"k": draw.pick((64, 520, 1024, 2048, 333)), "a": "f32", "b": "f32", "out": "f32"}
    problem |= {"precision": "highest", "accumulator": None, "layout": "TN", "padded": False}
    problem["data"] = ("", "rows", "elements")[step % 3]
    return problem | addends(draw, "f32", 30)


def of_quantize(step, draw):
    granularity = ("tensor", "row", "1x128", "128x128")[step % 4]
    dtype = ("e4m3", "e5m2", "s8")[step // 4 % 3]
    if granularity not in ("tensor", "row"):
        dtype = dtype if dtype in FP8 else "e4m3"
    call = ("quantize", "quantize", "dequantize", "quantized_linear")[step // 12 % 4]
    problem = {"call": call, "m": draw.between(1, 900), "k": 8 * draw.between(1, 200)}
    problem |= {"a": draw.pick(("f16", "bf16", "f32")), "granularity": granularity, "to": dtype}
    if call == "quantized_linear":
        problem["granularity"] = "row" if granularity == "1x128" else granularity
        problem["n"] = draw.between(8, 700)
        problem["a"] = draw.pick(HALVES)
    elif draw.chance(40):
        problem["k"] = draw.between(1, 1500)
    problem["transposed"] = call != "quantized_linear" and draw.chance(30)
    return problem


def of_pruning(step, draw):
    dtype = (*HALVES, "f32", *FP8, *INT8)[step % 7]
    call = ("prune24", "compress24", "decompress24", "prune24_transposable")[step // 7 % 4]
    if call == "prune24_transposable" and dtype == "f32":  # its pattern is 1:2
        dtype = "bf16"
    problem = {"call": call, "m": draw.between(1, 900), "k": draw.between(1, 1500), "a": dtype}
    if draw.chance(50):
        problem |= {"m": 16 * draw.between(1, 60), "k": 64 * draw.between(1, 30)}
    return problem | {"transposed": draw.chance(30)}


def of_sparse_function(step, draw):
    dtype, precision = (("f16", None), ("bf16", None), ("f32", "high"), ("e4m3", None))[step % 4]
    problem = {"call": ("linear24", "mm24")[step // 4 % 2], "a": dtype, "b": dtype}
    problem |= {"m": draw.between(1, 500), "n": 8 * draw.between(2, 150)}
    problem |= {
        "k": 16 * draw.between(2, 99),
        "precision": precision,
        "out": outs(dtype)[0],
        "accumulator": None,
    }
    problem |= {"layout": "TN", "padded": False}
    return problem | (addends(draw, problem["out"], 40) if problem["call"] == "linear24" else {})


OTHERS = (
    (of_function, 105),
    (of_wide_data, 16),
    (of_prepared, 12),
    (of_quantize, 48),
    (of_pruning, 28),
    (of_sparse_function, 16),
)


def order():
    """The makers of the problems: (function, its first argument, step), one for each number."""
    rows = [parse(name) for name in recorded_rows()]
    makers = [(make, None, step) for make, count in OTHERS for step in range(count)]
    makers += [(of_row, row, step) for row in rows for step in STEPS[row["arch"]]]
    makers += [(of_row, row, 5) for row in rows]
    return makers[:COUNT]


def problems():
    """All descriptions, in the order of their numbers."""
    rows = []
    for number, (make, row, step) in enumerate(order()):
        draw = Draw(number)
        problem = make(step, draw) if row is None else make(row, step, draw)
        rows.append({"id": number, **problem})
    return rows
