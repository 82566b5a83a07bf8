"""PackedWeight as an object: its parts, copies, moves, saved files and the order that it keeps."""

import copy
import io
import pickle

import pytest
import torch

import tcgemm

from support.cases import DEVICES
from support.packed_weight_cases import CASES, IDS, bits

NAMES = ("codes", "scales", "zero_points", "offsets", "table", "global_scale")
X = torch.ones(2, 256).half()


def parts_of(packed):
    return {name: getattr(packed, name) for name in NAMES}


def assert_same(weight, expected):
    for name in ("shape", "format", "group_size", "dtype", "transposed"):
        assert getattr(weight, name) == getattr(expected, name), name
    for name, tensor in parts_of(expected).items():
        value = getattr(weight, name)
        if tensor is None:
            assert value is None
        else:
            assert value.dtype is tensor.dtype
            assert torch.equal(bits(value.cpu()), bits(tensor.cpu()))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_copies_and_saved_files(case):
    packed = case.pack(torch.randn(6, 256).half())
    tcgemm.linear(X, packed)
    file = io.BytesIO()
    torch.save({"w": packed, "t": packed.t()}, file)
    assert len(file.getvalue()) < packed.nbytes + 8000  # without the device order
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert_same(loaded["t"], packed.t())
    for weight in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed)), loaded["w"]):
        assert_same(weight, packed)
        assert weight.codes.data_ptr() != packed.codes.data_ptr()
        assert torch.equal(tcgemm.linear(X, weight), tcgemm.linear(X, packed))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_parts_make_the_weight_again(case):
    packed = case.pack(torch.randn(6, 256))
    weight = tcgemm.PackedWeight.from_parts(
        **parts_of(packed),
        format=case.format,
        k=256,
        group_size=case.group_size,
        dtype=packed.dtype,
    )
    assert_same(weight, packed)
    assert weight.codes.data_ptr() == packed.codes.data_ptr()


@pytest.mark.parametrize("device", DEVICES)
def test_moves_and_dtypes(device):
    packed = tcgemm.pack_weight(torch.randn(6, 256), "nvfp4")
    weight = packed.to(device)
    assert weight.device.type == device and weight.to(device) is weight
    assert_same(weight.cpu(), packed)
    half = packed.half()
    assert half.dtype is torch.float16 and half.dequantize().dtype is torch.float16
    assert half.codes is packed.codes and half.scales.dtype is torch.float8_e4m3fn
    assert packed.bfloat16().dtype is torch.bfloat16 and packed.to(torch.float32) is packed
    assert packed.to(device, torch.float16).dtype is torch.float16
    assert packed.to("meta").device.type == "meta"


def test_a_transpose_shares_everything():
    packed = tcgemm.pack_weight(torch.randn(6, 256), "int4")
    order = packed.arranged()
    transpose = packed.t()
    assert transpose.shape == (256, 6) and transpose.dim() == 2
    assert transpose.arranged() is order and transpose.t().shape == packed.shape
    assert torch.equal(transpose.dequantize(), packed.dequantize().t())
    packed.scales = packed.scales * 2
    assert transpose.scales is packed.scales and transpose.arranged() is not order


def changes():
    """Changes of a weight by their names."""

    def in_place(packed):
        packed.codes.bitwise_xor_(17)

    def scales(packed):
        packed.scales.mul_(2)

    def table(packed):
        packed.table.neg_()

    def replaced(packed):
        packed.scales = packed.scales.clone() * 3

    def memory(packed):
        packed.codes.data = packed.codes ^ 17

    return (in_place, scales, table, replaced, memory)


@pytest.mark.parametrize("change", changes(), ids=lambda function: function.__name__)
def test_a_product_sees_every_change(change):
    packed = tcgemm.pack_weight(torch.randn(6, 256).half(), "nf4")
    before = tcgemm.linear(X, packed)
    order = packed.arranged()
    assert packed.arranged() is order
    change(packed)
    after = tcgemm.linear(X, packed)
    assert torch.equal(after, tcgemm.linear(X, packed.dequantize()))
    assert not torch.equal(after, before) and packed.arranged() is not order


def test_a_weight_of_inference_mode():
    with torch.inference_mode():
        packed = tcgemm.pack_weight(torch.randn(6, 256).half(), "int4", 32)
        expected = tcgemm.linear(X, packed)
    x = X.clone().requires_grad_()
    out = tcgemm.linear(x, packed)
    out.sum().backward()
    assert torch.equal(out, expected) and x.grad is not None


def test_an_order_made_in_inference_mode_serves_gradients():
    packed = tcgemm.pack_weight(torch.randn(6, 256).half(), "int4", 32)
    with torch.inference_mode():
        tcgemm.linear(X, packed)
    x = X.clone().requires_grad_()
    tcgemm.linear(x, packed).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_released_codes_are_read_from_the_order(case):
    packed = case.pack(torch.randn(6, 256).half())
    copy_of_it = copy.deepcopy(packed)
    expected, nbytes = tcgemm.linear(X, packed), packed.nbytes
    packed.release_codes()
    packed.release_codes()
    assert packed.stored.tensors.codes.numel() == 0 and packed.nbytes == nbytes
    assert_same(packed, copy_of_it)
    assert torch.equal(tcgemm.linear(X, packed), expected)
    assert torch.equal(packed.dequantize(), copy_of_it.dequantize())
    for weight in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed)), packed.to("cpu")):
        assert_same(weight, copy_of_it)
    assert packed.bfloat16().codes.shape == copy_of_it.codes.shape
    x = X.clone().requires_grad_()
    assert torch.autograd.grad(tcgemm.linear(x, packed).sum(), x)[0].isfinite().all()
    if packed.scales.dtype is torch.float16:
        packed.scales.mul_(2)
        copy_of_it.scales.mul_(2)
        assert torch.equal(tcgemm.linear(X, packed), tcgemm.linear(X, copy_of_it))
        assert_same(packed, copy_of_it)
    packed.codes = copy_of_it.codes
    assert packed.stored.released is None
    assert torch.equal(tcgemm.linear(X, packed), tcgemm.linear(X, copy_of_it))


def test_codes_are_not_released_where_no_order_is_kept():
    with torch._subclasses.fake_tensor.FakeTensorMode():
        packed = tcgemm.pack_weight(torch.randn(6, 256).half(), "int4", 32)
        with pytest.raises(RuntimeError) as excinfo:
            packed.release_codes()
    assert str(excinfo.value) == (
        "tcgemm.PackedWeight.release_codes: no order of the kernels is kept inside torch.compile "
        "or the capture of a CUDA graph, nor for fake tensors; call it before."
    )


@pytest.mark.gpu
def test_a_captured_graph_keeps_no_order():
    packed = tcgemm.pack_weight(torch.randn(6, 256).half().cuda(), "int4", 32)
    x = X.cuda()
    other = tcgemm.pack_weight(torch.randn(6, 256).half().cuda(), "int4", 32)
    tcgemm.linear(x, other)  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = tcgemm.linear(x, packed)
    assert not packed.stored.form.tensors
    graph.replay()
    assert torch.equal(out, tcgemm.linear(x, packed))


def test_repr_and_size():
    packed = tcgemm.pack_weight(torch.randn(6, 256).half(), "int4", 32)
    assert packed.nbytes == 6 * 128 + 6 * 8 * 2
    assert repr(packed) == (
        "PackedWeight(shape=(6, 256), format='int4', group_size=32, dtype=torch.float16, "
        "device='cpu', nbytes=864)"
    )
