"""Features of torch that people use with torch.nn.Linear work with tcgemm.nn.Linear as well.

Each case takes a model and returns tensors. It runs with a model of torch's layers and with the
same model after tcgemm.swap_linear, and both must give the same.
"""

import copy
import functools
import pickle
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._dynamo.testing import EagerAndRecordGraphs
from torch.autograd import graph
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils import benchmark, checkpoint

import tcgemm

from support.calls import Counter
from support.cases import reloaded

X = torch.linspace(-1, 1, 12 * 32).reshape(12, 32)
Y = torch.linspace(1, -1, 12 * 16).reshape(12, 16)


def model(**options):
    torch.manual_seed(7)
    layers = torch.nn.Linear(32, 48, **options), torch.nn.GELU(), torch.nn.Linear(48, 16, **options)
    return torch.nn.Sequential(*layers)


def no_swap(module):
    return module


def swap(module):
    report = tcgemm.swap_linear(module)
    assert report.swapped and not report.skipped
    return module


def loss_of(output):
    return torch.nn.functional.mse_loss(output.float(), Y)


def state(module):
    return list(module.state_dict().values())


def train(module, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(module(X)).backward()
        optimizer.step()
    return state(module)


def gradients(module):
    return [parameter.grad for parameter in module.parameters()]


# Training.


def adamw_before_the_swap(swap):
    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, fused=True)
    return train(swap(module), optimizer)


def adamw_after_the_swap(swap):
    module = swap(model())
    return train(module, torch.optim.AdamW(module.parameters(), lr=1e-2))


def grad_scaler(swap):
    module = swap(model())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(module(X))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return state(module)


def saved_tensors_on_the_cpu(swap):
    module = swap(model())
    with graph.save_on_cpu():
        loss_of(module(X)).backward()
    return gradients(module)


def checkpointed(reentrant):
    def case(swap):
        module = swap(model())
        x = X.clone().requires_grad_()
        loss_of(checkpoint.checkpoint(module, x, use_reentrant=reentrant)).backward()
        return [x.grad, *gradients(module)]

    return case


def selective_checkpoint(swap):
    """Products are saved, all else is computed again."""

    def policy(_context, op, *_args, **_kwargs):
        is_product = "linear" in str(op) or "mm" in str(op)
        policies = checkpoint.CheckpointPolicy
        return policies.MUST_SAVE if is_product else policies.PREFER_RECOMPUTE

    module = swap(model())
    contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, policy)
    output = checkpoint.checkpoint(module, X, use_reentrant=False, context_fn=contexts)
    loss_of(output).backward()
    return gradients(module)


def moving_average(swap):
    module = swap(model())
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        train(module, optimizer, 1)
        averaged.update_parameters(module)
    return [averaged(X)]


# Weights that are computed, and hooks.


def parametrized(swap):
    class Symmetric(torch.nn.Module):
        def forward(self, w):
            return w * 2

    module = swap(model())
    parametrize.register_parametrization(module[0], "weight", Symmetric())
    return [module(X), *train(module, torch.optim.SGD(module.parameters(), lr=0.1))]


def weight_norm(swap):
    module = swap(model())
    parametrizations.weight_norm(module[0])
    return train(module, torch.optim.SGD(module.parameters(), lr=0.1))


def old_weight_norm(swap):
    module = swap(model())
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(module[0])
    return train(module, torch.optim.SGD(module.parameters(), lr=0.1))


def spectral_norm(swap):
    module = swap(model())
    torch.manual_seed(3)
    parametrizations.spectral_norm(module[0])
    return train(module, torch.optim.SGD(module.parameters(), lr=0.1))


def pruned(swap):
    module = swap(model())
    prune.l1_unstructured(module[0], "weight", amount=0.5)
    train(module, torch.optim.SGD(module.parameters(), lr=0.1))
    prune.remove(module[0], "weight")
    return [*state(module), module(X)]


def hooks(swap):
    tensors = []
    module = swap(model())
    module[0].register_forward_pre_hook(lambda _module, inputs: (inputs[0] * 2,))
    module[0].register_forward_hook(lambda _module, _inputs, output: tensors.append(output))
    module[2].register_full_backward_hook(lambda _module, _in, out: tensors.append(out[0]))
    module[0].weight.register_post_accumulate_grad_hook(lambda p: tensors.append(p.grad))
    loss_of(module(X)).backward()
    return tensors


# Copies and states.


def deep_copy(swap):
    module = swap(model())
    twin = copy.deepcopy(module)
    train(module, torch.optim.SGD(module.parameters(), lr=0.1))
    return [twin(X), module(X)]


def pickled(swap):
    module = pickle.loads(pickle.dumps(swap(model())))
    return [module(X), *state(module)]


def saved_and_loaded(swap):
    module = swap(torch.nn.Sequential(*model()))
    module.load_state_dict(reloaded(swap(model()).state_dict()))
    return [module(X)]


def meta_then_empty(swap):
    with torch.device("meta"):
        module = model()
    module = swap(module).to_empty(device="cpu")
    module.load_state_dict(model().state_dict())
    return [module(X)]


def assigned_state(swap):
    with torch.device("meta"):
        module = model()
    swap(module).load_state_dict(model().state_dict(), assign=True)
    return [module(X)]


def swapped_parameters(swap):
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module = swap(model()).double()
        return [module(X.double())]
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def deterministic(swap):
    torch.use_deterministic_algorithms(True)
    try:
        module = swap(model())
        return train(module, torch.optim.SGD(module.parameters(), lr=0.1))
    finally:
        torch.use_deterministic_algorithms(False)


# Transforms.


def functional(swap):
    module = swap(model())
    weights = {name: parameter * 0.5 for name, parameter in module.named_parameters()}
    return [functional_call(module, weights, (X,))]


def ensemble(swap):
    modules = [swap(model()) for _ in range(3)]
    for index, module in enumerate(modules):
        with torch.no_grad():
            module[0].weight.mul_(index + 1)
    weights, buffers = stack_module_state(modules)
    base = copy.deepcopy(modules[0]).to("meta")

    def call(weights, buffers, x):
        return functional_call(base, (weights, buffers), (x,))

    return [vmap(call, in_dims=(0, 0, None))(weights, buffers, X)]


def gradients_of_each_sample(swap):
    module = swap(model())
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def loss(weights, x, y):
        return ((functional_call(module, weights, (x[None],)) - y) ** 2).sum()

    parameter = vmap(grad(loss), in_dims=(None, 0, 0))(weights, X, Y)
    return list(parameter.values())


CASES = (
    adamw_before_the_swap,
    adamw_after_the_swap,
    grad_scaler,
    saved_tensors_on_the_cpu,
    selective_checkpoint,
    moving_average,
    parametrized,
    weight_norm,
    old_weight_norm,
    spectral_norm,
    pruned,
    hooks,
    deep_copy,
    pickled,
    saved_and_loaded,
    meta_then_empty,
    assigned_state,
    swapped_parameters,
    deterministic,
    functional,
    ensemble,
    gradients_of_each_sample,
)


def check(case):
    expected = case(no_swap)
    with Counter() as counter:
        results = case(swap)
    assert counter.count > 0, "no operator of tcgemm ran"
    assert len(expected) == len(results) > 0
    for exact, result in zip(expected, results, strict=True):
        torch.testing.assert_close(result, exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_feature(case):
    check(case)


@pytest.mark.parametrize("reentrant", [False, True], ids=["new", "reentrant"])
def test_checkpoint(reentrant):
    check(checkpointed(reentrant))


def test_safetensors(tmp_path):
    module = swap(model())
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    assert load_file(tmp_path / "model.safetensors").keys() == model().state_dict().keys()
    twin = swap(torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU(), *model()[2:]))
    twin.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(twin(X), module(X))


def test_threads_share_a_layer():
    module, results = swap(model()), [None] * 8
    expected = module(X)

    def call(index):
        results[index] = module(X)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(result, expected) for result in results)


def _child(queue, module):
    queue.put(module(X).detach().numpy())


def test_a_spawned_process_takes_a_layer():
    context = torch.multiprocessing.get_context("spawn")
    queue, module = context.Queue(), swap(model())
    process = context.Process(target=_child, args=(queue, module))
    process.start()
    result = torch.from_numpy(queue.get(timeout=120))
    process.join()
    assert process.exitcode == 0
    assert torch.equal(result, module(X))


def test_six_batch_sizes_compile_two_graphs():
    """The second graph is for a batch of one, as torch.nn.Linear needs it."""
    torch._dynamo.reset()
    backend = EagerAndRecordGraphs()
    module = swap(model())
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for rows in (12, 3, 7, 5, 11, 1):
        x = X[:rows].clone()
        if rows > 1:
            torch._dynamo.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), module(x))
    assert len(backend.graphs) == 2


def test_export_with_dynamic_shapes_is_saved_and_loaded(tmp_path):
    module = swap(model()).eval()
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(module, (X,), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "program.pt2")
    call = torch.export.load(tmp_path / "program.pt2").module()
    for count in (12, 5):
        assert torch.equal(call(X[:count]), module(X[:count]))


def test_traced_by_jit_without_gradients(tmp_path):
    module = swap(model()).eval()
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(module, X), tmp_path / "traced.pt")
        program = torch.jit.load(tmp_path / "traced.pt")
        assert torch.equal(program(X), module(X))


def test_traced_by_fx():
    module = swap(model())
    assert torch.equal(torch.fx.symbolic_trace(module)(X), module(X))


def test_torch_benchmark_times_a_call():
    timer = benchmark.Timer("f(x)", globals={"f": swap(model()), "x": X})
    assert timer.timeit(3).mean > 0
