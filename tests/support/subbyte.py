"""Operands of int4 and of bits, and their exact products by torch's 64-bit integers on the CPU."""

import copy

import torch

from tcgemm import BinaryTensor, Int4Tensor

from support import cases

SIGNS = ((True, True), (True, False), (False, True), (False, False))


def values(*shape, signed=True):
    """Every int4 is as likely as any other."""
    return torch.randint(-8 if signed else 0, 8 if signed else 16, shape, dtype=torch.int8)


def int4(*shape, signed=True, device="cpu"):
    return Int4Tensor.from_int8(values(*shape, signed=signed), signed).to(device)


def bits(*shape, device="cpu", ones=0.5):
    return BinaryTensor.from_bool(torch.rand(shape) < ones).to(device)


def padded(x, pad, offset=0):
    """The same tensor in wider storage: its rows have `more` bytes behind them, and the first one
    begins at byte `offset`. What lies between is not zero."""
    stored = x.bytes.cpu()
    *batch, rows, length = stored.shape
    flat = torch.full((stored[..., 0].numel() * (length + pad) + offset,), 255, dtype=torch.uint8)
    flat = flat.to(x.device)
    view = flat[offset:].view(*batch, rows, length + pad)[..., :length]
    view.copy_(stored)
    return x.like(view)


def elements(x):
    return x.to_int8() if isinstance(x, Int4Tensor) else x.to_bool()


def check_view(x, view_of):
    """A view has the class of x, and the elements and the shape of the view of x's elements."""
    view, expected = view_of(x), view_of(elements(x))
    assert type(view) is type(x) and view.shape == expected.shape
    assert torch.equal(elements(view), expected)


def copies(x):
    """Copies of every kind, once they are seen to have the elements and bytes of their own."""
    for other in (x.clone(), copy.deepcopy(x), x.to("cpu", copy=True), cases.reloaded(x)):
        assert torch.equal(elements(other), elements(x))
        assert other.bytes.data_ptr() != x.bytes.data_ptr()
        yield other


def wide(x):
    """The elements as int64 on the CPU."""
    return elements(x).cpu().to(torch.int64)


def exact(a, b):
    return wide(a) @ wide(b)


def count(a, b, operation):
    x, y = wide(a), wide(b)
    both = x @ y
    differ = x.sum(-1, keepdim=True) + y.sum(-2, keepdim=True) - 2 * both
    return {"and": both, "xor": differ, "pm1": a.shape[-1] - 2 * differ}[operation]
