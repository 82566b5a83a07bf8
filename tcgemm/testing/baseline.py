"""torch's product of each dtype: what tcgemm is compared with.

    f16 bf16 f64   torch.mm, torch.bmm
    f32            the same, with TF32 forbidden
    tf32           the same, with TF32 allowed
    s8             torch._int_mm
    e4m3 e5m2      torch._scaled_mm
    sparse         torch._cslt_sparse_mm (cuSPARSELt) of all these but f64, f32 and tf32

Where torch refuses (sizes that are not multiples of 16, few rows, an operand in another layout), it
raises, and its words are the result.
"""

import contextlib
import functools
import warnings

import torch

from tcgemm import dtypes
from tcgemm.bench import timing
from tcgemm.dtypes import FP8, INT8

# How many of cuSPARSELt's algorithms are tried, where its own search tries one that no process
# survives: of f16 as many as bf16 has. On an H200 (cuSPARSELt 0.8.0, driver 580) those from 36 on
# are an illegal instruction, and at 512^3 one of the first 36 does not end. The number that bf16's
# search finds is not f16's best: half its rate. A call of f16 takes the host a third of a second.
SOUND = {torch.float16: 21}


@contextlib.contextmanager
def tf32_allowed(allowed=True):
    """For one call: our own products are told their precision, and must not depend on this."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.fp32_precision, allowed
    try:
        yield
    finally:  # both of torch's settings, which must not disagree
        matmul.allow_tf32 = before == "tf32"
        matmul.fp32_precision = before


def name(dtype, op="mm", *, fast=False):
    """What is called: 'torch._scaled_mm(use_fast_accum=True)'. dtype as in operands.DTYPES."""
    if dtype in ("s8", "u8"):
        return "torch._int_mm"
    if dtype in ("e4m3", "e5m2"):
        return f"torch._scaled_mm(use_fast_accum={fast})"
    return f"torch.{op}" + (" allow_tf32" if dtype == "tf32" else "")


def product(a, b, out=None, *, op="mm", tf32=False, scales=None, fast=False):
    """a @ b into `out`, or into a tensor that torch makes.

    float8 needs two scales: tensors of one element, or as torch._scaled_mm wants them.
    """
    into = {} if out is None else {"out": out}
    if a.dtype in INT8:
        torch._int_mm(a, b, **into)
    elif a.dtype in FP8:
        torch._scaled_mm(a, b, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast, **into)
    else:
        with tf32_allowed(tf32):
            getattr(torch, op)(a, b, **into)


def replayed_us(call):
    """Microseconds of a call in a graph, the best of five times."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):  # torch.cuda.graph would collect garbage each time
        graph.capture_begin()
        call()
        graph.capture_end()
    graph.replay()
    return min(timing.events_us(graph.replay) for _ in range(5))


class SparseProduct:
    """cuSPARSELt's x @ w.t() of weights (N, K) of pattern 2:4, by the algorithm that its search
    (SOUND: ours) finds for x: called with x and the index of a weight. It makes its results itself,
    of out_dtype or what is the default; each is kept until the next of its index, so that they
    leave the cache as ours do.
    """

    name = "torch._cslt_sparse_mm"

    def __init__(self, weights, x, out_dtype=None):
        self.packed = [torch._cslt_compress(w) for w in weights]
        self.results = [None] * len(self.packed)
        self.options = {"transpose_result": True}  # (M, N) in rows, as ours is
        if x.dtype.itemsize == 1:
            self.options["out_dtype"] = out_dtype or dtypes.result(x.dtype)
        if x.dtype in SOUND:
            self.options["alg_id"] = self._search(x, SOUND[x.dtype])
        else:
            found = torch._cslt_sparse_mm_search(self.packed[0], x.t(), **self.options)
            self.options["alg_id"] = found

    def _search(self, x, most):
        """The fastest of at most `most` algorithms."""
        found = {}
        for algorithm in range(most):
            call = functools.partial(
                torch._cslt_sparse_mm, self.packed[0], x.t(), **self.options, alg_id=algorithm
            )
            try:
                found[algorithm] = replayed_us(call)
            except RuntimeError:  # there are fewer
                break
        return min(found, key=found.get)

    def __call__(self, x, index):
        found = torch._cslt_sparse_mm(self.packed[index], x.t(), **self.options)
        self.results[index] = found
        return found


class SparseLinear:
    """What a user of torch writes: linear with weights of to_sparse_semi_structured."""

    name = "torch linear, to_sparse_semi_structured"

    def __init__(self, weights, x):
        with warnings.catch_warnings():  # that it is a prototype
            warnings.simplefilter("ignore")
            self.weights = [torch.sparse.to_sparse_semi_structured(w) for w in weights]

    def __call__(self, x, index):
        return torch.nn.functional.linear(x, self.weights[index])


def refusal(call):
    """torch's sentence if `call` (of an operand set) raises, else None."""
    try:
        call(0)
    except Exception as error:  # what it says is the result
        return str(error).split("\n")[0][:200]
    return None
