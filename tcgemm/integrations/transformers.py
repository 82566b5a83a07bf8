"""A quantization method of transformers: from_pretrained makes layers of tcgemm.

Importing this module registers the method "tcgemm". It needs transformers 5 or later, and 5.21 to
read a saved SparseLinear24 or a checkpoint of another method.
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from tcgemm import dtypes
from tcgemm.integrations import checkpoints, transformers_dispatch
from tcgemm.nn import (
    PackedLinear,
    QuantLinear,
    SparseLinear24,
    SwapReport,
    conv1d,
    exchange,
    swap_linear,
)
from tcgemm.nn.sparse_state import SAVED_PARTS
from tcgemm.operands.packed.view import PackedView
from tcgemm.operands.quant.weight import QuantizedWeight
from tcgemm.typing import PackedFormat, PackMethod, WeightGranularity, words

METHOD = "tcgemm"
# transformers initialises every weight without this mark, and a layer makes `weight` at each use.
for _weights in (QuantizedWeight, PackedView):
    _mark: Any = _weights
    _mark._is_hf_initialized = True
# What a layer was before the swap, and is again after swap_linear or a merge of an adapter.
DENSE = (exchange.LINEAR, conv1d.CONV1D_OR_OURS)
LAYERS = ("QuantLinear", "PackedLinear", "SparseLinear24")
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in dtypes.QUANTIZED}
METHODS = ("magnitude", "transposable")  # of SparseLinear24


def _check(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(
            f"TcgemmConfig: {name} is {value!r}; expected one of {', '.join(allowed)}."
        )


class TcgemmConfig(QuantizationConfigMixin):
    """Which layers of a model of transformers become layers of tcgemm, and how.

    Example:
        >>> from tcgemm.integrations.transformers import TcgemmConfig
        >>> config = TcgemmConfig(dtype="int8")
        >>> config.layer, config.dtype, config.granularity, config.modules_to_not_convert
        ('QuantLinear', 'int8', 'row', ['lm_head'])

    Pass it to `AutoModel.from_pretrained(..., quantization_config=...)`. A model that was saved
    with it is loaded without it, if this module was imported.

    Arguments:
        layer (str): "QuantLinear" for 8-bit weights and inputs, "PackedLinear" for weights of 4 or
            8 bits alone, "SparseLinear24" for frozen 2:4 sparse weights.
        dtype (str | torch.dtype): of the values of a QuantLinear: "float8_e4m3fn", "float8_e5m2" or
            "int8".
        granularity (str): of its scales: "row", "tensor" or "128x128".
        method (str): how a SparseLinear24 prunes: "magnitude" (the default) or "transposable"; how
            a PackedLinear packs: "nearest" (the default) or "mse".
        format (str), group_size (int), zero_points (bool): of a PackedLinear, as for
            tcgemm.pack_weight. The format "table" has no place in a config.
        modules_to_not_convert (list[str]): names of modules or patterns that stay as they are.
            Layers that share a weight with another module, as a tied head does, stay, too.
        checkpoint (str): whose names and shapes the scales of a saved model have: "tcgemm", "fp8"
            or "compressed-tensors". `of` sets it.

    Raises:
        ValueError: One of the words is not known.
    """

    quant_method: Any
    layer: str
    dtype: str
    granularity: str
    method: str
    # Attributes of the object for a PackedLinear alone, so that other configs are saved without.
    format: str = "int4"
    group_size: int | str | None = "default"
    zero_points: bool = False
    modules_to_not_convert: list[str]
    checkpoint: str

    def __init__(
        self,
        layer: str = "QuantLinear",
        dtype: str | torch.dtype = "float8_e4m3fn",
        granularity: str = "row",
        method: str | None = None,
        format: str = "int4",
        group_size: int | str | None = "default",
        zero_points: bool = False,
        modules_to_not_convert: list[str] | tuple[str, ...] = ("lm_head",),
        checkpoint: str = METHOD,
        **_others: Any,
    ) -> None:
        dtype = str(dtype).removeprefix("torch.")
        _check("layer", layer, LAYERS)
        _check("dtype", dtype, tuple(DTYPES))
        _check("granularity", granularity, words(WeightGranularity))
        methods = words(PackMethod) if layer == "PackedLinear" else METHODS
        chosen: str = methods[0] if method is None else method
        _check("method", chosen, methods)
        _check("format", format, tuple(name for name in words(PackedFormat) if name != "table"))
        _check("checkpoint", checkpoint, (METHOD, *checkpoints.READERS))
        self.quant_method = METHOD
        self.layer = layer
        self.dtype = dtype
        self.granularity = granularity
        self.method = chosen
        if layer == "PackedLinear":
            self.format, self.group_size, self.zero_points = format, group_size, zero_points
        self.modules_to_not_convert = list(modules_to_not_convert)
        self.checkpoint = checkpoint

    @classmethod
    def of(cls, other: Any) -> TcgemmConfig:
        """The config by which QuantLinear reads a checkpoint of another 8-bit method.

        Example:
            >>> other = {"quant_method": "fp8", "weight_block_size": [128, 128]}
            >>> TcgemmConfig.of(other).granularity
            '128x128'

        Give the model's config the dict of this config, and load the model with it:

            config = AutoConfig.from_pretrained(folder)
            other = TcgemmConfig.of(config.quantization_config)
            config.quantization_config = other.to_dict()
            model = AutoModelForCausalLM.from_pretrained(folder, config=config)

        Arguments:
            other: the quantization_config of the checkpoint, a dict or an object of transformers:
                of the method "fp8" (DeepSeek's names) or "compressed-tensors" with 8-bit weights.

        Raises:
            ValueError: The checkpoint has another method, or weights that no QuantLinear has.
        """
        config = other if isinstance(other, dict) else other.to_dict()
        return cls(**checkpoints.options_of(config))

    def options(self) -> dict[str, Any]:
        """The arguments of swap_linear."""
        if self.layer == "SparseLinear24":
            return {"to": SparseLinear24, "method": self.method}
        if self.layer == "PackedLinear":
            names = ("format", "group_size", "method", "zero_points")
            return {"to": PackedLinear} | {name: getattr(self, name) for name in names}
        return {"to": QuantLinear, "dtype": DTYPES[self.dtype], "granularity": self.granularity}


class _Read(ConversionOps):
    """Makes a tensor of a layer of what a saved model has in its place."""

    def __init__(self, quantizer: HfQuantizer) -> None:
        self.hf_quantizer = quantizer  # so that transformers leaves the dtypes of the parts alone

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
        parts = {key[key.rindex("weight.") :]: part for key, part in parts.items()}
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


def _refuse_undo() -> None:
    raise RuntimeError(
        "tcgemm.SwapReport.undo: from_pretrained does not keep the weights of before the swap; "
        "load the model without TcgemmConfig, or call "
        "tcgemm.swap_linear(model, to=torch.nn.Linear), which dequantises."
    )


class TcgemmQuantizer(HfQuantizer):
    """Swaps layers to QuantLinear before a saved model is read, and others after it was read."""

    requires_calibration: bool = False
    report: SwapReport
    serialized_names: dict[str, list[str]]

    def __init__(self, quantization_config: Any, **kwargs: Any) -> None:
        super().__init__(quantization_config, **kwargs)
        self._config: TcgemmConfig = quantization_config
        if self._config.layer == "SparseLinear24":  # the parts that a weight is saved in
            self.serialized_names = {"weight": list(SAVED_PARTS)}
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
        sparse = self._config.layer == "SparseLinear24"
        return {"deserialize": _ReadSparse if sparse else _ReadScale}

    def _swap(self, model: torch.nn.Module, only: list[str] | None = None) -> None:
        config = self._config
        names = [name for name, _ in model.named_modules()]
        choice: dict[str, Any] = {}
        if only is None:
            left = config.modules_to_not_convert
            skip = [full for name in left for full in _modules(name, names)]
            choice["skip"] = [*skip, *_tied_layers(model)] or None
        else:
            chosen = [name for name in names if checkpoints.has(only, name)]
            choice["filter_fn"] = lambda _, name: name in chosen
        report = swap_linear(model, **choice, **config.options())
        # The steps of undo() hold the weights of before.
        self.report = replace(report, _steps=[], _after_undo=_refuse_undo)
        if not self.report.swapped:
            raise ValueError(
                f"TcgemmConfig: {type(model).__name__} has no layer that can become a "
                f"{config.layer}; load it without this config.\n{self.report}"
            )

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **_others: Any
    ) -> None:
        if not self._has_values():
            return
        if self._config.checkpoint == METHOD:
            return self._swap(model)
        method = self._config.checkpoint
        suffix = checkpoints.READERS[method]
        scaled, others = checkpoints.scaled_modules(checkpoint_files or (), suffix)
        unused = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
        checkpoints.check_other_scales(others, model, unused, method)
        self._swap(model, scaled)
        checkpoints.check_all_read(scaled, self.report.swapped, unused)

    def _process_model_after_weight_loading(self, model: Any, **_others: Any) -> Any:
        if not self._has_values():
            with transformers_dispatch.without_hooks(model, self):
                self._swap(model)
        transformers_dispatch.check_offloaded(model)
        # It is saved as tcgemm's own: the names and forms of another checkpoint are not made again.
        self._config.checkpoint = METHOD
        left = [
            conversion
            for conversion in getattr(model, "_weight_conversions", None) or []
            if not any(isinstance(op, _Read) for op in getattr(conversion, "operations", ()))
        ]
        model._weight_conversions = left or None
        return model

    def get_state_dict_and_metadata(self, model: Any) -> tuple[None, dict[str, Any]]:
        """transformers calls it before a model is saved. The config names layers that are dense.

        PEFT makes a SparseLinear24 dense when it merges an adapter, and swap_linear any layer.
        """
        dense = [
            name
            for name, module in model.named_modules()
            if name in self.report.swapped and any(kind.includes(module) for kind in DENSE)
        ]
        if len(dense) == len(self.report.swapped):
            self.remove_quantization_config(model)
        elif dense:
            config = copy.copy(self._config)  # the user may load another model with this one
            left = [*config.modules_to_not_convert, *dense]
            config.modules_to_not_convert = list(dict.fromkeys(left))
            model.config.quantization_config = self._config = config
        return None, {}

    def _has_values(self) -> bool:
        """The saved tensors are the tensors of the layers, value by value."""
        return self.pre_quantized and self._config.layer != "SparseLinear24"

    def is_serializable(self, *_arguments: Any, **_options: Any) -> Any:
        """save_pretrained writes the layers' tensors and the config."""
        return True

    @property
    def is_trainable(self) -> Any:
        """Adapters beside these layers learn. A model without adapters is refused by Trainer."""
        return True


# Calls and not decorators, which would hide the classes from type checkers.
register_quantization_config(METHOD)(TcgemmConfig)
register_quantizer(METHOD)(TcgemmQuantizer)
