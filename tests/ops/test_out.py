"""The out= overloads: where they may write, what they refuse, and that they write nothing else.

The sentences of the refusals are in test_errors.py.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tcgemm
from tcgemm.ops.operators import ADDS_C, PLAIN

from support.cases import BATCH_STRIDES, F32, OUT_STRIDES, Guarded, gpu, make
from support.dtype_matrix import DEVICE_DTYPES

OPS = torch.ops.tcgemm
BATCHES = (*(op.name for op in PLAIN if op.batched), "matmul", "_gemm")
PRODUCTS = (*(op.name for op in PLAIN), "_gemm")


def inputs(name, dtype, device):
    """Positional operands of an operator, with all that it takes, and the rest by keyword."""
    options = {"dtype": dtype, "device": device}
    batch = (3,) if name in BATCHES else ()
    a = make("contiguous", *batch, 21, 40, **options)
    b = make("contiguous", *batch, 40, 24, **options)
    c, bias, residual = (
        make("contiguous", *shape, **options) for shape in [(21, 24), (24,), (24,)]
    )
    keywords = {"activation": "gelu", "alpha": 0.5}
    if name in ADDS_C:
        return (c, a, b, bias, residual), {**keywords, "beta": 0.5}
    if name == "linear":
        return (a, b.mT.contiguous(), bias, residual), keywords
    if name == "_gemm":
        return (a, b, c, bias, residual), {**keywords, "beta": 0.5}
    return (a, b, bias, residual), keywords


@pytest.mark.parametrize("name", PRODUCTS)
def test_schema_writes_and_returns_nothing(name):
    """An operator that returns what it mutates fails opcheck."""
    schema = getattr(OPS, name).out._schema
    assert schema.returns == []
    outputs = [argument.name for argument in schema.arguments if argument.is_write]
    assert outputs == ["out"]
    functional = getattr(OPS, name).default._schema
    assert [a.name for a in functional.arguments] == [a.name for a in schema.arguments[:-1]]


@pytest.mark.parametrize("name", PRODUCTS[:-1])
def test_python_returns_out(name):
    tensors, keywords = inputs(name, F32, "cpu")
    positional = 3 if name in ADDS_C else 2  # the rest is keyword-only in Python
    expected = getattr(tcgemm, name)(*tensors[:positional], **keywords)
    out = torch.empty_like(expected)
    assert getattr(tcgemm, name)(*tensors[:positional], **keywords, out=out) is out
    assert torch.equal(out, expected)


@pytest.mark.parametrize("device, dtype", DEVICE_DTYPES)
@pytest.mark.parametrize("strides", OUT_STRIDES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_any_strides(name, strides, device, dtype):
    """The same bits as without out=, and nothing beside the view is touched."""
    tensors, keywords = inputs(name, dtype, device)
    expected = getattr(OPS, name)(*tensors, **keywords)
    out = Guarded(strides, expected.shape, dtype=dtype, device=device)
    assert getattr(OPS, name).out(*tensors, **keywords, out=out.view) is None
    assert out.untouched()
    assert torch.equal(out.view, expected)


@pytest.mark.parametrize("device", ("cpu", gpu("cuda")))
@pytest.mark.parametrize("strides", [name for name in BATCH_STRIDES if "expanded" not in name])
def test_batch_strides(strides, device):
    dtype = F32 if device == "cpu" else torch.bfloat16
    a = make("contiguous", 3, 5, 9, 16, dtype=dtype, device=device)
    b = make("contiguous", 5, 16, 8, dtype=dtype, device=device)
    expected = OPS.matmul(a, b)
    out = Guarded(strides, expected.shape, dtype=dtype, device=device)
    OPS.matmul(a, b, out=out.view)
    torch.testing.assert_close(out.view, expected)
    assert out.untouched()


@pytest.mark.parametrize("device, dtype", DEVICE_DTYPES)
def test_other_parts_of_an_inputs_storage(device, dtype):
    """Halves of one matrix, and its odd columns beside its even ones, share no element."""
    whole = make("contiguous", 32, 64, dtype=dtype, device=device)
    b = make("contiguous", 32, 32, dtype=dtype, device=device)
    for a, out in ((whole[:, :32], whole[:, 32:]), (whole[:, ::2], whole[:, 1::2])):
        expected = OPS.mm(a.clone(), b)
        OPS.mm(a, b, out=out)
        torch.testing.assert_close(out, expected)
    with pytest.raises(RuntimeError, match="out shares memory with a"):
        OPS.mm(whole[:, :32], b, out=whole[:, 31:63])


@pytest.mark.parametrize("beta", [0, 2])
@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_out_may_be_c(name, beta):
    a, b, c = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(2, 3, 5)
    if name == "addmm":
        a, b, c = a[0], b[0], c[0]
    expected = getattr(torch, name)(c, a, b, beta=beta, out=c.clone())
    assert getattr(tcgemm, name)(c, a, b, beta=beta, out=c) is c
    torch.testing.assert_close(c, expected)


def test_out_may_share_memory_with_a_c_that_is_not_read():
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    torch.testing.assert_close(tcgemm.addmm(c[0], a, b, beta=0, out=c), a @ b)
    with pytest.raises(RuntimeError, match="out shares memory with c"):
        tcgemm.addmm(c[0], a, b, out=c)


@pytest.mark.parametrize("shape", [(0, 5, 4), (3, 0, 4), (3, 5, 0), (0, 0, 0)])
def test_empty(shape):
    """K = 0 writes the epilogue of a zero product; an empty out is left as it is."""
    m, n, k = shape
    out = torch.full((m, n), float("nan"))
    OPS.mm(torch.empty(m, k), torch.empty(k, n), torch.full((n,), 2.0), out=out)
    assert torch.equal(out, torch.full((m, n), 2.0))


def test_out_of_another_dtype_than_the_operands():
    a, b = make("contiguous", 8, 16, dtype=torch.half), make("contiguous", 16, 8, dtype=torch.half)
    out = torch.empty(8, 8)
    OPS.mm(a, b, out_dtype=F32, out=out)
    assert torch.equal(out, OPS.mm(a, b, out_dtype=F32))


@pytest.mark.parametrize("needs", ["a", "bias", "out"])
def test_no_gradient_is_dropped_silently(needs):
    tensors = {"a": torch.ones(3, 4), "bias": torch.ones(5), "out": torch.ones(3, 5)}
    tensors[needs].requires_grad_()
    with pytest.raises(RuntimeError, match=f"out= .*{needs} needs a gradient"):
        tcgemm.mm(tensors["a"], torch.ones(4, 5), bias=tensors["bias"], out=tensors["out"])
    with torch.no_grad():
        tcgemm.mm(tensors["a"], torch.ones(4, 5), bias=tensors["bias"], out=tensors["out"])


def test_a_lazy_copy_is_made_real_before_it_is_written():
    original = torch.zeros(4, 4)
    out = torch._lazy_clone(original)
    OPS.mm(torch.eye(4), torch.ones(4, 4), out=out)
    assert (out == 1).all() and (original == 0).all()


def negative(*shape):
    """A tensor with torch's negative bit, and the tensor behind it."""
    base = torch.zeros(shape, dtype=torch.complex64)
    return base.conj().imag, base


@pytest.mark.parametrize("name", PRODUCTS)
def test_negative_bit(name):
    """As torch.mm writes it. torch's own fallback of this bit aborts the process at exit."""
    tensors, keywords = inputs(name, F32, "cpu")
    expected = getattr(OPS, name)(*tensors, **keywords)
    out, base = negative(*expected.shape)
    version = out._version
    assert getattr(OPS, name).out(*tensors, **keywords, out=out) is None
    assert out.is_neg() and out._version > version
    assert torch.equal(out, expected) and torch.equal(base.imag, -expected)
    assert not base.real.any()
    plain = torch.empty_like(expected)
    flipped = [torch.complex(tensor, -tensor).conj().imag for tensor in tensors]
    getattr(OPS, name).out(*flipped, **keywords, out=plain)
    assert torch.equal(plain, expected)


def test_negative_bit_of_the_functions():
    a, b = make("contiguous", 4, 16, dtype=F32), make("contiguous", 16, 8, dtype=F32)
    out, base = negative(4, 8)
    assert tcgemm.mm(a, b, bias=b[0], out=out) is out
    assert torch.equal(base.imag, -tcgemm.mm(a, b, bias=b[0]))
    scale = torch.rand(4, 1)
    tcgemm.mm(a, b, scale_a=scale, out=out)
    assert torch.equal(out.resolve_neg(), tcgemm.mm(a, b, scale_a=scale))
    with pytest.raises(RuntimeError, match="out has shape"):
        tcgemm.mm(a, b, out=negative(8, 4)[0])


dimension = st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9))
offset = st.integers(0, 40)


@settings(max_examples=1000)
@given(st.lists(dimension, min_size=2, max_size=4), offset, offset)
def test_overlap_is_decided_exactly(dimensions, first, second):
    """Against the sets of elements: refused where one is written twice or is also read."""
    shape, strides, other = zip(*dimensions, strict=True)
    indices = torch.arange(300)
    addresses = indices.as_strided(shape, strides, first).flatten().tolist()
    read = indices.as_strided(shape, other, second).flatten().tolist()
    refusal = ""
    if len(set(addresses)) < len(addresses):
        refusal = "more than once"
    elif set(addresses) & set(read):
        refusal = "shares memory with residual"

    storage = torch.arange(300.0)
    expected = storage.as_strided(shape, other, second).clone()
    a, b = torch.empty(*shape[:-1], 0), torch.empty(0, shape[-1])  # so nothing else is read
    out = storage.as_strided(shape, strides, first)
    residual = storage.as_strided(shape, other, second)
    if refusal:
        with pytest.raises(RuntimeError, match=refusal):
            OPS._gemm(a, b, residual=residual, out=out)
    else:
        OPS._gemm(a, b, residual=residual, out=out)
        assert torch.equal(out, expected)
