"""Products of any dtype, scales, zero points, strides and epilogue, as hypothesis draws them.

Whole numbers and powers of two, so that there is one right result and the smallest counterexample
is one wrong element. Sizes lean towards edges of words, blocks of scales and tiles, and towards 0
and 1.
"""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import F32, F64, S32
from support.gpu import missing, older
from support.strategies import BATCHES, EXAMPLES, SIZES, broadcast_shape, seed, views

# 127, 128 and 129 of SIZES are one and two blocks of scales; these are three.
DEPTHS = st.one_of(SIZES, st.sampled_from((256, 257, 300, 384)))
OPS = torch.ops.tcgemm


def runs_here(device, types):
    return device == "cpu" or not (missing(types.marks) or older(types.marks))


def draw_types(draw, device):
    return draw(
        st.sampled_from(
            [types for types in dtype_matrix.gemm_types(device) if runs_here(device, types)]
        )
    )


def draw_scales(draw, types, batch, m, n, k, device):
    """scale_a, scale_b and zero points, each there or not."""
    scales, kinds = {}, ["", "tensor", "row"]
    if types.fp8 and types.precision is None:
        kinds += ["1x128", "128x128"]
    for name, build, extent in (
        ("scale_a", dtype_matrix.scale_a, m),
        ("scale_b", dtype_matrix.scale_b, n),
    ):
        kind = draw(st.sampled_from(kinds))
        if not kind:
            continue
        of_batch = broadcast_shape(draw, batch)
        strides = draw(st.sampled_from(("contiguous", "transposed", "step_both", "padded")))
        options = {"device": device, "powers": True, "strides": strides}
        scales[name] = build(kind, extent, k, batch=of_batch, **options)
    for name, shape in (("zero_a", (m, 1)), ("zero_b", (1, n))):
        if types.integer and draw(st.booleans()):
            shape = draw(st.sampled_from((shape, (1, 1))))
            of_batch = broadcast_shape(draw, batch)
            scales[name] = dtype_matrix.zero_points(*of_batch, *shape, device=device)
    return scales


@st.composite
def products(draw, device, plain=False):
    """(types, a, b, keywords of scaled_mm); if `plain`, keywords of _gemm."""
    types = draw_types(draw, device)
    m, n, k, batch = draw(SIZES), draw(SIZES), draw(DEPTHS), draw(BATCHES)
    largest = None if types.integer else 2
    seed(draw)
    batches = [batch, broadcast_shape(draw, batch)]
    if draw(st.booleans()):
        batches.reverse()
    a = draw(views(*batches[0], m, k, dtype=types.a, device=device, largest=largest))
    b = draw(views(*batches[1], k, n, dtype=types.b, device=device, largest=largest))
    keywords = {} if plain else draw_scales(draw, types, batch, m, n, k, device)
    outs = [out for out in types.outs if out != S32 or not keywords.keys() & {"scale_a", "scale_b"}]
    keywords["out_dtype"] = out = draw(st.sampled_from(outs))
    for step, name in enumerate(("c", "bias", "residual")):
        if draw(st.booleans()):
            dtype = S32 if out == S32 else draw(st.sampled_from(types.addends))
            if name == "bias" and not plain:
                shape = draw(st.sampled_from(((n,), (1, n), (m, 1), (*batch, 1, n))))
            else:
                shape = broadcast_shape(draw, batch, m, n)
            options = {"dtype": dtype, "device": device, "largest": 2 + step}
            keywords[name] = draw(views(*shape, **options))
    if not plain and out != S32 and draw(st.booleans()):
        keywords["scale_out"] = torch.tensor(draw(st.sampled_from((0.5, 2.0))), device=device)
    keywords["activation"] = draw(st.sampled_from((None, "relu")))
    for name in ("alpha", "beta"):
        keywords[name] = draw(st.sampled_from((1.0, 1.0, 2.0, -1.0, 0.0)))
    return types, a, b, keywords | types.options


def check(a, b, keywords, out):
    """Sums of integers times four powers of two may need more than the 24 bits of f32."""
    value, bound = reference.evaluate(a, b, **keywords)
    if keywords["out_dtype"] == S32 or a.dtype not in cases.INT8:
        reference.assert_exact(out, reference.exact(a, b, **keywords))
    else:
        assert out.shape == value.shape
        assert reference.largest_ratio(out, value, bound) <= 1


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=4 * EXAMPLES)
@hypothesis.given(data=st.data())
def test_any_product(device, data):
    plain = data.draw(st.booleans())
    _, a, b, keywords = data.draw(products(device, plain))
    check(a, b, keywords, (OPS._gemm if plain else OPS.scaled_mm)(a, b, **keywords))


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=3 * EXAMPLES)
@hypothesis.given(data=st.data())
def test_any_result_tensor(device, data):
    """Any strides that do not overlap, written completely and nowhere else."""
    plain = data.draw(st.booleans())
    _, a, b, keywords = data.draw(products(device, plain))
    shape = reference.evaluate(a, b, **keywords)[0].shape
    names = st.sampled_from((*cases.OUT_STRIDES, "batch_innermost", "batch_reversed"))
    guarded = cases.Guarded(
        data.draw(names), shape, dtype=keywords["out_dtype"], device=device, margin=72
    )
    (OPS._gemm if plain else OPS.scaled_mm).out(a, b, **keywords, out=guarded.view)
    check(a, b, keywords, guarded.view)
    assert guarded.untouched()
    kinds = {name: keywords[name] for name in ("out_dtype", "acc_dtype", "precision")}
    guarded = cases.Guarded(
        data.draw(names), shape, dtype=keywords["out_dtype"], device=device, margin=72
    )
    tcgemm.matmul(a, b, **kinds, out=guarded.view)
    check(a, b, kinds, guarded.view)
    assert guarded.untouched()


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(data=st.data())
def test_any_amax(device, data):
    _, a, b, keywords = data.draw(products(device))
    if keywords["out_dtype"] == S32:
        keywords["out_dtype"] = F32
        for name in ("c", "bias", "residual"):
            keywords.pop(name, None)
    out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **keywords)
    check(a, b, keywords, out)
    if out.numel() == 0:
        assert float(amax) == 0
        return
    keywords.pop("scale_out", None)
    reference.assert_amax(amax, a, b, **keywords)


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=3 * EXAMPLES // 2)
@hypothesis.given(data=st.data())
def test_any_normal_data(device, data):
    types = draw_types(data.draw, device)
    m, n, k = data.draw(SIZES), data.draw(SIZES), data.draw(DEPTHS)
    seed(data.draw)
    a, b = types.operands(data.draw(st.sampled_from(cases.LAYOUTS)), m, n, k, device=device)
    outs = (F64,) if types.a == F64 else cases.FLOATS if types.a in cases.FLOATS else (F32,)
    keywords = types.options | {"out_dtype": data.draw(st.sampled_from(outs))}
    keywords["activation"] = data.draw(st.sampled_from((None, *cases.ACTIVATIONS)))
    reference.assert_close(tcgemm.mm(a, b, **keywords), a, b, **keywords)


@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(data=st.data())
def test_any_layout_can_be_explained(data):
    """The planner finds a kernel for every strided operand that a tensor can be."""
    m, n, k = (data.draw(SIZES) for _ in range(3))
    options = {"dtype": torch.bfloat16, "device": "meta", "largest": None}
    a = data.draw(views(m, k, **options))
    b = data.draw(views(k, n, **options))
    device = data.draw(st.sampled_from(("H200", "A100", "A10")))
    text = tcgemm.explain(a, b, device=device)
    assert ("empty" in text) if m == 0 or n == 0 else (" FLOP a byte" in text)
    assert "tcgemm" in tcgemm.check_layout(a, b, device=device)
