"""A fake refuses in the same words whatever its kernel refuses before it computes a shape."""

import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tcgemm

from support.error_asserts import error_message
from support.operator_calls import CALLS, K, M, N, f32, u8

W = torch.ones(8, 16)
OPS = torch.ops.tcgemm
METADATA = torch.zeros(8, 1, dtype=torch.uint8)
E4M3 = torch.float8_e4m3fn
# Operator, its arguments, and the words of the sentence.
REFUSED = [
    (OPS.compress24, (W, "4:8"), 'tcgemm.compress24: pattern is "4:8", but there are "2:4"'),
    (OPS.compress24, (W[0], "1:2"), "tcgemm.compress24: w must be a matrix"),
    (OPS.prune24, (W, ""), 'tcgemm.prune24: pattern is "", but'),
    (OPS.gather24, (W[0], METADATA, "1:2"), "tcgemm.gather24: w must be a matrix"),
    (OPS.decompress24, (W, METADATA, -1, "1:2"), "tcgemm.decompress24: k is -1, but is the num"),
    (OPS.tile24, (METADATA, -1, "2:4", torch.int8), "tcgemm.tile24: k is -1, but is the number"),
    (OPS.prepare, (W[0],), "tcgemm.prepare: w must be a matrix (N, K), as the weight of"),
    (OPS.prepare, (W.half(),), "tcgemm.prepare: w is torch.float16, but torch.float32 alone"),
    (OPS.quantize, (W, E4M3, "rows"), 'tcgemm.quantize: granularity is "rows", but there are'),
    (OPS.quantize, (W[0], E4M3, "128x128"), 'granularity "128x128" needs a dimension for each'),
    (OPS.quantize, (W[0, 0], E4M3, "row"), 'granularity "row" needs a dimension for each'),
    (OPS.quantize.scaled, (W, W, E4M3), 'scale has shape (8, 16), but granularity "tensor" has'),
    (OPS.quantize.scaled, (W, W, E4M3, "row"), 'with granularity "row" has scales of shape (8, 1)'),
]


DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.complex64),
]
# Values of options, of which some are wrong for some operators.
OPTIONS = {
    "out_dtype": DTYPES,
    "acc_dtype": DTYPES,
    "dtype": DTYPES,
    "sum_dtype": DTYPES,
    "precision": ["highest", "high", "medium", "fast", "promoted", "exact"],
    "activation": ["relu", "gelu", "swish"],
    "alpha": [1.0, 0.5],
    "beta": [0.5],
    "types": ["s4,u4", "b1,b1", "s8,s8"],
    "operation": ["and", "or"],
    "k": [15, 17, -1],
    "n": [7, 9],
    "weight_format": ["int4", "int3", "e4m3"],
    "group_size": [16, 17],
    "zeros": ["points", "pt"],
    "granularity": ["row", "tensor", "128x128", "col"],
    "pattern": ["2:4", "1:2", "4:8"],
    "format": ["int4", "nf4"],
    "scale_type": ["e4m3", "x"],
}
PACK = {"book": None, "global_scale": None, "format": "int4", "group_size": 16, "limit": 7.0}
PASSES = {
    "quantize": ({"x": (f32, M, K)}, {"dtype": torch.int8, "granularity": "row"}),
    "quantize scaled": (
        {"x": (f32, M, K), "scale": (f32, M, 1)},
        {"dtype": torch.int8, "granularity": "row"},
    ),
    "compress24": ({"w": (f32, N, K)}, {"pattern": "1:2"}),
    "prune24": ({"w": (f32, N, K)}, {"pattern": "1:2"}),
    "tile24": ({"metadata": (u8, N, 2)}, {"k": K, "pattern": "1:2", "dtype": torch.float32}),
    "prepare": ({"w": (f32, N, K)}, {}),
    "_sum_rows": ({"g": (f32, M, N)}, {"dtype": torch.float32}),
    "_product_backward": (
        {"g": (f32, M, N), "a": (f32, M, K), "b": (f32, N, K)},
        {"weight": True, "sum_dtype": torch.float32},
    ),
    "_activation_backward": (
        {"g": (f32, M, N), "z": (f32, M, N)},
        {"activation": "relu", "dtype": torch.float32},
    ),
    "_pack_weight": ({"w": (f32, N, K)}, PACK | {"scale_type": "float32"}),
    "_float8_linear": (
        {"x": (f32, M, K), "weight": (f32, N, K)},
        dict.fromkeys(["bias", "scales", "amax", "gradient_amax", "activation", "precision"]),
    ),
}
ANY = CALLS | PASSES
del ANY["scaled_mm terms_b"]  # the kernel also checks the address of its memory


def overload(call):
    name, *others = call.split()
    packet = getattr(OPS, name)
    return packet.scaled if others == ["scaled"] else packet.default


def other_shape(rng, shape):
    """One size, or the number of dimensions, is another."""
    if not shape or rng.random() < 0.5:
        return rng.choice([shape[1:], (1, *shape), (2, *shape), shape[:-1]])
    i = rng.randrange(len(shape))
    size = rng.choice([0, 1, shape[i] - 1, shape[i] + 1, 2 * shape[i]])
    return (*shape[:i], size, *shape[i + 1 :])


def changed(rng, call):
    """(the tensors of a call by name as shape, dtype and transposed, its options), with one or two
    changes."""
    tensors, options = ANY[call]
    forms = {}
    for name, (make, *shape) in tensors.items():
        tensor = make(*shape)
        transposed = tensor.dim() == 2 and tensor.stride(0) == 1 != tensor.stride(1)
        forms[name] = tensor.shape, tensor.dtype, transposed
    options = dict(options)
    names = [argument.name for argument in overload(call)._schema.arguments]
    names = [name for name in names if name in OPTIONS]
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice([*forms])
        shape, dtype, transposed = forms[name]
        what = rng.choice(["dtype", "shape", "option"])
        if what == "dtype":
            forms[name] = shape, rng.choice(DTYPES), transposed
        elif what == "shape":
            forms[name] = other_shape(rng, tuple(shape)), dtype, False
        elif names:
            option = rng.choice(names)
            options[option] = rng.choice(OPTIONS[option])
    return forms, options


def answer(call, forms, options, device):
    """The text of the error, or the shapes, dtypes and strides of the results."""
    tensors = {
        name: torch.zeros(shape[::-1] if transposed else shape, dtype=dtype, device=device)
        for name, (shape, dtype, transposed) in forms.items()
    }
    tensors = {name: t.t() if forms[name][2] else t for name, t in tensors.items()}
    try:
        results = overload(call)(**tensors, **options)
    except RuntimeError as error:
        return str(error)
    results = results if isinstance(results, tuple) else (results,)
    return [(tuple(result.shape), result.dtype, result.stride()) for result in results]


@pytest.mark.parametrize("call", ANY)
def test_random_calls(call):
    """A meta and a fake call end as a real one does: in the same words, or in such results."""
    refused = 0
    for seed in range(15):
        forms, options = changed(random.Random(f"{call} {seed}"), call)
        expected = answer(call, forms, options, "cpu")
        refused += isinstance(expected, str)
        assert answer(call, forms, options, "meta") == expected, (forms, options)
        with FakeTensorMode():
            assert answer(call, forms, options, "cpu") == expected, (forms, options)
    assert refused > 3


def test_sizes_that_only_the_data_gives():
    """Dtypes, options and numbers of dimensions are checked without them."""

    class Model(torch.nn.Module):
        def forward(self, mask, x, w):
            return tcgemm.linear(x[mask], w)

    mask, x, w = torch.ones(4, dtype=torch.bool), torch.zeros(4, 16), torch.zeros(8, 16)
    torch.export.export(Model(), (mask, x, w))
    for wrong, words in [(w.half(), "but x is torch.float32"), (w[0], "weight must be a matrix")]:
        with pytest.raises(Exception, match=words):
            torch.export.export(Model(), (mask, x, wrong))


def test_a_symbol_has_the_size_of_its_call():
    linear = torch.compile(tcgemm.linear, dynamic=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"bias must have shape \(8,\)"):
        linear(torch.zeros(4, 16), torch.zeros(8, 16), torch.zeros(7))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("operator", "operands", "words"), REFUSED)
def test_refused_in_the_same_words(operator, operands, words, device):
    arguments = [
        value.to(device) if isinstance(value, torch.Tensor) else value for value in operands
    ]
    assert words in error_message(lambda: operator(*arguments))
