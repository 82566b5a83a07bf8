"""Tells layers that an optimizer has changed their weight.

Under fully_shard (FSDP2) the version counter of the weight does not show it: the optimizer changes
the sharded Parameter, and the layer multiplies with another tensor, whose counter stays the same.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_followed: weakref.WeakSet[Any] = weakref.WeakSet()
_hooks: list[object] = []


def follow(layer: torch.nn.Module) -> None:
    """From now on, after a step of an optimizer that has the weights of some layers of one class,
    `_after_step(layers)` of the class is called.

    The layers have the order of their weights in the optimizer, which is the same in all processes.
    """
    if not _hooks:
        _hooks.append(register_optimizer_step_post_hook(_after_step))
    _followed.add(layer)


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling() or not _followed:
        return
    of_weight: dict[int, list[Any]] = {}
    for layer in _followed:
        # A layer that swap_linear has replaced meanwhile has no such method.
        if hasattr(layer, "_after_step"):
            of_weight.setdefault(id(layer._parameters.get("weight")), []).append(layer)
    owners: dict[Any, list[Any]] = {}
    for weight in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        for layer in of_weight.get(id(weight), ()):
            owners.setdefault(type(layer)._after_step, []).append(layer)
    for move, layers in owners.items():
        move(layers)
