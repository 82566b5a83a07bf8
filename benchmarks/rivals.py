"""What a user of torch writes for a case: the other side of every ratio.

    dtype          call
    f16 bf16 f64   torch.mm, torch.bmm, or a linear layer and what follows it, one after another
    tf32           the same, with TF32 allowed
    s8             torch._int_mm
    e4m3 e5m2      torch._scaled_mm, use_fast_accum as the case accumulates

Where torch refuses (sizes that are not multiples of 16, few rows, an operand in another layout),
that is what the row says, in torch's words.
"""

import contextlib

import torch
import torch.nn.functional as F

from tcgemm.bench import accuracy

INTEGERS = ("s8", "u8")
FLOAT8 = ("e4m3", "e5m2")


@contextlib.contextmanager
def tf32_allowed():
    """For one call: our own products are told their precision, and must not depend on this."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def name(case):
    """What is called, for the row: 'torch._scaled_mm(use_fast_accum=True)'."""
    if case.dtype in INTEGERS:
        return "torch._int_mm"
    if case.dtype in FLOAT8:
        return f"torch._scaled_mm(use_fast_accum={case.accumulation == 'fast'})"
    if case.op != "linear":
        return f"torch.{case.op}" + (" allow_tf32" if case.dtype == "tf32" else "")
    activation = next((part for part in case.parts if part in accuracy.ACTIVATIONS), None)
    parts = ["torch linear", activation, "add" if "residual" in case.parts else None]
    return " + ".join(part for part in parts if part)


def run(work, a, b, out):
    """The call on these operands; `out` is None where the rival is to make its own result."""
    into = {} if out is None else {"out": out}
    case = work.case
    if case.dtype in INTEGERS:
        torch._int_mm(a, b, **into)
    elif case.dtype in FLOAT8:
        scales = (work.scale_a, work.scale_b) if case.scales else (work.one, work.one)
        fast = case.accumulation == "fast"
        torch._scaled_mm(a, b, *scales, out_dtype=work.out_dtype, use_fast_accum=fast, **into)
    else:
        with tf32_allowed() if case.dtype == "tf32" else contextlib.nullcontext():
            _float(work, a, b, into)


def _float(work, a, b, into):
    if work.case.op != "linear":
        getattr(torch, work.case.op)(a, b, **into)
        return
    result = accuracy.ACTIVATIONS[work.activation](F.linear(a, b.t(), work.bias))
    if work.residual is not None:
        result = result + work.residual
