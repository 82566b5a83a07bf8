"""How many of a model's weights tcgemm's layers multiply, and which modules have the others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tcgemm.nn import exchange

# Parameters of two dimensions that are added or multiplied elementwise, by their names: decays of
# Mamba, biases of experts, positions, tokens.
_NO_MATRIX = re.compile(r"A_logs?|.*bias(es|_table)?|.*pos(ition)?s?_embed(ding)?s?|.*_tokens?")


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
    What no product multiplies as a matrix does not count: tables of embeddings and positions,
    weights of norms, biases, the decays of state-space models, depthwise convolutions. A table that
    a linear layer shares, as a tied head does, counts if the layer is reached. A shared Parameter
    counts once.
    """

    def __init__(self, model: torch.nn.Module):
        self._tables: set[object] = _tables_of(model)
        self._matrices: dict[object, _Matrix] = {}
        for module in model.modules():
            for attribute, key, weights in _matrices_of(module):
                matrix = self._matrices.setdefault(key, _Matrix(weights, []))
                matrix.owners.append((module, attribute))

    def count(self) -> tuple[int, int, list[NotReached]]:
        """(weights that are reached, all weights, the modules that have the other weights). The
        classes with the most weights come first."""
        reached, missed = 0, defaultdict(list)
        for key, matrix in self._matrices.items():
            if any(exchange.layer_of(module) for module, _ in matrix.owners):
                reached += matrix.weights
            elif key not in self._tables:
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


def _is_table(module: torch.nn.Module) -> bool:
    is_one = isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))
    return is_one or "Embedding" in type(module).__name__


def _tables_of(model: Any) -> set[object]:
    """The keys of tables of embeddings, and of weights that transformers ties to them later."""
    tables: set[object] = {
        id(parameter)
        for module in model.modules()
        if _is_table(module)
        for parameter in module._parameters.values()
    }
    for names in (getattr(model, "all_tied_weights_keys", None) or {}).items():
        parts = [name.rpartition(".") for name in names]
        owners = [(model.get_submodule(module), attribute) for module, _, attribute in parts]
        tied: set[object] = {id(owner._parameters.get(attribute)) for owner, attribute in owners}
        if tied & tables:
            tables |= tied
    return tables - {id(None)}


def _matrices_of(module: Any) -> Iterator[tuple[str, object, int]]:
    """(attribute, key, elements) of the matrices that a module owns itself."""
    groups = getattr(module, "groups", 1)
    is_depthwise = isinstance(groups, int) and 1 < groups == getattr(module, "in_channels", None)
    if _is_table(module) or "Norm" in type(module).__name__ or is_depthwise:
        return
    layer = exchange.layer_of(module)
    if layer and hasattr(module, "in_features") and "weight" not in module._parameters:
        yield "weight", id(module), module.in_features * module.out_features
        return
    for attribute, parameter in module._parameters.items():
        if parameter is None or torch.nn.parameter.is_lazy(parameter):
            continue
        if _NO_MATRIX.fullmatch(attribute):
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
