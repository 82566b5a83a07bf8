"""torch's product of each dtype: what tcgemm is compared with.

    f16 bf16 f64   torch.mm, torch.bmm
    f32            the same, with TF32 forbidden
    tf32           the same, with TF32 allowed
    s8             torch._int_mm
    e4m3 e5m2      torch._scaled_mm

Where torch refuses (sizes that are not multiples of 16, few rows, an operand in another layout), it
raises, and its words are the result.
"""

import contextlib

import torch

from tcgemm.dtypes import FP8, INT8


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


def refusal(call):
    """torch's sentence if `call` (of an operand set) raises, else None."""
    try:
        call(0)
    except Exception as error:  # what it says is the result
        return str(error).split("\n")[0][:200]
    return None
