"""Scales, zero points, scale_out and amax of the public functions: values, ways, derivatives."""

import pytest
import torch
from torch.func import grad, jvp, vmap
from torch.overrides import TorchFunctionMode

import tcgemm
from tcgemm.ops.activations import activate

from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FP8, FP8_DEVICES, S8, U8, gpu

PAIRS = (
    *((dtype, dtype) for dtype in (F16, BF16, F32, F64)),
    *((a, b) for a in (E4M3, E5M2) for b in (E4M3, E5M2)),
    *((a, b) for a in (S8, U8) for b in (S8, U8)),
)


def values(dtype, *shape, device="cpu"):
    if dtype in (S8, U8):
        low = -20 if dtype is S8 else 0
        return torch.randint(low, 21, shape, dtype=torch.int32).to(device, dtype)
    return torch.randn(shape).to(device, dtype)


def scales(*shape, device="cpu"):
    return (torch.rand(shape) + 0.5).to(device)


def composed(
    a,
    b,
    c=None,
    bias=None,
    residual=None,
    *,
    scale_a=1.0,
    scale_b=1.0,
    zero_a=0,
    zero_b=0,
    scale_out=1.0,
    activation=None,
    alpha=1.0,
    beta=1.0,
):
    """The formula in torch's operators, in float64."""
    z = alpha * wide(scale_a) * wide(scale_b) * ((a.double() - zero_a) @ (b.double() - zero_b))
    if c is not None:
        z = z + beta * c.double()
    if bias is not None:
        z = z + bias.double()
    z = activate(z, activation)
    return (z if residual is None else z + residual.double()) * wide(scale_out)


def wide(scale):
    return scale.double() if isinstance(scale, torch.Tensor) else scale


def close(result, expected, eps=2.0**-20):
    if result.dtype in (F16, BF16):
        eps = 2.0 ** (-10 if result.dtype is F16 else -7)
    torch.testing.assert_close(result.double(), expected.double(), rtol=eps, atol=16 * eps)


def mark_of(dtype):
    return "sm90" if dtype is F64 else "sm89" if dtype in FP8 else "gpu"


@pytest.mark.parametrize(
    ("device", "type_a", "type_b"),
    [
        *(("cpu", a, b) for a, b in PAIRS),
        *(gpu("cuda", a, b, mark=mark_of(a)) for a, b in PAIRS),
    ],
    ids=str,
)
def test_every_dtype_with_scales(device, type_a, type_b):
    a, b = values(type_a, 6, 40, device=device), values(type_b, 40, 10, device=device)
    out_dtype = F64 if type_a is F64 else F32
    options = {"precision": "high"} if device == "cuda" and type_a is F32 else {}
    for scale_a, scale_b in (((), ()), ((6, 1), (1, 10)), ((1, 1), (1, 10)), ((6, 1), (1,))):
        terms = {"scale_a": scales(*scale_a, device=device)}
        terms["scale_b"] = scales(*scale_b, device=device)
        if type_a in (S8, U8):
            terms["zero_a"] = torch.randint(-9, 9, (6, 1), dtype=torch.int32, device=device)
            terms["zero_b"] = torch.tensor(-3, dtype=torch.int32, device=device)
        out = tcgemm.mm(a, b, **terms, out_dtype=out_dtype, activation="silu", **options)
        assert out.dtype is out_dtype
        coarse = device == "cuda" and type_a in (F32, *FP8)  # tf32, and sums of 14 bits
        eps = 2.0**-9 if coarse else 2.0**-20
        close(out, composed(a, b, **terms, activation="silu"), eps)


@pytest.mark.parametrize("device", FP8_DEVICES)
def test_blocks(device):
    x, w = torch.randn(130, 300, device=device), torch.randn(140, 300, device=device)
    for granularity_x in ("1x128", "128x128"):
        for granularity_w in ("1x128", "128x128"):
            x8, scale_x = tcgemm.quantize(x, E4M3, granularity_x)
            w8, scale_w = tcgemm.quantize(w, E5M2, granularity_w)
            out = tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t(), out_dtype=F32)
            wide = tcgemm.dequantize(x8, scale_x, F64) @ tcgemm.dequantize(w8, scale_w, F64).t()
            close(out, wide, 2.0**-15 if device == "cpu" else 2.0**-9)


def test_the_line_that_the_documentation_shows():
    x, w = torch.randn(2, 5, 64), torch.randn(24, 64)
    for dtype in (E4M3, E5M2, S8):
        for granularity in ("row", "tensor"):
            x8, sx = tcgemm.quantize(x, dtype, granularity)
            w8, s = tcgemm.quantize(w, dtype, granularity)
            out = tcgemm.linear(x8, w8, scale_a=sx, scale_b=s.t(), out_dtype=F32)
            expected = tcgemm.dequantize(x8, sx, F64) @ tcgemm.dequantize(w8, s, F64).t()
            close(out, expected)
    assert torch.equal(
        tcgemm.linear(x8, w8, scale_a=sx, scale_b=s.t(), out_dtype=F32),
        tcgemm.matmul(x8, w8.mT, scale_a=sx, scale_b=s, out_dtype=F32),
    )
    w8, s = tcgemm.quantize(w, E4M3, "row")
    x8, sx = tcgemm.quantize(x, E4M3, "row")
    assert tcgemm.linear(x8, w8, scale_a=sx, scale_b=s.mT).dtype is BF16


@pytest.mark.parametrize(
    ("a", "b", "residual"),
    [
        ((4,), (4, 5), (5,)),
        ((3, 4), (4,), (3,)),
        ((4,), (4,), ()),
        ((2, 3, 4), (4, 5), (3, 5)),
        ((4,), (2, 4, 5), (2, 5)),
        ((2, 1, 3, 4), (5, 4, 2), (2, 5, 3, 2)),
    ],
    ids=str,
)
def test_matmuls_shapes_are_those_without_scales(a, b, residual):
    a, b, residual = torch.randn(a), torch.randn(b), torch.randn(residual)
    scale = torch.tensor(0.5)
    out, amax = tcgemm.matmul(a, b, residual=residual, scale_a=scale, amax=True)
    expected = tcgemm.matmul(a, b, residual=residual, alpha=0.5)
    assert out.shape == expected.shape
    close(out, expected)
    assert amax.shape == () and amax.item() == pytest.approx(out.abs().max().item())
    into = torch.full_like(expected, float("nan"))
    assert tcgemm.matmul(a, b, residual=residual, scale_a=scale, out=into) is into
    assert torch.equal(into, out)


def test_block_scales_of_vectors():
    x, w = torch.randn(300), torch.randn(140, 300)
    x8, scale_x = tcgemm.quantize(x, E4M3, "1x128")
    w8, scale_w = tcgemm.quantize(w, E4M3, "128x128")
    expected = tcgemm.dequantize(x8, scale_x) @ tcgemm.dequantize(w8, scale_w).t()
    out = tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t(), out_dtype=F32)
    assert out.shape == (140,)
    close(out, expected, 2.0**-15)
    out = tcgemm.matmul(w8, x8, scale_a=scale_w, scale_b=scale_x, out_dtype=F32)
    close(out, expected, 2.0**-15)


def test_batches():
    a, b = values(S8, 3, 4, 20), values(S8, 3, 20, 5)
    factors = {"scale_a": scales(3, 4, 1), "scale_b": scales(1, 5)}
    close(tcgemm.bmm(a, b, **factors, out_dtype=F32), composed(a, b, **factors))
    factors = {"scale_a": scales(3, 1, 4, 1), "scale_b": scales(2, 1, 5)}
    a, b = a.unsqueeze(1), b[:2]
    close(tcgemm.matmul(a, b, **factors, out_dtype=F32), composed(a, b, **factors))


def test_every_addend_in_its_order():
    a, b = values(E4M3, 4, 20), values(E4M3, 20, 5)
    tensors = {"c": torch.randn(5), "bias": torch.randn(4, 1), "residual": torch.randn(4, 5)}
    factors = {"scale_a": scales(4, 1), "scale_b": scales(1, 5), "scale_out": torch.tensor(2.0)}
    options = {"alpha": -0.5, "beta": 3.0, "activation": "gelu"}
    options |= tensors | factors
    expected = composed(a, b, **options)
    c = options.pop("c")
    out, amax = tcgemm.addmm(c, a, b, **options, amax=True, out_dtype=F32)
    close(out, expected)
    assert amax.item() == pytest.approx(expected.abs().max().item() / 2, rel=1e-5)


def test_narrow_results():
    a, b = values(S8, 4, 20), values(S8, 20, 5)
    scale = torch.tensor(0.01)
    out = tcgemm.mm(a, b, scale_a=scale, scale_out=torch.tensor(20.0), out_dtype=S8)
    exact = (a.double() @ b.double() * 0.2).round().clamp(-128, 127)
    assert out.dtype is S8 and (out.double() - exact).abs().max() <= 1
    out = tcgemm.mm(a, b, scale_a=scale, scale_out=torch.tensor(1e6), out_dtype=S8)
    assert set(out.flatten().tolist()) <= {-128, -127, 0, 127}
    a, b = torch.randn(4, 20), torch.randn(20, 5)
    out = tcgemm.mm(a, b, scale_out=torch.tensor(1e6), out_dtype=E4M3)
    assert out.float().abs().max() == 448


def test_without_scales_the_general_way_gives_the_same_bits():
    for dtype in (F16, BF16, F32, F64):
        a, b = values(dtype, 33, 65), values(dtype, 65, 17)
        bias, residual = values(dtype, 17), values(dtype, 33, 17)
        options = {"bias": bias, "residual": residual, "activation": "gelu", "alpha": 0.5}
        general, amax = tcgemm.mm(a, b, **options, amax=True)
        assert torch.equal(general, tcgemm.mm(a, b, **options))
        assert amax.dtype is F32
    a, b = values(S8, 3, 8), values(S8, 8, 4)
    assert torch.equal(tcgemm.mm(a, b, zero_a=torch.tensor(0, dtype=torch.int32)), tcgemm.mm(a, b))
    assert tcgemm.mm(a, b).dtype is torch.int32
    assert torch.equal(tcgemm.mm(a, b).double(), a.double() @ b.double())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda a, s: tcgemm.mm(a[None], a, scale_a=s), "tcgemm.mm: a must be a matrix"),
        (lambda a, s: tcgemm.bmm(a, a, scale_a=s), "tcgemm.bmm: a must be a batch of matrices"),
        (lambda a, s: tcgemm.bmm(a[None], a.expand(2, 4, 4), scale_a=s), "tcgemm.bmm: .* batches"),
        (lambda a, s: tcgemm.addmm(a, a[0], a, scale_a=s), "tcgemm.addmm: a must be a matrix"),
        (lambda a, s: tcgemm.linear(a, a[0], scale_a=s), "tcgemm.linear: weight must be a matrix"),
        (lambda a, s: tcgemm.linear(a, a, a, scale_a=s), "tcgemm.linear: bias must have shape"),
        (lambda a, s: tcgemm.linear(a, a[:, :3], scale_a=s), "tcgemm.linear: .*last dimensions"),
        (lambda a, s: tcgemm.mm(a, a, bias=a[None, :1], scale_a=s), "tcgemm.mm: bias must have"),
        (lambda a, s: tcgemm.mm(a, a, scale_a=s.double()), "scale_a is torch.float64"),
        (lambda a, s: tcgemm.mm(a, a, scale_b=s.expand(3, 1)), "scale_b must have one element"),
        (lambda a, s: tcgemm.mm(a, a, zero_a=s.int()), "zero_a is given, but only torch.int8"),
        (lambda a, s: tcgemm.mm(a, a, scale_out=s.expand(2)), "scale_out must have one element"),
        (lambda a, s: tcgemm.mm(a, a, amax=True, out=a.clone()), "with amax=True two tensors"),
    ],
)
def test_what_is_wrong_is_said_in_the_functions_words(call, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        call(torch.randn(4, 4), torch.tensor(1.0))


def test_what_is_no_tensor_is_a_type_error():
    a = torch.randn(4, 4)
    for name in ("scale_a", "scale_b", "zero_a", "zero_b", "scale_out"):
        with pytest.raises(TypeError, match=f"tcgemm.mm: {name} must be a torch.Tensor, but is fl"):
            tcgemm.mm(a, a, **{name: 2.0})
    with pytest.raises(TypeError, match=r"tcgemm.addmm: c must be a torch.Tensor, but is NoneType"):
        tcgemm.addmm(None, a, a, amax=True)


def test_overrides_see_the_keywords():
    keywords = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is tcgemm.mm:
                keywords.append(sorted(key for key, value in kwargs.items() if value is not None))
            return func(*args, **(kwargs or {}))

    a = torch.randn(4, 4)
    with Mode():
        out, _ = tcgemm.mm(a, a, scale_a=torch.tensor(2.0), amax=True)
    assert keywords == [["amax", "scale_a"]]
    close(out, 2 * (a @ a))


def test_autocast_casts_operands_and_leaves_scales():
    a, b, scale = torch.randn(4, 8), torch.randn(8, 4), torch.tensor(1 + 2.0**-20)
    with torch.autocast("cpu", dtype=BF16):
        out = tcgemm.mm(a, b, scale_a=scale, out_dtype=F32)
        assert tcgemm.mm(a, b, scale_a=scale).dtype is BF16
        eight = tcgemm.mm(a.to(E4M3), b.to(E4M3), scale_a=scale, out_dtype=F32)
    close(out, a.bfloat16().double() @ b.bfloat16().double())
    close(eight, a.to(E4M3).double() @ b.to(E4M3).double())


def float_call(activation):
    """A call with every tensor that has a gradient, and its expression, as functions of them."""
    factors = {"scale_a": scales(3, 1), "scale_b": scales(1, 5), "scale_out": torch.tensor(0.5)}
    options = {"activation": activation, "alpha": 0.7, "beta": -2.0}

    def fused(a, b, c, bias, residual):
        return tcgemm.addmm(c, a, b, bias=bias, residual=residual, **factors, **options)

    def plain(a, b, c, bias, residual):
        return composed(a, b, c, bias, residual, **factors, **options)

    tensors = [torch.randn(s, dtype=F64) for s in ((3, 4), (4, 5), (5,), (3, 1), (3, 5))]
    return fused, plain, tensors


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_derivatives_of_scaled_products(activation):
    fused, plain, tensors = float_call(activation)
    leaves = [t.clone().requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(fused, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(fused, leaves)
    torch.testing.assert_close(
        torch.autograd.grad(fused(*leaves).sin().sum(), leaves),
        torch.autograd.grad(plain(*leaves).sin().sum(), leaves),
    )
    indices = tuple(range(5))
    for transform in (
        lambda f: grad(lambda *v: f(*v).sin().sum(), indices)(*tensors),
        lambda f: jvp(f, tuple(tensors), tuple(t.flip(0) for t in tensors)),
        lambda f: vmap(lambda a: jvp(lambda a: f(a, *tensors[1:]), (a,), (a.sin(),)))(
            torch.stack([tensors[0], -tensors[0]])
        ),
        lambda f: vmap(grad(lambda *v: f(*v).sin().sum()), (0, *[None] * 4))(
            torch.stack([tensors[0], -tensors[0]]), *tensors[1:]
        ),
        lambda f: vmap(f, (0, None, None, None, 0))(
            torch.stack([tensors[0]] * 2), *tensors[1:4], torch.stack([tensors[4]] * 2)
        ),
    ):
        torch.testing.assert_close(transform(fused), transform(plain))


@pytest.mark.parametrize("dtype", [E4M3, S8], ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_addends_beside_operands_of_8_bits_have_gradients(dtype, activation):
    a, b = values(dtype, 3, 4), values(dtype, 4, 5)
    factors = {"scale_a": scales(3, 1), "scale_b": scales(1, 5)}
    addends = [torch.randn(s, requires_grad=True) for s in ((5,), (3, 1), (3, 5))]

    def fused(c, bias, residual):
        options = {"bias": bias, "residual": residual, "activation": activation, **factors}
        return tcgemm.addmm(c, a, b, **options, out_dtype=F32)

    def plain(c, bias, residual):
        return composed(a, b, c, bias, residual, activation=activation, **factors).float()

    for gradient, expected in zip(
        torch.autograd.grad(fused(*addends).sin().sum(), addends),
        torch.autograd.grad(plain(*addends).sin().sum(), addends),
        strict=True,
    ):
        close(gradient, expected, 2.0**-16)


def test_what_carries_no_gradient():
    a = torch.randn(4, 4, requires_grad=True)
    scale = torch.tensor(2.0)
    out, amax = tcgemm.mm(a, a, scale_a=scale, amax=True)
    assert out.requires_grad and not amax.requires_grad
    assert not tcgemm.mm(a, a, scale_a=scale, out_dtype=E4M3).requires_grad
    assert not tcgemm.mm(a, a, out_dtype=E5M2).requires_grad
    out.sum().backward()
    assert a.grad is not None
    eight = values(S8, 4, 4)

    def beside(x):
        return (x * tcgemm.mm(eight, eight)).sum() + tcgemm.mm(x, x, out_dtype=E4M3).float().sum()

    product = (eight.double() @ eight.double()).float()
    torch.testing.assert_close(grad(beside)(a.detach()), product)
    torch.testing.assert_close(jvp(beside, (a.detach(),), (product,))[1], product.square().sum())


def test_gradients_that_would_be_lost_are_refused():
    a, eight = torch.randn(4, 4), torch.randn(4, 4).to(E4M3)
    scale = torch.tensor(2.0, requires_grad=True)
    for name in ("scale_a", "scale_b", "scale_out"):
        with pytest.raises(RuntimeError, match=f"{name} needs a gradient, but scales are constan"):
            tcgemm.mm(a, a, **{name: scale})
        with torch.no_grad():
            tcgemm.mm(a, a, **{name: scale})
        with pytest.raises(RuntimeError, match=f"{name} needs a gradient"):
            grad(lambda s, n=name: tcgemm.mm(a, a, **{n: s}).sum())(scale.detach())
        with pytest.raises(RuntimeError, match=f"{name} needs a gradient"):
            jvp(lambda s, n=name: tcgemm.mm(a, a, **{n: s}), (scale.detach(),), (scale.detach(),))
    with pytest.raises(RuntimeError, match="scale_a needs a gradient"):
        torch.ops.tcgemm.scaled_mm(a, a, scale)
    with pytest.raises(RuntimeError, match=r"a needs a gradient, but operands of torch.float8"):
        tcgemm.mm(eight.clone().requires_grad_(), eight)
    with pytest.raises(RuntimeError, match=r"weight needs a gradient, but operands of torch.fl"):
        tcgemm.linear(eight, eight.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="out= cannot be differentiated, but scale_a needs"):
        tcgemm.mm(a, a, scale_a=scale, out=torch.empty(4, 4))


def test_vmap_over_scales_zero_points_and_single_values():
    a, b = values(S8, 3, 4, 8), values(S8, 8, 5)
    options = {"out_dtype": F32}
    mapped = {
        "scale_a": scales(3),
        "scale_b": scales(3, 1, 5),
        "zero_a": torch.randint(-5, 5, (3, 4, 1), dtype=torch.int32),
        "zero_b": torch.randint(-5, 5, (3,), dtype=torch.int32),
        "scale_out": scales(3),
    }
    names = list(mapped)

    def fused(a, *terms):
        return tcgemm.mm(a, b, **dict(zip(names, terms, strict=True)), **options)

    def plain(a, *terms):
        return composed(a, b, **dict(zip(names, terms, strict=True)))

    close(vmap(fused)(a, *mapped.values()), vmap(plain)(a, *mapped.values()))
    names.pop()
    arguments = list(mapped.values())[:-1]
    close(vmap(fused)(a, *arguments), vmap(plain)(a, *arguments))
    close(
        vmap(fused, (None, *[0] * 4))(a[0], *arguments),
        vmap(plain, (None, *[0] * 4))(a[0], *arguments),
    )
    out, amax = vmap(lambda a: tcgemm.mm(a, b, amax=True, **options))(a)
    close(amax, out.abs().amax((1, 2)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_as_eager(dynamic):
    torch._dynamo.reset()
    fused, _, tensors = float_call("gelu")
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    leaves = [t.clone().requires_grad_() for t in tensors]
    torch.testing.assert_close(compiled(*leaves), fused(*leaves))
    torch.testing.assert_close(
        torch.autograd.grad(compiled(*leaves).sin().sum(), leaves),
        torch.autograd.grad(fused(*leaves).sin().sum(), leaves),
    )
    x8, scale_x = tcgemm.quantize(torch.randn(6, 300), E4M3, "1x128")
    w8, scale_w = tcgemm.quantize(torch.randn(10, 300), E4M3, "128x128")

    def layer(x8, w8, scale_x, scale_w):
        return tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t(), amax=True)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    arguments = (x8, w8, scale_x, scale_w)
    assert all(map(torch.equal, compiled(*arguments), layer(*arguments)))


def test_meta_tensors():
    meta = {"device": "meta"}
    a, b = torch.empty(2, 3, 8, dtype=S8, **meta), torch.empty(8, 5, dtype=S8, **meta)
    zero = torch.empty((), dtype=torch.int32, **meta)
    out, amax = tcgemm.matmul(a, b, zero_a=zero, amax=True, out_dtype=F32)
    assert out.shape == (2, 3, 5) and out.dtype is F32
    assert amax.shape == () and amax.dtype is F32
    a, b = a.to(E4M3), b.to(E5M2)
    assert tcgemm.matmul(a, b).dtype is BF16
    assert tcgemm.matmul(a, b, scale_b=torch.empty(1, 5, **meta), out_dtype=F16).dtype is F16
