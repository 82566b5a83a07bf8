"""Products of any shape, strides, offsets, types and epilogue, as hypothesis draws them.

Whole numbers, so that the smallest counterexample is one wrong element. Sizes lean towards edges of
words, instructions and tiles, and towards 0 and 1.
"""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import tcgemm

from support import cases, reference
from support.cases import F16, F64
from support.strategies import BATCHES, EXAMPLES, SIZES, broadcast_shape, seed, views


@st.composite
def products(draw, device):
    """(a, b, addends, options) of _gemm, the general product."""
    types = draw(st.sampled_from(cases.all_types(device)))
    m, n, k, batch = draw(SIZES), draw(SIZES), draw(SIZES), draw(BATCHES)
    largest = 2 if types.accumulator == F16 else 4
    options = {"dtype": types.input, "device": device, "largest": largest}
    seed(draw)
    batches = [batch, broadcast_shape(draw, batch)]
    if draw(st.booleans()):
        batches.reverse()
    a = draw(views(*batches[0], m, k, **options))
    b = draw(views(*batches[1], k, n, **options))
    addends = {}
    for name in ("c", "bias", "residual"):
        if draw(st.booleans()):
            kinds = (*cases.FLOATS, F64) if types.input == F64 else cases.FLOATS
            options["dtype"] = draw(st.sampled_from(kinds))
            addends[name] = draw(views(*broadcast_shape(draw, batch, m, n), **options))
    scalars = st.sampled_from((1.0, 1.0, 2.0, -1.0, 0.0))
    keywords = {
        "activation": draw(st.sampled_from((None, "relu"))),
        "alpha": draw(scalars),
        "beta": draw(scalars),
        "out_dtype": types.out,
        "acc_dtype": types.accumulator,
    }
    return a, b, addends, keywords


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(data=st.data())
def test_any_product(device, data):
    a, b, addends, options = data.draw(products(device))
    out = torch.ops.tcgemm._gemm(a, b, **addends, **options)
    expected = reference.exact(a, b, **addends, **options)
    reference.assert_exact(out, expected)


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(data=st.data())
def test_any_result_tensor(device, data):
    """Any strides that do not overlap, written completely and nowhere else."""
    types = data.draw(st.sampled_from(cases.all_types(device)))
    batch = data.draw(BATCHES)
    m, n, k = data.draw(SIZES), data.draw(SIZES), data.draw(SIZES)
    seed(data.draw)
    options = {"dtype": types.input, "device": device, "largest": 2}
    a = data.draw(views(*batch, m, k, **options))
    b = data.draw(views(*batch, k, n, **options))
    names = st.sampled_from((*cases.OUT_STRIDES, "batch_innermost", "batch_reversed"))
    guarded = cases.Guarded(
        data.draw(names), (*batch, m, n), dtype=types.out, device=device, margin=72
    )
    kinds = {"out_dtype": types.out, "acc_dtype": types.accumulator}
    tcgemm.matmul(a, b, **kinds, out=guarded.view)
    reference.assert_exact(guarded.view, reference.exact(a, b, **kinds))
    assert guarded.untouched()


@pytest.mark.parametrize("device", cases.DEVICES)
@hypothesis.settings(max_examples=EXAMPLES // 2)
@hypothesis.given(data=st.data())
def test_any_normal_data(device, data):
    types = data.draw(st.sampled_from(cases.all_types(device)))
    m, n, k = (data.draw(SIZES) for _ in range(3))
    layout = data.draw(st.sampled_from(cases.LAYOUTS))
    activation = data.draw(st.sampled_from((None, *cases.ACTIVATIONS)))
    seed(data.draw)
    a, b = cases.operands(layout, m, n, k, dtype=types.input, device=device)
    kinds = {"out_dtype": types.out, "acc_dtype": types.accumulator, "activation": activation}
    reference.assert_close(tcgemm.mm(a, b, **kinds), a, b, **kinds)


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
