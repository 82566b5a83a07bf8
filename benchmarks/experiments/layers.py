"""Steps of a few layers; the set float8: a training step with Float8Linear beside Linear, in bf16.

A training step is a forward, a backward with the gradient of x, and a step of SGD. float8 measures
it with one layer and with a stack of four, where every other layer has the features the other way
round.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor

import tcgemm
from benchmarks.experiments.side_by_side import Build, SideBySide, Step, difference
from tcgemm.measure.results import Row

DTYPE = torch.bfloat16
BASELINE = "Linear"
VARIANTS: dict[str, dict[str, Any]] = {  # the options of swap_linear
    BASELINE: {"to": tcgemm.nn.Linear},
    "Float8Linear": {"to": tcgemm.nn.Float8Linear},
    "Float8Linear delayed": {"to": tcgemm.nn.Float8Linear, "scaling": "delayed"},
}
FEATURES = ((4096, 4096), (4096, 14336))  # of the input and of the output
LAYERS = (1, 4)
TOKENS = 8192


@torch.no_grad()
def forward(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The result, after its all-reduce: torch keeps the memory of one that nobody waits for."""
    result = model(x)
    return result.wait() if isinstance(result, AsyncCollectiveTensor) else result


class LayerStep(Step):
    """A forward of some layers, or a training step."""

    def __init__(
        self, model: torch.nn.Module, x: torch.Tensor, expected: torch.Tensor, *, learns: bool
    ) -> None:
        """expected: the result of the baseline. learns: is it a training step?"""
        result = forward(model, x)
        self.model, self.far = model, difference(expected, result)
        self.x, self.gradient = x.clone().requires_grad_(learns), torch.randn_like(result)
        # A step takes the same time at every rate. At 0 the products stay as in the first step.
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0) if learns else None

    def __call__(self, index: int) -> None:
        """One step."""
        if self.optimizer is None:
            forward(self.model, self.x)
            return
        self.x.grad = None
        self.optimizer.zero_grad()
        self.model(self.x).backward(self.gradient)
        self.optimizer.step()

    def facts(self) -> Row:
        """How far the result is from the baseline's."""
        return {"difference": self.far}


def stack(name: str, features: tuple[int, int], layers: int, device: torch.device) -> Any:
    """The layers of a variant; all variants have the weights of one seed."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"bias": False, "device": device, "dtype": DTYPE}
    shapes = [features[:: -1 if index % 2 else 1] for index in range(layers)]
    model = torch.nn.Sequential(*(torch.nn.Linear(k, n, **options) for k, n in shapes))
    tcgemm.swap_linear(model, **VARIANTS[name])
    return model


def builder(features: tuple[int, int], layers: int, tokens: int, device: torch.device) -> Build:
    """What builds the step of a variant."""
    model_of = functools.partial(stack, features=features, layers=layers, device=device)
    model = model_of(BASELINE)
    x = torch.randn(tokens, features[0], dtype=DTYPE, device=device)
    expected = forward(model, x)
    return lambda name: LayerStep(model_of(name), x, expected, learns=True)


def float8(options: argparse.Namespace) -> list[SideBySide]:
    """A job for each number of features and layers."""
    every, tokens = (((32, 64),), 32) if options.max_size else (FEATURES, TOKENS)
    jobs = []
    for features in every:
        size = f"{features[0]}x{features[1]}"
        for layers in LAYERS:
            case = {"set": "float8", "features": size, "layers": layers, "tokens": tokens}
            build = functools.partial(builder, features, layers, tokens)
            name = f"float8 {layers} x {size}"
            jobs.append(
                SideBySide(name, case, tuple(VARIANTS), build, (BASELINE,), options.repetitions)
            )
    return jobs
