"""Performance targets for whole sets of cases on an H200, and whether they are met.

A target is a least geometric mean of a ratio over its shapes, and a limit for the lowest shape. A
mean has a value for each repetition of its cases, and the range of these values. A target is met
if the whole range of its mean and of each shape clears the limits. Stale rows (current.py) count as
not measured.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from benchmarks import current
from tcgemm import _tables
from tcgemm.measure import results
from tcgemm.measure.case import FORWARD
from tcgemm.measure.cases import EVEN, HIGHEST, LLM, LLM_GRID, cases
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import FUSED, TORCH, case_fields

OWN_TN, OWN_DENSE, ONE_SCALE = "tcgemm TN", "tcgemm dense", "tcgemm, a scale a tensor"
ANY = 0.0  # the limit of the lowest shape where there is none
HEADS = ("x", "target", "reached", "lowest", "error", "")
# Claim of results.claim -> its word. The first one that a target has decides.
WORDS = {"MISS": "missed", "UNCLEAR": "not clear", "PASS": "met"}


def set_of(row: Row) -> str:
    """The set of a row without the seed that drew it: 'drawn-mm@1' -> 'drawn-mm'."""
    return row["set"].partition("@")[0]


def is_cube(row: Row) -> bool:
    """M = N = K?"""
    return bool(row["m"] == row["n"] == row["k"])


class Target(NamedTuple):
    """What the rows with these fields and sizes shall reach."""

    name: str
    least: float  # the geometric mean
    lowest: float  # the limit of the lowest shape
    fields: Mapping[str, Any]  # a tuple lists the values that fit
    sizes: Collection[tuple[int, int, int]] = ()  # (m, n, k); (): every size
    against: str | float = TORCH  # the candidate of the ratio, or microseconds in place of its time

    def is_about(self, row: Row) -> bool:
        """Is the target about a row, or about a case with these fields?"""
        if "m" not in row or (self.sizes and (row["m"], row["n"], row["k"]) not in self.sizes):
            return False
        values = row | {"set": set_of(row)}
        return all(
            values[name] in (value if isinstance(value, tuple) else (value,))
            for name, value in self.fields.items()
        )

    def cases(self) -> list[Row]:
        """The fields of the cases that it is about; drawn sets have the default seed."""
        rows = (case_fields(case, "cuda") for case in cases(self.fields["set"]))
        return [row for row in rows if self.is_about(row)]

    def ratios(self, row: Row) -> list[float]:
        """The ratio of a row in each repetition; none where it was not measured."""
        parts = results.repetitions(row)
        if isinstance(self.against, float):
            return [self.against / part["us"] for part in parts]
        return [part["ratios"][self.against] for part in parts if self.against in part["ratios"]]


def _cubes(*sizes: int) -> set[tuple[int, int, int]]:
    return {(size, size, size) for size in sizes}


GRID, CUBES = set(LLM_GRID), _cubes(*EVEN)
SPARSE_SIZES = {*CUBES, *LLM}
SPARSE_LARGE = {(m, n, k) for m, n, k in SPARSE_SIZES if m * n * k >= 4096**3}
SPARSE_FEW_ROWS = [(m, 28672, 4096) for m in (16, 64)]
STEP = {"set": "train", "function": "train", "dtype": "bf16"}
S8_TN, S8_NN = ({"set": "int8", "dtype": "s8", "layout": layout} for layout in ("TN", "NN"))
E4M3 = {"dtype": "e4m3", "layout": "TN"}
FAST, PROMOTED = E4M3 | {"accumulation": "fast"}, E4M3 | {"accumulation": "promoted"}
TENSOR = {"set": "fp8", "epilogue": "tensor-scales"}
ROW, BLOCKS, LINES = (
    {"set": "scales", "epilogue": f"{scales}-scales"} for scales in ("row", "128x128", "1x128")
)
TF32 = {"set": "tf32", "dtype": "tf32", "layout": FORWARD}
F64 = {"set": "f64", "dtype": "f64", "layout": FORWARD}
F32 = {"set": "highest", "function": "mm", "dtype": "f32", "epilogue": ""}


def _linear(*epilogues: str) -> Row:
    return {"set": "epilogue", "function": "linear", "dtype": "bf16", "epilogue": epilogues}


def _sparse(function: str = "mm", **fields: str) -> Row:
    return {"set": "sparse-mm", "function": function, **fields}


F16_SPARSE, BF16_SPARSE = _sparse(dtype="f16"), _sparse(dtype="bf16")
S8_SPARSE = _sparse(dtype="s8", epilogue="sparse")
S8_SPARSE_TO_BF16 = _sparse(dtype="s8", epilogue="sparse+to-bf16")
ACTIVATIONS = _linear("bias+gelu", "bias+gelu_tanh", "bias+silu")
# Drawn families: the least geometric mean, and the limit of the lowest shape.
DRAWN = (
    "few-rows 1.10 0.93, long-k 1.18 0.94, mm 0.99 0.92, bias 0.98 0.93, relu 0.99 0.93, "
    "activations 1.02 0.95, residual 0.99 0, gelu-residual 1.08 0, train 0.99 0, "
    "train-gelu 1.01 0, fast 1.00 0, promoted 0.97 0, fast-rows 1.00 0, promoted-rows 0.97 0, "
    "128x128 0.97 0, 1x128 1.00 0, s8 1.58 0, tf32 1.03 0, f64 1.00 0, f32 3.98 0, batch 1.04 0.93"
)
TARGETS = (
    Target("bf16, f16 squares x torch.mm", 1.01, 0.96, {"set": "drawn-squares"}),
    Target("bf16 of language models x torch.mm", 1.01, 0.96, {"set": "llm", "dtype": "bf16"}, GRID),
    Target("linear + bias x torch's linear", 1.00, 0.97, _linear("bias"), GRID),
    Target("+ relu x torch._addmm_activation", 1.01, 0.97, _linear("bias+relu"), GRID),
    Target("+ gelu, gelu_tanh, silu x two calls of torch", 1.04, 0.99, ACTIVATIONS, GRID),
    Target(
        "+ gelu_tanh x torch._addmm_activation", 1.00, 0.97, _linear("bias+gelu_tanh"), GRID, FUSED
    ),
    Target("linear + residual x torch.addmm", 1.01, ANY, _linear("residual"), GRID),
    Target(
        "+ bias, gelu, residual x three calls of torch",
        1.10,
        ANY,
        _linear("bias+gelu+residual"),
        GRID,
    ),
    Target("step of nn.Linear x torch.nn.Linear", 1.01, ANY, STEP | {"epilogue": "bias"}, GRID),
    Target("step with gelu x Linear and GELU", 1.03, ANY, STEP | {"epilogue": "bias+gelu"}, GRID),
    Target("batches x torch.bmm", 1.06, 0.97, {"set": "batch", "dtype": "bf16"}),
    Target("s8 TN x torch._int_mm", 1.6, ANY, S8_TN, CUBES),
    Target("s8 NN x our own TN", 0.93, 0.93, S8_NN, CUBES, OWN_TN),
    Target("e4m3 fast x torch._scaled_mm", 1.02, ANY, FAST | TENSOR, CUBES | GRID),
    Target("e4m3 promoted x torch._scaled_mm", 0.99, ANY, PROMOTED | TENSOR, CUBES | GRID),
    Target("e4m3 fast, row scales x torch._scaled_mm", 1.02, ANY, FAST | ROW, CUBES | GRID),
    Target("e4m3 fast, row scales x a scale a tensor", 0.98, 0.95, FAST | ROW, CUBES, ONE_SCALE),
    Target("e4m3 promoted, row scales x torch._scaled_mm", 0.99, ANY, PROMOTED | ROW, CUBES | GRID),
    Target(
        "e4m3 promoted, row scales x a scale a tensor", 0.98, 0.95, PROMOTED | ROW, CUBES, ONE_SCALE
    ),
    Target("e4m3 1x128 by 128x128 x torch._scaled_mm", 0.99, ANY, PROMOTED | BLOCKS, CUBES | GRID),
    Target("e4m3 1x128 by 1x128 x torch._scaled_mm", 1.02, ANY, PROMOTED | LINES, CUBES | GRID),
    Target("tf32 TN and NN x torch.mm", 1.05, ANY, TF32, _cubes(*EVEN[:3])),
    Target("f64 TN and NN x torch.mm", 1.02, ANY, F64, _cubes(512, 1024, *EVEN[:3])),
    Target("f32 2048 to 8192 x torch.mm", 4.0, ANY, F32, _cubes(*HIGHEST[2:])),
    Target("each f32 1024 x torch.mm", 2.0, 2.0, F32, _cubes(1024)),
    Target("each f32 512 x torch.mm", 1.2, 1.2, F32, _cubes(512)),
    Target("f32 spread, 2048 to 8192 x torch.mm", 2.2, ANY, F32 | {"epilogue": "spread"}),
    Target("f16 2:4 x cuSPARSELt", 1.03, 0.95, F16_SPARSE, SPARSE_SIZES),
    Target("f16 2:4 from 4096^3 x our own dense", 1.4, 0.95, F16_SPARSE, SPARSE_LARGE, OWN_DENSE),
    Target("bf16 2:4 x cuSPARSELt", 1.03, 0.95, BF16_SPARSE, SPARSE_SIZES),
    Target("bf16 2:4 from 4096^3 x our own dense", 1.4, 0.95, BF16_SPARSE, SPARSE_LARGE, OWN_DENSE),
    Target("s8 2:4 x cuSPARSELt", 1.03, 0.95, S8_SPARSE, CUBES),
    Target("s8 2:4 to bf16 x cuSPARSELt", 1.03, 0.95, S8_SPARSE_TO_BF16, CUBES),
    Target("e4m3 2:4 x cuSPARSELt", 1.03, 0.95, _sparse(dtype="e4m3"), CUBES),
    Target("tf32 1:2 x torch.mm, dense", 1.6, 0.95, _sparse(dtype="tf32"), SPARSE_SIZES),
    Target(
        "bf16 2:4, few rows x our own dense", 1.4, 0.95, BF16_SPARSE, SPARSE_FEW_ROWS, OWN_DENSE
    ),
    Target(
        "70 us / prune and compress bf16", 1.0, 1.0, _sparse("compress", dtype="bf16"), against=70.0
    ),
    Target(
        "45 us / prune and compress s8", 1.0, 1.0, _sparse("compress", dtype="s8"), against=45.0
    ),
    Target("200 us / transposable prune bf16", 1.0, 1.0, _sparse("prune"), against=200.0),
    Target("15 us / host time of each sparse linear", 1.0, 1.0, _sparse("linear"), against=15.0),
    Target("bf16 small-m x torch.mm", 1.12, 0.97, {"set": "small-m"}),
    Target("bf16 long-k x torch.mm", 1.2, 0.98, {"set": "long-k"}),
    *(
        Target(f"drawn {name}", float(least), float(lowest), {"set": f"drawn-{name}"})
        for name, least, lowest in map(str.split, DRAWN.split(","))
    ),
)


def reached(target: Target, repetitions: Sequence[Sequence[float]]) -> tuple[str, str, str]:
    """The mean with its range, the lowest shape, and the word of a target.

    The ratios are those of each shape. One with fewer repetitions has its median in their place.
    """
    medians = [median(ratios) for ratios in repetitions]
    means = [
        geometric_mean([r[i] if i < len(r) else median(r) for r in repetitions])
        for i in range(max(map(len, repetitions)))
    ]
    span = min(means), max(means)
    words = {results.claim((min(r), max(r)), target.lowest) for r in repetitions}
    words.add(results.claim(span, target.least))
    text = f"**{geometric_mean(medians):.3f}**"
    text += f" ({span[0]:.3f}-{span[1]:.3f})" if len(means) > 1 else ""
    return text, f"{min(medians):.3f}", next(WORDS[word] for word in WORDS if word in words)


def outcome(target: Target, name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """The cells of a target in the table: HEADS. Shapes that torch refuses do not count."""
    known = [row for row in rows if target.ratios(row)]
    errors = [row["max_error_ratio"] for row in rows if row["max_error_ratio"] is not None]
    error = f"{max(errors):.2f}" if errors else "-"
    expected = len(target.cases()) - sum(target.against in row["refused"] for row in rows)
    mean, lowest, word = "-", "-", ""
    if known:
        mean, lowest, word = reached(target, [target.ratios(row) for row in known])
    if len(known) < expected or not known:
        word = f"{len(known)} of {expected} shapes"
    elif any(results.repetitions_left(row, aims(row)) for row in known):
        word += " so far"
    return name, f"{target.least:.2f}", mean, lowest, error, word


def outcomes(measured: Results) -> list[tuple[str, ...]]:
    """The cells of each target that some row is about, and of each seed of a drawn set."""
    result = []
    rows = current.without_stale(measured).rows
    for target in TARGETS:
        by_name: dict[str, list[Row]] = {}
        for row in filter(target.is_about, rows):
            seed = row["set"].partition("@")[2]
            by_name.setdefault(target.name + (f", seed {seed}" if seed else ""), []).append(row)
        result += [outcome(target, name, rows_of_name) for name, rows_of_name in by_name.items()]
    return result


def aims(row: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """The targets of each ratio of a row or of the fields of a case, and their lowest limits."""
    result: dict[str, tuple[float, ...]] = {}
    for target in TARGETS:
        if isinstance(target.against, str) and target.is_about(dict(row)):
            limits = tuple(limit for limit in (target.least, target.lowest) if limit)
            result[target.against] = result.get(target.against, ()) + limits
    return result


def summary_lines(measured: Results) -> tuple[list[str], int, int]:
    """The table of the outcomes, how many targets are met, and how many there are."""
    rows = outcomes(measured)
    text = _tables.markdown(HEADS, rows).splitlines() if rows else []
    return text, sum(row[-1] == WORDS["PASS"] for row in rows), len(rows)
