"""Models of transformers learn what layers swap_linear gave them, so save_pretrained can say it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

from tcgemm.nn.exchange import layer_of

_DENSE = ("Linear", "Conv1D", "MultiheadAttention")  # layers whose state is that of torch's


def describe(model: torch.nn.Module) -> None:
    """Tells each model of transformers in `model` how its layers are saved, after a swap."""
    theirs = [module for module in model.modules() if _is_theirs(module)]
    quantised = any(
        kind is not None and kind.__name__ not in _DENSE for kind in map(layer_of, model.modules())
    )
    if not theirs or not (quantised or any("hf_quantizer" in vars(one) for one in theirs)):
        return
    version = sys.modules["transformers"].__version__
    if int(version.split(".")[0]) < 5:
        return  # it has no methods of others
    integration: Any = importlib.import_module("tcgemm.integrations.transformers")
    for one in theirs:
        integration.describe(one)


def _is_theirs(module: torch.nn.Module) -> bool:
    return any(
        base.__name__ == "PreTrainedModel" and base.__module__ == "transformers.modeling_utils"
        for base in type(module).__mro__
    )
