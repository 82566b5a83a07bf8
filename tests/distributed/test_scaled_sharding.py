"""Products with scales, quantize, quantized_linear and 2:4 conversions of DTensors."""

import itertools

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import tcgemm

from support import processes
from support.error_asserts import error_message
from support.processes import in_processes

R, S0, S1 = Replicate(), Shard(0), Shard(1)
E4M3, S8 = torch.float8_e4m3fn, torch.int8
M, N, K = 256, 130, 256
OPS = torch.ops.tcgemm


def place(tensor, placement, devices):
    """gloo sends no float8, so its bytes are distributed."""
    if tensor.dtype is not E4M3:
        return distribute_tensor(tensor, devices, [placement])
    local = distribute_tensor(tensor.view(S8), devices, [placement]).to_local().view(E4M3)
    return DTensor.from_local(local, devices, [placement], run_check=False)


def full(tensor):
    assert isinstance(tensor, DTensor)
    if tensor.dtype is not E4M3 or tensor.placements == (R,):
        return tensor.full_tensor()
    local, mesh = tensor.to_local().view(S8), tensor.device_mesh
    return DTensor.from_local(local, mesh, tensor.placements).full_tensor().view(E4M3)


def integers(*shape):
    return torch.randint(-3, 4, shape).float().to(processes.device())


def normal(*shape):
    return torch.randn(shape).to(processes.device())


def operands(dtype, granularity):
    """(a, b, their scales), whose scaled sums are exact: small integers, and powers of two."""
    a, b = integers(M, K).to(dtype), integers(N, K).to(dtype)
    shapes = {
        "tensor": ((), ()),
        "row": ((M, 1), (N, 1)),
        "1x128": ((M, K // 128), (N, K // 128)),
        "128x128": ((M, K // 128), (-(-N // 128), K // 128)),
    }[granularity]
    scales = [2.0 ** torch.randint(-2, 3, shape).float().to(a.device) for shape in shapes]
    return a, b, scales


def products(rank, dtype, granularity):
    devices = processes.mesh()
    a, b, (scale_a, scale_b) = operands(dtype, granularity)
    if granularity == "tensor":
        cases = [(S0, R, R, R, S0), (R, S0, R, R, S1), (S1, S1, R, R, Partial())]
    elif granularity == "row":
        cases = [(S0, R, S0, R, S0), (R, S0, R, S0, S1), (S1, S1, R, R, Partial())]
    elif granularity == "1x128":
        cases = [(S0, R, S0, R, S0), (R, S0, R, S0, S1)]
    else:
        cases = [(S0, R, S0, R, S0)]
    for bias, residual in ((None, None), (integers(N), integers(M, N))):
        options = {"out_dtype": torch.float32}
        expected = tcgemm.mm(
            a, b.t(), scale_a=scale_a, scale_b=scale_b.t(), bias=bias, residual=residual, **options
        )
        addends = [None if x is None else place(x, R, devices) for x in (bias, residual)]
        for of_a, of_b, of_scale_a, of_scale_b, out in cases:
            result = tcgemm.mm(
                place(a, of_a, devices),
                place(b, of_b, devices).t(),
                scale_a=place(scale_a, of_scale_a, devices),
                scale_b=place(scale_b, of_scale_b, devices).t(),
                bias=addends[0],
                residual=addends[1],
                **options,
            )
            assert result.placements == (out,), (of_a, of_b, result.placements)
            assert torch.equal(full(result), expected)


@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128", "128x128"])
@pytest.mark.parametrize("dtype", [E4M3, S8], ids=str)
def test_products_with_scales(dtype, granularity, device):
    if dtype is S8 and granularity in ("1x128", "128x128"):
        pytest.skip("int8 has no blocks")
    processes.run(products, dtype, granularity, device=device)


@pytest.mark.parametrize("granularity", ["tensor", "row"])
@in_processes
def test_gradients_of_products_with_scales(rank, granularity):
    """Operands of usual dtypes have gradients; the scales are constants."""
    devices = processes.mesh()
    a, b, bias, residual = integers(7, 9), integers(9, 5), integers(5), integers(7, 5)
    shapes = ((7, 1), (1, 5)) if granularity == "row" else ((), ())
    scales = [2.0 ** torch.randint(-2, 3, shape).float().to(a.device) for shape in shapes]
    rows, columns = (S0, S1) if granularity == "row" else (R, R)
    sums = [(S1, S0, R, R, Partial())] if granularity == "tensor" else []
    cases = [(S0, R, rows, R, S0), (R, S1, R, columns, S1), *sums]
    for activation in (None, "relu"):
        leaves = [tensor.clone().requires_grad_() for tensor in (a, b, bias, residual)]
        expected = scaled(*leaves, *scales, activation)
        exact = torch.autograd.grad(expected.square().sum(), leaves)
        for of_a, of_b, of_scale_a, of_scale_b, out in cases:
            at = (of_a, of_b, R, R)
            inputs = [
                place(*tensor, devices) for tensor in zip((a, b, bias, residual), at, strict=True)
            ]
            inputs = [tensor.requires_grad_() for tensor in inputs]
            constants = map(place, scales, (of_scale_a, of_scale_b), [devices] * 2)
            result = scaled(*inputs, *constants, activation)
            if activation is None:
                assert result.placements == (out,)
            assert torch.equal(full(result), expected)
            results = torch.autograd.grad(result.square().sum(), inputs)
            assert all(map(torch.equal, map(full, results), exact)), (of_a, of_b)


def scaled(a, b, bias, residual, scale_a, scale_b, activation):
    options = {"bias": bias, "residual": residual, "activation": activation}
    return tcgemm.mm(a, b, scale_a=scale_a, scale_b=scale_b, **options)


@in_processes
def test_rounded_results_are_no_sums(rank):
    """A result that is not the sum of its parts comes from whole operands, or from other shards."""
    devices = processes.mesh()
    a, b, (scale_a, scale_b) = operands(S8, "row")
    for options in ({"activation": "relu", "out_dtype": torch.float32}, {"out_dtype": S8}):
        scales = {"scale_a": scale_a / 2, "scale_b": scale_b.t()}
        expected = tcgemm.mm(a, b.t(), **scales, **options)
        scales = {name: place(tensor, R, devices) for name, tensor in scales.items()}
        operand_a, operand_b = place(a, S1, devices), place(b, S1, devices).t()
        result = tcgemm.mm(operand_a, operand_b, **scales, **options)
        assert result.placements != (Partial(),)
        assert torch.equal(full(result), expected)


@in_processes
def test_amax_is_the_largest_of_all_processes(rank):
    devices = processes.mesh()
    a, b = integers(M, K).half(), integers(N, K).half()
    expected, amax = tcgemm.mm(a, b.t(), amax=True)
    for of_a, of_b, out in ((S0, R, S0), (R, S0, S1)):
        result, maximum = tcgemm.mm(place(a, of_a, devices), place(b, of_b, devices).t(), amax=True)
        assert result.placements == (out,) and maximum.placements == (Partial("max"),)
        assert torch.equal(full(result), expected) and torch.equal(full(maximum), amax)


@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128", "128x128"])
@in_processes
def test_quantize(rank, granularity):
    devices = processes.mesh()
    x = normal(4, M, K)
    x *= torch.logspace(-2, 2, K, device=x.device)
    values, scale = tcgemm.quantize(x, S8, granularity)
    for dim in range(3):
        parts_of_x = tcgemm.quantize(place(x, Shard(dim), devices), S8, granularity)
        is_sharded = granularity != "tensor" and dim < (1 if granularity == "128x128" else 2)
        if is_sharded:
            assert [tensor.placements for tensor in parts_of_x] == [(Shard(dim),)] * 2
        assert torch.equal(full(parts_of_x[0]), values) and torch.equal(full(parts_of_x[1]), scale)
        outputs = tcgemm.quantize(
            place(x, Shard(dim), devices),
            S8,
            granularity,
            scale=place(scale, Shard(dim) if is_sharded else R, devices),
            amax=True,
        )
        assert torch.equal(full(outputs[0]), values)
        _, _, amax = tcgemm.quantize(x, S8, granularity, scale=scale, amax=True)
        assert torch.equal(full(outputs[2]), amax)
        if granularity == "tensor":
            assert outputs[0].placements == (Shard(dim),)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("granularity", ["tensor", "row", "128x128"])
@in_processes
def test_quantized_linear(rank, granularity, prepared):
    devices = processes.mesh()
    x, weight = normal(2, 128, K), normal(N, K)
    bias, residual = normal(N), normal(2, 128, N)
    scale, options = None, {"granularity": granularity, "activation": "gelu"}
    if prepared:
        weight, scale = tcgemm.quantize(weight, E4M3, granularity)
    leaves = [x, bias, residual] + ([] if prepared else [weight])
    for placements in itertools.product((R, Shard(0), Shard(1)), (R, Shard(0))):
        plain = [tensor.clone().requires_grad_() for tensor in leaves]
        own = [
            place(tensor, placement, devices).requires_grad_()
            for tensor, placement in zip(leaves, (placements[0], R, R, placements[1]), strict=False)
        ]
        results = []
        for x_, bias_, residual_, *weight_ in (plain, own):
            distributed = isinstance(x_, DTensor)
            scale_ = place(scale, R, devices) if distributed and prepared else scale
            w = weight_[0] if weight_ else place(weight, R, devices) if distributed else weight
            out = tcgemm.quantized_linear(
                x_, w, bias_, residual=residual_, weight_scale=scale_, **options
            )
            g = torch.ones(out.shape, device=x.device)
            g = place(g, R, devices) if distributed else g
            results.append([out, *torch.autograd.grad(out, [x_, bias_, residual_, *weight_], g)])
        for exact_result, result in zip(*results, strict=True):
            # DTensors take torch's operators for the gradient of gelu, which round otherwise.
            exact = exact_result is results[0][0]
            tolerance = {"rtol": 1e-5, "atol": 1e-4} if exact else {"rtol": 0.02, "atol": 0.02}
            torch.testing.assert_close(full(result), exact_result.detach(), **tolerance)


@in_processes
def test_conversions_and_products_of_2_4(rank):
    devices = processes.mesh()
    w = normal(64, 64).bfloat16()
    pruned = OPS.prune24(w, "2:4")
    values, metadata, count = OPS.compress24(pruned, "2:4")
    for placement in (R, S0, S1):
        result_placement = R if placement == S1 else placement
        result = OPS.prune24(place(w, placement, devices), "2:4")
        assert result.placements == (result_placement,) and torch.equal(full(result), pruned)
        square = OPS.prune24(place(w, placement, devices), "2:4", True)
        assert torch.equal(full(square), OPS.prune24(w, "2:4", True))
        parts = OPS.compress24(place(pruned, placement, devices), "2:4")
        for result, part in zip(parts, (values, metadata, count), strict=True):
            assert torch.equal(full(result), part)
        positions = place(metadata, result_placement, devices)
        dense = OPS.decompress24(place(values, result_placement, devices), positions, 64, "2:4")
        assert dense.placements == (result_placement,) and torch.equal(full(dense), pruned)
        gathered = OPS.gather24(place(w, placement, devices), positions, "2:4")
        assert gathered.placements == (result_placement,) and torch.equal(full(gathered), values)
    x = integers(32, 64).bfloat16()
    exact = OPS.prune24(integers(64, 64).bfloat16(), "2:4")
    values, metadata, _ = OPS.compress24(exact, "2:4")
    if x.is_cuda:  # whose kernels read tiles
        metadata = OPS.tile24(metadata, 64, "2:4", values.dtype)
    sparse, positions = place(values, R, devices), place(metadata, R, devices)
    part = OPS.scaled_mm(x, values.t(), sparse_b=metadata)
    left = OPS.scaled_mm(values, x.t(), sparse_a=metadata)
    assert torch.equal(left, part.t())
    for placement in (R, S0, S1):
        operand, gathered = place(x, placement, devices), placement if placement == S0 else R
        out = OPS.scaled_mm(operand, sparse.t(), sparse_b=positions)
        assert out.placements == (gathered,) and torch.equal(full(out), part)
        out = OPS.scaled_mm(sparse, operand.t(), sparse_a=positions)
        assert out.placements == (S1 if gathered == S0 else R,) and torch.equal(full(out), left)


@in_processes
def test_what_sparse_products_of_dtensors_refuse(rank):
    """A layer has the gradients of sparse products; neither operators nor SparseTensor24 have."""
    devices = processes.mesh()
    weight = tcgemm.compress24(normal(32, 64).bfloat16(), prune=True)
    x = place(normal(8, 64).bfloat16(), S0, devices).requires_grad_()
    assert error_message(lambda: tcgemm.linear(x, weight)) == (
        "tcgemm.linear: an operand is a SparseTensor24, but another tensor is a DTensor, which is "
        "not multiplied with it; pass to_local() of a DTensor that is sharded by rows, or make a "
        "tcgemm.nn.SparseLinear24 parallel with the styles of tcgemm.integrations.tensor_parallel."
    )
    values, metadata, _tiles = weight.stored()
    positions = metadata if not x.is_cuda else OPS.tile24(metadata, 64, "2:4", values.dtype)
    out = OPS.scaled_mm(x, place(values, R, devices).t(), sparse_b=place(positions, R, devices))
    assert error_message(lambda: out.sum().backward()) == (
        "tcgemm.scaled_mm: an operand is given by the values of a sparse matrix, whose derivatives "
        "the operator does not know; multiply a tcgemm.SparseTensor24."
    )


@in_processes
def test_meshes(rank):
    """A mesh of one process, and operands of two meshes."""
    two = init_device_mesh(processes.device().type, (2, 1), mesh_dim_names=("a", "b"))
    submesh = two["b"]
    a, b = integers(M, K), integers(K, N)
    out = tcgemm.mm(distribute_tensor(a, submesh, [S1]), distribute_tensor(b, submesh, [S0]))
    assert torch.equal(out.full_tensor(), a @ b)
    with pytest.raises(RuntimeError, match=r"[Mm]esh"):
        tcgemm.mm(distribute_tensor(a, submesh, [R]), distribute_tensor(b, processes.mesh(), [R]))
    values, _ = tcgemm.quantize(distribute_tensor(a, two, [S0, S1]), S8, "row")
    assert torch.equal(values.full_tensor(), tcgemm.quantize(a, S8, "row")[0])
    with pytest.raises(RuntimeError, match=r"mixed torch.Tensor and DTensor"):
        tcgemm.mm(distribute_tensor(a, submesh, [R]), b)
