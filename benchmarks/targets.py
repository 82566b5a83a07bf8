"""Performance targets for whole sets of cases on an H200, and whether they are met.

    Target    a least geometric mean of a ratio over its shapes, with a limit for the lowest one; a
              least ratio for every shape (`each`); or a time (`within`)
    cliff     the times of sizes that differ by a few elements: slowest over fastest

Both read the rows and details of results_file.py, so that a run and the report judge alike. The
targets of single cases are `Case.target`.

A mean has a value for each repetition of its cases, and the range of these values. A target is met
if the whole range of its mean and of each shape clears the limits (tcgemm/measure/protocol.py).
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import geometric_mean, median
from typing import Any

from tcgemm.measure import drawn, protocol, results_file
from tcgemm.measure.case import Case
from tcgemm.measure.cases import CLIFF, EVEN, LLM_GRID, cases
from tcgemm.measure.work import IN_ONE_CALL

LOWEST = 0.95  # no shape may be below this, unless the target itself is lower or has a limit
MAX_CLIFF = 1.15
CLIFF_AXES = ("M", "N", "K", "all")
EDGE = 4096  # the aligned size of a cliff
FEW_ROWS = 128  # shapes with fewer rows have targets of their own
ANY = 0.0  # the limit of the lowest shape where there is none


@functools.cache
def _cases_of(name: str) -> list[tuple[Case, dict[str, Any]]]:
    """The cases of a set, each with its fields."""
    return [(case, asdict(case)) for case in cases(name)]


@dataclass(frozen=True)
class Target:
    """A target of the ratio to torch, or to another candidate (`against`), or of a time.

    It is about the rows whose fields have these values; a tuple lists the values that fit. A shape
    fits if it is one of `shapes`, or a cube of one of `sizes`.
    """

    name: str
    least: float
    fields: dict = field(hash=False)
    limit: float | None = None  # of the lowest shape; None: LOWEST
    against: str = ""  # "self_baseline", "fused": the candidate of the details; "": the baseline
    baseline: str = ""  # the name that a row's baseline must have; "": any
    sizes: tuple = ()  # of the cubes; (): any
    cubes: bool = True  # only M = N = K, and `shapes`
    shapes: tuple = ()  # (m, n, k)
    volume: int = 0  # the least m n k
    few_rows: bool | None = False  # None: any number of rows
    within: float = 0.0  # us
    each: bool = False  # a target for each shape instead of their mean

    def is_about(self, row):
        large = row["m"] * row["n"] * row["k"] >= self.volume
        rows = self.few_rows in (row["m"] < FEW_ROWS, None) or row["batch"] > 1
        has_baseline = not self.baseline or row.get("baseline", self.baseline) == self.baseline
        return large and rows and has_baseline and self._has_shape(row) and self._has_fields(row)

    def _has_shape(self, row):
        shape = row["m"], row["n"], row["k"]
        cube = len(set(shape)) == 1 and (not self.sizes or row["m"] in self.sizes)
        return shape in self.shapes or (cube if self.cubes else not self.shapes)

    def _has_fields(self, row):
        values = {**row, "set": results_file.set_of(row)}
        return all(
            values[name] in value if isinstance(value, tuple) else values[name] == value
            for name, value in self.fields.items()
        )

    @property
    def lowest(self):
        """The limit of the lowest shape."""
        if self.each:
            return self.least
        return min(LOWEST, self.least) if self.limit is None else self.limit

    @property
    def field(self):
        """The field of the ratio, as protocol.ratios names it."""
        return f"{self.against}_ratio" if self.against else "ratio"

    def cases(self):
        """The cases that it is about; drawn sets have the default seed."""
        return [case for case, row in _cases_of(self.fields["set"]) if self.is_about(row)]

    def ratio(self, row, detail):
        """The ratio of a row: the median of its repetitions."""
        if self.within:
            return row["us"] and self.within / row["us"]
        return protocol.ratios(row, detail).get(self.field)

    def repetitions(self, row, detail):
        """The same ratio in each repetition."""
        repeats = protocol.repetitions(row, detail)
        if self.within:
            return [self.within / repeat["us"]["tcgemm"] for repeat in repeats]
        return [repeat[self.field] for repeat in repeats if repeat.get(self.field)]


# The kinds of scales of e4m3: name, least geometric mean, set, accumulation, epilogue.
FLOAT8 = (
    ("e4m3 fast", 1.02, "fp8", "fast", "tensor-scales"),
    ("e4m3 promoted", 0.99, "fp8", "promoted", "tensor-scales"),
    ("e4m3 fast, row scales", 1.02, "scales", "fast", "row-scales"),
    ("e4m3 promoted, row scales", 0.99, "scales", "promoted", "row-scales"),
    ("e4m3 1x128 by 128x128", 0.99, "scales", "promoted", "128x128-scales"),
    ("e4m3 1x128 by 1x128", 1.02, "scales", "promoted", "1x128-scales"),
)
ACTIVATIONS = ("bias+gelu", "bias+gelu_tanh", "bias+silu")
# Linear layers: name, least geometric mean, limit of the lowest, epilogue, candidate.
LINEAR = (
    ("linear + bias x torch's linear", 1.00, 0.97, "bias", ""),
    ("+ relu x torch._addmm_activation", 1.01, 0.97, "bias+relu", ""),
    ("+ gelu, gelu_tanh, silu x two calls of torch", 1.04, 0.99, ACTIVATIONS, ""),
    ("+ gelu_tanh x torch._addmm_activation", 1.00, 0.97, "bias+gelu_tanh", "fused"),
    ("linear + residual x torch.addmm", 1.01, ANY, "residual", ""),
    ("+ bias, gelu, residual x three calls of torch", 1.10, ANY, "bias+gelu+residual", ""),
)
# The mean and the lowest shape of a drawn family may be so much below its set's.
DRAWN_MEAN, DRAWN_LOWEST = 0.02, 0.04
# Families: the least geometric mean of the set, and the limit of its lowest shape.
DRAWN = {
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


def _float_targets():
    every = {"cubes": False}
    grid = {"cubes": False, "shapes": LLM_GRID}
    squares = {"set": "drawn-squares"}
    yield Target("bf16, f16 squares x torch.mm", 1.01, squares, 0.96)
    llm = {"set": "llm", "dtype": "bf16"}
    yield Target("bf16 of language models x torch.mm", 1.01, llm, 0.96, **grid)
    linear = {"set": "epilogue", "op": "linear", "dtype": "bf16"}
    for name, least, limit, epilogue, against in LINEAR:
        fields = {**linear, "epilogue": epilogue}
        target = Target(name, least, fields, limit, against, **grid)
        yield replace(target, baseline=IN_ONE_CALL.get(epilogue, ""))
    train = {"set": "train", "op": "train", "dtype": "bf16"}
    step = {**train, "epilogue": "bias"}
    yield Target("step of nn.Linear x torch.nn.Linear", 1.01, step, ANY, **grid)
    step = {**train, "epilogue": "bias+gelu"}
    yield Target("step with gelu x Linear and GELU", 1.03, step, ANY, **grid)
    batch = {"set": "batch", "op": "bmm", "dtype": "bf16"}
    yield Target("batches x torch.bmm", 1.06, batch, 0.97, **every)


# Sets of few rows and of a long K, and what is drawn like them: least mean, lowest.
THIN = {"small-m": (1.12, 0.97), "long-k": (1.2, 0.98)}
DRAWN_THIN = {"few-rows": THIN["small-m"], "long-k": THIN["long-k"]}


def _thin_targets():
    shapes = {"cubes": False, "few_rows": None}
    for name, (least, lowest) in THIN.items():
        yield Target(f"bf16 {name} x torch.mm", least, {"set": name}, lowest, **shapes)


def _drawn_target(name, least, lowest):
    limit = lowest - DRAWN_LOWEST if lowest else ANY
    fields = {"set": f"drawn-{name}"}
    target = Target(f"drawn {name}", round(least - DRAWN_MEAN, 4), fields, round(limit, 4))
    return replace(target, cubes=False)


def _drawn_targets():
    for name, limits in DRAWN_THIN.items():
        yield replace(_drawn_target(name, *limits), few_rows=None)
    for name in drawn.FAMILIES:
        yield _drawn_target(name, *DRAWN[name])


def _targets():
    even = {"sizes": EVEN}
    s8_tn = {"set": "int8", "dtype": "s8", "layout": "TN"}
    yield Target("s8 TN x torch._int_mm", 1.6, s8_tn, ANY, **even)
    s8_nn = {"set": "int8", "dtype": "s8", "layout": "NN"}
    yield Target("s8 NN x our own TN", 0.93, s8_nn, against="self_baseline", **even)
    for name, least, sets, accumulation, epilogue in FLOAT8:
        fields = {"set": sets, "dtype": "e4m3", "layout": "TN"}
        fields |= {"accumulation": accumulation, "epilogue": epilogue}
        shapes = {"sizes": EVEN, "shapes": LLM_GRID}
        yield Target(f"{name} x torch._scaled_mm", least, fields, ANY, **shapes)
        if epilogue == "row-scales":
            yield Target(
                f"{name} x a scale a tensor", 0.98, fields, against="self_baseline", **even
            )
    tf32 = {"set": "tf32", "dtype": "tf32", "layout": ("TN", "NN")}
    yield Target("tf32 TN and NN x torch.mm", 1.05, tf32, ANY, sizes=EVEN[:3])
    f64 = {"set": "f64", "dtype": "f64", "layout": ("TN", "NN")}
    yield Target("f64 TN and NN x torch.mm", 1.02, f64, ANY, sizes=(512, 1024, *EVEN[:3]))
    f32 = {"set": "highest", "op": "mm", "dtype": "f32", "epilogue": "none"}
    large = (2048, 3072, 4096, 6144, 8192)
    yield Target("f32 2048 to 8192 x torch.mm", 4.0, f32, ANY, sizes=large)
    for size, least in ((1024, 2.0), (512, 1.2)):
        yield Target(f"each f32 {size} x torch.mm", least, f32, sizes=(size,), each=True)
    spread = {**f32, "epilogue": "spread"}
    yield Target("f32 spread, 2048 to 8192 x torch.mm", 2.2, spread, ANY)


def _sparse_targets():
    every, sparse = {"cubes": False}, {"set": "sparse-mm", "op": "mm"}
    for dtype in ("f16", "bf16"):
        fields = {**sparse, "dtype": dtype}
        yield Target(f"{dtype} 2:4 x cuSPARSELt", 1.03, fields, **every)
        large = {**every, "volume": 4096**3, "against": "self_baseline"}
        yield Target(f"{dtype} 2:4 from 4096^3 x our own dense", 1.4, fields, **large)
    for dtype, epilogue, name in (
        ("s8", "sparse", "s8 2:4"),
        ("s8", "sparse+to-bf16", "s8 2:4 to bf16"),
        ("e4m3", "sparse", "e4m3 2:4"),
    ):
        yield Target(f"{name} x cuSPARSELt", 1.03, {**sparse, "dtype": dtype, "epilogue": epilogue})
    yield Target("tf32 1:2 x torch.mm, dense", 1.6, {**sparse, "dtype": "tf32"}, **every)
    few = {**every, "few_rows": True, "against": "self_baseline"}
    yield Target("bf16 2:4, few rows x our own dense", 1.4, {**sparse, "dtype": "bf16"}, **few)
    for fields, name, us in (
        ({"op": "compress", "dtype": "bf16"}, "prune and compress bf16", 70.0),
        ({"op": "compress", "dtype": "s8"}, "prune and compress s8", 45.0),
        ({"op": "prune"}, "transposable prune bf16", 200.0),
        ({"op": "linear"}, "host time of each sparse linear", 15.0),
    ):
        limit = {**every, "within": us, "each": True}
        yield Target(f"{us:.0f} us / {name}", 1.0, {**sparse, **fields}, **limit)


TARGETS = (*_float_targets(), *_targets(), *_sparse_targets())
TARGETS += (*_thin_targets(), *_drawn_targets())


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
    def least(self):
        return self.target.least

    @property
    def measured(self):
        return len(self.repetitions)

    @property
    def ratios(self):
        """The median of each shape."""
        return [median(ratios) for ratios in self.repetitions]

    @property
    def mean(self):
        return geometric_mean(self.ratios) if self.repetitions else None

    @property
    def span(self):
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
    def lowest(self):
        """The median of the shape that has the lowest one."""
        return min(self.ratios, default=None)

    @property
    def word(self):
        """ "PASS", "MISS", "UNCLEAR" if a range contains its limit, or how much is measured."""
        if self.measured < self.expected or not self.measured:
            return f"{self.measured} of {self.expected} shapes"
        words = [protocol.claim(self.span, self.least)]
        words += [protocol.claim((min(r), max(r)), self.target.lowest) for r in self.repetitions]
        word = next((word for word in ("MISS", "UNCLEAR") if word in words), "PASS")
        return f"{word} so far" if self.missing else word

    @property
    def is_met(self):
        return self.word == "PASS"


def outcomes(results):
    """An Outcome for each target that some row is about, and for each seed of a drawn set."""
    result = []
    for target in TARGETS:
        rows = list(filter(target.is_about, results["rows"]))
        for name in dict.fromkeys(row["set"] for row in rows):
            seed = name.partition("@")[2]
            set_rows = [row for row in rows if row["set"] == name]
            label = f"{target.name}, seed {seed}" if seed else target.name
            result.append(_outcome(target, label, set_rows, results["details"]))
    return result


def _outcome(target, name, rows, details):
    pairs = [(row, details.get(results_file.key(row), {})) for row in rows]
    measurements = [pair for pair in pairs if target.ratio(*pair) is not None]
    refusals = sum("refused" in detail for _, detail in pairs if not target.within)
    return Outcome(
        target,
        name,
        len(target.cases()) - (0 if target.against == "self_baseline" else refusals),
        [target.repetitions(*pair) for pair in measurements],
        [row["max_error_ratio"] for row in rows if row["max_error_ratio"] is not None],
        sum(protocol.repetitions_left(*pair, aims(pair[0])) for pair in measurements),
    )


def aims(row: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """The targets of each ratio of a row or of the fields of a case, and their lowest limits."""
    result: dict[str, tuple[float, ...]] = {}
    for target in TARGETS:
        if not target.within and target.is_about(row):
            limits = tuple(limit for limit in (target.least, target.lowest) if limit)
            result[target.field] = result.get(target.field, ()) + limits
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


def cliff_axis(row):
    """ "M", "N", "K" or "all": the sizes of a row that are beside 4096; "" if none is.

    None if the row is no part of a cliff.
    """
    plain = (row["op"], row["layout"], row["epilogue"]) == ("mm", "TN", "none")
    changed = [name for name in "mnk" if row[name] != EDGE]
    if not plain or any(row[name] not in CLIFF for name in changed):
        return None
    if len(changed) < 2:
        return "".join(changed).upper()
    return "all" if row["m"] == row["n"] == row["k"] else None


def cliffs(results):
    """{dtype: {"M" | "N" | "K" | "all": slowest over fastest, with 4096^3 among them}}."""
    rows = [row for row in results["rows"] if row["us"] and ":" not in row["set"]]
    result = {}
    for dtype in sorted({row["dtype"] for row in rows}):
        times = {}
        for row in rows:
            if row["dtype"] == dtype:
                times.setdefault(cliff_axis(row), {})[row["m"], row["n"], row["k"]] = row["us"]
        for axis in CLIFF_AXES:
            axis_times = times.get(axis, {}).values()
            if "" in times and len(axis_times) == len(CLIFF):
                all_times = [*axis_times, *times[""].values()]
                result.setdefault(dtype, {})[axis] = max(all_times) / min(all_times)
    return result


def summary_lines(results):
    """The outcomes as lines of text, how many targets are met, and how many there are."""
    text, passes = [], 0
    items, edges = outcomes(results), cliffs(results)
    for outcome in items:
        span = ""
        if outcome.mean is not None:
            low, high = outcome.span
            span = f"{outcome.mean:6.3f} ({low:.3f}..{high:.3f}), lowest {outcome.lowest:5.3f}"
        text.append(f"  {outcome.name:50} {span:38} >= {outcome.least:.2f}  {outcome.word}")
        passes += outcome.is_met
    for dtype, spreads in edges.items():
        is_flat = max(spreads.values()) <= MAX_CLIFF
        span = ", ".join(f"{axis} {spread:.2f}" for axis, spread in spreads.items())
        name = f"cliff {dtype}: {span}"
        text.append(f"  {name:89} <= {MAX_CLIFF:.2f}  {'PASS' if is_flat else 'MISS'}")
        passes += is_flat
    return text, passes, len(items) + len(edges)
