"""The definition of the CPU's products (csrc/cpu/dense.h), element by element, and what the tests
of the CPU share: the rounding of results, other instruction sets, and times.
"""

import ctypes
import hashlib
import math
import os
import subprocess
import sys
import time
from typing import NamedTuple

import numpy
import pytest
import torch

from support.cases import E4M3, E5M2, F16, F32, F64, NAMES, REAL, S8, U8
from support.dtype_matrix import gemm_types


class Types(NamedTuple):
    """Operands, accumulator and result."""

    input: torch.dtype
    accumulator: torch.dtype
    out: torch.dtype

    def __str__(self):
        return "-".join(NAMES[dtype] for dtype in self)


# The sums of f16, bf16, f32 and f64, with every result that is none of 8 bits.
TYPES = [
    Types(types.a, types.accumulator, out)
    for types in gemm_types("cpu")
    if types.keeps_all_bits
    for out in types.outs
    if out in REAL
]
ISAS = ("baseline", "avx2", "avx512")
PRODUCTS_PER_ROUNDING = 16  # of an f16 accumulator
LIMIT = {E4M3: 448.0, E5M2: 57344.0}

libm = ctypes.CDLL("libm.so.6")
fmaf, fma = libm.fmaf, libm.fma
fmaf.argtypes, fmaf.restype = [ctypes.c_float] * 3, ctypes.c_float
fma.argtypes, fma.restype = [ctypes.c_double] * 3, ctypes.c_double


def chain(types, row, column):
    """The accumulator of one element, a Python float."""
    step = fma if types.accumulator is F64 else fmaf
    total = 0.0
    for k, (x, y) in enumerate(zip(row, column, strict=True), 1):
        total = step(x, y, total)
        if types.accumulator is F16 and (k % PRODUCTS_PER_ROUNDING == 0 or k == len(row)):
            total = float(numpy.float16(total))
    return total


def model(types, a, b):
    """The accumulators in the type of the epilogue, computed by definition."""
    rows, columns = a.double().tolist(), b.mT.double().tolist()
    sums = [[chain(types, row, column) for column in columns] for row in rows]
    return torch.tensor(sums, dtype=F64).to(F64 if types.accumulator is F64 else F32)


def rounded(x, dtype):
    """To a result's type, as torch rounds it; a NaN loses its sign and payload."""
    return x.to(dtype).masked_fill(x.isnan(), math.nan)


def narrowed(x, dtype):
    """f32 to fp8 or s8: to nearest even, saturated, NaN without sign."""
    if dtype is S8:
        return x.nan_to_num(nan=0.0, posinf=127, neginf=-128).round().clamp(-128, 127).to(S8)
    limit = LIMIT[dtype]
    values = x.clamp(-limit, limit).to(dtype).view(U8)
    return values.masked_fill(x.isnan(), 0x7F).view(dtype)


def digest(results):
    """The digest of the bits of all results."""
    total = hashlib.sha256()
    for result in results:
        total.update(result.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def with_isa(isa, code):
    """Runs Python code in a process with TCGEMM_CPU_ISA set."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TCGEMM_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


def with_threads(function, counts=(1, 2, 3, 7)):
    """The results of function() on so many threads of torch."""
    before = torch.get_num_threads()
    try:
        for count in counts:
            torch.set_num_threads(count)
            yield function()
    finally:
        torch.set_num_threads(before)


def assert_same_digest(isa, path, results):
    """The all_results of the test file has these bits on another instruction set, too."""
    run = with_isa(
        isa,
        "import runpy, tcgemm; from support.cpu_model import digest; "
        f"print(digest(runpy.run_path({path!r})['all_results']()))",
    )
    if "has these instruction sets" in run.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == digest(results)


def seconds_of(product, baseline):
    """The best times of two functions that alternate, until product takes at most 3 x baseline."""

    def seconds(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    best = [math.inf, math.inf]
    for attempt in range(30):
        best = [min(best[i], seconds(f)) for i, f in enumerate((product, baseline))]
        if attempt >= 5 and best[0] <= 3 * best[1]:
            break
    return best
