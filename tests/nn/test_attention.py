"""tcgemm.nn.MultiheadAttention against torch's, with every argument."""

import copy

import pytest
import torch
from torch import nn

import tcgemm

from support import cases
from support.calls import Counter

CASES = {
    "packed": {},
    "no bias": {"bias": False},
    "batch first": {"batch_first": True},
    "kdim and vdim": {"kdim": 12, "vdim": 20},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True, "batch_first": True},
    "all": {"kdim": 12, "vdim": 20, "add_bias_kv": True, "add_zero_attn": True, "bias": False},
}
B, L, S, E, H = 3, 5, 7, 16, 4


def pair(dtype=torch.float32, **options):
    """torch's layer, and the same layer swapped."""
    plain = nn.MultiheadAttention(E, H, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.normal_(std=0.25)  # biases start as zeros
    layer = copy.deepcopy(plain)
    report = tcgemm.swap_linear(layer)
    assert report.swapped == ["", "out_proj"] and report.reached == report.weights
    return plain, layer


def inputs(layer, kind, batched):
    def one(length, size):
        shape = (B, length, size) if layer.batch_first else (length, B, size)
        return torch.randn(shape if batched else (length, size), requires_grad=True)

    if kind == "self" and layer.in_proj_weight is not None:
        return (one(S, E),) * 3
    query, key = one(L, E), one(S, layer.kdim)
    return query, key, key if kind == "cross" and layer.vdim == layer.kdim else one(S, layer.vdim)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("kind", ["self", "cross", "three"])
@pytest.mark.parametrize("batched", [True, False])
def test_outputs_and_gradients_are_torchs(options, kind, batched):
    plain, layer = pair(**options)
    operands = inputs(plain, kind, batched)
    for need_weights, average in ((True, True), (True, False), (False, True)):
        results = []
        for module in (plain, layer):
            module.zero_grad()
            for x in operands:
                x.grad = None
            with Counter() as counter:
                output, weights = module(
                    *operands, need_weights=need_weights, average_attn_weights=average
                )
            output.square().sum().backward()
            gradients = [x.grad for x in operands]
            gradients += [parameter.grad for parameter in module.parameters()]
            results.append((output, weights, gradients))
        assert counter.count and not counter.others["addmm"] and not counter.others["linear"]
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def masks(rows, columns, floating):
    attn = torch.ones(rows, columns, dtype=torch.bool).triu(1)
    many = torch.rand(B * H, rows, columns) > 0.7
    padding = torch.zeros(B, columns, dtype=torch.bool)
    padding[0, -2:] = True
    attn[:, 0], many[..., 0] = False, False  # a row without any key is NaN
    if floating:
        return (
            torch.randn(rows, columns),
            torch.randn(B * H, rows, columns),
            torch.randn(B, columns),
        )
    return attn, many, padding


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("floating", [True, False])
def test_masks(options, need_weights, floating):
    plain, layer = pair(batch_first=True, **options)
    query, key, value = inputs(plain, "three", batched=True)
    attn, many, padding = masks(L, S, floating)
    for attn_mask in (None, attn, many):
        for key_padding_mask in (None, padding):
            keywords = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
            keywords["need_weights"] = need_weights
            result, expected = (module(query, key, value, **keywords) for module in (layer, plain))
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    attn, _, padding = masks(L, S, floating)
    one = {"attn_mask": attn, "key_padding_mask": padding[0], "need_weights": need_weights}
    operands = (query[0], key[0], value[0])
    torch.testing.assert_close(
        layer(*operands, **one), plain(*operands, **one), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_is_causal(need_weights, padded):
    plain, layer = pair()
    x = torch.randn(S, B, E)
    keywords = {"attn_mask": nn.Transformer.generate_square_subsequent_mask(S), "is_causal": True}
    if padded:
        keywords["key_padding_mask"] = torch.tensor([[False] * 6 + [True]] * B)
    result, expected = (
        module(x, x, x, need_weights=need_weights, **keywords) for module in (layer, plain)
    )
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_in_training(need_weights):
    plain, layer = pair(dropout=0.5)
    x = torch.randn(S, B, E)
    results = []
    for module in (plain, layer):
        torch.manual_seed(3)
        results.append(module(x, x, x, need_weights=need_weights))
        assert not torch.equal(module(x, x, x)[0], module(x, x, x)[0])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_layout_of_the_result_is_torchs():
    for batch_first in (True, False):
        plain, layer = pair(batch_first=batch_first)
        x = torch.randn(B, S, E)
        assert layer(x, x, x)[0].is_contiguous()
        assert layer(x, x, x)[0].shape == plain(x, x, x)[0].shape


def test_bfloat16_autocast_and_compile():
    plain, layer = pair(torch.bfloat16, batch_first=True)
    x = torch.randn(B, S, E, dtype=torch.bfloat16)
    torch.testing.assert_close(layer(x, x, x)[0], plain(x, x, x)[0], rtol=0.05, atol=0.2)
    plain, layer = pair(batch_first=True)
    x = x.float()
    for mask in (torch.ones(S, S, dtype=torch.bool).triu(1), torch.randn(S, S)):
        for need_weights in (True, False):
            keywords = {"attn_mask": mask, "need_weights": need_weights}
            with torch.autocast("cpu", torch.bfloat16):
                result, expected = (module(x, x, x, **keywords) for module in (layer, plain))
            torch.testing.assert_close(result, expected, rtol=0.05, atol=0.02)  # and their dtypes
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, x, x)[0], layer(x, x, x)[0])


def test_state_copies_and_undo():
    plain, layer = pair(batch_first=True)
    state = plain.state_dict()
    assert list(layer.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in layer.state_dict().items())
    x = torch.randn(B, S, E)
    for other in cases.copies(layer):
        assert type(other) is tcgemm.nn.MultiheadAttention
        assert torch.equal(other(x, x, x)[0], layer(x, x, x)[0])
    before = {name: vars(module).copy() for name, module in plain.named_modules()}
    report = tcgemm.swap_linear(plain)
    report.undo()
    assert type(plain) is nn.MultiheadAttention and type(plain.out_proj) is not tcgemm.nn.Linear
    assert {name: vars(module) for name, module in plain.named_modules()} == before


def test_constructor():
    for options in CASES.values():
        torch.manual_seed(1)
        plain = nn.MultiheadAttention(E, H, **options)
        torch.manual_seed(1)
        layer = tcgemm.nn.MultiheadAttention(E, H, **options)
        assert type(layer.out_proj) is tcgemm.nn.Linear
        assert list(layer.state_dict()) == list(plain.state_dict())
        torch.testing.assert_close(dict(layer.state_dict()), dict(plain.state_dict()))


def test_quantised_output_projection():
    plain, layer = pair()
    tcgemm.swap_linear(layer, "out_proj", to=tcgemm.nn.QuantLinear, dtype=torch.int8)
    x = torch.randn(S, B, E)
    torch.testing.assert_close(layer(x, x, x)[0], plain(x, x, x)[0], rtol=0.1, atol=0.5)


def test_torchs_attention_reads_its_projection():
    """It passes out_proj.weight on and calls no module, so an exchange would be without effect."""
    layer = nn.MultiheadAttention(E, H)
    report = tcgemm.swap_linear(layer, to=tcgemm.nn.QuantLinear)
    assert report.skipped == {
        "out_proj": "is not called by the model, a MultiheadAttention, which reads its weight"
    }
    assert report.not_reached[0].parameters == ("in_proj_weight", "weight") or report.reached == 0

    class Own(nn.MultiheadAttention):
        pass

    assert tcgemm.swap_linear(nn.Sequential(Own(E, H))).skipped == {
        "0": "is a subclass of torch.nn.MultiheadAttention (Own)",
        "0.out_proj": "is not called by 0, a Own, which reads its weight",
    }


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"attn_mask": torch.zeros(1, S)}, r"attn_mask has the shape \(1, 7\), but \(7, 7\) or"),
        ({"key_padding_mask": torch.zeros(B)}, r"key_padding_mask has .* but \(3, 7\) is expected"),
        ({"attn_mask": torch.zeros(S, S).int()}, "attn_mask is torch.int32, but a mask is"),
        ({"is_causal": True}, "is_causal is True without attn_mask"),
    ],
)
def test_errors(keywords, sentence):
    layer, x = tcgemm.nn.MultiheadAttention(E, H), torch.randn(S, B, E)
    with pytest.raises(RuntimeError, match=r"^tcgemm\.nn\.MultiheadAttention: " + sentence):
        layer(x, x, x, **keywords)


def test_errors_of_shapes_and_nested_tensors():
    layer, x = tcgemm.nn.MultiheadAttention(E, H), torch.randn(S, B, E)
    for operands in ((x, x[0], x[0]), (x[None],) * 3, (x, x, x[1:])):
        with pytest.raises(RuntimeError, match=r"MultiheadAttention: query, key and value have"):
            layer(*operands)
    nested = torch.nested.nested_tensor([torch.randn(2, E), torch.randn(3, E)])
    with pytest.raises(RuntimeError, match="MultiheadAttention: query, key or value is a Nested"):
        layer(nested, nested, nested)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_cuda(dtype):
    plain, layer = pair(dtype, batch_first=True)
    plain, layer = plain.cuda().eval(), layer.cuda().eval()
    x = torch.randn(B, S, E, dtype=dtype, device="cuda")
    with torch.no_grad():
        for need_weights in (True, False):
            result, expected = (
                module(x, x, x, need_weights=need_weights)[0] for module in (layer, plain)
            )
            torch.testing.assert_close(result, expected, rtol=0.05, atol=0.2)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
    encoder, x = encoder.to("cuda", dtype).eval(), torch.randn(2, 8, 32, dtype=dtype, device="cuda")
    with torch.no_grad():
        expected = encoder(x)
        report = tcgemm.swap_linear(encoder)
        with Counter() as counter:
            result = encoder(x)
        assert counter.count == 8
        torch.testing.assert_close(result, expected, rtol=0.05, atol=0.05)
        report.undo()
        assert torch.equal(encoder(x), expected)
