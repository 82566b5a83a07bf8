"""Batched gradients (is_grads_batched=True, vectorize=True): right, or refused without noise."""

import functools

import pytest
import torch
from torch import nn

import tcgemm

SOURCE = nn.Linear(64, 64)
CALLS = {
    "mm": lambda x: tcgemm.mm(x, SOURCE.weight),
    "matmul": lambda x: tcgemm.matmul(x[0], SOURCE.weight),
    "addmm": lambda x: tcgemm.addmm(x, x, SOURCE.weight, beta=2.0),
    "bmm": lambda x: tcgemm.bmm(x[None], SOURCE.weight[None]),
    "baddbmm": lambda x: tcgemm.baddbmm(x, x[None], SOURCE.weight[None]),
    "linear": lambda x: tcgemm.linear(x, SOURCE.weight, SOURCE.bias, activation="gelu"),
    "scales": lambda x: tcgemm.mm(x, SOURCE.weight, scale_a=torch.tensor(2.0)),
    "quantized_linear": lambda x: tcgemm.quantized_linear(x, SOURCE.weight),
    "Linear": tcgemm.nn.Linear.from_linear(SOURCE),
    "QuantLinear": tcgemm.nn.QuantLinear.from_linear(SOURCE),
    "Float8Linear": tcgemm.nn.Float8Linear.from_linear(SOURCE),
    "Float8Linear-delayed": tcgemm.nn.Float8Linear.from_linear(SOURCE, scaling="delayed"),
    "SparseLinear24": tcgemm.nn.SparseLinear24.from_linear(SOURCE),
    "SparseLinear24-learns": tcgemm.nn.SparseLinear24.from_linear(SOURCE, learns=True),
    "PackedLinear": lambda x: PACKED(x.bfloat16()).float(),
    "Conv1D": tcgemm.nn.Conv1D(64, 64),
    "MultiheadAttention": lambda x: ATTENTION(x, x, x)[0],
}
PACKED = tcgemm.nn.PackedLinear.from_linear(SOURCE.bfloat16(), group_size=64)
SOURCE.float()
ATTENTION = tcgemm.nn.MultiheadAttention(64, 4)
# What is refused, by name and way, and a part of the sentence.
REFUSED = {
    "Float8Linear forward": "torch.func and forward mode are not supported",
    "Float8Linear-delayed forward": "torch.func and forward mode are not supported",
    "Float8Linear hessian": "a second derivative is asked for",
    "Float8Linear-delayed hessian": "a second derivative is asked for",
    "Float8Linear-delayed is_grads_batched": "delayed scaling keeps the amax of one",
    "Float8Linear-delayed jacobian": "delayed scaling keeps the amax of one",
    # A masked gradient of a weight is a SparseTensor24, and there are no batches of them.
    "SparseLinear24-learns is_grads_batched": "is not supported for 2:4 sparse tensors",
    "SparseLinear24-learns jacobian": "is not supported for 2:4 sparse tensors",
    "SparseLinear24-learns hessian": "is not supported for 2:4 sparse tensors",
}


def batched(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    g = torch.randn(3, *y.shape, generator=torch.Generator().manual_seed(1))
    (result,) = torch.autograd.grad(y, x, g, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in g]
    return result, torch.stack(each)


def jacobian(function, x, **options):
    result = torch.autograd.functional.jacobian(function, x, vectorize=True, **options)
    return result, torch.autograd.functional.jacobian(function, x)


def hessian(function, x):
    def scalar(x):
        return function(x).pow(2).sum()

    result = torch.autograd.functional.hessian(scalar, x, vectorize=True)
    return result, torch.autograd.functional.hessian(scalar, x)


WAYS = {
    "is_grads_batched": batched,
    "jacobian": jacobian,
    "forward": functools.partial(jacobian, strategy="forward-mode"),
    "hessian": hessian,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
def test_right_or_refused_without_frames(name, way, capfd):
    torch.manual_seed(0)
    refused = REFUSED.get(f"{name} {way}")
    if refused is not None:
        with pytest.raises((RuntimeError, NotImplementedError), match=refused):
            WAYS[way](CALLS[name], torch.randn(1, 64))
    else:
        result, expected = WAYS[way](CALLS[name], torch.randn(1, 64))
        error = 0.05 if name == "PackedLinear" else 1e-4
        torch.testing.assert_close(result, expected, rtol=error, atol=error)
    assert capfd.readouterr().err == ""
