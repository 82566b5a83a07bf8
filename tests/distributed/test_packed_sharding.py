"""Products of the bytes of int4 and of bits as DTensors."""

import itertools

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from support import packed, processes
from support.cases import F32, S32

R, S0, S1 = Replicate(), Shard(0), Shard(1)
OPS = torch.ops.tcgemm
M, N, K = 24, 20, 64


def placed(tensor, placement, devices):
    return distribute_tensor(tensor, devices, [placement])


def int4_products(rank):
    devices = processes.mesh()
    torch.manual_seed(3)
    a, b = (packed.int4(rows, K).to(processes.device()) for rows in (M, N))
    exact = packed.exact(a, b.t()).to(S32)
    for of_a, of_b, out in ((S0, R, S0), (R, S1, S1), (S1, S0, Partial()), (R, R, R)):
        left = placed(a.packed, of_a, devices)
        right = placed(b.packed, {S1: S0, S0: S1, R: R}[of_b], devices).t()
        got = OPS._int4_mm(left, right, types="s4,s4")
        assert isinstance(got, DTensor)
        assert got.placements == (out,)
        assert torch.equal(got.full_tensor().cpu(), exact)
    scale = torch.rand(M, 1).to(a.device)
    got, amax = OPS._int4_mm_amax(
        placed(a.packed, S0, devices),
        placed(b.packed, R, devices).t(),
        placed(scale, S0, devices),
        types="s4,s4",
        out_dtype=F32,
    )
    expected, largest = OPS._int4_mm_amax(
        a.packed, b.packed.t(), scale, types="s4,s4", out_dtype=F32
    )
    assert torch.equal(got.full_tensor(), expected)
    assert torch.equal(amax.full_tensor(), largest)


def binary_products(rank):
    devices = processes.mesh()
    torch.manual_seed(4)
    a, b = (packed.bits(rows, K).to(processes.device()) for rows in (M, N))
    cases = ((S0, R, S0), (R, S0, S1), (R, R, R))
    for (of_a, of_b, out), operation in itertools.product(cases, ("and", "xor", "pm1")):
        left, right = placed(a.packed, of_a, devices), placed(b.packed, of_b, devices).t()
        got = OPS._binary_mm(left, right, k=K, operation=operation)
        assert got.placements == (out,)
        expected = packed.counted(a, b.t(), operation).to(S32)
        assert torch.equal(got.full_tensor().cpu(), expected)


@pytest.mark.parametrize("products", [int4_products, binary_products])
def test_products_of_bytes(products, device):
    processes.run(products, device=device)
