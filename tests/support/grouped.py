"""Grouped products as loops over their groups: operands, references, and the two checks."""

import itertools
from typing import Any, NamedTuple

import pytest
import torch

from support import cases, reference
from support.cases import BF16, F16, F32, F64, gpu

# What the groups divide: rows of a, columns of b, k, or nothing (a batch without offs).
KINDS = ("rows", "columns", "depth", "batch")
RAGGED = KINDS[:3]

# Lengths of the groups, and how many indices of no group follow.
SPLITS = {
    "even": ((64, 64, 64), 0),
    "unaligned": ((1, 2, 3, 5, 129, 7, 65), 0),
    "empty groups": ((0, 37, 0, 0, 130, 1, 0), 0),
    "empty groups and a rest": ((0, 70, 0, 33), 61),
    "all in one": ((0, 0, 257, 0), 0),
    "none in any": ((0, 0, 0), 150),
    "one group": ((200,), 0),
    "one of no index": ((0,), 3),
}
UNEVEN = "empty groups and a rest"
M, N, K = 72, 136, 40  # the dimensions that are not divided


class Types(NamedTuple):
    dtype: torch.dtype
    precision: str | None = None

    def __str__(self):
        return cases.NAMES[self.dtype] + (f"-{self.precision}" if self.precision else "")


TYPES = (Types(F16), Types(BF16), Types(F32, "high"), Types(F32, "medium"), Types(F32, "highest"))
DEVICE_TYPES = (
    *(pytest.param("cpu", types, id=f"cpu-{types}") for types in (*TYPES, Types(F64))),
    *(gpu("cuda", types, id=f"cuda-{types}") for types in TYPES[:4]),
    gpu("cuda", TYPES[4], mark="sm90", id=f"cuda-{TYPES[4]}"),
)


class Call(NamedTuple):
    """The tensors of a call, and its kind."""

    kind: str
    a: Any
    b: Any
    offs: Any = None
    bias: Any = None
    residual: Any = None

    def run(self, function, **options):
        """function(a, b, offs=..., bias=..., residual=..., **options)"""
        return function(
            self.a, self.b, offs=self.offs, bias=self.bias, residual=self.residual, **options
        )

    @property
    def shape(self):
        """Of the result."""
        a, b = self.a.shape, self.b.shape
        if self.kind == "depth":
            return len(self.offs), a[0], b[1]
        return {"rows": (a[0], b[-1]), "columns": (a[-2], b[1]), "batch": (*a[:2], b[-1])}[
            self.kind
        ]

    def parts(self):
        """(index of the result, a, b, bias, residual) of each group that has a result."""
        if self.kind == "batch":
            groups = [(slice(None), g) for g in range(len(self.a))]
        else:
            ends = self.offs.tolist()
            groups = [
                (slice(first, end), g)
                for g, (first, end) in enumerate(itertools.pairwise([0, *ends]))
            ]
        for inside, g in groups:
            bias = self.bias
            if self.kind == "rows":
                index, a, b = (inside,), self.a[inside], self.b[g]
            elif self.kind == "columns":
                index, a, b = (slice(None), inside), self.a[g], self.b[:, inside]
            elif self.kind == "batch":
                index, a, b = (g,), self.a[g], self.b[g]
            elif inside.start == inside.stop:
                continue
            else:
                index, a, b = (g,), self.a[:, inside], self.b[inside]
            if bias is not None:
                bias = bias[inside] if self.kind == "columns" else bias[g]
            residual = None if self.residual is None else self.residual[index]
            yield index, a, b, bias, residual

    def loop(self, function, like):
        """function(a, b, bias, residual) of each group in its place of a tensor of zeros, of the
        dtype of `like`."""
        result = torch.zeros(self.shape, dtype=like.dtype, device=like.device)
        for index, *operands in self.parts():
            result[index] = function(*operands)
        return result


def ends_of(lengths, dtype=torch.int32, device="cpu"):
    """offs of these lengths."""
    return torch.tensor(lengths, device=device).cumsum(0).to(dtype)


def operand_shapes(kind, groups, extent, m=M, n=N, k=K):
    """(a, b, bias, result) for this many groups of `extent` indices."""
    return {
        "rows": ((extent, k), (groups, k, n), (groups, n), (extent, n)),
        "columns": ((groups, m, k), (k, extent), (extent,), (m, extent)),
        "depth": ((m, extent), (extent, n), (groups, n), (groups, m, n)),
        "batch": ((groups, m, k), (groups, k, n), (groups, n), (groups, m, n)),
    }[kind]


def make_call(
    kind,
    split="even",
    dtype=BF16,
    device="cpu",
    *,
    strides=("contiguous", "contiguous"),
    largest=None,
    bias=None,
    residual=None,
    **sizes,
):
    """A Call with drawn tensors. bias and residual: their dtypes. largest: of whole numbers."""
    lengths, rest = SPLITS[split] if isinstance(split, str) else split
    shapes = operand_shapes(kind, len(lengths), sum(lengths) + rest, **sizes)
    options = {"device": device, "largest": largest}

    def draw(name, shape, kind_of):
        return None if kind_of is None else cases.make(name, *shape, dtype=kind_of, **options)

    return Call(
        kind,
        draw(strides[0], shapes[0], dtype),
        draw(strides[1], shapes[1], dtype),
        None if kind == "batch" else ends_of(lengths, device=device),
        None if bias is None else draw("contiguous", (1, *shapes[2]), bias)[0],
        draw("contiguous", shapes[3], residual),
    )


def exact(call, out_dtype=None, **options):
    """The one right result for small whole numbers, with zeros where there is no group."""
    dtype = out_dtype or call.a.dtype
    like = torch.empty(0, dtype=dtype, device=call.a.device)

    def one(a, b, bias, residual):
        return reference.exact(a, b, None, bias, residual, out_dtype=dtype, **options)

    return call.loop(one, like)


def error_ratio(out, call, **options):
    """The largest error over its bound; where there is no group, only 0 is right."""
    like = torch.empty(0, dtype=F64, device=call.a.device)

    def one(index):
        return lambda a, b, bias, residual: reference.evaluate(
            a, b, None, bias, residual, out_dtype=out.dtype, **options
        )[index]

    return reference.largest_ratio(out, call.loop(one(0), like), call.loop(one(1), like))
