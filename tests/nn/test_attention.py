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
    theirs = nn.MultiheadAttention(E, H, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.25)  # biases start as zeros
    ours = copy.deepcopy(theirs)
    report = tcgemm.swap_linear(ours)
    assert report.swapped == ["", "out_proj"] and report.reached == report.weights
    return theirs, ours


def inputs(layer, which, batched):
    def one(length, size):
        shape = (B, length, size) if layer.batch_first else (length, B, size)
        return torch.randn(shape if batched else (length, size), requires_grad=True)

    if which == "self" and layer.in_proj_weight is not None:
        return (one(S, E),) * 3
    query, key = one(L, E), one(S, layer.kdim)
    return query, key, key if which == "cross" and layer.vdim == layer.kdim else one(S, layer.vdim)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("which", ["self", "cross", "three"])
@pytest.mark.parametrize("batched", [True, False])
def test_outputs_and_gradients_are_torchs(options, which, batched):
    theirs, ours = pair(**options)
    given = inputs(theirs, which, batched)
    for need_weights, average in ((True, True), (True, False), (False, True)):
        results = []
        for layer in (theirs, ours):
            layer.zero_grad()
            for x in given:
                x.grad = None
            with Counter() as counter:
                output, weights = layer(
                    *given, need_weights=need_weights, average_attn_weights=average
                )
            output.square().sum().backward()
            gradients = [x.grad for x in given]
            gradients += [parameter.grad for parameter in layer.parameters()]
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
    theirs, ours = pair(batch_first=True, **options)
    query, key, value = inputs(theirs, "three", batched=True)
    attn, many, padding = masks(L, S, floating)
    for attn_mask in (None, attn, many):
        for key_padding_mask in (None, padding):
            keywords = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
            keywords["need_weights"] = need_weights
            got, expected = (each(query, key, value, **keywords) for each in (ours, theirs))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    attn, _, padding = masks(L, S, floating)
    one = {"attn_mask": attn, "key_padding_mask": padding[0], "need_weights": need_weights}
    given = (query[0], key[0], value[0])
    torch.testing.assert_close(ours(*given, **one), theirs(*given, **one), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_is_causal(need_weights, padded):
    theirs, ours = pair()
    x = torch.randn(S, B, E)
    keywords = {"attn_mask": nn.Transformer.generate_square_subsequent_mask(S), "is_causal": True}
    if padded:
        keywords["key_padding_mask"] = torch.tensor([[False] * 6 + [True]] * B)
    got, expected = (
        each(x, x, x, need_weights=need_weights, **keywords) for each in (ours, theirs)
    )
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_in_training(need_weights):
    theirs, ours = pair(dropout=0.5)
    x = torch.randn(S, B, E)
    results = []
    for layer in (theirs, ours):
        torch.manual_seed(3)
        results.append(layer(x, x, x, need_weights=need_weights))
        assert not torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_layout_of_the_result_is_torchs():
    for batch_first in (True, False):
        theirs, ours = pair(batch_first=batch_first)
        x = torch.randn(B, S, E)
        assert ours(x, x, x)[0].is_contiguous()
        assert ours(x, x, x)[0].shape == theirs(x, x, x)[0].shape


def test_bfloat16_autocast_and_compile():
    theirs, ours = pair(torch.bfloat16, batch_first=True)
    x = torch.randn(B, S, E, dtype=torch.bfloat16)
    torch.testing.assert_close(ours(x, x, x)[0], theirs(x, x, x)[0], rtol=0.05, atol=0.2)
    theirs, ours = pair(batch_first=True)
    x = x.float()
    for mask in (torch.ones(S, S, dtype=torch.bool).triu(1), torch.randn(S, S)):
        for need_weights in (True, False):
            keywords = {"attn_mask": mask, "need_weights": need_weights}
            with torch.autocast("cpu", torch.bfloat16):
                got, expected = (each(x, x, x, **keywords) for each in (ours, theirs))
            torch.testing.assert_close(got, expected, rtol=0.05, atol=0.02)  # and their dtypes
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, x, x)[0], ours(x, x, x)[0])


def test_state_copies_and_undo():
    theirs, ours = pair(batch_first=True)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    assert all(torch.equal(each, state[name]) for name, each in ours.state_dict().items())
    x = torch.randn(B, S, E)
    for other in cases.copies(ours):
        assert type(other) is tcgemm.nn.MultiheadAttention
        assert torch.equal(other(x, x, x)[0], ours(x, x, x)[0])
    before = {name: vars(module).copy() for name, module in theirs.named_modules()}
    report = tcgemm.swap_linear(theirs)
    report.undo()
    assert type(theirs) is nn.MultiheadAttention and type(theirs.out_proj) is not tcgemm.nn.Linear
    assert {name: vars(module) for name, module in theirs.named_modules()} == before


def test_constructor():
    for options in CASES.values():
        torch.manual_seed(1)
        theirs = nn.MultiheadAttention(E, H, **options)
        torch.manual_seed(1)
        ours = tcgemm.nn.MultiheadAttention(E, H, **options)
        assert type(ours.out_proj) is tcgemm.nn.Linear
        assert list(ours.state_dict()) == list(theirs.state_dict())
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


def test_quantised_output_projection():
    theirs, ours = pair()
    tcgemm.swap_linear(ours, "out_proj", to=tcgemm.nn.QuantLinear, dtype=torch.int8)
    x = torch.randn(S, B, E)
    torch.testing.assert_close(ours(x, x, x)[0], theirs(x, x, x)[0], rtol=0.1, atol=0.5)


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
    for given in ((x, x[0], x[0]), (x[None],) * 3, (x, x, x[1:])):
        with pytest.raises(RuntimeError, match=r"MultiheadAttention: query, key and value have"):
            layer(*given)
    nested = torch.nested.nested_tensor([torch.randn(2, E), torch.randn(3, E)])
    with pytest.raises(RuntimeError, match="MultiheadAttention: query, key or value is a Nested"):
        layer(nested, nested, nested)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_cuda(dtype):
    theirs, ours = pair(dtype, batch_first=True)
    theirs, ours = theirs.cuda().eval(), ours.cuda().eval()
    x = torch.randn(B, S, E, dtype=dtype, device="cuda")
    with torch.no_grad():
        for need_weights in (True, False):
            got, expected = (each(x, x, x, need_weights=need_weights)[0] for each in (ours, theirs))
            torch.testing.assert_close(got, expected, rtol=0.05, atol=0.2)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
    encoder, x = encoder.to("cuda", dtype).eval(), torch.randn(2, 8, 32, dtype=dtype, device="cuda")
    with torch.no_grad():
        expected = encoder(x)
        report = tcgemm.swap_linear(encoder)
        with Counter() as counter:
            got = encoder(x)
        assert counter.count == 8
        torch.testing.assert_close(got, expected, rtol=0.05, atol=0.05)
        report.undo()
        assert torch.equal(encoder(x), expected)
