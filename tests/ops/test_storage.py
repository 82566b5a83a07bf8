"""A tensor whose storage ends before the tensor does is refused by every operator.

FSDP frees parameters between their uses with untyped_storage().resize_(0). Without the check the
product reads memory that belongs to nobody, and the process may die.
"""

import pytest
import torch

import tcgemm

from support.cases import gpu
from support.error_asserts import assert_error_message
from support.operator_calls import IDS, OPS, ROWS, WITH_OUT, operator_call, result

# The terms of test_operand's b are empty, so they need no storage.
ROWS = [(call, name) for call, name in ROWS if name != "terms_b"]
IDS = [name for name in IDS if not name.endswith("-terms_b")]
X = (3, 8)
SINGLE = {
    "quantize": lambda x: OPS.quantize(x, torch.int8, "row"),
    "prepare": OPS.prepare,
    "compress24": lambda w: OPS.compress24(w, "1:2", True),
    "prune24": lambda w: OPS.prune24(w, "1:2"),
    "tile24": lambda w: OPS.tile24(w.view(torch.uint8), 256, "1:2", torch.float32),
}


def free_storage(tensor):
    tensor.untyped_storage().resize_(0)
    return tensor


def shrunk(tensor):
    """The same elements behind one more, in a storage that lacks the last byte."""
    whole = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    view = whole[1:].view(tensor.shape)
    whole.untyped_storage().resize_(whole.nbytes - 1)
    return view


SPOILS = [free_storage, shrunk]


def pieces(name):
    return [f": {name} of shape", "needs a storage of", "but its storage has", "fill it again"]


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
def test_operand(call, name, spoil):
    op, tensors, options = operator_call(call)
    tensors[name] = spoil(tensors[name])
    shown = "sparse_b" if name == "metadata" and call.endswith("_linear24") else name
    if call == "quantized_linear":  # torch refuses to transpose the weight and its scale
        with pytest.raises(RuntimeError, match=r"needs a storage of|out of bounds for storage"):
            op(**tensors, **options)
    else:
        assert_error_message(lambda: op(**tensors, **options), pieces(shown))


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("call", WITH_OUT)
def test_out(call, spoil):
    op, tensors, options = operator_call(call)
    out = spoil(result(call))
    assert_error_message(lambda: op.out(**tensors, **options, out=out), pieces("out"))


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("name", SINGLE)
def test_single_tensor(name, spoil):
    with pytest.raises(RuntimeError, match=r"needs a storage of .* but its storage has"):
        SINGLE[name](spoil(torch.ones(X)))


@pytest.mark.parametrize("device", ["cpu", gpu("cuda")])
def test_as_users_meet_it(device):
    """The functions and a layer, as FSDP leaves its parameters."""
    x = torch.randn(4, 16, device=device)
    layer = tcgemm.nn.Linear(16, 8, device=device)
    free_storage(layer.weight.data)
    weight = ["tcgemm.linear: weight of shape (8, 16)", "512 bytes", "has 0", "fill it again"]
    assert_error_message(lambda: layer.train()(x), weight)
    if device == "cuda":  # the layer prepares its weight first
        weight = ["tcgemm.prepare: w of shape (8, 16)", *weight[1:]]
    assert_error_message(lambda: layer.eval()(x), weight)
    assert_error_message(lambda: tcgemm.mm(free_storage(x.clone()), x.t()), pieces("a"))


def test_rows_far_apart():
    """Few elements of a long storage, which is cut to their number."""
    whole = torch.zeros(400)
    a = whole.as_strided((4, 8), (100, 1))
    whole.untyped_storage().resize_(a.nbytes)
    sentence = "with strides (100, 1) needs a storage of 1232 bytes"
    assert_error_message(lambda: tcgemm.mm(a, torch.zeros(8, 4)), [sentence, "has 128"])


def test_views_inside_of_their_storage():
    """The last byte counts: these views end where their storage ends."""
    whole = torch.randn(40)
    tail = whole[8:].view(4, 8)
    assert torch.equal(tcgemm.mm(tail, tail.t()), tcgemm.mm(tail.clone(), tail.clone().t()))
    row = torch.randn(8).expand(4, 8)
    assert torch.equal(tcgemm.mm(row, tail.t()), tcgemm.mm(row.clone(), tail.t()))
    empty = free_storage(torch.zeros(0, 8))
    assert tcgemm.mm(empty, tail.t()).shape == (0, 4)
    assert tcgemm.mm(free_storage(torch.zeros(4, 0)), free_storage(torch.zeros(0, 4))).sum() == 0
