"""Kept forms of weights: which writers a layer notices, and what tcgemm.refresh_weights does.

Each row of the table in docs/guides/layers.md, "Who writes the weights", is a test here, in
tests/distributed/test_kept_forms.py or in tests/gpu/test_kept_forms.py.
"""

import copy
import threading

import pytest
import torch
from torch import nn

import tcgemm
from tcgemm.nn import Linear, PackedLinear, QuantLinear, SparseLinear24
from tcgemm.ops.kept import digest

from support.error_asserts import error_message

K, N = 128, 64
X = torch.randn(4, K).bfloat16()


def dense():
    return nn.Linear(K, N).bfloat16()


def sparse(**options):
    return lambda: SparseLinear24.from_linear(dense(), **options).eval()


def packed(**options):
    return lambda: PackedLinear.from_linear(dense(), **options)


LAYERS = {
    "int4": packed(),
    "e4m3": packed(format="e4m3"),
    "nf4": packed(format="nf4"),
    "2:4 learns": sparse(learns=True),
    "2:4 learns, transposable": sparse(learns=True, method="transposable"),
}
LIVE = {
    "bf16": lambda: Linear.from_linear(dense()),
    "int8": lambda: QuantLinear.from_linear(dense(), torch.int8),
    "e4m3 blocks": lambda: QuantLinear.from_linear(dense(), granularity="128x128"),
    "2:4": sparse(),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def weights_of(layer):
    """The tensors of the weight that others write."""
    if isinstance(layer, SparseLinear24):
        return [layer.weight] if layer.learns else [layer.weight.values]
    if isinstance(layer, Linear):
        return [layer.weight]
    return [buffer for buffer in layer._buffers.values() if buffer is not None]


def octets(tensor):
    return tensor.detach().view(torch.uint8).numpy()


def by_numpy(own, new):
    octets(own)[...] = octets(new)


def by_dlpack(own, new):
    torch.from_dlpack(own.detach()).copy_(new)


def by_storage(own, new):
    own.untyped_storage().copy_(new.untyped_storage())


def through_data(own, new):
    own.data.copy_(new)


UNCOUNTED = (by_numpy, by_dlpack, by_storage, through_data)


def by_copy(layer, other):
    with torch.no_grad():
        for own, new in zip(weights_of(layer), weights_of(other), strict=True):
            own.copy_(new)


def by_load(layer, other):
    layer.load_state_dict(other.state_dict())


def by_load_that_assigns(layer, other):
    layer.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)


def by_other_memory(layer, other):
    for own, new in zip(weights_of(layer), weights_of(other), strict=True):
        own.data = new.detach().clone()


def by_a_foreach_operator(layer, other):
    with torch.no_grad():
        torch._foreach_copy_(weights_of(layer), weights_of(other))


COUNTED = (by_copy, by_load, by_load_that_assigns, by_other_memory, by_a_foreach_operator)


def pair(name, layers=LAYERS):
    """Two layers whose kept positions are the same, and the result of the first one."""
    layer = layers[name]()
    other = copy.deepcopy(layer)
    for own, new in zip(weights_of(other), weights_of(layers[name]()), strict=True):
        own.data.copy_(new)
    return layer, other, layer(X)


@every_layer
@pytest.mark.parametrize("write", COUNTED)
@torch.no_grad()
def test_a_write_that_torch_counts_is_noticed(name, write):
    layer, other, before = pair(name)
    write(layer, other)
    after = layer(X)
    assert torch.equal(after, other(X)) and not torch.equal(after, before)
    assert torch.equal(layer(X), after)


@every_layer
@pytest.mark.parametrize("write", UNCOUNTED)
@torch.no_grad()
def test_an_uncounted_write_is_seen_after_a_refresh(name, write):
    layer, other, before = pair(name)
    for own, new in zip(weights_of(layer), weights_of(other), strict=True):
        write(own, new)
        assert torch.equal(layer(X), before)  # all of the old weight
    other.bias.zero_()
    layer.bias.zero_()  # is read live
    with_other_bias = layer(X)
    assert not torch.equal(with_other_bias, before)
    report = tcgemm.refresh_weights(nn.Sequential(layer))
    assert torch.equal(layer(X), other(X)) and not torch.equal(layer(X), with_other_bias)
    (row,) = report.refreshed
    assert row.layer == "0" and row.nbytes > 0 and row.form in repr(report)


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("write", UNCOUNTED)
@torch.no_grad()
def test_without_a_kept_form_every_write_is_seen(name, write):
    layer, other, before = pair(name, LIVE)
    for own, new in zip(weights_of(layer), weights_of(other), strict=True):
        write(own, new)
    assert torch.equal(layer(X), other(X)) and not torch.equal(layer(X), before)
    assert tcgemm.refresh_weights(layer).refreshed == []


@every_layer
@torch.no_grad()
def test_a_form_stays_at_its_address(name):
    layer, other, _ = pair(name)
    layer._form.captured = True  # on the CPU others would get new memory, since threads read it
    addresses = [tensor.data_ptr() for tensor in layer._form.tensors]
    for write in (by_copy, by_load):
        write(layer, other)
        assert torch.equal(layer(X), other(X))
    tcgemm.refresh_weights(layer)
    assert [tensor.data_ptr() for tensor in layer._form.tensors] == addresses


@pytest.mark.parametrize("name", ["int4", "2:4 learns"])
@torch.no_grad()
def test_what_a_graph_reads_stays(name):
    layer, other, _ = pair(name)
    form, tensors = layer._form, layer._form.tensors
    form.captured = True  # as a call during a capture leaves it
    if name == "2:4 learns":
        layer.refresh()
        assert form.tensors[0] is tensors[0]
    by_load(layer, other)
    layer(X)
    assert form.tensors[0] is tensors[0] and not form.graphs
    layer.to("meta")
    held = [*form.graphs, form.tensors]
    assert any(one[0] is tensors[0] for one in held)
    message = error_message(lambda: tcgemm.refresh_weights(nn.ModuleDict({"head": layer})))
    assert "a captured CUDA graph reads the weight of head" in message
    assert "release_graphs()" in message
    layer.release_graphs()
    assert not form.graphs and not any(one is tensors[0] for one in form.tensors)


@torch.no_grad()
def test_a_swap_leaves_what_graphs_read():
    model = nn.Sequential(packed()())
    model[0](X)
    model[0]._form.captured = True
    tensors = model[0]._form.tensors
    tcgemm.swap_linear(model, to=nn.Linear)
    assert model[0]._form.graphs == [tensors]


@torch.no_grad()
def test_functional_call_leaves_the_layer_as_it_is():
    layer, other, before = pair("int4")
    buffers = dict(other.named_buffers())
    for released in (False, True):
        if released:
            layer.release_codes()
        for names in (["codes"], [*buffers]):
            mine = {name: layer.packed.stored.parts._asdict()[name] for name in buffers}
            mixed = PackedLinear.from_packed(
                tcgemm.PackedWeight.from_parts(
                    **{name: (buffers if name in names else mine)[name] for name in buffers},
                    format="int4",
                    group_size=layer.group_size,
                ),
                layer.bias,
            )
            given = {name: buffers[name] for name in names}
            for _ in range(2):
                assert torch.equal(torch.func.functional_call(layer, given, (X,)), mixed(X))
                assert torch.equal(layer(X), before)
    layer.codes = other.codes
    layer.scales = other.scales
    layer.bias.copy_(other.bias)
    assert torch.equal(layer(X), other(X))


@torch.no_grad()
def test_functional_call_writes_nothing_that_graphs_read():
    layer, other, before = pair("2:4 learns")
    layer._form.captured = True
    values = layer._form.tensors[0].clone()
    given = {"weight": other.weight}
    assert torch.equal(torch.func.functional_call(layer, given, (X,)), other(X))
    assert torch.equal(layer._form.tensors[0], values) and torch.equal(layer(X), before)


@every_layer
@torch.no_grad()
def test_compiled_layers(name):
    layer, other, before = pair(name)
    new = other(X)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X), before)
    for own, source in zip(weights_of(layer), weights_of(other), strict=True):
        by_numpy(own, source)
    seen = compiled(X)  # a compiled SparseLinear24 takes the elements of the weight in each call
    assert torch.equal(seen, new if name.startswith("2:4") else before)
    tcgemm.refresh_weights(layer)
    assert torch.equal(compiled(X), new)
    third = LAYERS[name]()
    layer.load_state_dict(third.state_dict())  # no call of the layer itself comes before the next
    assert torch.equal(compiled(X), third(X)) and torch.equal(layer(X), third(X))


@pytest.mark.parametrize("name", ["int4", "2:4 learns", "2:4"])
@torch.no_grad()
def test_a_replica_has_a_form_of_its_own(name):
    """As torch.nn.DataParallel makes it: with other tensors, for another thread."""
    layer = {**LAYERS, **LIVE}[name]()
    before, tensors = layer(X), layer._form.tensors
    replica = layer._replicate_for_data_parallel()
    for slots, own in (
        (replica._buffers, layer._buffers),
        (replica._parameters, layer._parameters),
    ):
        slots |= {key: None if one is None else one.clone() for key, one in own.items()}
    assert torch.equal(replica(X), before) and torch.equal(layer(X), before)
    assert all(own is one for own, one in zip(layer._form.tensors, tensors, strict=True))


def test_bytes_that_stay_make_no_order_again(monkeypatch):
    layer, other, before = pair("int4")
    calls = []
    real = tcgemm.operands.packed.arrange.arranged
    monkeypatch.setattr(
        "tcgemm.operands.packed.arrange.arranged", lambda *a: calls.append(a) or real(*a)
    )
    for _ in range(3):
        for buffer in weights_of(layer):
            buffer.copy_(buffer.clone())
        assert torch.equal(layer(X), before)
    assert not calls
    by_copy(layer, other)
    assert torch.equal(layer(X), layer.to_linear()(X)) and len(calls) == 1


@pytest.mark.parametrize("size", [1, 7, 32768, 32769, 100003])
def test_a_digest_differs_where_a_bit_differs(size):
    octets = torch.randint(0, 256, (size,), dtype=torch.uint8)
    number = digest([octets])
    assert torch.equal(digest([octets.clone()]), number)
    for _ in range(20):
        other, place = octets.clone(), int(torch.randint(size, ()))
        other[place] ^= 1 << int(torch.randint(8, ()))
        assert not torch.equal(digest([other]), number)
        if size > 1:
            other[place - 1] ^= 128
            assert not torch.equal(digest([other]), number)
    constants = [torch.full((size,), value, dtype=torch.uint8) for value in range(256)]
    assert len({int(digest([tensor])) for tensor in constants}) == 256


@every_layer
@torch.no_grad()
def test_threads_find_old_or_new_values(name):
    layer, other, before = pair(name)
    first, second = copy.deepcopy(layer), other
    second.bias.copy_(first.bias)
    expected = [before, second(X)]
    wrong, stop = [], threading.Event()

    @torch.no_grad()  # each thread has its own; with gradients a layer that learns reads its weight
    def read():
        while not stop.is_set():
            result = layer(X)
            if not any(torch.equal(result, one) for one in expected):
                wrong.append(result)

    def write():
        for index in range(40):
            source = (second, first)[index % 2]
            for own, new in zip(weights_of(layer), weights_of(source), strict=True):
                by_numpy(own, new)
            tcgemm.refresh_weights(layer)
        stop.set()

    threads = [threading.Thread(target=target) for target in (read, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(layer(X), before)
    assert not wrong


def test_the_report():
    with torch.device("meta"):
        model = nn.ModuleDict({"a": PackedLinear(K, N), "b": SparseLinear24(K, N, learns=True)})
    assert repr(tcgemm.refresh_weights(model)) == "kept forms written again: 0, 0 MiB"
    model = nn.ModuleDict({name: LAYERS[name]() for name in ("int4", "2:4 learns")})
    for layer in model.values():
        layer(X)
    report = tcgemm.refresh_weights(model)
    assert [row[:2] for row in report.refreshed] == [
        ("int4", "device order"),
        ("2:4 learns", "kept elements"),
    ]
    assert repr(report).splitlines() == [
        "kept forms written again: 2, 0.0164 MiB",
        "  int4: device order",
        "  2:4 learns: kept elements",
    ]


def test_what_is_no_module():
    with pytest.raises(TypeError) as excinfo:
        tcgemm.refresh_weights(torch.ones(3))
    assert str(excinfo.value) == (
        "tcgemm.refresh_weights: model must be a torch.nn.Module, but is Tensor; pass the layer, "
        "or a module that has it."
    )
