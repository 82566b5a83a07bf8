"""A quantization method of transformers: from_pretrained makes layers of tcgemm.

Importing this module registers the method "tcgemm". It needs transformers 5 or later, and 5.21 to
read a saved SparseLinear24 or a checkpoint of another method.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils import logging

from tcgemm.integrations import checkpoints, transformers_dispatch
from tcgemm.integrations.transformers_config import LAYERS, METHOD, TcgemmConfig, layers_of
from tcgemm.nn import Float8Linear, SparseLinear24, SwapReport, swap_linear
from tcgemm.nn.coverage import Coverage
from tcgemm.nn.exchange import layer_of
from tcgemm.nn.sparse_state import REFRESH, SAVED_PARTS
from tcgemm.operands.packed.view import PackedView
from tcgemm.operands.quant.weight import QuantizedWeight

__all__ = ["TcgemmConfig", "TcgemmQuantizer"]

_LOGGER = logging.get_logger(f"transformers.{METHOD}")  # as loud as transformers.logging says

# transformers initialises every weight without this mark, and a layer makes `weight` at each use.
for _weights in (QuantizedWeight, PackedView):
    _mark: Any = _weights
    _mark._is_hf_initialized = True
# What a saved SparseLinear24 has in place of its weight.
_SPARSE_PARTS = (*SAVED_PARTS, REFRESH)


class _Read(ConversionOps):
    """Makes a tensor of a layer of what a saved model has in its place."""

    def __init__(self, quantizer: HfQuantizer) -> None:
        self.hf_quantizer = quantizer  # so that transformers leaves the dtypes of the parts alone

    def __deepcopy__(self, memo: Any) -> _Read:
        return self  # transformers copies it for each tensor, and would copy the quantizer

    def convert(
        self, input_dict: dict[str, Any], *_patterns: Any, **kwargs: Any
    ) -> dict[str, list[Tensor]]:
        name = kwargs["full_layer_name"]
        parts = {
            key: tensors[0] if isinstance(tensors, list) else tensors
            for key, tensors in input_dict.items()
        }
        return {name: [self._tensor(parts, name, kwargs["model"])]}

    def _tensor(self, parts: dict[str, Tensor], name: str, model: torch.nn.Module) -> Tensor:
        raise NotImplementedError


class _ReadSparse(_Read):
    """A dense weight with the zeros of a sparse one, which is compressed when all are there."""

    def _tensor(self, parts: dict[str, Tensor], name: str, model: torch.nn.Module) -> Tensor:
        # A layer that learns has a dense weight as well, by a pattern of _add_learning.
        parts = {key if key in _SPARSE_PARTS else "weight": part for key, part in parts.items()}
        quantizer: Any = self.hf_quantizer
        quantizer.parts[name.rpartition(".")[0]] = parts
        if "weight" in parts:
            return parts["weight"]
        rows, columns = parts["weight.values"].shape[0], int(parts["weight.format"][2])
        layer = SparseLinear24(columns, rows, bias=False, dtype=parts["weight.values"].dtype)
        layer.load_state_dict(parts)
        return layer.weight.to_dense()


class _ReadScale(_Read):
    """A scale of another method, with the dtype and the shape of QuantLinear's."""

    def _tensor(self, parts: dict[str, Tensor], name: str, model: torch.nn.Module) -> Tensor:
        (scale,) = parts.values()
        layer: Any = model.get_submodule(name.rpartition(".")[0])
        return checkpoints.as_scale(scale, layer.weight_scale, name)


def _modules(name: str, names: list[str]) -> list[str]:
    """What swap_linear takes for a name: "lm_head" stands for every module of that last name."""
    if name.startswith("re:"):  # of compressed-tensors
        return [module for module in names if re.match(name[3:], module)]
    full = [module for module in names if module == name or module.endswith(f".{name}")]
    return full or ([] if name == "lm_head" else [name])


def _tied_layers(model: Any) -> list[str]:
    """The layers whose weight transformers ties. Before a model is read, no tensor is shared."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    owners = [name.rpartition(".") for pair in tied.items() for name in pair]
    layers = [module for module, _, part in owners if part == "weight"]
    kept = [name for name in layers if isinstance(model.get_submodule(name), torch.nn.Linear)]
    return list(dict.fromkeys(kept))


def _named(model: Any, names: list[str], modules: list[str], may_miss: bool) -> list[str]:
    """The modules that `layers` of a config names or has patterns of.

    A model with a head has a prefix that the model without has not.
    """
    prefix = f"{model.base_model_prefix}."
    result: list[str] = []
    for pattern in modules:
        others = (pattern, prefix + pattern, pattern.removeprefix(prefix))
        found = next(filter(None, ([n for n in names if fnmatchcase(n, o)] for o in others)), [])
        if not found and not may_miss:
            raise ValueError(
                f"TcgemmConfig: layers names {pattern}, but {type(model).__name__} has no such "
                "module; pass names of model.named_modules(), or patterns such as '*.mlp.*'."
            )
        result += found
    return result


def _exact(choice: dict[str, Any]) -> dict[str, Any]:
    """A filter_fn of full names: a name would take the modules inside a module as well."""
    if "filter_fn" not in choice:
        return choice
    chosen = set(choice["filter_fn"])
    return {"filter_fn": lambda _, name: name in chosen}


def _load_sparse(layer: Any, parts: dict[str, Tensor]) -> None:
    """Takes the saved positions, which the dense weight alone may not tell."""
    if isinstance(layer, SparseLinear24):
        state = {k: v for k, v in layer.state_dict().items() if k not in SAVED_PARTS}
        layer.load_state_dict(state | parts)


def _refuse_undo() -> None:
    raise RuntimeError(
        "tcgemm.SwapReport.undo: from_pretrained does not keep the weights of before the swap; "
        "load the model without TcgemmConfig, or call "
        "tcgemm.swap_linear(model, to=torch.nn.Linear), which dequantises."
    )


class TcgemmQuantizer(HfQuantizer):
    """Swaps layers to QuantLinear before a saved model is read, and others after it was read."""

    requires_calibration: bool = False
    quantization_config: Any
    report: SwapReport
    serialized_names: dict[str, list[str]]

    def __init__(self, quantization_config: Any, **kwargs: Any) -> None:
        super().__init__(quantization_config, **kwargs)
        self._config: TcgemmConfig = quantization_config
        self._layers: list[dict[str, Any]] | None = None  # as the config makes them
        self.parts: dict[str, dict[str, Tensor]] = {}  # of sparse weights that are read now
        self.report = SwapReport()
        if any(options["to"] is SparseLinear24 for _, options in self._config.swaps()):
            self.serialized_names = {"weight": [*_SPARSE_PARTS]}  # in place of a weight
        elif self._config.checkpoint != METHOD:
            self.serialized_names = {"weight_scale": [checkpoints.READERS[self._config.checkpoint]]}
        else:
            return
        if self.pre_quantized and not hasattr(HfQuantizer, "serialized_names"):
            raise ImportError(
                f"TcgemmConfig: transformers {transformers.__version__} reads no weights that are "
                "saved in parts, as SparseLinear24 and other methods save them; expected 5.21 "
                "or later: pip install -U transformers."
            )

    def get_load_operations(self) -> dict[str, Any]:
        """What reads these parts."""
        sparse = "weight" in self.serialized_names
        return {"deserialize": _ReadSparse if sparse else _ReadScale}

    def _add_learning(self, model: Any) -> None:
        """Lets the dense weights of sparse layers that learn come together with their parts."""
        for modules, options in self._config.swaps():
            if modules is not None and options.get("learns"):
                prefix = f"{model.base_model_prefix}."
                names = [re.escape(f"{name.removeprefix(prefix)}.") for name in modules]
                self.serialized_names["weight"] += [f"(?<={name})weight$" for name in names]

    def _swap(
        self,
        model: Any,
        swaps: list[tuple[list[str] | None, dict[str, Any]]],
        only: list[str] | None = None,
    ) -> None:
        names = [name for name, _ in model.named_modules()]
        for modules, options in swaps:
            choice: dict[str, Any] = {}
            if only is not None:
                tied = _tied_layers(model)  # check_all_read refuses the scale of one
                choice["filter_fn"] = [
                    name for name in names if checkpoints.has(only, name) and name not in tied
                ]
            elif modules is not None:
                choice["filter_fn"] = _named(model, names, modules, self.pre_quantized)
            else:
                left = self._config.modules_to_not_convert
                skip = [full for name in left for full in _modules(name, names)]
                choice["skip"] = [*skip, *_tied_layers(model)] or None
            self._add(swap_linear(model, **_exact(choice), **options))
        if not self.report.swapped:
            layers = " or ".join(dict.fromkeys(o["to"].__name__ for _, o in swaps))
            raise ValueError(
                f"TcgemmConfig: {type(model).__name__} has no layer that can become a "
                f"{layers}; load it without this config.\n{self.report}"
            )

    def _add(self, report: SwapReport) -> None:
        """Adds what a swap did to the report of all, which cannot undo it."""
        swapped = [*self.report.swapped, *report.swapped]
        skipped = {name: why for name, why in report.skipped.items() if name not in swapped}
        # The steps of undo() hold the weights of before.
        self.report = replace(
            report, swapped=swapped, skipped=skipped, _steps=[], _after_undo=_refuse_undo
        )

    def _tell(self, model: Any) -> None:
        """Says what share of the model the layers have: few where experts are no linear layers."""
        counts = Coverage(model).count()  # the weights are tied now
        self.report.reached, self.report.weights, self.report.not_reached = counts
        _LOGGER.warning(
            "tcgemm: %d layers of %s are tcgemm's; from_pretrained %s.",
            len(self.report.swapped),
            type(model).__name__,
            self.report.coverage(),
        )

    def _swaps(self, before: bool) -> list[tuple[list[str] | None, dict[str, Any]]]:
        """The swaps before the weights are read, or after it: sparse weights come as dense ones."""
        return [
            swap
            for swap in self._config.swaps()
            if before is (self.pre_quantized and swap[1]["to"] is not SparseLinear24)
        ]

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **_others: Any
    ) -> None:
        if self.pre_quantized:
            self._add_learning(model)
        swaps = self._swaps(before=True)
        if not swaps:
            return
        if self._config.checkpoint == METHOD:
            return self._swap(model, swaps)
        method = self._config.checkpoint
        suffix = checkpoints.READERS[method]
        scaled, others = checkpoints.scaled_modules(checkpoint_files or (), suffix)
        unused = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
        checkpoints.check_other_scales(others, model, unused, method)
        self._swap(model, swaps, scaled)
        checkpoints.check_all_read(scaled, self.report.swapped, unused)

    def _process_model_after_weight_loading(self, model: Any, **_others: Any) -> Any:
        if swaps := self._swaps(before=False):
            with transformers_dispatch.without_hooks(model, self):
                self._swap(model, swaps)
                for name, parts in self.parts.items():
                    _load_sparse(model.get_submodule(name), parts)
        self.parts = {}
        for module in model.modules():
            if isinstance(module, Float8Linear):
                module.load_state_dict(module.state_dict())  # it asks what the history knows
        transformers_dispatch.check_offloaded(model)
        self._tell(model)
        # It is saved as tcgemm's own: the names and forms of another checkpoint are not made again.
        self._config.checkpoint = METHOD
        left = [
            conversion
            for conversion in getattr(model, "_weight_conversions", None) or []
            if not any(isinstance(op, _Read) for op in getattr(conversion, "operations", ()))
        ]
        model._weight_conversions = left or None
        model.hf_quantizer = self  # swap_linear set one of its own
        self._layers = layers_of(model)
        return model

    def get_state_dict_and_metadata(self, model: Any) -> tuple[None, dict[str, Any]]:
        """transformers calls it before a model is saved. The config tells what layers it has now.

        PEFT makes a SparseLinear24 dense when it merges an adapter, and swap_linear any layer.
        """
        layers = layers_of(model)
        if not layers:
            self.remove_quantization_config(model)
        elif layers != self._layers:
            config = TcgemmConfig(layers=layers)  # the user may load another model with the other
            model.config.quantization_config = self.quantization_config = self._config = config
            self._layers = layers
        return None, {}

    def _dequantize(self, model: Any, dtype: torch.dtype | None = None) -> Any:
        """Makes every layer a torch.nn.Linear, for model.dequantize()."""
        layers = [name for name, module in model.named_modules() if layer_of(module)]
        report = swap_linear(model, to=torch.nn.Linear, dtype=dtype)
        stay = [f"{name} {why}" for name, why in report.skipped.items() if name in layers]
        if stay:
            report.undo()
            raise ValueError(
                f"{type(model).__name__}.dequantize: {len(stay)} layers have no form of "
                f"torch.nn.Linear: {'; '.join(stay[:4])}. Nothing was changed."
            )
        for name in report.swapped:
            model.get_submodule(name).to(dtype)
        return model

    def is_serializable(self, *_arguments: Any, **_options: Any) -> Any:
        """save_pretrained writes the layers' tensors and the config."""
        return True

    @property
    def is_trainable(self) -> Any:
        """Adapters beside these layers learn. Trainer refuses a model without adapters."""
        return True

    @property
    def is_qat_trainable(self) -> bool:
        """Do all layers learn? Then Trainer takes the model without adapters, too."""
        layers = self._config.layers if "layers" in vars(self._config) else [{"layer": "other"}]
        return all(one["layer"] == "Float8Linear" or one.get("learns") for one in layers)


def describe(model: Any) -> None:
    """Gives a model the quantizer that tells save_pretrained which layers it has.

    swap_linear calls it for each PreTrainedModel, also after undo(). The layers are described when
    the model is saved: later swaps may change them.
    """
    quantizer = vars(model).get("hf_quantizer")
    if not any(isinstance(module, tuple(LAYERS.values())) for module in model.modules()):
        if isinstance(quantizer, TcgemmQuantizer):
            quantizer.remove_quantization_config(model)
    elif quantizer is None:
        model.hf_quantizer = TcgemmQuantizer(TcgemmConfig(layers=[]))


# Calls and not decorators, which would hide the classes from type checkers.
register_quantization_config(METHOD)(TcgemmConfig)
register_quantizer(METHOD)(TcgemmQuantizer)
