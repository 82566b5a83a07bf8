"""Products of the bytes of int4 and of bits as DTensors."""

import itertools

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from support import processes, subbyte
from support.cases import F32, S32

R, S0, S1 = Replicate(), Shard(0), Shard(1)
OPS = torch.ops.tcgemm
M, N, K = 24, 20, 64


def placed(tensor, placement, devices):
    return distribute_tensor(tensor, devices, [placement])


def int4_products(rank):
    devices = processes.mesh()
    torch.manual_seed(3)
    a, b = (subbyte.int4(rows, K).to(processes.device()) for rows in (M, N))
    exact = subbyte.exact(a, b.t()).to(S32)
    for of_a, of_b, out in ((S0, R, S0), (R, S1, S1), (S1, S0, Partial()), (R, R, R)):
        left = placed(a.bytes, of_a, devices)
        right = placed(b.bytes, {S1: S0, S0: S1, R: R}[of_b], devices).t()
        result = OPS._int4_mm(left, right, types="s4,s4")
        assert isinstance(result, DTensor)
        assert result.placements == (out,)
        assert torch.equal(result.full_tensor().cpu(), exact)
    scale = torch.rand(M, 1).to(a.device)
    result, amax = OPS._int4_mm_amax(
        placed(a.bytes, S0, devices),
        placed(b.bytes, R, devices).t(),
        placed(scale, S0, devices),
        types="s4,s4",
        out_dtype=F32,
    )
    expected, largest = OPS._int4_mm_amax(a.bytes, b.bytes.t(), scale, types="s4,s4", out_dtype=F32)
    assert torch.equal(result.full_tensor(), expected)
    assert torch.equal(amax.full_tensor(), largest)


def binary_products(rank):
    devices = processes.mesh()
    torch.manual_seed(4)
    a, b = (subbyte.bits(rows, K).to(processes.device()) for rows in (M, N))
    cases = ((S0, R, S0), (R, S0, S1), (R, R, R))
    for (of_a, of_b, out), operation in itertools.product(cases, ("and", "xor", "pm1")):
        left, right = placed(a.bytes, of_a, devices), placed(b.bytes, of_b, devices).t()
        result = OPS._binary_mm(left, right, k=K, operation=operation)
        assert result.placements == (out,)
        expected = subbyte.count(a, b.t(), operation).to(S32)
        assert torch.equal(result.full_tensor().cpu(), expected)


@pytest.mark.parametrize("products", [int4_products, binary_products])
def test_products_of_bytes(products, device):
    processes.run(products, device=device)
