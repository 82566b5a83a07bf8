"""LoRA of PEFT on layers with 8-bit, with packed and with 2:4 sparse weights.

Importing this module registers the layers with PEFT: get_peft_model then takes a QuantLinear, a
PackedLinear and a SparseLinear24 like a torch.nn.Linear, and merge() knows what their weights can
hold. An adapter on a PackedLinear of 4 bits is QLoRA.

    base layer        merged into
    QuantLinear       a QuantLinear of the same dtype: the sum is quantised again
    PackedLinear      a tcgemm.nn.Linear, because 4 bits would lose most of the adapter
    SparseLinear24    a tcgemm.nn.Linear, because the sum has no zeros

unmerge() puts the layer back that was there before, bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import layer as lora
from peft.tuners.lora.model import LoraModel
from peft.tuners.tuners_utils import BaseTunerLayer, check_adapters_to_merge

from tcgemm.nn import PackedLinear, QuantLinear, SparseLinear24

LAYERS = (QuantLinear, PackedLinear, SparseLinear24)
# Other values of init_lora_weights, such as "pissa", subtract the adapter from the base weight.
INITIAL = (True, False, "gaussian", "orthogonal")
# What PEFT does with the layers that it knows.
_create = LoraModel._create_new_module
_merge, _unmerge = lora.Linear.merge, lora.Linear.unmerge
_BEFORE = "_tcgemm_before_merge"  # the base layer that a merged adapter was added to


def _create_new_module(lora_config: Any, adapter_name: str, target: Any, **options: Any) -> Any:
    base = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
    if isinstance(base, LAYERS):
        if lora_config.init_lora_weights not in INITIAL:
            raise ValueError(
                f"LoRA on {type(base).__name__}: init_lora_weights is "
                f"{lora_config.init_lora_weights!r}, which changes the base weight; expected one "
                f"of {', '.join(map(repr, INITIAL))}, or call get_peft_model before the swap."
            )
        return lora.Linear(target, adapter_name, config=lora_config, **options)
    return _create(lora_config, adapter_name, target, **options)


def _merged(self: Any, base: Any, names: list[str], safe: bool) -> torch.nn.Module:
    """A layer with the sum of the base layer's weight and the adapters."""
    dense = base.to_linear()
    with torch.no_grad():
        weight, bias = dense.weight.float(), dense.bias
        for name in names:
            if name in self.lora_variant:
                weight = self.lora_variant[name].merge_safe(self, name, weight)
            else:
                weight = weight + self.get_delta_weight(name).to(weight)
            if self.lora_bias[name]:
                if bias is None:
                    raise RuntimeError(
                        f"The adapter {name} has a bias, but the base layer has none to add it to."
                    )
                bias = bias + self.lora_B[name].bias * self.scaling[name]
        if safe and not bool(torch.isfinite(weight).all()):
            raise ValueError(f"The weight is not finite with the adapter {', '.join(names)} added.")
        dtype = base.weight.dtype
        dense.weight = torch.nn.Parameter(weight.to(dtype), requires_grad=False)
        if bias is not None:
            dense.bias = torch.nn.Parameter(bias.detach().to(dtype), requires_grad=False)
    if isinstance(base, QuantLinear):
        return QuantLinear.from_linear(dense, base.dtype, base.granularity)
    return dense


def _merge_ours(
    self: Any, safe_merge: bool = False, adapter_names: list[str] | None = None
) -> None:
    base = self.get_base_layer()
    if not isinstance(base, LAYERS) and _BEFORE not in self.__dict__:
        return _merge(self, safe_merge=safe_merge, adapter_names=adapter_names)
    adapters = check_adapters_to_merge(self, adapter_names)
    names = [name for name in adapters or () if name in self.lora_A]
    if not names:
        return None
    if self.base_layer is not base:
        raise RuntimeError(
            f"An adapter on {type(base).__name__} cannot be merged, because another method of PEFT "
            "is between them; unload that one first."
        )
    # Adapters that are merged already are added again to the layer before them: one rounding.
    before = self.__dict__.get(_BEFORE, base)
    merged = _merged(self, before, [*self.merged_adapters, *names], safe_merge)
    self.__dict__[_BEFORE] = before
    self.base_layer = merged
    self.merged_adapters.extend(names)


def _unmerge_ours(self: Any) -> None:
    if _BEFORE not in self.__dict__:
        return _unmerge(self)
    self.base_layer = self.__dict__.pop(_BEFORE)
    self.merged_adapters.clear()


LoraModel._create_new_module = staticmethod(_create_new_module)
lora.Linear.merge = _merge_ours
lora.Linear.unmerge = _unmerge_ours
