"""The calls of torch that tcgemm is compared with, for each dtype.

    f16 bf16 f64   torch.mm, torch.bmm
    f32            the same, with TF32 forbidden
    tf32           the same, with TF32 allowed
    s8             torch._int_mm
    e4m3 e5m2      torch._scaled_mm
    2:4 sparse     torch._cslt_sparse_mm (cuSPARSELt), for all of these but f64, f32 and tf32
    passes         torch._cslt_compress, torch._sparse_semi_structured_tile

torch raises if it does not support a case: sizes that are not multiples of 16, few rows, another
layout. `refusal` returns the text of that error, which goes into the results.
"""

import contextlib
import functools
import types
import warnings

import torch
import torch.nn.functional as F

from tcgemm import dtypes
from tcgemm.dtypes import FP8, INT8
from tcgemm.testing import timing

ACTIVATIONS = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
# For these dtypes we try so many of cuSPARSELt's algorithms ourselves, because its own search runs
# an algorithm that ends the process. On an H200 (cuSPARSELt 0.8.0, driver 580), f16 algorithms from
# 36 on are an illegal instruction, and at 512^3 one of the first 36 does not terminate; 21 is what
# bf16 has. The algorithm that the search finds for bf16 has half the rate of the best one for f16.
# One f16 call takes a third of a second of host time.
SAFE_ALGORITHMS = {torch.float16: 21}


@contextlib.contextmanager
def tf32_allowed(allowed=True):
    """Allows or forbids TF32 in torch for one call, and restores torch's settings."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.fp32_precision, allowed
    try:
        yield
    finally:  # torch has two settings, which must agree
        matmul.allow_tf32 = before == "tf32"
        matmul.fp32_precision = before


def reads_tf32(a):
    """Does a product of the operand a depend on the setting of TF32?"""
    return a.is_cuda and a.dtype is torch.float32


def tf32_as_asked(a, allowed):
    """The setting for a call with the operand a; to set it takes microseconds of host time."""
    return tf32_allowed(allowed) if reads_tf32(a) else contextlib.nullcontext()


def name(dtype, op="mm", *, fast=False):
    """The name of torch's call: 'torch._scaled_mm(use_fast_accum=True)'. dtype: operands.DTYPES."""
    if dtype in ("s8", "u8"):
        return "torch._int_mm"
    if dtype in ("e4m3", "e5m2"):
        return f"torch._scaled_mm(use_fast_accum={fast})"
    return f"torch.{op}" + (" allow_tf32" if dtype == "tf32" else "")


def gemm(a, b, out=None, *, op="mm", tf32=False, scales=None, fast=False):
    """a @ b by torch, into `out` or into a new tensor.

    float8 needs two scales, in shapes that torch._scaled_mm takes.
    """
    into = {} if out is None else {"out": out}
    if a.dtype in INT8:
        torch._int_mm(a, b, **into)
    elif a.dtype in FP8:
        torch._scaled_mm(a, b, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast, **into)
    else:
        with tf32_as_asked(a, tf32):
            getattr(torch, op)(a, b, **into)


def product(a, b, *, op="mm", bias=None, activation=None, residual=None, scales=None, fast=False):
    """act(a @ b + bias) + residual as a user of torch writes it: one call after another.

    op: "mm", "bmm" or "linear", which alone has a bias. float8 needs two scales.
    """
    if a.dtype in INT8:
        result = torch._int_mm(a, b)
    elif a.dtype in FP8:
        result = torch._scaled_mm(
            a, b, *scales, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast
        )
    elif op == "linear":
        result = F.linear(a, b.mT, bias)
    else:
        result = getattr(torch, op)(a, b)
    result = ACTIVATIONS[activation](result)
    return result if residual is None else result + residual


def compiled_product():
    """`product` under torch.compile, to be called with operands of one shape.

    torch counts the compilations of a code object and gives up after eight, without a word. So each
    shape has a code object of its own.
    """
    code = product.__code__.replace()
    copy = types.FunctionType(code, product.__globals__, product.__name__, product.__defaults__)
    copy.__kwdefaults__ = product.__kwdefaults__
    return torch.compile(copy, dynamic=False, fullgraph=True)


def replayed_us(call):
    """Microseconds of a call in a CUDA graph: the best of five replays."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):  # torch.cuda.graph would collect garbage each time
        graph.capture_begin()
        call()
        graph.capture_end()
    graph.replay()
    return min(timing.events_us(graph.replay) for _ in range(5))


class CusparseltGemm:
    """cuSPARSELt's x @ w.t() with 2:4 weights (N, K). Call it with x and the index of a weight.

    The algorithm is the one that cuSPARSELt's search finds for x, or our own search for the dtypes
    of SAFE_ALGORITHMS. cuSPARSELt allocates its results; each is kept until the next call of its
    index, so that the results leave the cache like those of tcgemm.
    """

    name = "torch._cslt_sparse_mm"

    def __init__(self, weights, x, out_dtype=None):
        self.packed = [torch._cslt_compress(w) for w in weights]
        self.results = [None] * len(self.packed)
        self.options = {"transpose_result": True}  # a row-major (M, N), as tcgemm returns
        if x.dtype.itemsize == 1:
            self.options["out_dtype"] = out_dtype or dtypes.result(x.dtype)
        if x.dtype in SAFE_ALGORITHMS:
            self.options["alg_id"] = self._search(x, SAFE_ALGORITHMS[x.dtype])
        else:
            found = torch._cslt_sparse_mm_search(self.packed[0], x.t(), **self.options)
            self.options["alg_id"] = found

    def _search(self, x, limit):
        """The fastest of at most `limit` algorithms."""
        found = {}
        for algorithm in range(limit):
            call = functools.partial(
                torch._cslt_sparse_mm, self.packed[0], x.t(), **self.options, alg_id=algorithm
            )
            try:
                found[algorithm] = replayed_us(call)
            except RuntimeError:  # there are fewer algorithms
                break
        return min(found, key=found.get)

    def __call__(self, x, index):
        found = torch._cslt_sparse_mm(self.packed[index], x.t(), **self.options)
        self.results[index] = found
        return found


class SemiStructuredLinear:
    """torch.nn.functional.linear with weights from torch.sparse.to_sparse_semi_structured."""

    name = "torch linear, to_sparse_semi_structured"

    def __init__(self, weights, x):
        with warnings.catch_warnings():  # torch warns that this is a prototype
            warnings.simplefilter("ignore")
            self.weights = [torch.sparse.to_sparse_semi_structured(w) for w in weights]

    def __call__(self, x, index):
        return torch.nn.functional.linear(x, self.weights[index])


def compress(weight):
    """cuSPARSELt's compression of a weight that is pruned already."""
    return torch._cslt_compress(weight)


def prune_transposable(weight):
    """torch's pruning that fits both directions: the pruned weight first, then its parts.

    The greedy choice: torch's default keeps the largest signed values.
    """
    return torch._sparse_semi_structured_tile(weight, algorithm="largest_abs_values_greedy")


def refusal(call):
    """The first line of the error if `call(0)` raises, else None."""
    try:
        call(0)
    except Exception as error:  # its text goes into the results
        return reason(error)
    return None


def reason(error):
    """The first line of an error's text; torch.compile wraps the errors of the call."""
    error = getattr(error, "inner_exception", error)
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
