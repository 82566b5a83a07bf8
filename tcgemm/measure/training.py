"""Forward and backward of a linear layer, made runnable: y = act(x w^T + bias), dx, dw, dbias.

The baseline is torch.nn.Linear with the same parameters, and torch's activation after it.
torch.autograd.grad computes the gradients. It accumulates nothing into `.grad`, so each call does
the same work.
"""

from __future__ import annotations

from typing import TypeVar

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
        self.sets = (
            1 if self.device.type == "meta" else operands.sets_past_cache(bytes_read, device)
        )
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

    def gemms(self) -> tuple[tuple[Tensor, Tensor, Tensor | None], ...]:
        """(a, b, bias) of y, dx, dw and dbias of set 0, in the order of `_step`."""
        x, w, grad = self.x[0], self.weight[0], self.grad[0]
        ones = torch.ones((1, self.case.m), dtype=self.dtype, device=self.device)
        return ((x, w.t(), self.bias), (grad, w, None), (grad.t(), x, None), (ones, grad, None))

    def check(self) -> tuple[float, bool | None]:
        """(max_error_ratio, exact) of y and of all gradients, on new data.

        With an activation, gradients are compared with torch's, and exact is None.
        """
        budget = BUDGET[self.device.type] / 3
        self.refill()
        if self.activation is not None:
            return self._check_activation(budget), None
        ratios = [
            errors.error_ratio(
                torch.atleast_2d(out),
                a,
                b,
                accumulation=self.case.accumulation,
                dtype=self.case.dtype,
                bias=bias,
                budget=budget,
            )
            for out, (a, b, bias) in zip(self.call_tcgemm(0), self.gemms(), strict=True)
        ]
        self.refill(errors.largest_exact_integer(self.case.accumulation))
        exact = all(
            self._is_exact(torch.atleast_2d(out), a, b, bias, budget)
            for out, (a, b, bias) in zip(self.call_tcgemm(0), self.gemms(), strict=True)
        )
        self.refill()
        worst = float("nan") if any(ratio != ratio for ratio in ratios) else max(ratios)
        return worst, exact

    def _check_activation(self, budget: float) -> float:
        """The error of y over its bound, or the distance of a gradient from torch's over DISTANCE:
        the larger of them."""
        (y, *gradients), (_, *references) = self.call_tcgemm(0), self.call_baseline(0)
        ratios = [
            errors.error_ratio(
                y,
                self.x[0],
                self.weight[0].t(),
                accumulation=self.case.accumulation,
                dtype=self.case.dtype,
                bias=self.bias,
                activation=self.activation,
                budget=budget,
            )
        ]
        for gradient, reference in zip(gradients, references, strict=True):
            difference = (gradient.float() - reference.float()).norm() / reference.float().norm()
            ratios.append(float(difference) / DISTANCE)
        return float("nan") if any(ratio != ratio for ratio in ratios) else max(ratios)

    @staticmethod
    def _is_exact(out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None, budget: float) -> bool:
        def finish(result: Tensor, rows: Tensor) -> Tensor:
            return result if bias is None else result + bias.double()

        return errors.is_exact(out, a, b, budget=budget, finish=finish)

    def plan_on(self, device: str | None = None) -> Plan:
        """The plan of the forward pass."""
        epilogue = {"bias": self.bias, "activation": self.activation}
        return plan(self.x[0], self.weight[0].t(), **epilogue, device=device)
