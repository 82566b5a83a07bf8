"""BinaryTensor and binary_mm: the format, its views and copies, and every operation."""

import itertools

import numpy
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tcgemm
from tcgemm import BinaryTensor
from tcgemm.operands.integers.binary import OPERATIONS

from support import subbyte
from support.cases import S32

every_operation = pytest.mark.parametrize("operation", OPERATIONS)


# The format.


@pytest.mark.parametrize("k", (1, 7, 8, 9, 64, 100))
def test_bits_are_little_endian_as_numpy_packs_them(k):
    x = torch.rand(3, 4, k) < 0.5
    tensor = BinaryTensor.from_bool(x)
    assert numpy.array_equal(
        tensor.bytes.numpy(), numpy.packbits(x.numpy(), axis=-1, bitorder="little")
    )
    assert tensor.shape == (3, 4, k)
    assert tensor.dtype is torch.bool
    assert torch.equal(tensor.to_bool(), x)
    assert torch.equal(BinaryTensor(tensor.bytes).to_bool()[..., :k], x)


VIEWS = {
    "t": lambda x: x[0].t(),
    "mT": lambda x: x.mT,
    "index": lambda x: x[1],
    "rows": lambda x: x[:, 1:3],
    "whole bytes": lambda x: x[..., 8:16],
    "to the end": lambda x: x[..., 8:],
    "no column": lambda x: x[..., 8:8],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:1].expand(3, -1, -1),
    "flatten": lambda x: x.flatten(0, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_of_the_elements(name):
    subbyte.check_view(subbyte.bits(2, 5, 21), VIEWS[name])


def test_copies_have_the_elements_and_bytes_of_their_own():
    for x in (subbyte.bits(3, 21), subbyte.bits(3, 21).t()):
        assert len(list(subbyte.copies(x))) == 4


def test_it_says_what_it_is():
    assert repr(subbyte.bits(3, 21)) == "BinaryTensor(shape=(3, 21), device='cpu', nbytes=9)"


# Products.


@every_operation
def test_counts_are_exact(device, operation):
    for m, n, k in ((1, 1, 1), (5, 3, 7), (33, 70, 64), (64, 31, 1030), (9, 130, 2049)):
        for ones in (0.1, 0.5, 1.0):
            a, b = (
                subbyte.bits(m, k, device=device, ones=ones),
                subbyte.bits(n, k, device=device).t(),
            )
            result = tcgemm.binary_mm(a, b, operation)
            assert result.dtype is S32
            assert torch.equal(result.cpu(), subbyte.count(a, b, operation).to(S32))


@every_operation
def test_batches_broadcast(device, operation):
    a, b = subbyte.bits(2, 1, 6, 40, device=device), subbyte.bits(3, 7, 40, device=device).mT
    result = tcgemm.binary_mm(a, b, operation)
    assert result.shape == (2, 3, 6, 7)
    assert torch.equal(result.cpu(), subbyte.count(a, b, operation).to(S32))
    a, b = subbyte.bits(2, 6, 40, device=device), subbyte.bits(7, 40, device=device).t()
    assert torch.equal(
        tcgemm.binary_mm(a, b, operation).cpu(), subbyte.count(a, b, operation).to(S32)
    )


def test_signs_are_those_of_floats():
    x, w = torch.randn(9, 77), torch.randn(5, 77)
    a, b = (BinaryTensor.from_bool(tensor > 0) for tensor in (x, w))
    assert torch.equal(tcgemm.binary_mm(a, b.t(), "pm1"), (x.sign() @ w.sign().t()).int())


@every_operation
def test_padded_rows_and_odd_addresses(device, operation):
    for pad, offset in itertools.product((0, 1, 5, 16), (0, 1, 16)):
        a, b = subbyte.bits(19, 1100, device=device), subbyte.bits(35, 1100, device=device).t()
        other_a, other_b = (
            subbyte.padded(a, pad, offset),
            subbyte.padded(b.t(), pad, offset).t(),
        )
        result = tcgemm.binary_mm(other_a, other_b, operation)
        assert torch.equal(result.cpu(), subbyte.count(a, b, operation).to(S32))


@every_operation
def test_out_takes_the_result(device, operation):
    a, b = subbyte.bits(6, 32, device=device), subbyte.bits(8, 32, device=device).t()
    for out in (torch.empty(6, 8, dtype=S32), torch.empty(8, 6, dtype=S32).t()):
        out = out.to(device)
        assert tcgemm.binary_mm(a, b, operation, out=out) is out
        assert torch.equal(out.cpu(), subbyte.count(a, b, operation).to(S32))


@every_operation
def test_no_element_and_no_row(device, operation):
    a, b = subbyte.bits(3, 0, device=device), subbyte.bits(4, 0, device=device).t()
    assert torch.equal(tcgemm.binary_mm(a, b, operation).cpu(), torch.zeros(3, 4, dtype=S32))
    a = subbyte.bits(0, 6, device=device)
    assert tcgemm.binary_mm(a, subbyte.bits(4, 6, device=device).t(), operation).shape == (0, 4)


@every_operation
def test_compiled_code_has_the_same_result(operation):
    a, b = subbyte.bits(6, 40), subbyte.bits(8, 40).t()

    def product(a, b):
        return tcgemm.binary_mm(a, b, operation) * 2

    torch._dynamo.reset()
    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, b), product(a, b))


def test_flops_count_bits():
    a, b = subbyte.bits(6, 40), subbyte.bits(8, 40).t()
    with FlopCounterMode(display=False) as counter:
        tcgemm.binary_mm(a, b)
    assert counter.get_total_flops() == 2 * 6 * 8 * 40


def test_vmap_maps_the_operator():
    a, b = subbyte.bits(3, 5, 16), subbyte.bits(7, 16).t()

    def product(rows):
        return torch.ops.tcgemm._binary_mm(rows, b.bytes, k=16, operation="xor")

    expected = subbyte.count(a, b, "xor").to(S32)
    assert torch.equal(torch.vmap(product)(a.bytes), expected)


@every_operation
def test_opcheck(operation):
    a, b = subbyte.bits(5, 20), subbyte.bits(6, 20).t()
    options = {"k": 20, "operation": operation}
    torch.library.opcheck(torch.ops.tcgemm._binary_mm.default, (a.bytes, b.bytes), options)
    out = torch.empty(5, 6, dtype=S32)
    options |= {"out": out}
    torch.library.opcheck(torch.ops.tcgemm._binary_mm.out, (a.bytes, b.bytes), options)


@every_operation
def test_many_threads_give_the_same_counts(operation):
    a, b = subbyte.bits(700, 5000), subbyte.bits(60, 5000).t()
    expected = subbyte.count(a, b, operation).to(S32)
    assert torch.equal(tcgemm.binary_mm(a, b, operation), expected)
