"""Int4Tensor: the format, its views and copies, and exact products of every mix of signs."""

import itertools

import numpy
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tcgemm
from tcgemm import Int4Tensor

from support import subbyte
from support.cases import BF16, F32, S8, S32

every_sign = pytest.mark.parametrize("signs", subbyte.SIGNS, ids=str)


def pair(m, n, k, signs, device="cpu", batch=()):
    a = subbyte.int4(*batch, m, k, signed=signs[0], device=device)
    return a, subbyte.int4(n, k, signed=signs[1], device=device).t()


# The format.


@pytest.mark.parametrize("signed", (True, False))
def test_a_byte_holds_two_elements_the_first_one_in_its_low_bits(signed):
    x = subbyte.values(3, 4, 10, signed=signed)
    codes = x.numpy().view(numpy.uint8) & 15
    expected = codes[..., ::2] | codes[..., 1::2] << 4
    tensor = Int4Tensor.from_int8(x, signed)
    assert numpy.array_equal(tensor.bytes.numpy(), expected)
    assert tensor.shape == (3, 4, 10)
    assert tensor.dtype is (torch.int8 if signed else torch.uint8)
    assert torch.equal(tensor.to_int8().to(S8), x)
    assert torch.equal(Int4Tensor(tensor.bytes, signed).to_int8().to(S8), x)


def test_every_byte_is_read_as_numpy_reads_it():
    codes = torch.arange(256, dtype=torch.uint8)
    low, high = codes.numpy() & 15, codes.numpy() >> 4
    both = numpy.stack((low, high), -1).reshape(-1).astype(numpy.int64)
    assert numpy.array_equal(Int4Tensor(codes, signed=False).to_int8().numpy(), both)
    signed = numpy.where(both > 7, both - 16, both)
    assert numpy.array_equal(Int4Tensor(codes).to_int8().numpy(), signed)


VIEWS = {
    "t": lambda x: x[0].t(),
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(0, 1),
    "index": lambda x: x[1],
    "rows": lambda x: x[:, 1:3],
    "every second row": lambda x: x[:, ::2],
    "even columns": lambda x: x[..., 4:10],
    "from an even column": lambda x: x[..., 6:],
    "no column": lambda x: x[..., 4:4],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unsqueeze last": lambda x: x.unsqueeze(-1),
    "expand": lambda x: x[:1].expand(3, -1, -1),
    "view": lambda x: x.view(-1, 12),
    "flatten": lambda x: x.flatten(0, 1),
    "detach": lambda x: x.detach(),
    "columns of mT": lambda x: x.mT[:, 2:6, 1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_of_the_elements(name):
    subbyte.check_view(subbyte.int4(2, 5, 12), VIEWS[name])


def test_copies_have_the_elements_and_bytes_of_their_own():
    for x in (subbyte.int4(3, 8), subbyte.int4(3, 8, signed=False).t()):
        for other in subbyte.copies(x):
            assert other.signed is x.signed
            assert other.byte_dim == x.byte_dim
            assert other.dtype is x.dtype


def test_it_says_what_it_is():
    assert repr(subbyte.int4(3, 8)) == (
        "Int4Tensor(shape=(3, 8), signed=True, device='cpu', nbytes=12)"
    )


# Products.


@every_sign
def test_sums_are_exact(device, signs):
    for m, n, k in ((1, 1, 2), (5, 3, 14), (33, 70, 64), (64, 31, 258), (130, 9, 1030)):
        a, b = pair(m, n, k, signs, device)
        result = tcgemm.mm(a, b)
        assert result.dtype is S32
        assert torch.equal(result.cpu(), subbyte.exact(a, b).to(S32))


FUNCTIONS = {
    "mm": lambda a, b, c: tcgemm.mm(a[0], b),
    "matmul": lambda a, b, c: tcgemm.matmul(a, b),
    "matmul of a vector": lambda a, b, c: tcgemm.matmul(a[0, 0], b),
    "matmul with a vector": lambda a, b, c: tcgemm.matmul(a, b.t()[0]),
    "linear": lambda a, b, c: tcgemm.linear(a, b.t()),
    "bmm": lambda a, b, c: tcgemm.bmm(a, b.t().expand(a.shape[0], -1, -1).mT),
    "addmm": lambda a, b, c: tcgemm.addmm(c[0], a[0], b, beta=3.0, alpha=-2.0),
    "baddbmm": lambda a, b, c: tcgemm.baddbmm(c, a, b.t().expand(a.shape[0], -1, -1).mT),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_product_takes_it(device, name):
    """As int8 tensors, whose products are tested by themselves."""
    a, b = pair(6, 7, 22, (True, False), device, batch=(3,))
    c = torch.randint(-99, 99, (3, 6, 7), dtype=S32, device=device)
    expected = FUNCTIONS[name](a.to_int8(), b.t().to_int8().t(), c)
    assert torch.equal(FUNCTIONS[name](a, b, c), expected)


OPTIONS = {
    "bias": {"bias": S32},
    "zero_a": {"zero_a": S32},
    "zero_b": {"zero_b": S32},
    "zeros": {"zero_a": S32, "zero_b": S32, "bias": S32, "alpha": 3.0},
    "relu": {"bias": S32, "activation": "relu"},
    "residual": {"residual": S32},
    "scales": {"scale_a": F32, "scale_b": F32, "out_dtype": BF16},
    "all": {
        "scale_a": F32,
        "scale_b": F32,
        "zero_a": S32,
        "zero_b": S32,
        "bias": F32,
        "residual": F32,
        "activation": "gelu",
        "out_dtype": F32,
        "alpha": 0.5,
    },
    "to int8": {"scale_a": F32, "scale_out": F32, "out_dtype": S8},
    "amax": {"scale_b": F32, "out_dtype": F32, "amax": True},
}
SHAPES = {"bias": (1, -2), "zero_a": (-1, 1), "zero_b": (1, -2), "scale_a": (-1, 1)}
SHAPES |= {"scale_b": (1, -2), "residual": (-1, -2), "scale_out": (1,)}


def options_of(name, m, n, device):
    options = {}
    for option, value in OPTIONS[name].items():
        if value not in (S32, F32) or option == "out_dtype":
            options[option] = value
            continue
        shape = [{-1: m, -2: n}.get(size, size) for size in SHAPES[option]]
        tensor = torch.randint(-9, 10, shape) if value is S32 else torch.rand(shape) / 64
        options[option] = tensor.to(device, value)
    return options


@every_sign
@pytest.mark.parametrize("name", OPTIONS)
def test_epilogues_are_those_of_int8(device, signs, name):
    for m, n, k in ((5, 6, 30), (40, 72, 128)):
        a, b = pair(m, n, k, signs, device)
        options = options_of(name, m, n, device)
        result = tcgemm.mm(a, b, **options)
        # Two int8 or two uint8 or a mix: the elements of b keep their order in memory.
        expected = tcgemm.mm(a.to_int8(), b.t().to_int8().t(), **options)
        for one, other in zip(
            *(
                (x if amax else (x,))
                for x, amax in ((result, "amax" in options), (expected, "amax" in options))
            ),
            strict=True,
        ):
            assert one.dtype is other.dtype
            if device == "cpu" or one.dtype in (S32, S8):
                assert torch.equal(one, other)
            else:
                torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


def test_padded_rows_and_odd_addresses(device):
    """Bytes beside the operands are not read as elements."""
    for pad, offset in itertools.product((0, 1, 5, 16), (0, 1, 16)):
        a, b = pair(19, 35, 66, (True, False), device)
        other_a, other_b = (
            subbyte.padded(a, pad, offset),
            subbyte.padded(b.t(), pad, offset).t(),
        )
        assert torch.equal(tcgemm.mm(other_a, other_b).cpu(), subbyte.exact(a, b).to(S32))
        batch = subbyte.int4(3, 19, 66, device=device)
        result = tcgemm.matmul(subbyte.padded(batch, pad, offset), other_b)
        assert torch.equal(result.cpu(), subbyte.exact(batch, b).to(S32))


def test_out_takes_the_result(device):
    a, b = pair(6, 8, 32, (True, True), device)
    for out in (torch.empty(6, 8, dtype=S32), torch.empty(8, 6, dtype=S32).t()):
        out = out.to(device)
        assert tcgemm.mm(a, b, out=out) is out
        assert torch.equal(out.cpu(), subbyte.exact(a, b).to(S32))


def test_no_element_and_no_row(device):
    a, b = pair(3, 4, 0, (True, True), device)
    assert torch.equal(tcgemm.mm(a, b).cpu(), torch.zeros(3, 4, dtype=S32))
    a, b = pair(0, 4, 6, (True, True), device)
    assert tcgemm.mm(a, b).shape == (0, 4)


def test_a_bias_has_its_gradient():
    a, b = pair(3, 4, 8, (True, True))
    bias = torch.randn(4, requires_grad=True)
    tcgemm.mm(a, b, bias=bias, out_dtype=F32, activation="relu").sum().backward()
    z = subbyte.exact(a, b) + bias.detach()
    assert torch.equal(bias.grad, (z > 0).float().sum(0))


def test_compiled_code_has_the_same_result():
    a, b = pair(6, 8, 32, (False, True))
    scale = torch.rand(1, 8)

    def product(a, b, scale):
        return tcgemm.mm(a, b, scale_b=scale, out_dtype=F32) * 2 + tcgemm.linear(a, b.t())

    torch._dynamo.reset()
    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, b, scale), product(a, b, scale))


def test_flops_count_elements():
    a, b = pair(6, 8, 32, (True, True))
    with FlopCounterMode(display=False) as counter:
        tcgemm.mm(a, b)
        torch.ops.tcgemm._int4_mm(a.bytes, b.bytes, types="s4,s4")
    assert counter.get_total_flops() == 2 * 2 * 6 * 8 * 32


def test_vmap_maps_the_operator():
    a, b = subbyte.int4(3, 5, 16), subbyte.int4(7, 16).t()

    def product(rows):
        return torch.ops.tcgemm._int4_mm(rows, b.bytes, types="s4,s4")

    assert torch.equal(torch.vmap(product)(a.bytes), subbyte.exact(a, b).to(S32))


@pytest.mark.parametrize("name", ["_int4_mm", "_int4_mm_amax"])
def test_opcheck(name):
    a, b = pair(5, 6, 16, (True, False))
    options = {"types": "s4,u4", "out_dtype": F32, "activation": "relu"}
    scales = (torch.rand(5, 1), torch.rand(1, 6), None, torch.rand(6), None)
    zeros = (torch.ones(5, 1, dtype=S32), None, torch.tensor(0.5))
    op = getattr(torch.ops.tcgemm, name).default
    torch.library.opcheck(op, (a.bytes, b.bytes, *scales, *zeros), options)
    torch.library.opcheck(op, (a.bytes, b.bytes), {"types": "s4,u4", "out_dtype": BF16})


def test_opcheck_of_out():
    a, b = pair(5, 6, 16, (True, True))
    options = {"types": "s4,s4", "out": torch.empty(5, 6, dtype=S32)}
    torch.library.opcheck(torch.ops.tcgemm._int4_mm.out, (a.bytes, b.bytes), options)


def test_many_threads_give_the_same_sums():
    a, b = pair(300, 200, 520, (True, True))
    assert torch.equal(tcgemm.mm(a, b), subbyte.exact(a, b).to(S32))
