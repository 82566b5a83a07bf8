"""prune24, compress24, and SparseTensor24 as a tensor: what it holds, copies, moves, arithmetic.

Products and gradients are in test_products.py, the bits of the format in
test_format.py.
"""

import copy
import functools
import pickle

import pytest
import torch

import tcgemm
from tcgemm import SparseTensor24

from support.cases import BF16, DEVICES, E4M3, E5M2, F16, F32, F64, NAMES, S8, U8, gpu, reloaded
from support.error_asserts import assert_error_message, error_message

DTYPES = (F16, BF16, F32, S8, U8, E4M3, E5M2)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
devices = pytest.mark.parametrize("device", DEVICES)


def dense(*shape, dtype=BF16, device="cpu"):
    low = 0 if dtype is U8 else -20
    return torch.randint(low, 20, shape).to(F32).to(dtype).to(device)


def sparse(*shape, dtype=BF16, device="cpu", **options):
    return tcgemm.compress24(dense(*shape, dtype=dtype, device=device), prune=True, **options)


def same(first, second):
    """Are two tensors, of any kind, equal in every bit?"""
    if isinstance(first, SparseTensor24):
        assert first.tensors().keys() == second.tensors().keys()
        assert first.pattern == second.pattern and first.transposed is second.transposed
        assert first.dense_gradient is second.dense_gradient and first.shape == second.shape
        return all(same(tensor, getattr(second, name)) for name, tensor in first.tensors().items())
    assert first.dtype is second.dtype and first.device == second.device
    return torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8))


# Pruning.


@devices
@every_dtype
def test_prune_by_magnitude(dtype, device):
    w = dense(6, 24, dtype=dtype, device=device)
    pattern = "1:2" if dtype is F32 else "2:4"
    group = int(pattern[-1])
    pruned = tcgemm.prune24(w)
    assert pruned.is_contiguous() and pruned.dtype is dtype and pruned.device == w.device
    sizes = w.float().abs().reshape(-1, group)
    order = sizes.argsort(dim=1, descending=True, stable=True)
    mask = torch.zeros_like(sizes, dtype=torch.bool).scatter_(1, order[:, : group // 2], True)
    expected = torch.where(mask.view(w.shape), w.float(), torch.zeros((), device=device))
    assert same(pruned, expected.to(dtype))
    assert same(tcgemm.prune24(w.t().contiguous().t()), pruned)
    if dtype is F32:
        four = tcgemm.prune24(w, pattern="2:4")
        assert ((four != 0).reshape(-1, 4).sum(1) <= 2).all() and not same(four, pruned)


@devices
def test_prune_in_both_directions(device):
    w = torch.randn(12, 20, device=device)
    pruned = tcgemm.prune24(w, method="transposable", pattern="2:4")
    for matrix in (pruned, pruned.t()):
        assert ((matrix != 0).reshape(matrix.shape[0], -1, 4).sum(2) <= 2).all()
    assert tcgemm.compress24(pruned.half(), transposable=True).transposable


@devices
@every_dtype
def test_prune_by_a_mask(dtype, device):
    w = dense(5, 14, dtype=dtype, device=device)
    mask = tcgemm.prune24(torch.rand(5, 14, device=device) + 1) != 0  # 1:2, which is 2:4 as well
    pruned = tcgemm.prune24(w, method="mask", mask=mask)
    expected = torch.where(mask, w.float(), torch.zeros((), device=device)).to(dtype)
    assert same(pruned, expected)
    mask[3, 8:11] = True
    group, first, limit = (2, 8, 1) if dtype is F32 else (4, 8, 2)
    text = error_message(lambda: tcgemm.prune24(w, method="mask", mask=mask))
    assert f"mask does not have the pattern {limit}:{group}" in text
    assert f"at row 3, column {first}" in text


@pytest.mark.parametrize("method", ["magnitude", "transposable", "mask"])
def test_pruning_lets_gradients_to_what_it_keeps(method):
    w = torch.randn(8, 8, requires_grad=True)
    mask = tcgemm.prune24(torch.rand(8, 8)) != 0 if method == "mask" else None
    pruned = tcgemm.prune24(w, method=method, mask=mask, pattern="2:4")
    pruned.backward(torch.full((8, 8), 3.0))
    assert torch.equal(w.grad, (pruned != 0) * 3.0)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_pruning_refuses():
    w, mask = torch.randn(4, 8), torch.zeros(4, 8, dtype=torch.bool)
    calls = (
        (lambda: tcgemm.prune24(w.double()), ["w is torch.float64", "must be a matrix"]),
        (lambda: tcgemm.prune24(w[0]), ["shape (8,)", "must be a matrix"]),
        (lambda: tcgemm.prune24(w, method="best"), ["method is 'best' without a mask"]),
        (lambda: tcgemm.prune24(w, mask=mask), ["method is 'magnitude' with a mask"]),
        (lambda: tcgemm.prune24(w, method="mask"), ["method is 'mask' without a mask"]),
        (lambda: tcgemm.prune24(w, method="mask", mask=mask[:2]), ["mask is torch.bool of shape"]),
        (lambda: tcgemm.prune24(w, pattern="4:8"), ["pattern is '4:8'", "'2:4'"]),
        (lambda: tcgemm.prune24(w.half(), pattern="1:2"), ["pattern is '1:2' for w of torch.flo"]),
    )
    for call, pieces in calls:
        assert_error_message(call, pieces)
    nested = torch.nested.nested_tensor([w, w])
    for pattern in ("", ["2:4"], 3):
        call = functools.partial(tcgemm.prune24, w, pattern=pattern)
        assert_error_message(call, [f"pattern is {pattern!r}"])
        call = functools.partial(SparseTensor24.from_parts, *sparse(4, 8).stored()[:2], 8, pattern)
        assert_error_message(call, ["pattern"])
    for function in (tcgemm.prune24, tcgemm.compress24):
        assert_error_message(functools.partial(function, nested), ["w is a nested", "w.unbind()"])
    with pytest.raises(TypeError, match=r"mask: dense must be a torch\.Tensor, but is list"):
        sparse(4, 8).mask([1.0])
    for call in (lambda: tcgemm.prune24([1.0]), lambda: tcgemm.compress24(None)):
        with pytest.raises(TypeError, match=r"w must be a torch\.Tensor"):
            call()


# Compression.


@devices
@every_dtype
@pytest.mark.parametrize("shape", [(8, 32), (3, 7), (1, 1), (5, 0), (0, 5), (130, 66)], ids=str)
def test_compression_is_exact(shape, dtype, device):
    w = tcgemm.prune24(dense(*shape, dtype=dtype, device=device))
    s = tcgemm.compress24(w)
    assert type(s) is SparseTensor24 and s.shape == w.shape and s.stride() == w.stride()
    assert s.dtype is dtype and s.device == w.device and not s.requires_grad
    assert s.pattern == ("1:2" if dtype is F32 else "2:4")
    assert same(s.to_dense(), w) and same(s.t().to_dense().t(), w)
    full = dense(*shape, dtype=dtype, device=device)
    assert same(tcgemm.compress24(full, prune=True).to_dense(), tcgemm.prune24(full))
    assert (s.tiles is None) is (device == "cpu")
    restored = SparseTensor24.from_parts(s.values, s.metadata, shape[1], s.pattern)
    assert same(restored, s)


def test_what_has_no_pattern_is_refused_where_it_begins():
    w = tcgemm.prune24(dense(9, 40).abs() + 1)
    w[4, 21:24] = 1
    w[7, :4] = 1
    assert_error_message(
        lambda: tcgemm.compress24(w),
        ["w does not have the pattern 2:4", "2 groups have more", "row 4, column 20", "prune=True"],
    )
    assert tcgemm.compress24(w, prune=True).values.shape == (9, 20)
    rows = tcgemm.prune24(torch.ones(8, 8, dtype=F16))
    assert_error_message(
        lambda: tcgemm.compress24(rows, transposable=True),
        ["w.t() does not have the pattern", "8 groups have more, the first at row 0, column 0"],
    )


def test_what_it_says_of_itself():
    s = sparse(48, 64)
    assert repr(s) == (
        "SparseTensor24(shape=(48, 64), pattern='2:4', dtype=torch.bfloat16, device='cpu', "
        "transposable=False, nbytes=3456)"
    )
    assert "transposed=True" in repr(s.t()) and "requires_grad=True" in repr(s.requires_grad_())
    assert "grad_fn=" in repr(s * 2) and "pattern='1:2'" in repr(sparse(8, 8, dtype=F32))
    assert s.t().shape == (64, 48) and s.t().t().shape == s.shape and s.T.shape == s.mT.shape
    assert s.dim() == 2 and s.numel() == 48 * 64 and not s.is_sparse and s.layout is torch.strided


def test_no_method_hides_one_of_torch():
    names = {name for name in vars(SparseTensor24) if not name.startswith("_")}
    assert {"from_parts", "mask", "stored", "tensors"} <= names
    assert not names & set(dir(torch.Tensor))


def test_parts_that_do_not_belong_together_are_refused():
    s = sparse(8, 32)
    make = SparseTensor24.from_parts
    unordered = s.metadata.clone()
    unordered[3, 2], unordered[5, 0] = 0x4A, 0x14
    beside = sparse(8, 36).metadata
    beside[7, 4] = 0x44
    halves = sparse(8, 10, dtype=F32)
    calls = (
        (lambda: make(s.values, unordered, 32), ["2 bytes of metadata", "row 3, byte 2"]),
        (lambda: make(sparse(8, 36).values, beside, 36), ["1 bytes", "row 7, byte 4"]),
        (
            lambda: make(halves.values, halves.metadata + 2, 10),
            ["16 bytes of metadata are not valid for pattern '1:2'"],
        ),
        (lambda: make(s.values, s.metadata, 36), ["k = 36", "(8, 18)", "came (8, 16)"]),
        (lambda: make(s.values, s.metadata.int(), 32), ["metadata of uint8", "torch.int32"]),
        (lambda: make(s.values, s.metadata, 32, "1:2"), ["torch.bfloat16 of pattern '1:2'"]),
        (lambda: make(s.values, s.metadata, 32, "4:8"), ["pattern is '4:8'"]),
        (lambda: make(s.values.double(), s.metadata, 32), ["values are torch.float64"]),
        (lambda: s.mask(torch.zeros(8, 31)), ["shape (8, 31) cannot be masked"]),
        (lambda: torch.ops.tcgemm.to_dense24(s.values), ["take a SparseTensor24, but came Tensor"]),
    )
    for call, pieces in calls:
        assert_error_message(call, pieces)


# Copies, moves, conversions.


def variants(device="cpu"):
    plain = sparse(12, 20, device=device)
    both = sparse(12, 20, device=device, transposable=True, dense_gradient=True)
    one = sparse(6, 10, dtype=F32, device=device)
    return (plain, plain.t(), both, both.t(), one, one.t())


@devices
def test_copies(device):
    for s in variants(device):
        for leaf in (False, True):
            s = s.detach().requires_grad_(leaf)
            loaded = reloaded({"w": s})["w"]
            for other in (copy.deepcopy(s), pickle.loads(pickle.dumps(s)), loaded):
                assert type(other) is SparseTensor24 and same(other, s)
                assert other.requires_grad is leaf and other.is_leaf
                assert other.values.data_ptr() != s.values.data_ptr()
        assert same(s.clone(), s) and s.clone().metadata.data_ptr() != s.metadata.data_ptr()
        assert s.detach().values is s.values


def test_a_later_format_is_refused():
    rebuild, (version, *parts) = sparse(8, 16).__reduce_ex__(2)
    assert rebuild(version, *parts).shape == (8, 16)
    assert_error_message(lambda: rebuild(version + 1, *parts), ["has version 2", "reads version 1"])


def test_parameters_stay_parameters():
    parameter = torch.nn.Parameter(sparse(8, 16))
    module = torch.nn.Module()
    module.w = parameter
    assert dict(module.named_parameters())["w"] is parameter and parameter.requires_grad
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert isinstance(other.w, torch.nn.Parameter) and same(other.w.data, parameter.data)
    state = module.state_dict()
    other.load_state_dict(state)
    other.load_state_dict({"w": tcgemm.prune24(dense(8, 16))})  # a dense one with the pattern
    assert not same(other.w.data, parameter.data)
    other.half()
    assert other.w.dtype is F16 and isinstance(other.w, torch.nn.Parameter)
    other.to("meta")
    assert other.w.is_meta and other.w.values.is_meta
    other.to_empty(device="cpu").load_state_dict(state)
    assert torch.equal(other.w.to_dense(), parameter.half().to_dense())


@pytest.mark.gpu
def test_moves_to_a_gpu_and_back():
    for s in variants():
        on_gpu = s.cuda()
        assert on_gpu.device.type == "cuda" and on_gpu.tiles.device.type == "cuda"
        assert same(on_gpu.cpu(), s) and same(on_gpu.to_dense().cpu(), s.to_dense())
        assert (on_gpu.transposed_tiles is not None) is s.transposable
        assert same(reloaded(on_gpu, map_location="cpu"), s)
        target = torch.zeros_like(on_gpu)
        assert same(target.copy_(s), on_gpu)


@devices
@pytest.mark.parametrize("k", range(1, 20))
def test_conversions(k, device):
    s = sparse(5, k, dtype=F32, device=device)
    for dtype in (BF16, F16, S8, E4M3):
        other = s.to(dtype)
        assert other.pattern == "2:4" and other.shape == s.shape
        assert same(other.to_dense(), s.to_dense().to(dtype))
        columns = (k + 3) // 4 * 2
        codes = other.metadata.reshape(5, -1, 1) >> torch.tensor([0, 2, 4, 6], device=device) & 3
        codes = codes.reshape(5, -1)
        assert (codes[:, columns:] == 0).all()
        assert (
            codes[:, :columns:2] < codes[:, 1:columns:2]
        ).all()  # in the order of the tensor cores
        back = other.float()
        assert back.pattern == "2:4" and same(back.to_dense(), s.to_dense().to(dtype).float())
    assert s.to(F32) is s and s.to(BF16).half().pattern == "2:4"
    both = sparse(8, k, device=device, transposable=True).to(F16)
    assert both.transposable and same(both.t().to_dense(), both.to_dense().t())


def test_conversions_that_are_not_there():
    assert_error_message(
        lambda: sparse(8, 8).double(), ["converted to torch.float64", "convert its to_dense()"]
    )
    assert sparse(8, 8).to(torch.float16, copy=True).dtype is F16


@devices
def test_copying_into(device):
    for s in variants(device):
        other = s.detach() * 3
        before = {name: tensor.data_ptr() for name, tensor in s.tensors().items()}
        assert s.copy_(other) is s and same(s, other)
        assert {name: tensor.data_ptr() for name, tensor in s.tensors().items()} == before
        s.copy_((other * 2).to_dense())
        assert torch.equal(s.to_dense(), other.to_dense() * 2)
    s = sparse(12, 20, device=device)
    s.copy_(sparse(12, 20, device=device).half())
    full = torch.ones(12, 20, device=device)
    assert torch.equal(full.copy_(s), s.to_dense().float())
    assert_error_message(lambda: s.copy_(torch.ones_like(full)), ["does not have the pattern 2:4"])
    assert_error_message(lambda: s.copy_(full[:4]), ["shape (4, 20) cannot be copied"])


# Arithmetic.


@devices
def test_arithmetic_that_keeps_zeros(device):
    for s in variants(device):
        d = s.to_dense()
        other = s * 0.5
        factor = dense(*s.shape, dtype=s.dtype, device=device)
        one = torch.tensor(3.0, device=device)
        for result, expected in (
            (s * 2, d * 2),
            (2 * s, 2 * d),
            (s / 4, d / 4),
            (-s, -d),
            (s.abs(), d.abs()),
            (s * one, d * one),
            (s * factor, d * factor),
            (factor * s, d * factor),
            (s + other, d + other.to_dense()),
            (s.sub(other, alpha=2), d - d),
            (torch.zeros_like(s), torch.zeros_like(d)),
        ):
            assert type(result) is SparseTensor24 and torch.equal(result.to_dense(), expected)
            assert torch.equal(result.t().to_dense(), expected.t())
        assert type(s + factor) is torch.Tensor and torch.equal(s + factor, d + factor)
        assert torch.equal(s - sparse(*s.shape, dtype=s.dtype, device=device) + d, s + d) is False


@devices
def test_arithmetic_in_place_stays_at_the_kept_positions(device):
    for s in variants(device):
        mask = s.mask(torch.ones(s.shape, dtype=s.dtype, device=device)).to_dense()
        other = dense(*s.shape, dtype=s.dtype, device=device)
        steps = (
            (lambda t, other: t.mul_(2), lambda d, other: d * 2),
            (lambda t, other: t.div_(4), lambda d, other: d / 4),
            (lambda t, other: t.add_(other, alpha=-2), lambda d, other: d - 2 * other),
            (lambda t, other: t.sub_(t.detach().clone()), lambda d, other: d - d),
            (lambda t, other: t.add_(other), lambda d, other: d + other),
            (lambda t, other: t.zero_(), lambda d, other: d * 0),
            (lambda t, other: t.add_(3), lambda d, other: d + 3),
            (lambda t, other: t.sub_(1, alpha=2), lambda d, other: d - 2),
            (lambda t, other: t.lerp_(other, 0.5), lambda d, other: d.lerp(other, 0.5)),
            (
                lambda t, other: t.addcmul_(other, t.detach().clone(), value=2),
                lambda d, other: d + 2 * other * d,
            ),
            (
                lambda t, other: t.addcdiv_(other, t.detach().clone().zero_().add_(2), value=4),
                lambda d, other: d + 2 * other,
            ),
        )
        for work, reference in steps:
            d = reference(s.to_dense(), other) * mask
            assert work(s, other) is s and torch.equal(s.to_dense(), d)
            if s.transposable:
                parts = (*s.stored(True)[:2], s.stored_shape[0], s.pattern)
                transposed = torch.ops.tcgemm.decompress24(*parts)
                assert torch.equal(transposed, d if s.transposed else d.t())


def test_what_is_not_there_says_so():
    s = sparse(8, 16)
    for call in (
        lambda: s.exp(),
        lambda: s.view(16, 8),
        lambda: s.sum(),
        lambda: s[0],
        lambda: tcgemm.prepare(s),
        lambda: tcgemm.quantize(s, S8),
        lambda: tcgemm.compress24(s),
    ):
        with pytest.raises(NotImplementedError, match=r"tcgemm.SparseTensor24: .*to_dense\(\)"):
            call()


@pytest.mark.parametrize("target", ["meta", gpu("cuda")])
def test_other_devices_have_the_same_parts(target):
    for s in variants():
        on_target = s.to(target)
        assert on_target.pattern == s.pattern and on_target.shape == s.shape
        for name in ("values", "metadata"):
            assert getattr(on_target, name).shape == getattr(s, name).shape
            assert getattr(on_target, name).device.type == target
    assert sparse(8, 8).to("meta").half().is_meta


def test_gradients_of_what_makes_and_unmakes_it():
    w = torch.randn(6, 10, requires_grad=True)
    s = tcgemm.compress24(w, prune=True)
    assert s.requires_grad and not s.is_leaf
    factor = torch.randn(6, 10)
    (s.to_dense() * factor).sum().backward()
    mask = s.detach().to_dense() != 0
    assert torch.equal(w.grad, factor * mask)
    leaf = s.detach().requires_grad_()
    (leaf.to_dense() * factor).sum().backward()
    assert type(leaf.grad) is SparseTensor24 and leaf.grad.metadata is leaf.metadata
    assert torch.equal(leaf.grad.to_dense(), factor * mask)
    (leaf.half().float() * 2).to_dense().sum().backward()
    assert torch.equal(leaf.grad.to_dense(), factor * mask + 2 * mask)
    template = tcgemm.compress24(w.detach(), prune=True, dense_gradient=True)
    w.grad = None
    (template.mask(w).to_dense() * factor).sum().backward()
    assert torch.equal(w.grad, factor)
    assert torch.autograd.gradcheck(
        lambda d: tcgemm.compress24(d, prune=True).to_dense(),
        torch.randn(3, 6, dtype=F32).requires_grad_(),
        eps=2**-6,
        atol=2**-8,
        raise_exception=True,
    )
    assert F64 not in DTYPES  # hence the coarse steps
