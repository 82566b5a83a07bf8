"""The calls of torch that tcgemm is compared with, for each dtype.

    f16 bf16 f64   torch.mm, torch.bmm; with allow_fp16_accumulation where tcgemm has float16 sums
    f32            the same, with TF32 forbidden
    tf32           the same, with TF32 allowed
    s8             torch._int_mm
    e4m3 e5m2      torch._scaled_mm
    2:4 sparse     torch._cslt_sparse_mm (cuSPARSELt), for all of these but f64, f32 and tf32
    int4 weights   torch._weight_int4pack_mm

torch raises an error for cases that it does not support, such as sizes that are not multiples of
16, few rows, or another layout. `refusal` returns the text of that error for the results.
"""

# pyright: reportPrivateImportUsage=false
# torch has no public names for the functions below that begin with an underscore.
from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tcgemm import dtypes
from tcgemm.dtypes import FP8, INT8
from tcgemm.measure import timing
from tcgemm.ops.activations import activate
from tcgemm.typing import Activation

# How many of cuSPARSELt's algorithms are timed here, for dtypes with which its own search ends the
# process. On an H200 (cuSPARSELt 0.8.0, driver 580), the f16 algorithms from number 36 on end with
# an illegal instruction, and at 512^3 one of the first 36 does not terminate. bf16 has 21.
SAFE_ALGORITHMS = {torch.float16: 21}


@contextlib.contextmanager
def tf32_allowed(allowed: bool = True) -> Iterator[None]:
    """Allows or forbids TF32 in torch within a block, and then restores torch's settings."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.fp32_precision, allowed
    try:
        yield
    finally:  # torch has two settings, which must agree
        matmul.allow_tf32 = before == "tf32"
        matmul.fp32_precision = before


@contextlib.contextmanager
def fp16_sums_allowed() -> Iterator[None]:
    """Allows float16 sums of float16 products in torch within a block."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_fp16_accumulation = matmul.allow_fp16_accumulation, True
    try:
        yield
    finally:
        matmul.allow_fp16_accumulation = before


def reads_tf32(a: Tensor) -> bool:
    """Does a product of the operand a depend on the setting of TF32?"""
    return a.is_cuda and a.dtype is torch.float32


def settings(
    a: Tensor, *, tf32: bool = False, fp16_sums: bool = False
) -> contextlib.AbstractContextManager[None]:
    """The block for a call with the operand a. tf32: allowed for float32 operands?

    It changes a setting only if the call depends on it: a change takes microseconds of host time.
    """
    if fp16_sums:
        return fp16_sums_allowed()
    return tf32_allowed(tf32) if reads_tf32(a) else contextlib.nullcontext()


def name(dtype: str, op: str = "mm", *, accumulation: str = "") -> str:
    """The name of torch's call, such as 'torch._scaled_mm(use_fast_accum=True)'.

    `dtype` is a name of operands.DTYPES, `accumulation` is a case's.
    """
    if dtype in ("s8", "u8"):
        return "torch._int_mm"
    if dtype in ("s4", "u4", "b1"):
        return "torch._int_mm of int8"
    if dtype in ("e4m3", "e5m2"):
        return f"torch._scaled_mm(use_fast_accum={accumulation == 'fast'})"
    if accumulation == "f16":
        return f"torch.{op} allow_fp16_accumulation"
    return f"torch.{op}" + (" allow_tf32" if dtype == "tf32" else "")


def product(
    a: Tensor,
    b: Tensor,
    out: Tensor | None = None,
    *,
    op: str = "mm",
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    scales: Sequence[Tensor] = (),
    fast: bool = False,
) -> Tensor:
    """act(a @ b + bias) + residual as a user of torch writes it: one call after another.

    `op` is "mm", "bmm" or "linear"; only "linear" has a bias. float8 needs two scales, in shapes
    that torch._scaled_mm takes. `out` gets the result of "mm" or "bmm".
    """
    if a.dtype in INT8:
        result = torch._int_mm(a, b, out=out)
    elif a.dtype in FP8:
        scale_a, scale_b = scales
        options: Any = {"bias": bias, "out_dtype": torch.bfloat16, "out": out}
        result = torch._scaled_mm(a, b, scale_a, scale_b, use_fast_accum=fast, **options)
    elif op == "linear":
        result = F.linear(a, b.mT, bias)
    else:
        result = getattr(torch, op)(a, b, out=out)
    result = activate(result, activation)
    return result if residual is None else result + residual


def in_one_call(
    a: Tensor,
    b: Tensor,
    out: Tensor | None = None,
    *,
    bias: Tensor | None,
    activation: Activation | None,
    residual: Tensor | None,
) -> Tensor:
    """a @ b + residual, relu(a @ b + bias) or gelu_tanh(a @ b + bias) in one call of torch."""
    if residual is not None:
        return torch.addmm(residual, a, b, out=out)
    assert bias is not None
    return torch._addmm_activation(bias, a, b, use_gelu=activation != "relu", out=out)


def compiled_product() -> Callable[..., Tensor]:
    """`product` under torch.compile, for calls with operands of one shape.

    torch counts the compilations of a code object. After eight it stops compiling and reports
    nothing. So this function makes a new code object for each shape.
    """
    code = product.__code__.replace()
    copy = types.FunctionType(code, product.__globals__, product.__name__, product.__defaults__)
    copy.__kwdefaults__ = product.__kwdefaults__
    return torch.compile(copy, dynamic=False, fullgraph=True)


def replayed_us(call: Callable[[], object]) -> float:
    """Microseconds of a call in a CUDA graph: the shortest of five replays."""
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

    The algorithm is the one that cuSPARSELt's search finds for x. For the dtypes of SAFE_ALGORITHMS
    this class searches itself. cuSPARSELt allocates its results. The object keeps each result until
    the next call with its index, so that the results leave the cache as tcgemm's do.
    """

    name = "torch._cslt_sparse_mm"
    compressed: list[Tensor]
    results: list[Tensor | None]
    options: dict[str, Any]

    def __init__(
        self, weights: Sequence[Tensor], x: Tensor, out_dtype: torch.dtype | None = None
    ) -> None:
        self.compressed = [torch._cslt_compress(w) for w in weights]
        self.results = [None] * len(self.compressed)
        self.options = {"transpose_result": True}  # a row-major (M, N), as tcgemm returns
        if x.dtype.itemsize == 1:
            self.options["out_dtype"] = out_dtype or dtypes.result(x.dtype)
        first, product = (self.compressed[0], x.t()), torch._cslt_sparse_mm
        if x.dtype not in SAFE_ALGORITHMS:
            self.options["alg_id"] = torch._cslt_sparse_mm_search(*first, **self.options)
            return
        times: dict[int, float] = {}
        with contextlib.suppress(RuntimeError):  # there are fewer algorithms
            for algorithm in range(SAFE_ALGORITHMS[x.dtype]):
                call = functools.partial(product, *first, **self.options, alg_id=algorithm)
                times[algorithm] = replayed_us(call)
        self.options["alg_id"] = min(times, key=times.__getitem__)

    def __call__(self, x: Tensor, index: int) -> Tensor:
        result = torch._cslt_sparse_mm(self.compressed[index], x.t(), **self.options)
        self.results[index] = result
        return result


class SemiStructuredLinear:
    """torch.nn.functional.linear with weights from torch.sparse.to_sparse_semi_structured."""

    name = "torch linear, to_sparse_semi_structured"
    weights: list[Tensor]

    def __init__(self, weights: Sequence[Tensor], x: Tensor) -> None:
        with warnings.catch_warnings():  # torch warns that this is a prototype
            warnings.simplefilter("ignore")
            self.weights = [torch.sparse.to_sparse_semi_structured(w) for w in weights]

    def __call__(self, x: Tensor, index: int) -> Tensor:
        return torch.nn.functional.linear(x, self.weights[index])


class Int4Gemm:
    """torch's product of x with int4 weights (N, K) of random codes, for bf16.

    The first call makes a weight for each x, so that a caller sees its errors. Call it with the
    index of an x.
    """

    name: str = "torch._weight_int4pack_mm"
    group: int = 128  # elements of a scale
    most_rows: int = 128  # of x; with more it is far slower than the product of 16 bits
    inner_tiles: int = 8  # of the order of the codes

    def __init__(self, x: Sequence[Tensor], k: int, n: int) -> None:
        self.x: Sequence[Tensor] = x
        self.k: int = k
        self.n: int = n
        self.weights: list[tuple[Tensor, Tensor]] = []

    def _weight(self) -> tuple[Tensor, Tensor]:
        device = self.x[0].device
        codes = torch.randint(0, 256, (self.n, self.k // 2), device=device, dtype=torch.uint8)
        shape = (self.k // self.group, self.n, 2)
        scales = 0.01 * torch.randn(shape, device=device, dtype=torch.bfloat16)
        return torch._convert_weight_to_int4pack(codes, self.inner_tiles), scales

    def __call__(self, index: int) -> Tensor:
        self.weights = self.weights or [self._weight() for _ in range(len(self.x))]
        codes, scales = self.weights[index]
        return torch._weight_int4pack_mm(self.x[index], codes, self.group, scales)


def refusal(call: Callable[[int], object]) -> str | None:
    """The first line of the error if `call(0)` raises one, else None."""
    try:
        call(0)
    except Exception as error:  # its text goes into the results
        return reason(error)
    return None


def reason(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters."""
    error = getattr(error, "inner_exception", error)  # torch.compile wraps the errors of the call
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
