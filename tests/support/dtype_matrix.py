"""The combinations of dtypes: both operands, accumulator, precision, results.

The tests of every dtype walk this table, on the CPU and on a GPU. It has every kind of sum that the
operators compute; the planner chooses the kernel (gpu/test_kernels.py walks the kernels).
"""

import itertools
from typing import NamedTuple

import pytest
import torch

from support import cases
from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FLOATS, FP8, INT8, NAMES, REAL, S8, S32


class GemmTypes(NamedTuple):
    a: torch.dtype
    b: torch.dtype
    accumulator: torch.dtype
    precision: str | None = None

    def __str__(self):
        name = NAMES[self.a] + (f"x{NAMES[self.b]}" if self.b != self.a else "")
        name += "-f16" if self.accumulator == F16 else ""
        return name + (f"-{self.precision}" if self.precision else "")

    @property
    def fp8(self):
        return self.a in FP8

    @property
    def integer(self):
        return self.a in INT8

    @property
    def keeps_all_bits(self):
        """Do the tensor cores multiply the operands as they are, in sums at least as wide?"""
        return self.a in REAL and self.precision in (None, "highest")

    @property
    def outs(self):
        """Dtypes of results; the first is the default."""
        if self.a == F64:
            return (F64,)
        if self.integer:
            return (S32, *FLOATS, S8)
        first = BF16 if self.fp8 else self.a
        return tuple(dict.fromkeys((first, *FLOATS, *FP8)))

    @property
    def widest(self):
        """The result that shows most."""
        return F64 if self.a == F64 else S32 if self.integer else F32

    @property
    def addends(self):
        """Dtypes of c, bias and residual, of a result that is no s32."""
        return (F32, F16, BF16, F64)[: 4 if self.a == F64 else 3]

    @property
    def options(self):
        return {"acc_dtype": self.accumulator, "precision": self.precision}

    @property
    def marks(self):
        if self.a == F64 or (self.a == F32 and self.precision == "highest"):
            return "sm90"
        return "sm89" if self.fp8 else "gpu"

    def largest(self, k):
        """The largest whole operands whose products sum exactly; None: any that there are."""
        if self.integer:
            return None
        limit = 2**11 if self.accumulator == F16 else 2**13 if self.fp8 else 2**24
        depth = k if self.precision == "fast" or not self.fp8 else min(k, 128)
        largest = 4 if E5M2 in (self.a, self.b) else 8
        while largest > 1 and largest * largest * depth > limit:
            largest -= 1
        assert largest * largest * depth <= limit, f"no integers are exact at K = {k} in {self}"
        return largest

    def make(self, strides_a, strides_b, m, n, k, *, device="cpu", batch=(), whole=False):
        """a and b; `batch` is one batch for both, or a pair (batch of a, batch of b)."""
        batches = batch if batch and isinstance(batch[0], tuple) else (batch, batch)
        options = {"device": device, "largest": self.largest(k) if whole else None}
        return (
            cases.make(strides_a, *batches[0], m, k, dtype=self.a, **options),
            cases.make(strides_b, *batches[1], k, n, dtype=self.b, **options),
        )

    def operands(self, layout, m, n, k, **options):
        return self.make(*cases.major_strides(layout), m, n, k, **options)

    def addend(self, *shape, out=None, device="cpu", strides="contiguous", step=0, largest=9):
        """c, bias or residual for this result; `step` picks its dtype."""
        dtype = S32 if out == S32 else self.addends[step % len(self.addends)]
        if len(shape) < 2:
            return cases.make(strides, 1, *shape, dtype=dtype, device=device, largest=largest)[0]
        return cases.make(strides, *shape, dtype=dtype, device=device, largest=largest)


def gemm_types(device):
    """All GemmTypes of a device."""
    rows = [GemmTypes(F16, F16, F32), GemmTypes(F16, F16, F16), GemmTypes(BF16, BF16, F32)]
    rows += [GemmTypes(F32, F32, F32, word) for word in ("highest", "high", "medium")]
    rows += [GemmTypes(F64, F64, F64)]
    rows += [GemmTypes(a, b, F32) for a, b in itertools.product(FP8, FP8)]
    if device == "cuda":  # on the CPU the same sums
        rows += [
            GemmTypes(a, b, F32, "fast") for a, b in ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E5M2))
        ]
    return rows + [GemmTypes(a, b, S32) for a, b in itertools.product(INT8, INT8)]


def parameters(condition=lambda types: True, on_cpu=lambda types: True, on_cuda=lambda types: True):
    """(device, types) of those that are wanted."""
    cpu = [types for types in gemm_types("cpu") if condition(types) and on_cpu(types)]
    return pytest.mark.parametrize(
        ("device", "types"),
        [
            *(pytest.param("cpu", types, id=f"cpu-{types}") for types in cpu),
            *(
                cases.gpu("cuda", types, mark=types.marks, id=f"cuda-{types}")
                for types in gemm_types("cuda")
                if condition(types) and on_cuda(types)
            ),
        ],
    )


EVERY = parameters()


def on_gpu(condition=lambda types: True):
    """The types that are wanted, for tests that run on a GPU alone."""
    return pytest.mark.parametrize(
        "types",
        [
            pytest.param(types, marks=getattr(pytest.mark, types.marks), id=str(types))
            for types in gemm_types("cuda")
            if condition(types)
        ],
    )


# (device, dtype) of the products whose result has the operands' dtype when nothing else is said.
# The dtype of f32 products on a GPU depends on torch's setting.
DEVICE_DTYPES = tuple(
    cases.gpu(device, types.a, mark=types.marks, id=f"cuda-{NAMES[types.a]}")
    if device == "cuda"
    else pytest.param(device, types.a, id=f"cpu-{NAMES[types.a]}")
    for device in ("cpu", "cuda")
    for types in gemm_types(device)
    if types.keeps_all_bits and types.accumulator != F16 and (device, types.a) != ("cuda", F32)
)


# Scales and zero points.

GRANULARITIES = ("tensor", "row", "1x128", "128x128")


def blocks(extent):
    return -(-extent // 128)


def scale_shape(kind, extent, k):
    """The shape of scale_a; scale_b has it as its transpose."""
    shapes = {"tensor": (1, 1), "row": (extent, 1), "1x128": (extent, blocks(k))}
    return shapes.get(kind, (blocks(extent), blocks(k)))


def positive(*shape, device="cpu", powers=False, strides="contiguous"):
    """Numbers about 1; or powers of two, so that products of whole numbers stay exact."""
    scale = cases.empty(strides, shape, dtype=F32, device=device)
    values = 2.0 ** torch.randint(-1, 2, shape) if powers else torch.rand(shape) + 0.5
    return scale.copy_(values)


def scale_a(kind, m, k, *, batch=(), **options):
    return positive(*batch, *scale_shape(kind, m, k), **options) if kind else None


def scale_b(kind, n, k, *, batch=(), strides="contiguous", **options):
    if not kind:
        return None
    return positive(*batch, *scale_shape(kind, n, k), strides=strides, **options).mT


def zero_points(*shape, device="cpu", largest=40):
    return cases.make("contiguous", *shape, dtype=S32, device=device, largest=largest)


# Every other tensor of a product.


def addends(types, out, device, m, n, **options):
    shapes = {"c": (m, n), "bias": (n,), "residual": (m, n)}
    return {
        name: types.addend(*shape, out=out, device=device, step=step, **options)
        for step, (name, shape) in enumerate(shapes.items())
    }


def all_operands(types, m, n, k, out):
    """(a, b) and every tensor that this product can have besides, with options."""
    a, b = types.operands("NN", m, n, k, device="cuda")
    terms = {
        name: types.addend(*shape, out=out, device="cuda", step=step, largest=None)
        for step, (name, shape) in enumerate((("c", (m, n)), ("bias", (n,)), ("residual", (m, n))))
    }
    options = {"activation": "relu", "alpha": -3.0, "beta": 7.0, "out_dtype": out, **types.options}
    if types.integer:
        options["zero_a"] = zero_points(m, 1, device="cuda", largest=None)
        options["zero_b"] = zero_points(1, n, device="cuda", largest=None)
    if out != S32:
        kinds = ("1x128", "128x128") if types.fp8 and types.precision is None else ("row", "row")
        options["scale_a"] = scale_a(kinds[0], m, k, device="cuda")
        options["scale_b"] = scale_b(kinds[1], n, k, device="cuda")
        options["scale_out"] = torch.full((), 0.01, device="cuda")
    return a, b, terms | options
