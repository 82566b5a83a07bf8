"""A remembered plan works on the tensors of its own call.

Passes read operands from the addresses in the plan. So each product here has passes, and runs with
several sets of tensors of the same sizes, in both orders.
"""

import pytest
import torch

import tcgemm

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]

SETS = 3
M, N, K = 200, 328, 1024


def integers(rows, cols, dtype):
    return torch.randint(-4, 5, (rows, cols), device="cuda").to(dtype)


def mm(dtype, **options):
    """x @ w of whole numbers: the result is exact."""
    x, w = integers(M, K, dtype), integers(K, N, dtype)
    return lambda: tcgemm.mm(x, w, **options), x.double() @ w.double()


def with_zero_points():
    x, w = integers(M, K, torch.int8), integers(N, K, torch.int8).t()
    zero = torch.arange(N, dtype=torch.int32, device="cuda")[None]
    return lambda: tcgemm.mm(x, w, zero_b=zero), x.double() @ (w.double() - zero)


def prepared():
    x, w = integers(M, K, torch.float32), integers(N, K, torch.float32)
    p = tcgemm.prepare(w)
    return lambda: tcgemm.mm(x, p.t()), x.double() @ w.double().t()


PRODUCTS = {
    "repacked": lambda: mm(torch.int8),
    "both repacked": lambda: mm(torch.float32, precision="medium"),
    "sums of rows": with_zero_points,
    "split": lambda: mm(torch.float32),
    "prepared": prepared,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_call_reads_its_own_tensors(name):
    sets = [PRODUCTS[name]() for _ in range(SETS)]
    for call, expected in (*sets, *reversed(sets)):
        assert torch.equal(call().double(), expected)
