"""The inference fast path of torch.nn.TransformerEncoder and its layers.

In eval mode without gradients they pass the weights of their children to one operator of torch and
call no child. A swapped child would not run, and an 8-bit weight would raise an error. So the path
is off while a child is tcgemm's. torch.nn.MultiheadAttention has a fast path too; the class of
tcgemm has none.
"""

from __future__ import annotations

import torch

from tcgemm.nn import exchange

# The attribute that each class reads first, and the value that switches the path off.
_SWITCHES = (
    (torch.nn.TransformerEncoderLayer, "activation_relu_or_gelu", 0),
    (torch.nn.TransformerEncoder, "use_nested_tensor", False),
)
_KEPT = "_tcgemm_fast_path"  # the attribute of a module that has the original value


def update(model: torch.nn.Module) -> None:
    """Switches the path off in modules with a layer of tcgemm, and on again in the others."""
    for module in model.modules():
        for kind, attribute, off in _SWITCHES:
            if not isinstance(module, kind) or not hasattr(module, attribute):
                continue
            has_layers = any(exchange.layer_of(child) for child in module.modules())
            if has_layers and _KEPT not in vars(module):
                vars(module)[_KEPT] = getattr(module, attribute)
                setattr(module, attribute, off)
            elif not has_layers and _KEPT in vars(module):
                setattr(module, attribute, vars(module).pop(_KEPT))
