"""The speed of the CPU product beside torch.mm."""

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support.cases import BF16, E4M3, F16, F32, F64, S8, S32
from support.cpu_model import seconds_of
from support.cpu_operands import operand, scales

scaled_mm = torch.ops.tcgemm.scaled_mm


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize(
    "name", ["f16", "bf16", "f32", "f64", "e4m3", "blocks", "s8", "zero points", "tf32"]
)
def test_at_1024_cubed_it_takes_at_most_three_times_the_time_of_torch(name, layout):
    """The baseline is torch.mm in f32, and in f64 for f64 operands."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("the bound holds from AVX2 on")
    size = 1024
    dtypes = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "tf32": F32}
    dtype = (dtypes | {"s8": S8, "zero points": S8}).get(name, E4M3)
    a, b = operand(dtype, size, size), operand(dtype, size, size)
    b = b.mT.contiguous().mT if layout == "TN" else b
    zero = torch.ones(size, 1, dtype=S32)
    options = {
        "blocks": {"scale_a": scales(size, 8), "scale_b": scales(8, size)},
        "zero points": {"zero_a": zero, "zero_b": zero.mT, "out_dtype": F32},
        "tf32": {"precision": "high"},
    }.get(name, {})
    baseline = [x.to(F64 if dtype is F64 else F32) for x in (a, b)]
    seconds, torch_seconds = seconds_of(
        lambda: scaled_mm(a, b, **options), lambda: torch.mm(*baseline)
    )
    assert seconds <= 3 * torch_seconds, (
        f"{seconds * 1e3:.1f} ms, torch {torch_seconds * 1e3:.1f} ms"
    )
