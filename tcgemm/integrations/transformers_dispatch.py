"""Models of transformers on several devices: their layers are swapped without accelerate's hooks.

accelerate gives each module with tensors a `forward` of its own, which moves them to a device and
calls the `forward` of the module's class. Offloaded weights are on "meta". All this is done before
a quantizer gets the model, so it is undone for the time of the swap.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from transformers.integrations.accelerate import accelerate_dispatch

from tcgemm.nn import QuantLinear

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from transformers.quantizers.base import HfQuantizer


@contextlib.contextmanager
def without_hooks(model: Any, quantizer: HfQuantizer) -> Iterator[None]:
    """Inside, the model has no hooks, and its offloaded weights are on the CPU."""
    if not _hooks(model):  # one device
        yield
        return
    offload: dict[str, Any] = dict.fromkeys(("offload_folder", "offload_index", "offload_buffers"))
    for module in model.modules():
        for hook in _hooks(module):
            if hook.offload:
                weights = hook.weights_map.dataset
                offload["offload_folder"] = weights.save_folder
                offload["offload_index"] = weights.index or None
                offload["offload_buffers"] = hook.offload_buffers
        _release(module)
    model.tie_weights(recompute_mapping=False)  # each offloaded name came as a tensor of its own
    yield
    accelerate_dispatch(model, quantizer, model.hf_device_map, **offload)


def check_offloaded(model: torch.nn.Module) -> None:
    """Raises ValueError if accelerate would bring 8-bit values back as float32."""
    for name, module in model.named_modules():
        offloads = any(hook.offload and hook.offload_buffers for hook in _hooks(module))
        if offloads and isinstance(module, QuantLinear):
            raise ValueError(
                f"TcgemmConfig: offload_buffers is True and device_map offloads {name}, a "
                "QuantLinear, but accelerate would make its 8-bit values float32; expected "
                "offload_buffers=False, with which they stay on the device that multiplies."
            )


def _hooks(module: torch.nn.Module) -> tuple[Any, ...]:
    """accelerate's hooks of this module; a SequentialHook has several."""
    hook = vars(module).get("_hf_hook")
    return () if hook is None else tuple(getattr(hook, "hooks", (hook,)))


def _release(module: torch.nn.Module) -> None:
    """Removes the module's hooks, after its weights on the disk were read."""
    # Where accelerate is not installed, no model has hooks.
    accelerate: Any = importlib.import_module("accelerate")
    hooks = _hooks(module)
    for hook in hooks:
        for name, parameter in module.named_parameters(recurse=False):
            if hook.offload and parameter.is_meta:
                value = hook.weights_map[name]
                accelerate.utils.set_module_tensor_to_device(module, name, "cpu", value)
    accelerate.hooks.remove_hook_from_module(module)
    forward: Any = vars(module).get("forward")
    if hooks and getattr(forward, "__func__", None) is type(module).forward:
        del module.forward  # accelerate leaves the method of the class in the instance
