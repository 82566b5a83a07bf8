"""emulate.mm of the thin kernels: an instruction takes its 16 of k in an order of their own."""

import pytest
import torch

from tcgemm import emulate
from tcgemm.emulate.thin import order_of

from support.reference import same_bits

OTHER = "64x64x64_w1_s12_tn"  # a kernel of 16 bits with the order of memory


def test_an_instruction_has_a_word_of_each_lane_then_the_next_ones():
    """csrc/kernels/thin/mainloop.cuh: a lane has 4 adjacent k."""
    pairs = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
    assert order_of(32, 2).tolist() == pairs + [16 + k for k in pairs]
    assert order_of(16, 1).tolist() == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(30, 3, 3), (70, 20, 40), (65, 64, 64)], ids=str)
def test_16_bits_have_the_bits_of_every_other_kernel(dtype, size):
    """Hopper adds the 16 products of a step at once."""
    m, n, k = size
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    options = {"out_dtype": torch.float32, "device": "H200"}
    width = 32 if n <= 32 else 64
    name = "bf16" if dtype is torch.bfloat16 else "f16"
    thin = emulate.mm(a, b, kernel=f"sm90a_{name}_f32_64x{width}x64_w1_s1_tn_thin", **options)
    other = emulate.mm(a, b.t().contiguous().t(), kernel=f"sm90a_{name}_f32_{OTHER}", **options)
    assert same_bits(thin, other)


def test_float32_is_summed_in_float64():
    a, b = torch.randn(100, 50), torch.randn(50, 30)
    result = emulate.mm(a, b, kernel="sm90a_f32_f64_64x32x64_w1_s1_tn_thin", device="H200")
    exact = a.double() @ b.double()
    assert same_bits(result, exact.float())
    with pytest.raises(RuntimeError, match="no kernel of this build"):
        emulate.mm(a, b, kernel="_thin", device="A100")
