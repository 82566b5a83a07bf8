"""torch's optimizers of a SparseTensor24 as a Parameter: a step equals that step
of a dense weight whose gradient is masked, and the states are SparseTensor24 of the same positions.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.optim import SGD, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop

import tcgemm
from tcgemm import SparseTensor24

from support.cases import BF16, F32, gpu, reloaded

M, N, K = 24, 20, 36
STEPS = 5
OPTIMIZERS = [
    (SGD, {}),
    (SGD, {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    (Adam, {}),
    (Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (Adam, {"maximize": True, "betas": (0.5, 0.9)}),
    (AdamW, {}),
    (AdamW, {"amsgrad": True, "weight_decay": 0.3}),
    (NAdam, {}),
    (NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    (Adamax, {}),
    (RMSprop, {}),
    (RMSprop, {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    (Adagrad, {}),
    (Adagrad, {"initial_accumulator_value": 0.5, "lr_decay": 0.1}),
]
optimizers = pytest.mark.parametrize(
    ("kind", "options"), OPTIMIZERS, ids=lambda value: getattr(value, "__name__", str(value))
)
KINDS = [{}, {"transposable": True}, {"dense_gradient": True}, {"pattern": "1:2"}]
kinds = pytest.mark.parametrize("form", KINDS, ids=["plain", "both", "dense", "f32"])
devices = pytest.mark.parametrize("device", ["cpu", gpu("cuda", mark="sm90")])


def leaf(form, device="cpu"):
    dtype = F32 if "pattern" in form else BF16
    w = torch.randn(N, K, device=device).to(dtype)
    return torch.nn.Parameter(tcgemm.compress24(w, prune=True, **form))


def loss_of(weight, x, y):
    return (F.linear(x, weight).float() - y).square().mean()


@devices
@kinds
@optimizers
def test_a_step_is_that_of_a_masked_dense_weight(kind, options, form, device):
    s = leaf(form, device)
    d = torch.nn.Parameter(s.detach().to_dense())
    mask = s.detach().mask(torch.ones_like(d)).to_dense()
    x, y = torch.randn(M, K, device=device).to(s.dtype), torch.randn(M, N, device=device)
    # The functions that step all tensors at once, torch's choice on a GPU, round otherwise.
    steps = [kind([value], lr=0.05, foreach=False, **options) for value in (s, d)]
    losses = []
    for _ in range(STEPS):
        s.grad = None
        loss = loss_of(s, x, y)
        loss.backward()
        d.grad = s.grad.to_dense() * mask
        for step in steps:
            step.step()
        losses.append(loss.item())
        assert torch.equal(s.to_dense(), d) and torch.equal(s.t().to_dense(), d.t())
    if s.transposable:
        values, metadata, _tiles = s.stored(True)
        transpose = torch.ops.tcgemm.decompress24(values, metadata, N, s.pattern)
        assert torch.equal(transpose, d.t())
    assert (losses[-1] < losses[0]) is not options.get("maximize", False)
    states = [value for value in steps[0].state[s].values() if getattr(value, "ndim", 0) == 2]
    assert states or kind is SGD
    if kind is SGD and form.get("dense_gradient"):
        return  # its momentum is the dense gradient
    for state in states:
        assert type(state) is SparseTensor24 and torch.equal(state.metadata, s.metadata)


@kinds
def test_training_with_adam_and_what_users_put_around_it(form):
    model = torch.nn.Linear(K, N)
    model.weight = leaf(form)
    model.bias = torch.nn.Parameter(model.bias.detach().to(model.weight.dtype))
    x, y = torch.randn(M, K).to(model.weight.dtype), torch.randn(M, N)
    step = AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(step, 20)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    losses = []
    for _ in range(20):
        step.zero_grad()
        loss = (model(x).float() - y).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(step)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(step)
        scaler.update()
        schedule.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    other = AdamW(model.parameters(), lr=0.05)
    other.load_state_dict(reloaded(step.state_dict()))
    state, loaded = step.state[model.weight], other.state[model.weight]
    for name in ("exp_avg", "exp_avg_sq"):
        assert type(loaded[name]) is SparseTensor24
        assert torch.equal(loaded[name].values, state[name].values)
    other.step()


def test_what_optimizers_cannot_do_is_refused():
    for options, mend in (
        ({"fused": True}, "pass fused=False"),
        ({"foreach": True}, "pass foreach=False"),
    ):
        s = leaf({"pattern": "1:2"})
        step = Adam([s], **options)
        loss_of(s, torch.randn(M, K), torch.randn(M, N)).backward()
        with pytest.raises(NotImplementedError, match=rf"tcgemm.SparseTensor24: aten.*; {mend}"):
            step.step()
    s = leaf({})
    step = RAdam([s])  # divides by what is zero
    with pytest.raises(NotImplementedError, match=r"tcgemm.SparseTensor24: aten.*to_dense\(\)"):
        for _ in range(20):
            s.grad = torch.zeros_like(s.detach())
            step.step()
