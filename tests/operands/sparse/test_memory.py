"""Access to the memory of a SparseTensor24: shared memory, dlpack, data, its parts."""

import multiprocessing
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

import tcgemm
from tcgemm import SparseTensor24

from support.cases import reloaded
from support.error_asserts import assert_error_message, error_message


def sparse(rows=8, k=16, **options):
    return tcgemm.compress24(torch.randn(rows, k).half(), prune=True, **options)


def double(w):
    w.mul_(2)


@pytest.mark.parametrize("options", [{}, {"transposable": True}])
def test_shared_memory(options):
    w = sparse(**options)
    assert not w.is_shared()
    assert w.share_memory_() is w and w.is_shared()
    assert all(tensor.is_shared() for tensor in w.tensors().values())
    before = w.to_dense()
    process = multiprocessing.get_context("fork").Process(target=double, args=(w,))
    process.start()
    process.join()
    assert process.exitcode == 0 and torch.equal(w.to_dense(), 2 * before)
    copy = ForkingPickler.loads(ForkingPickler.dumps(w))
    copy.zero_()
    assert torch.equal(w.to_dense(), torch.zeros(8, 16).half())


@pytest.mark.parametrize("learns", [False, True])
def test_a_layer_in_shared_memory(learns):
    layer = tcgemm.nn.SparseLinear24(16, 8, learns=learns)
    expected = layer(torch.ones(2, 16))
    assert layer.share_memory() is layer and layer.compressed.is_shared()
    assert layer.bias.is_shared() and torch.equal(layer(torch.ones(2, 16)), expected)


def test_functions_that_need_memory_are_refused():
    w = sparse()
    for call in (
        lambda: torch.from_dlpack(w),
        lambda: w.__dlpack__(),
        lambda: w.apply_(lambda value: value),
        lambda: w.map_(w, lambda first, second: first),
        lambda: w.map2_(w, w, lambda first, second, third: first),
    ):
        assert_error_message(call, ["tcgemm.SparseTensor24", "needs a dense tensor's memory"])
    # These do not ask a subclass: torch's own sentence.
    assert "Cannot access data pointer" in error_message(lambda: torch.utils.dlpack.to_dlpack(w))
    assert "not supported for tensor subclasses" in error_message(w.numpy)


def test_the_address_is_that_of_the_values():
    w = sparse()
    assert w.data_ptr() == w.values.data_ptr() == w.t().data_ptr() != w.clone().data_ptr()


def test_data():
    """Code of torch's modules writes `parameter.data = ...`."""
    w, other = torch.nn.Parameter(sparse()), sparse(4, 32, transposable=True).float()
    x = torch.randn(2, 16).half()
    with torch.no_grad():
        before = torch.nn.functional.linear(x, w)
        w.data = w.data * 2
        assert torch.equal(torch.nn.functional.linear(x, w), 2 * before)
    w.data = other
    assert isinstance(w, torch.nn.Parameter) and w.requires_grad and w.shape == (4, 32)
    assert w.pattern == other.pattern and torch.equal(w.to_dense(), other.to_dense())
    assert torch.equal(w.t().to_dense(), other.to_dense().t())
    assert_error_message(lambda: setattr(w, "data", torch.randn(4, 32)), ["but is a Tensor"])


def test_parts_that_are_no_parts():
    w, make = sparse(), SparseTensor24.from_parts
    values, metadata, empty = w.values, w.metadata, w.values.clone()
    empty.untyped_storage().resize_(0)
    for call, pieces in (
        (lambda: make(None, None, 16), ["values must be a torch.Tensor, but came NoneType"]),
        (lambda: make(values, None, 16), ["metadata must be a torch.Tensor"]),
        (lambda: make([1.0], metadata, 16), ["values must be a torch.Tensor, but came list"]),
        (lambda: make(w, metadata, 16), ["dense, strided tensor, but came SparseTensor24"]),
        (lambda: make(values.to_sparse(), metadata, 16), ["but came torch.sparse_coo"]),
        (lambda: make(values[0], metadata[0], 16), ["two dimensions, but came shape (8,)"]),
        (lambda: make(values, metadata[0, 0], 16), ["two dimensions, but came shape ()"]),
        (lambda: make(values, metadata, None), ["k must be", "but came None"]),
        (lambda: make(values, metadata, 16.0), ["k must be", "but came 16.0"]),
        (lambda: make(values[:, :0], metadata[:, :0], -1), ["k must be", "but came -1"]),
        (lambda: make(values, metadata, 16, ["2:4"]), ["pattern must be", "but came ['2:4']"]),
        (
            lambda: make(values, metadata, 16, transpose=values),
            ["transpose must be a pair", "Tensor"],
        ),
        (
            lambda: make(values, metadata, 16, transpose=(values, 3)),
            ["metadata of transpose", "int"],
        ),
        (
            lambda: make(values, metadata, 16, transpose=(values[:, :4], metadata[:, :1])),
            ["the transpose of a matrix of k = 16", "has 16 rows", "of shape (8, 4)"],
        ),
        (lambda: make(empty, metadata, 16), ["values must be inside their storage", "was freed"]),
        (lambda: make(values.clone().requires_grad_(), metadata, 16), ["must not need a gradient"]),
    ):
        assert_error_message(call, pieces)
    restore, arguments = sparse().__reduce_ex__(2)
    for place in range(6, 10):
        flags = [1 if at == place else argument for at, argument in enumerate(arguments)]
        assert_error_message(lambda flags=flags: restore(*flags), ["is damaged", "True or False"])
    restore, arguments = tcgemm.compress24(torch.ones(4, 8).char(), prune=True).__reduce_ex__(2)
    leaf = (*arguments[:8], True, False)
    assert_error_message(lambda: restore(*leaf), ["is damaged: torch.int8 needs a gradient"])
    tensor = make(values, metadata, 16, requires_grad=True)
    assert tensor.requires_grad and torch.equal(tensor.detach().to_dense(), w.to_dense())


def test_a_file_calls_nothing_but_the_checked_constructor():
    """torch.load(weights_only=True) takes tcgemm's function that checks what it gets, no class."""
    with pytest.raises(Exception, match="Unsupported global"):
        reloaded(SparseTensor24)
