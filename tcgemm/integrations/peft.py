"""Adapters of PEFT on layers with 8-bit, with packed and with 2:4 sparse weights.

Importing this module registers the layers with PEFT: get_peft_model then takes a QuantLinear, a
PackedLinear and a SparseLinear24 like a torch.nn.Linear for LoRA, AdaLoRA, VeRA, IA3, OFT and LoHa,
target_modules="all-linear" finds them, and merge() knows what their weights can hold. LoRA on a
PackedLinear of 4 bits is QLoRA.

    base layer        merged into
    QuantLinear       a QuantLinear of the same dtype: the sum is quantised again
    PackedLinear      a tcgemm.nn.Linear, because 4 bits would lose most of the adapter
    SparseLinear24    a tcgemm.nn.Linear, because the sum has no zeros

unmerge() puts the layer back that was there before, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from peft.tuners import tuners_utils
from peft.tuners.adalora import layer as adalora
from peft.tuners.adalora.model import AdaLoraModel
from peft.tuners.ia3 import layer as ia3
from peft.tuners.ia3.model import IA3Model
from peft.tuners.loha import layer as loha
from peft.tuners.loha.model import LoHaModel
from peft.tuners.lora import layer as lora
from peft.tuners.lora.model import LoraModel
from peft.tuners.oft import layer as oft
from peft.tuners.oft.model import OFTModel
from peft.tuners.tuners_utils import BaseTunerLayer, check_adapters_to_merge
from peft.tuners.vera import layer as vera
from peft.tuners.vera import model as vera_model
from peft.utils.constants import INCLUDE_LINEAR_LAYERS_SHORTHAND, SEQ_CLS_HEAD_NAMES

from tcgemm.nn import PackedLinear, QuantLinear, SparseLinear24

LAYERS = (QuantLinear, PackedLinear, SparseLinear24)
# Other values of init_lora_weights, such as "pissa", subtract the adapter from the base weight.
INITIAL = (True, False, "gaussian", "orthogonal")
_BEFORE = "_tcgemm_before_merge"  # the base layer that a merged adapter was added to


def _base_of(target: Any) -> Any:
    return target.get_base_layer() if isinstance(target, BaseTunerLayer) else target


def _create_lora(create: Callable[..., Any]) -> Callable[..., Any]:
    """LoraModel._create_new_module, which takes our layers as well."""

    def create_new_module(lora_config: Any, adapter_name: str, target: Any, **options: Any) -> Any:
        base = _base_of(target)
        if not isinstance(base, LAYERS):
            return create(lora_config, adapter_name, target, **options)
        if lora_config.init_lora_weights not in INITIAL:
            raise ValueError(
                f"LoRA on {type(base).__name__}: init_lora_weights is "
                f"{lora_config.init_lora_weights!r}, which changes the base weight; expected one "
                f"of {', '.join(map(repr, INITIAL))}, or call get_peft_model before the swap."
            )
        return lora.Linear(target, adapter_name, config=lora_config, **options)

    return create_new_module


def _stand_in(base: Any) -> torch.nn.Linear:
    """A torch.nn.Linear of the same sizes, dtype and device, whose weight takes no memory."""
    linear = torch.nn.Linear(base.in_features, base.out_features, bias=False, device="meta")
    zero = torch.zeros((), dtype=base.weight.dtype, device=base.weight.device)
    linear.weight = torch.nn.Parameter(zero.expand(linear.weight.shape), requires_grad=False)
    return linear


def _create_on_stand_in(create: Callable[..., Any], position: int) -> Callable[..., Any]:
    """A method's _create_new_module, which asks for the class of the layer. Its adapters need the
    sizes, dtype and device of our layers alone. `position` is that of the target."""

    def create_new_module(*arguments: Any, **options: Any) -> Any:
        if "target" in options:  # some callers name it
            before, target, after = arguments, options.pop("target"), ()
        else:
            before, target = arguments[:position], arguments[position]
            after = arguments[position + 1 :]
        base = _base_of(target)
        if not isinstance(base, LAYERS):
            return create(*before, target, *after, **options)
        module = create(*before, _stand_in(base), *after, **options)
        module.base_layer = target
        return module

    return create_new_module


def _update_on_stand_in(update: Callable[..., None]) -> Callable[..., None]:
    """A layer's update_layer, which asks for the class of the base layer for each new adapter."""

    def update_layer(self: Any, *arguments: Any, **options: Any) -> None:
        base, inner = self.get_base_layer(), self.base_layer
        if not isinstance(base, LAYERS):
            return update(self, *arguments, **options)
        self.base_layer = _stand_in(base)
        try:
            update(self, *arguments, **options)
        finally:
            self.base_layer = inner

    return update_layer


def _dense(base: Any) -> torch.nn.Linear:
    """The layer with a float32 weight, which the adapters are added to."""
    return base.to_linear().float().requires_grad_(False)


def _merged(base: Any, dense: torch.nn.Linear) -> torch.nn.Module:
    """The layer of a float32 sum, in the place of our layer."""
    dense = dense.to(base.weight.dtype)
    if isinstance(base, QuantLinear):
        return QuantLinear.from_linear(dense, base.dtype, base.granularity)
    return dense


def _merge_ours(merge: Callable[..., None]) -> Callable[..., None]:
    def merge_ours(
        self: Any, safe_merge: bool = False, adapter_names: list[str] | None = None
    ) -> None:
        base = self.get_base_layer()
        if not isinstance(base, LAYERS) and _BEFORE not in self.__dict__:
            return merge(self, safe_merge=safe_merge, adapter_names=adapter_names)
        names = check_adapters_to_merge(self, adapter_names)
        if not names:
            return None
        if self.base_layer is not base:
            raise RuntimeError(
                f"An adapter on {type(base).__name__} cannot be merged, because another method of "
                "PEFT is between them; unload that one first."
            )
        # Adapters that are merged already are added again to the layer before them: one rounding.
        before = self.__dict__.get(_BEFORE, base)
        already = self.merged_adapters
        result = base
        self.base_layer, self.merged_adapters = _dense(before), []
        try:
            with torch.no_grad():
                merge(self, safe_merge=safe_merge, adapter_names=[*already, *names])
                if self.merged_adapters != already:
                    result = _merged(before, self.base_layer)
                    self.__dict__[_BEFORE] = before
        except BaseException:
            self.merged_adapters = already
            raise
        finally:
            self.base_layer = result

    return merge_ours


def _unmerge_ours(unmerge: Callable[[Any], None]) -> Callable[[Any], None]:
    def unmerge_ours(self: Any) -> None:
        if _BEFORE not in self.__dict__:
            return unmerge(self)
        self.base_layer = self.__dict__.pop(_BEFORE)
        self.merged_adapters.clear()

    return unmerge_ours


_replace = tuners_utils.BaseTuner._replace_module
_find_linears = tuners_utils._maybe_include_all_linear_layers
_vera_class = vera_model._get_tuner_layer_class


def _replace_module(
    self: Any, parent: torch.nn.Module, child_name: str, new_module: Any, child: Any
) -> None:
    """PEFT's function, which would assign the layer's own weight to it when it unloads a method."""
    if isinstance(new_module, LAYERS):
        return setattr(parent, child_name, new_module)
    return _replace(self, parent, child_name, new_module, child)


def _include_all_linear_layers(peft_config: Any, model: Any) -> Any:
    """PEFT's function, which also finds our layers, but not a head."""
    chosen = getattr(peft_config, "target_modules", None)
    peft_config = _find_linears(peft_config, model)
    if not isinstance(chosen, str) or chosen.lower() != INCLUDE_LINEAR_LAYERS_SHORTHAND:
        return peft_config
    heads = {
        getattr(model, name, None)
        for name in (SEQ_CLS_HEAD_NAMES if peft_config.task_type == "SEQ_CLS" else ())
    }
    if hasattr(model, "get_output_embeddings"):
        heads.add(model.get_output_embeddings())
    wrapped = {
        child
        for module in model.modules()
        if isinstance(module, BaseTunerLayer)
        for child in cast(Any, module).modules()
    }
    peft_config.target_modules |= {
        name
        for name, module in model.named_modules()
        if isinstance(module, LAYERS) and module not in heads | wrapped
    }
    return peft_config


def _vera_class_of(target_base_layer: torch.nn.Module) -> Any:
    return vera.Linear if isinstance(target_base_layer, LAYERS) else _vera_class(target_base_layer)


def _register() -> None:
    models: tuple[Any, ...] = AdaLoraModel, IA3Model, OFTModel, LoHaModel
    kinds: list[Any] = [lora.Linear, adalora.SVDLinear, ia3.Linear, oft.Linear]
    kinds += [loha.Linear, vera.Linear]
    modules: tuple[Any, ...] = tuners_utils, vera_model
    LoraModel._create_new_module = staticmethod(_create_lora(LoraModel._create_new_module))
    for model in models:
        model._create_new_module = staticmethod(_create_on_stand_in(model._create_new_module, 2))
    loha.Linear.update_layer = _update_on_stand_in(loha.Linear.update_layer)
    vera_model._get_tuner_layer_class = _vera_class_of
    for kind in kinds:
        kind.merge, kind.unmerge = _merge_ours(kind.merge), _unmerge_ours(kind.unmerge)
    tuners_utils.BaseTuner._replace_module = _replace_module
    for module in modules:
        module._maybe_include_all_linear_layers = _include_all_linear_layers


_register()
