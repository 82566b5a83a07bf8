"""Forward and backward of a linear layer, made runnable: y = act(x w^T + bias), dx, dw, dbias.

The baseline is torch.nn.Linear with the same parameters, and torch's activation after it.
torch.autograd.grad computes the gradients. It accumulates nothing into `.grad`, so each call does
the same work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

import tcgemm
from tcgemm.measure import Plan, baseline, errors, operands, plan
from tcgemm.measure.case import Case
from tcgemm.measure.work import Work
from tcgemm.measure.workloads import BUDGET
from tcgemm.ops.activations import activate
from tcgemm.typing import Activation

L = TypeVar("L", bound=torch.nn.Linear)
# Relative Frobenius norm of the difference of two gradients: each rounds the gradient before the
# activation to 16 bits, by up to 0.4 % an element.
DISTANCE = 0.02


class Training(Work):
    """Layers on `device` and the calls of one case. `index` selects x, weight and gradient."""

    sets: int
    activation: Activation | None
    generator: torch.Generator | None
    x: operands.Pool
    weight: operands.Pool
    grad: operands.Pool
    bias: Tensor
    inputs: list[Tensor]
    layers: dict[str, list[torch.nn.Linear]]

    def __init__(self, case: Case, device: torch.device | str, seed: int = 0) -> None:
        super().__init__(case, device)
        self.generator = self._generator(seed)
        elements = case.m * case.k + case.n * case.k + case.m * case.n
        bytes_read = elements * self.dtype.itemsize
        self.sets = operands.sets_past_cache(bytes_read, device)
        self.x, self.weight, self.grad = (
            operands.Pool(self.sets, shape, self.dtype, device)
            for shape in ((case.m, case.k), (case.n, case.k), (case.m, case.n))
        )
        self.bias = torch.empty(case.n, dtype=self.dtype, device=device)
        self.activation = case.activation
        self.refill()
        self.inputs = [x.detach().requires_grad_() for x in self.x.views]
        self.layers = {
            "tcgemm": [self._fused_layer(w) for w in self.weight.views],
            "torch": [self._layer(torch.nn.Linear, w) for w in self.weight.views],
        }

    def _layer(self, kind: type[L], weight: Tensor) -> L:
        layer = kind(self.case.k, self.case.n, device="meta", dtype=self.dtype)
        layer.weight = torch.nn.Parameter(weight.detach())
        layer.bias = torch.nn.Parameter(self.bias.detach())
        return layer

    def _fused_layer(self, weight: Tensor) -> tcgemm.nn.Linear:
        layer = self._layer(tcgemm.nn.Linear, weight)
        layer.activation = self.activation
        return layer

    def refill(self, largest: int | None = None) -> None:
        """Fills all tensors with new normal data, or with integers of at most `largest`."""
        for memory in (self.x.memory, self.weight.memory, self.grad.memory, self.bias[None]):
            if largest is None:
                operands.fill_normal(memory, self.generator)
            else:
                operands.fill_integers(memory, largest, self.generator)

    @property
    def bytes(self) -> int:
        """The least memory traffic: x, weight and gradient are read twice, and y, dx and dw, which
        have the same sizes, are written once."""
        sizes = [pool[0].nbytes for pool in (self.x, self.weight, self.grad)]
        return 3 * sum(sizes) + 3 * self.bias.nbytes

    def _step(
        self,
        layer: torch.nn.Linear,
        index: int,
        activation: Activation | None = None,
    ) -> tuple[Tensor, ...]:
        """(y, dx, dw, dbias) of one set; `activation` comes after the layer."""
        x = self.inputs[index]
        y = activate(layer(x), activation)
        leaves = (x, layer.weight, layer.bias)
        return y.detach(), *torch.autograd.grad(y, leaves, self.grad[index])

    def call_tcgemm(self, index: int) -> tuple[Tensor, ...]:
        """(y, dx, dw, dbias) of set `index` by tcgemm."""
        return self._step(self.layers["tcgemm"][index], index)

    def call_baseline(self, index: int) -> tuple[Tensor, ...]:
        """The same by torch."""
        with baseline.tf32_allowed(False):
            return self._step(self.layers["torch"][index], index, self.activation)

    @property
    def epilogue(self) -> dict[str, Any]:
        """The options of the forward pass."""
        return {"bias": self.bias, "activation": self.activation}

    def products(self) -> list[dict[str, Any]]:
        """y, dx, dw and dbias of set 0, each with the operands and the epilogue that give it."""
        x, w, grad = self.x[0], self.weight[0], self.grad[0]
        ones = torch.ones((1, self.case.m), dtype=self.dtype, device=self.device)
        y, dx, dw, dbias = map(torch.atleast_2d, self.call_tcgemm(0))
        return [
            {"out": y, "a": x, "b": w.t(), **self.epilogue},
            {"out": dx, "a": grad, "b": w},
            {"out": dw, "a": grad.t(), "b": x},
            {"out": dbias, "a": ones, "b": grad},
        ]

    def check(self) -> tuple[float, bool | None]:
        """(max_error_ratio, exact) of y and of all gradients, on new data.

        With an activation, gradients are compared with torch's, and exact is None.
        """
        case, budget = self.case, BUDGET[self.device.type] / 3
        self.refill()
        products, exact = self.products(), None
        checked = products if self.activation is None else products[:1]
        common = {"accumulation": case.accumulation, "dtype": case.dtype, "budget": budget}
        ratios = [errors.error_ratio(**product, **common) for product in checked]
        if self.activation is None:
            self.refill(errors.largest_exact_integer(case.accumulation))
            exact = all(errors.is_exact(**product, budget=budget) for product in self.products())
            self.refill()
        else:
            ratios += self._distances([product["out"] for product in products[1:]])
        worst = float("nan") if any(ratio != ratio for ratio in ratios) else max(ratios)
        return worst, exact

    def _distances(self, gradients: Sequence[Tensor]) -> Iterator[float]:
        """The distance of each gradient of set 0 from torch's, over DISTANCE."""
        for gradient, reference in zip(gradients, self.call_baseline(0)[1:], strict=True):
            difference = (gradient.float() - reference.float()).norm() / reference.float().norm()
            yield float(difference) / DISTANCE

    def plan_on(self, device: str | None = None) -> Plan:
        """The plan of the forward pass."""
        return plan(self.x[0], self.weight[0].t(), **self.epilogue, device=device)
