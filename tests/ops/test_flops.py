"""torch.utils.flop_counter.FlopCounterMode counts tcgemm's products as it counts torch's."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tcgemm

from support import programs

X, W = torch.randn(6, 16, requires_grad=True), torch.randn(8, 16, requires_grad=True)
BATCH, C = torch.randn(3, 6, 16, requires_grad=True), torch.randn(6, 8)

# name -> (a call of tcgemm, the same call of torch)
CALLS = {
    "mm": (lambda: tcgemm.mm(X, W.t()), lambda: X @ W.t()),
    "bmm": (lambda: tcgemm.bmm(BATCH, BATCH.mT), lambda: BATCH.bmm(BATCH.mT)),
    "matmul": (lambda: tcgemm.matmul(BATCH, W.t()), lambda: BATCH @ W.t()),
    "addmm": (lambda: tcgemm.addmm(C, X, W.t()), lambda: torch.addmm(C, X, W.t())),
    "baddbmm": (
        lambda: tcgemm.baddbmm(C[:, :6], BATCH, BATCH.mT),
        lambda: torch.baddbmm(C[:, :6], BATCH, BATCH.mT),
    ),
    "linear": (lambda: tcgemm.linear(BATCH, W), lambda: torch.nn.functional.linear(BATCH, W)),
    "epilogue": (
        lambda: tcgemm.linear(X, W, torch.ones(8), activation="relu"),
        lambda: torch.nn.functional.linear(X, W),
    ),
    "scales": (lambda: tcgemm.mm(X, W.t(), scale_a=torch.ones(())), lambda: X @ W.t()),
    "amax": (lambda: tcgemm.mm(X, W.t(), amax=True)[0], lambda: X @ W.t()),
    "quantized_linear": (
        lambda: tcgemm.quantized_linear(X, W),
        lambda: torch.nn.functional.linear(X, W),
    ),
}


def flops(call, backward=True):
    with FlopCounterMode(display=False) as counter:
        out = call()
        if backward:
            out.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_and_its_backward_count_as_torchs(name):
    product, torch_product = CALLS[name]
    assert flops(product) == flops(torch_product) > 0


def test_the_product_that_the_backward_repeats_counts():
    """torch.func repeats it; otherwise the forward keeps the argument of the activation."""
    product = 2 * 6 * 8 * 16
    assert flops(lambda: tcgemm.linear(X, W, activation="gelu")) == 3 * product

    def loss(x, w):
        return tcgemm.linear(x, w, activation="gelu").sum()

    assert flops(lambda: torch.func.grad(loss, (0, 1))(X, W), False) == 4 * product


def test_out_counts():
    with torch.no_grad():
        assert flops(lambda: tcgemm.mm(X, W.t(), out=torch.empty(6, 8)), False) == 2 * 6 * 8 * 16


def test_a_sparse_operand_counts_as_its_dense_matrix():
    x, w = torch.randn(6, 16), tcgemm.compress24(torch.randn(8, 16), prune=True)
    for call in (
        lambda: tcgemm.linear(x, w),
        lambda: tcgemm.mm(x, w.t()),
        lambda: tcgemm.mm(w, x.t()),
        lambda: tcgemm.linear(x, w, activation="relu"),
    ):
        assert flops(call, False) == 2 * 6 * 8 * 16
    values, metadata = w.values, w.metadata
    calls = (
        lambda: torch.ops.tcgemm.scaled_mm(x, values.t(), sparse_b=metadata, precision="high"),
        lambda: torch.ops.tcgemm.scaled_mm(values, x.t(), sparse_a=metadata, precision="high"),
    )
    for call in calls:
        assert flops(call, False) == 2 * 6 * 8 * 16


def test_a_swapped_model_counts_as_before():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    before = flops(lambda: model(X))
    tcgemm.swap_linear(model)
    assert flops(lambda: model(X)) == before


@pytest.mark.parametrize("first", ["tcgemm", "torch.utils.flop_counter"])
def test_the_order_of_imports_does_not_matter(first):
    """The formulas wait for torch.utils.flop_counter, which takes 60 ms to import."""
    program = (
        f"import torch, sys, {first}; import tcgemm; "
        f"print('torch.utils.flop_counter' in sys.modules); "
        "from torch.utils.flop_counter import FlopCounterMode; mode = FlopCounterMode(display=0);"
        "mode.__enter__(); tcgemm.mm(torch.ones(2, 3), torch.ones(3, 4)); "
        "print(mode.get_total_flops())"
    )
    result = programs.run(program)
    assert result.stdout.split() == [str(first != "tcgemm"), "48"], result.stderr
