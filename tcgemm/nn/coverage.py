"""How many of a model's weights tcgemm's layers multiply, and which modules have the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tcgemm.nn import exchange


class NotReached(NamedTuple):
    """Modules of one class whose weights no layer of tcgemm multiplies."""

    kind: str  # the name of the class
    modules: int  # the number of modules
    parameters: tuple[str, ...]  # names of their Parameters
    weights: int  # elements of these Parameters

    def __str__(self) -> str:
        return f"{self.modules} {self.kind} ({', '.join(self.parameters)})"


class _Matrix(NamedTuple):
    weights: int
    owners: list[tuple[torch.nn.Module, str]]


class Coverage:
    """The matrices of a model. It is made before a swap, and counts after it.

    A matrix is a Parameter with two or more dimensions above 1, or the weight of a linear layer.
    Tables of embeddings and weights of norms are not multiplied as matrices, so they do not count,
    unless a linear layer shares them. A shared Parameter counts once.
    """

    def __init__(self, model: torch.nn.Module):
        self._matrices: dict[object, _Matrix] = {}
        for module in model.modules():
            for attribute, key, weights in _matrices_of(module):
                matrix = self._matrices.setdefault(key, _Matrix(weights, []))
                matrix.owners.append((module, attribute))

    def count(self) -> tuple[int, int, list[NotReached]]:
        """(weights that are reached, all weights, the modules that have the other weights). The
        classes with the most weights come first."""
        reached, missed = 0, defaultdict(list)
        for matrix in self._matrices.values():
            if any(exchange.layer_of(module) for module, _ in matrix.owners):
                reached += matrix.weights
            else:
                module, attribute = matrix.owners[0]
                missed[type(module).__name__].append((id(module), attribute, matrix.weights))
        kinds = [
            NotReached(
                kind,
                modules=len({module for module, _, _ in reason}),
                parameters=tuple(dict.fromkeys(attribute for _, attribute, _ in reason)),
                weights=sum(weights for _, _, weights in reason),
            )
            for kind, reason in missed.items()
        ]
        total = reached + sum(entry.weights for entry in kinds)
        return reached, total, sorted(kinds, key=lambda entry: -entry.weights)


def _matrices_of(module: Any) -> Iterator[tuple[str, object, int]]:
    """(attribute, key, elements) of the matrices that a module owns itself."""
    name = type(module).__name__
    is_table = isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))
    if is_table or "Embedding" in name or "Norm" in name:
        return
    layer = exchange.layer_of(module)
    if layer and hasattr(module, "in_features") and "weight" not in module._parameters:
        yield "weight", id(module), module.in_features * module.out_features
        return
    for attribute, parameter in module._parameters.items():
        if parameter is None or torch.nn.parameter.is_lazy(parameter):
            continue
        linear = isinstance(module, torch.nn.Linear) and parameter.dim() > 1
        if linear or sum(size > 1 for size in parameter.shape) > 1:
            yield attribute, id(parameter), parameter.numel()


def percentage(part: int, whole: int) -> str:
    """The share as text, such as "6 %". "100 %" and "0 %" are exact, not rounded."""
    percent = 100 * part / whole
    if part == whole or not part:
        return f"{percent:.0f} %"
    return f"{int(percent)} %" if percent >= 1 else f"{max(percent, 0.1):.1f} %"


def quantity(number: int) -> str:
    """The number as text, such as "1.3 M"."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)
