"""Says layers that an optimizer has changed their weight.

The version counter of the weight does not say it under fully_shard (FSDP2): the optimizer changes
the sharded Parameter, and the layer multiplies with another tensor, whose counter stands still.
"""

import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_followed = weakref.WeakSet()
_hooks = []


def follow(layer: torch.nn.Module) -> None:
    """From now on `layer._stepped` becomes True when an optimizer steps that has its weight."""
    if not _hooks:
        _hooks.append(register_optimizer_step_post_hook(_after_step))
    _followed.add(layer)


def _after_step(optimizer, args, kwargs):
    if torch.compiler.is_compiling() or not _followed:
        return
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for layer in _followed:
        if id(layer._parameters.get("weight")) in stepped:
            layer._stepped = True
