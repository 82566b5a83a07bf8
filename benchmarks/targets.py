"""Performance targets for whole sets of cases on an H200, and whether they are met.

    Target    a least geometric mean of a ratio over its shapes, with a limit for the lowest one; a
              least ratio for every shape (`each`); or a time (`within`)
    cliff     the times of sizes that differ by a few elements: slowest over fastest

A mean has a value for each repetition of its cases, and the range of these values. A target is met
if the whole range of its mean and of each shape clears the limits. Stale rows (current.py) count as
not measured.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from benchmarks import current
from tcgemm.measure import drawn, results
from tcgemm.measure.case import FORWARD
from tcgemm.measure.cases import CLIFF, EVEN, HIGHEST, LLM_GRID, cases
from tcgemm.measure.results import Results, Row
from tcgemm.measure.work import FUSED, IN_ONE_CALL, TORCH, case_fields

LOWEST = 0.95  # no shape may be below this, unless the target itself is lower or has a limit
MAX_CLIFF = 1.15
CLIFF_AXES = ("M", "N", "K", "all")
EDGE = 4096  # the aligned size of a cliff
FEW_ROWS = 128  # shapes with fewer rows have targets of their own
ANY = 0.0  # the limit of the lowest shape where there is none
OWN_TN, OWN_DENSE = "tcgemm TN", "tcgemm dense"
OWN_TENSOR = "tcgemm, a scale a tensor"


def set_of(row: Row) -> str:
    """The set of a row without the seed that drew it: 'drawn-mm@1' -> 'drawn-mm'."""
    return row["set"].partition("@")[0]


def is_cube(row: Row) -> bool:
    """M = N = K?"""
    return bool(row["m"] == row["n"] == row["k"])


@functools.cache
def _cases_of(name: str) -> list[Row]:
    """The fields of the cases of a set."""
    return [case_fields(case, "cuda") for case in cases(name)]


def every(row: Row) -> bool:
    """True: the condition of those that take every row."""
    return True


def _grid(row: Row) -> bool:
    return (row["m"], row["n"], row["k"]) in LLM_GRID


def _from_edge(row: Row) -> bool:
    return bool(row["m"] * row["n"] * row["k"] >= EDGE**3)


def _cubes(*sizes: int) -> Callable[[Row], bool]:
    return lambda row: is_cube(row) and row["m"] in sizes


_even = _cubes(*EVEN)


def _even_or_grid(row: Row) -> bool:
    return _even(row) or _grid(row)


@dataclass(frozen=True)
class Target:
    """A target of the ratio to torch, or to another candidate (`against`), or of a time.

    It is about the rows whose fields have these values; a tuple lists the values that fit.
    """

    name: str
    least: float
    fields: Mapping[str, Any]
    limit: float | None = None  # of the lowest shape; None: LOWEST
    shapes: Callable[[Row], bool] = is_cube
    against: str = TORCH
    baseline: str = ""  # the call of torch that a row must have been compared with; "": any
    few_rows: bool | None = False  # None: any number of rows
    within: float = 0.0  # us
    each: bool = False  # a target for each shape instead of their mean

    def is_about(self, row: Row) -> bool:
        """Is the target about a row, or about a case with these fields?"""
        if "m" not in row:
            return False
        rows = self.few_rows in (row["m"] < FEW_ROWS, None) or row["batch"] > 1
        call = row.get("baselines", {}).get(TORCH, {}).get("name", self.baseline)
        has_baseline = self.baseline in ("", call)
        return rows and has_baseline and self.shapes(row) and self._has_fields(row)

    def _has_fields(self, row: Row) -> bool:
        values = row | {"set": set_of(row)}
        return all(
            values[name] in (value if isinstance(value, tuple) else (value,))
            for name, value in self.fields.items()
        )

    @property
    def lowest(self) -> float:
        """The limit of the lowest shape."""
        if self.each:
            return self.least
        return min(LOWEST, self.least) if self.limit is None else self.limit

    def cases(self) -> list[Row]:
        """The fields of the cases that it is about; drawn sets have the default seed."""
        return [row for row in _cases_of(self.fields["set"]) if self.is_about(row)]

    def ratios(self, row: Row) -> list[float]:
        """The ratio of a row in each repetition; none where it was not measured."""
        parts = results.repetitions(row)
        if self.within:
            return [self.within / part["us"] for part in parts]
        return [part["ratios"][self.against] for part in parts if self.against in part["ratios"]]


LLM = {"set": "llm", "dtype": "bf16"}
LINEAR = {"set": "epilogue", "function": "linear", "dtype": "bf16"}
STEP = {"set": "train", "function": "train", "dtype": "bf16", "epilogue": "bias"}
GELU_STEP = STEP | {"epilogue": "bias+gelu"}
BATCH = {"set": "batch", "function": "bmm", "dtype": "bf16"}
S8 = {"set": "int8", "dtype": "s8"}
TF32 = {"set": "tf32", "dtype": "tf32", "layout": FORWARD}
F64 = {"set": "f64", "dtype": "f64", "layout": FORWARD}
PLAIN_F32 = {"set": "highest", "function": "mm", "dtype": "f32", "epilogue": ""}
SPREAD_F32 = PLAIN_F32 | {"epilogue": "spread"}
SPARSE = {"set": "sparse-mm", "function": "mm"}
F16_SPARSE, BF16_SPARSE, S8_SPARSE = (SPARSE | {"dtype": dtype} for dtype in ("f16", "bf16", "s8"))
ACTIVATIONS = ("bias+gelu", "bias+gelu_tanh", "bias+silu")
# Linear layers: name, least geometric mean, limit of the lowest, epilogue, candidate.
LINEARS = (
    ("linear + bias x torch's linear", 1.00, 0.97, "bias", TORCH),
    ("+ relu x torch._addmm_activation", 1.01, 0.97, "bias+relu", TORCH),
    ("+ gelu, gelu_tanh, silu x two calls of torch", 1.04, 0.99, ACTIVATIONS, TORCH),
    ("+ gelu_tanh x torch._addmm_activation", 1.00, 0.97, "bias+gelu_tanh", FUSED),
    ("linear + residual x torch.addmm", 1.01, ANY, "residual", TORCH),
    ("+ bias, gelu, residual x three calls of torch", 1.10, ANY, "bias+gelu+residual", TORCH),
)
# Sets of few rows and of a long K, and what is drawn like them: least geometric mean, lowest.
THIN = {"small-m": (1.12, 0.97), "long-k": (1.2, 0.98)}
# The mean and the lowest shape of a drawn family may be so much below its set's.
DRAWN_MEAN, DRAWN_LOWEST = 0.02, 0.04
# Families: the least geometric mean of the set, and the limit of its lowest shape.
DRAWN = {
    "few-rows": THIN["small-m"],
    "long-k": THIN["long-k"],
    "mm": (1.01, 0.96),
    "bias": (1.00, 0.97),
    "relu": (1.01, 0.97),
    "activations": (1.04, 0.99),
    "residual": (1.01, ANY),
    "gelu-residual": (1.10, ANY),
    "train": (1.01, ANY),
    "train-gelu": (1.03, ANY),
    "fast": (1.02, ANY),
    "promoted": (0.99, ANY),
    "fast-rows": (1.02, ANY),
    "promoted-rows": (0.99, ANY),
    "128x128": (0.99, ANY),
    "1x128": (1.02, ANY),
    "s8": (1.6, ANY),
    "tf32": (1.05, ANY),
    "f64": (1.02, ANY),
    "f32": (4.0, ANY),
    "batch": (1.06, 0.97),
}


def _float8(name: str, least: float, accumulation: str, scales: str) -> list[Target]:
    """The targets of one kind of scales of e4m3."""
    fields = {"set": "fp8" if scales == "tensor" else "scales", "dtype": "e4m3", "layout": "TN"}
    fields |= {"accumulation": accumulation, "epilogue": f"{scales}-scales"}
    result = [Target(f"{name} x torch._scaled_mm", least, fields, ANY, _even_or_grid)]
    if scales == "row":
        result.append(Target(f"{name} x a scale a tensor", 0.98, fields, None, _even, OWN_TENSOR))
    return result


def _time(us: float, name: str, fields: Mapping[str, Any]) -> Target:
    """The target of a time of what is sparse."""
    text = f"{us:.0f} us / {name}"
    return Target(text, 1.0, SPARSE | fields, None, every, within=us, each=True)


def _drawn(name: str) -> Target:
    """The target of a drawn family: a bit below that of the set which is like it."""
    least, lowest = DRAWN[name]
    limit = round(lowest - DRAWN_LOWEST, 4) if lowest else ANY
    few_rows = None if name in ("few-rows", "long-k") else False
    fields, mean = {"set": f"drawn-{name}"}, round(least - DRAWN_MEAN, 4)
    return Target(f"drawn {name}", mean, fields, limit, every, few_rows=few_rows)


TARGETS = (
    Target("bf16, f16 squares x torch.mm", 1.01, {"set": "drawn-squares"}, 0.96),
    Target("bf16 of language models x torch.mm", 1.01, LLM, 0.96, _grid),
    *(
        Target(
            *(name, least, LINEAR | {"epilogue": terms}, limit, _grid, against),
            baseline=IN_ONE_CALL.get(str(terms), ""),
        )
        for name, least, limit, terms, against in LINEARS
    ),
    Target("step of nn.Linear x torch.nn.Linear", 1.01, STEP, ANY, _grid),
    Target("step with gelu x Linear and GELU", 1.03, GELU_STEP, ANY, _grid),
    Target("batches x torch.bmm", 1.06, BATCH, 0.97, every),
    Target("s8 TN x torch._int_mm", 1.6, S8 | {"layout": "TN"}, ANY, _even),
    Target("s8 NN x our own TN", 0.93, S8 | {"layout": "NN"}, shapes=_even, against=OWN_TN),
    *_float8("e4m3 fast", 1.02, "fast", "tensor"),
    *_float8("e4m3 promoted", 0.99, "promoted", "tensor"),
    *_float8("e4m3 fast, row scales", 1.02, "fast", "row"),
    *_float8("e4m3 promoted, row scales", 0.99, "promoted", "row"),
    *_float8("e4m3 1x128 by 128x128", 0.99, "promoted", "128x128"),
    *_float8("e4m3 1x128 by 1x128", 1.02, "promoted", "1x128"),
    Target("tf32 TN and NN x torch.mm", 1.05, TF32, ANY, _cubes(*EVEN[:3])),
    Target("f64 TN and NN x torch.mm", 1.02, F64, ANY, _cubes(512, 1024, *EVEN[:3])),
    Target("f32 2048 to 8192 x torch.mm", 4.0, PLAIN_F32, ANY, _cubes(*HIGHEST[2:])),
    Target("each f32 1024 x torch.mm", 2.0, PLAIN_F32, shapes=_cubes(1024), each=True),
    Target("each f32 512 x torch.mm", 1.2, PLAIN_F32, shapes=_cubes(512), each=True),
    Target("f32 spread, 2048 to 8192 x torch.mm", 2.2, SPREAD_F32, ANY),
    Target("f16 2:4 x cuSPARSELt", 1.03, F16_SPARSE, shapes=every),
    Target("f16 2:4 from 4096^3 x our own dense", 1.4, F16_SPARSE, None, _from_edge, OWN_DENSE),
    Target("bf16 2:4 x cuSPARSELt", 1.03, BF16_SPARSE, shapes=every),
    Target("bf16 2:4 from 4096^3 x our own dense", 1.4, BF16_SPARSE, None, _from_edge, OWN_DENSE),
    Target("s8 2:4 x cuSPARSELt", 1.03, S8_SPARSE | {"epilogue": "sparse"}),
    Target("s8 2:4 to bf16 x cuSPARSELt", 1.03, S8_SPARSE | {"epilogue": "sparse+to-bf16"}),
    Target("e4m3 2:4 x cuSPARSELt", 1.03, SPARSE | {"dtype": "e4m3", "epilogue": "sparse"}),
    Target("tf32 1:2 x torch.mm, dense", 1.6, SPARSE | {"dtype": "tf32"}, shapes=every),
    Target(
        *("bf16 2:4, few rows x our own dense", 1.4, BF16_SPARSE, None, every, OWN_DENSE),
        few_rows=True,
    ),
    _time(70.0, "prune and compress bf16", {"function": "compress", "dtype": "bf16"}),
    _time(45.0, "prune and compress s8", {"function": "compress", "dtype": "s8"}),
    _time(200.0, "transposable prune bf16", {"function": "prune"}),
    _time(15.0, "host time of each sparse linear", {"function": "linear"}),
    *(
        Target(f"bf16 {name} x torch.mm", least, {"set": name}, lowest, every, few_rows=None)
        for name, (least, lowest) in THIN.items()
    ),
    *map(_drawn, ("few-rows", "long-k", *drawn.FAMILIES)),
)


@dataclass(frozen=True)
class Outcome:
    """A target with the ratios and errors of the shapes that were measured.

    `expected` counts the shapes that torch computes; `missing` the repetitions that are missing.
    """

    target: Target
    name: str
    expected: int
    repetitions: list[list[float]]  # the ratios of each shape
    errors: list[float]  # in units of the bound
    missing: int = 0

    @property
    def measured(self) -> int:
        """The number of measured shapes."""
        return len(self.repetitions)

    @property
    def ratios(self) -> list[float]:
        """The median of each shape."""
        return [median(ratios) for ratios in self.repetitions]

    @property
    def mean(self) -> float | None:
        """The geometric mean of the shapes."""
        return geometric_mean(self.ratios) if self.repetitions else None

    @property
    def span(self) -> tuple[float, float] | None:
        """(lowest, highest) mean of one repetition of all shapes; None where nothing is measured.

        A shape with fewer repetitions has its median in place of the others.
        """
        most = max(map(len, self.repetitions), default=0)
        means = [
            geometric_mean([r[i] if i < len(r) else median(r) for r in self.repetitions])
            for i in range(most)
        ]
        return (min(means), max(means)) if means else None

    @property
    def lowest(self) -> float | None:
        """The median of the shape that has the lowest one."""
        return min(self.ratios, default=None)

    @property
    def word(self) -> str:
        """ "PASS", "MISS", "UNCLEAR" if a range contains its limit, or how much is measured."""
        if self.measured < self.expected or self.span is None:
            return f"{self.measured} of {self.expected} shapes"
        words = [results.claim(self.span, self.target.least)]
        words += [results.claim((min(r), max(r)), self.target.lowest) for r in self.repetitions]
        word = next((word for word in ("MISS", "UNCLEAR") if word in words), "PASS")
        return f"{word} so far" if self.missing else word

    @property
    def is_met(self) -> bool:
        """Are all limits met in all repetitions?"""
        return self.word == "PASS"


def outcomes(measured: Results) -> list[Outcome]:
    """An Outcome for each target that some row is about, and for each seed of a drawn set."""
    result = []
    rows = current.without_stale(measured).rows
    for target in TARGETS:
        target_rows = [row for row in rows if row.get("set") and target.is_about(row)]
        for name in dict.fromkeys(row["set"] for row in target_rows):
            seed = name.partition("@")[2]
            label = f"{target.name}, seed {seed}" if seed else target.name
            set_rows = [row for row in target_rows if row["set"] == name]
            result.append(_outcome(target, label, set_rows))
    return result


def _outcome(target: Target, name: str, rows: list[Row]) -> Outcome:
    known = [row for row in rows if target.ratios(row)]
    refusals = 0 if target.within else sum(target.against in row["refused"] for row in rows)
    return Outcome(
        target,
        name,
        len(target.cases()) - refusals,
        [target.ratios(row) for row in known],
        [row["max_error_ratio"] for row in rows if row["max_error_ratio"] is not None],
        sum(results.repetitions_left(row, aims(row)) for row in known),
    )


def aims(row: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """The targets of each ratio of a row or of the fields of a case, and their lowest limits."""
    result: dict[str, tuple[float, ...]] = {}
    for target in TARGETS:
        if not target.within and target.is_about(dict(row)):
            limits = tuple(limit for limit in (target.least, target.lowest) if limit)
            result[target.against] = result.get(target.against, ()) + limits
    return result


def listing(sets: Sequence[str]) -> list[str]:
    """A line for each target of these sets."""
    text = []
    for target in TARGETS:
        if target.fields["set"] in sets:
            lowest = f", lowest {target.lowest:.2f}" if target.lowest else ""
            limits = f"{'each' if target.each else 'mean'} {target.least:.2f}{lowest}"
            text.append(f"target: {target.name:50} {limits:24} {len(target.cases())} shapes")
    return text


def cliff_axis(row: Row) -> str | None:
    """ "M", "N", "K" or "all": the sizes of a row that are beside 4096; "" if none is.

    None if the row is no part of a cliff.
    """
    plain = (row["function"], row["layout"], row["epilogue"]) == ("mm", "TN", "")
    changed = [name for name in "mnk" if row[name] != EDGE]
    if not plain or any(row[name] not in CLIFF for name in changed):
        return None
    if len(changed) < 2:
        return "".join(changed).upper()
    return "all" if is_cube(row) else None


def cliffs(measured: Results) -> dict[str, dict[str, float]]:
    """{dtype: {"M" | "N" | "K" | "all": slowest over fastest, with 4096^3 among them}}."""
    times: dict[tuple[str, str | None], dict[tuple[int, ...], float]] = {}
    for row in current.without_stale(measured).rows:
        if "m" in row and row["us"] and ":" not in row["set"]:
            by_size = times.setdefault((row["dtype"], cliff_axis(row)), {})
            by_size[row["m"], row["n"], row["k"]] = row["us"]
    result: dict[str, dict[str, float]] = {}
    for dtype in sorted({dtype for dtype, axis in times if axis == ""}):
        for axis in CLIFF_AXES:
            axis_times = times.get((dtype, axis), {}).values()
            if len(axis_times) == len(CLIFF):
                all_times = [*axis_times, *times[dtype, ""].values()]
                result.setdefault(dtype, {})[axis] = max(all_times) / min(all_times)
    return result


def summary_lines(measured: Results) -> tuple[list[str], int, int]:
    """The outcomes as lines of text, how many targets are met, and how many there are."""
    text, passes = [], 0
    items, edges = outcomes(measured), cliffs(measured)
    for outcome in items:
        span = ""
        if outcome.span is not None:
            low, high = outcome.span
            span = f"{outcome.mean:6.3f} ({low:.3f}..{high:.3f}), lowest {outcome.lowest:5.3f}"
        text.append(f"  {outcome.name:50} {span:38} >= {outcome.target.least:.2f}  {outcome.word}")
        passes += outcome.is_met
    for dtype, spreads in edges.items():
        is_flat = max(spreads.values()) <= MAX_CLIFF
        span = ", ".join(f"{axis} {spread:.2f}" for axis, spread in spreads.items())
        name = f"cliff {dtype}: {span}"
        text.append(f"  {name:89} <= {MAX_CLIFF:.2f}  {'PASS' if is_flat else 'MISS'}")
        passes += is_flat
    return text, passes, len(items) + len(edges)
