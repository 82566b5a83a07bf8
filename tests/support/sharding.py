"""Models of every layer, the tools of torch for several processes, and a training loop for both.

Each process sees the same batch, so the sums over processes are exact: results have the bits of
one process wherever the same kernels run.
"""

import copy
import functools

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.nn.parallel import DistributedDataParallel

import tcgemm
from tcgemm.nn import Float8Linear, Linear, QuantLinear, SparseLinear24

from support import processes

K, HIDDEN, N, ROWS = 32, 48, 16, 24
STEPS = 4
EIGHT_BITS = ("int8", "e4m3", "float8")  # a value may round to its other side
LAYERS = {
    "linear": {"to": Linear},
    "int8": {"to": QuantLinear, "dtype": torch.int8},
    "e4m3": {"to": QuantLinear, "dtype": torch.float8_e4m3fn},
    "float8": {"to": Float8Linear},
    "frozen": {"to": SparseLinear24},
    "learns": {
        "to": SparseLinear24,
        "learns": True,
        "refresh_every": 2,
        "gradient": "straight_through",
    },
}


def model_of(kind, seed=0, dtype=None, **options):
    """Five modules; the third one is the layer, between layers of torch that learn.

    `dtype` is the dtype of a frozen sparse weight.
    """
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(K, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, K), nn.GELU(), nn.Linear(K, N)
    )
    tcgemm.swap_linear(model, "2", **LAYERS[kind] | options)
    model.requires_grad_()  # the biases of QuantLinear, too
    if dtype is not None:
        model[2].weight = model[2].weight.to(dtype)
    return model.to(processes.device())


def batch(rank=None):
    """x and the target, of all processes or the part of one."""
    generator = torch.Generator().manual_seed(9)
    both = (torch.randn(ROWS, size, generator=generator) for size in (K, N))
    both = [tensor.to(processes.device()) for tensor in both]
    return both if rank is None else [tensor.chunk(processes.WORLD_SIZE)[rank] for tensor in both]


def fsdp1(model, **options):
    return FullyShardedDataParallel(model, device_id=processes.device(), **options)


def shard(model, **options):
    """fully_shard of each module, and of the model."""
    for layer in (*model.children(), model):
        fully_shard(layer, **options)
    return model


def with_ddp(rank, model_of, x):
    """DistributedDataParallel computes with the weights of the first process."""
    model, expected = DistributedDataParallel(model_of(rank)), model_of(0)
    model(x).sum().backward()
    out = expected(x)
    out.sum().backward()
    assert processes.same(model(x), out)
    torch.testing.assert_close(model.module[0].weight.grad, expected[0].weight.grad)


def fsdp2(model, **options):
    mesh = processes.mesh()
    for module in (model[0], model[2], model[4], model):
        fully_shard(module, mesh=mesh, **options)
    return model


def mesh_of_two_dimensions():
    """A mesh with a dimension "data" of one process and a dimension "model" of all."""
    shape = (1, processes.WORLD_SIZE)
    return init_device_mesh(processes.device().type, shape, mesh_dim_names=("data", "model"))


def assert_compiled_is_eager(make, x, learns=False):
    """Results and gradients of compiled code have the bits of eager code.

    With `learns`, compiled code multiplies the gradients of a sparse weight otherwise.
    """
    results = []
    for compile in (False, True):
        torch._dynamo.reset()
        model, leaf = make(), x.detach().clone().requires_grad_()
        if compile:
            model.compile(backend="aot_eager", fullgraph=True)
        out = model(leaf)
        out.square().sum().backward()
        gradients = [parameter.grad.full_tensor() for parameter in model.parameters()]
        with torch.no_grad():
            results.append([out, leaf.grad, model.eval()(leaf), *gradients])
    for index, (exact, result) in enumerate(zip(*results, strict=True)):
        near = 1e-3 if learns and index > 2 else 0
        assert (result - exact).abs().max() <= near * exact.abs().max()


def reshard(model):
    """The model has the optimizer's Parameters again, with reshard_after_forward=False, too."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def compiled(model, wrap):
    torch._dynamo.reset()
    model = wrap(model)
    model.compile(backend="aot_eager")
    return model


WRAPPERS = {
    "ddp": DistributedDataParallel,
    "fsdp1": functools.partial(fsdp1, use_orig_params=False),
    "fsdp1_orig": functools.partial(fsdp1, use_orig_params=True),
    "fsdp2": fsdp2,
    "fsdp2_kept": functools.partial(fsdp2, reshard_after_forward=False),
    "fsdp2_mixed": functools.partial(
        fsdp2, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    ),
    "fsdp2_offload": functools.partial(fsdp2, offload_policy=CPUOffloadPolicy(pin_memory=False)),
    "ddp_compiled": functools.partial(compiled, wrap=DistributedDataParallel),
    "fsdp2_compiled": functools.partial(compiled, wrap=fsdp2),
}


def options_of(kind, wrapper):
    """The options of model_of for a layer under a wrapper."""
    if wrapper.endswith("compiled") and kind == "learns":
        return {"refresh_every": 0}  # compiled code chooses no positions
    if wrapper == "fsdp2_mixed" and kind == "frozen":
        return {"dtype": torch.bfloat16}  # the policy casts Parameters, and these are buffers
    return {}


def losses_of(model, x, target, steps=STEPS, optimizer=None):
    """The losses of some steps, of two backwards each, and the results of eval mode after each."""
    if optimizer is None:
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(learning, lr=0.3)
    losses, results = [], []
    for _ in range(steps):
        model.train()
        for _ in range(2):
            loss = (model(x).float() - target).square().mean()
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        with torch.no_grad():
            results += [model.eval()(x).float() for _ in range(2)]
    return losses, results


class InHalf(nn.Module):
    """The mixed precision of fully_shard in one process: bfloat16 copies of float32 Parameters."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.half = [copy.deepcopy(model).bfloat16()]  # in a list, it is no child

    def forward(self, x):
        half = self.half[0].train(self.training)
        with torch.no_grad():
            for low, parameter in zip(half.parameters(), self.model.parameters(), strict=True):
                if not torch.equal(low, parameter.bfloat16()):
                    low.copy_(parameter)
        return half(x.bfloat16())

    def parameters(self, recurse=True):
        return _MasterGradients(self.half[0], self.model)


class _MasterGradients:
    """The float32 Parameters, whose gradients come from the gradients of the copies."""

    def __init__(self, half, model):
        for low, parameter in zip(half.parameters(), model.parameters(), strict=True):
            if low.requires_grad:
                low.register_post_accumulate_grad_hook(functools.partial(self._pass, parameter))
        self.model = model

    def _pass(self, parameter, low):
        gradient = low.grad.to(parameter.dtype)
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        low.grad = None

    def __iter__(self):
        return self.model.parameters()


def reference(kind, wrapper):
    """The model in one process that a wrapped one has to equal."""
    model = model_of(kind, **options_of(kind, wrapper))
    if wrapper.endswith("compiled"):
        return compiled(model, nn.Identity().forward)
    return InHalf(model) if wrapper == "fsdp2_mixed" else model


def wrapped(kind, wrapper, seed=0):
    return WRAPPERS[wrapper](model_of(kind, seed, **options_of(kind, wrapper)))
