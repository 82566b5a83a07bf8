"""A quantization method of transformers: from_pretrained makes layers of tcgemm.

Importing this module registers the method "tcgemm". It needs transformers 5 or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from tcgemm import dtypes
from tcgemm.nn import QuantLinear, SparseLinear24, SwapReport, swap_linear
from tcgemm.quant.weight import QuantizedWeight
from tcgemm.typing import WeightGranularity, words

if TYPE_CHECKING:
    from torch import Tensor

METHOD = "tcgemm"
# transformers initialises every weight without this mark, and a layer makes `weight` at each use.
_WEIGHTS: Any = QuantizedWeight
_WEIGHTS._is_hf_initialized = True
LAYERS = ("QuantLinear", "SparseLinear24")
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in dtypes.QUANTIZED}
METHODS = ("magnitude", "transposable")


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
        layer (str): "QuantLinear" for 8-bit weights, "SparseLinear24" for frozen 2:4 sparse ones.
        dtype (str | torch.dtype): of the values of a QuantLinear: "float8_e4m3fn", "float8_e5m2" or
            "int8".
        granularity (str): of its scales: "row", "tensor" or "128x128".
        method (str): how a SparseLinear24 prunes: "magnitude" or "transposable".
        modules_to_not_convert (list[str]): names of modules or patterns that stay as they are.
            Layers that share a weight with another module, as a tied head does, stay, too.

    Raises:
        ValueError: One of the words is not known.
    """

    quant_method: Any
    layer: str
    dtype: str
    granularity: str
    method: str
    modules_to_not_convert: list[str]

    def __init__(
        self,
        layer: str = "QuantLinear",
        dtype: str | torch.dtype = "float8_e4m3fn",
        granularity: str = "row",
        method: str = "magnitude",
        modules_to_not_convert: list[str] | tuple[str, ...] = ("lm_head",),
        **_others: Any,
    ) -> None:
        dtype = str(dtype).removeprefix("torch.")
        _check("layer", layer, LAYERS)
        _check("dtype", dtype, tuple(DTYPES))
        _check("granularity", granularity, words(WeightGranularity))
        _check("method", method, METHODS)
        self.quant_method = METHOD
        self.layer = layer
        self.dtype = dtype
        self.granularity = granularity
        self.method = method
        self.modules_to_not_convert = list(modules_to_not_convert)

    def options(self) -> dict[str, Any]:
        """The arguments of swap_linear."""
        if self.layer == "SparseLinear24":
            return {"to": SparseLinear24, "method": self.method}
        return {"to": QuantLinear, "dtype": DTYPES[self.dtype], "granularity": self.granularity}


class _ReadSparse(ConversionOps):
    """Makes the dense weight of the parts in which a sparse one is saved."""

    def __init__(self, quantizer: HfQuantizer) -> None:
        self.hf_quantizer = quantizer  # so that transformers leaves the dtypes of the parts alone

    def convert(
        self,
        input_dict: dict[str, Any],
        source_patterns: list[str],
        target_patterns: list[str],
        **kwargs: Any,
    ) -> dict[str, list[Tensor]]:
        """The pruned weight; the layer is made sparse when all weights are there."""
        parts = {}
        for name, given in input_dict.items():
            tensor = given[0] if isinstance(given, list) else given
            parts[name[name.rindex("weight.") :]] = tensor
        rows, columns = parts["weight.values"].shape[0], int(parts["weight.format"][2])
        layer = SparseLinear24(columns, rows, bias=False, dtype=parts["weight.values"].dtype)
        layer.load_state_dict(parts)
        return {kwargs["full_layer_name"]: [layer.weight.to_dense()]}


def _modules(name: str, names: list[str]) -> list[str]:
    """What swap_linear takes for a name: "lm_head" stands for every module of that last name."""
    full = [each for each in names if each == name or each.endswith(f".{name}")]
    return full or ([] if name == "lm_head" else [name])


class TcgemmQuantizer(HfQuantizer):
    """Swaps layers to QuantLinear before a saved model is read, and others after it was read."""

    requires_calibration: bool = False
    report: SwapReport
    serialized_names: dict[str, list[str]]

    def __init__(self, quantization_config: Any, **kwargs: Any) -> None:
        super().__init__(quantization_config, **kwargs)
        self._config: TcgemmConfig = quantization_config
        if self._config.layer == "SparseLinear24":  # the parts that a weight is saved in
            self.serialized_names = {
                "weight": ["weight.values", "weight.metadata", "weight.format"]
            }

    def get_load_operations(self) -> dict[str, Any]:
        """What reads these parts."""
        return {"deserialize": _ReadSparse}

    def _swap(self, model: torch.nn.Module) -> None:
        config = self._config
        names = [name for name, _ in model.named_modules()]
        skip = [full for name in config.modules_to_not_convert for full in _modules(name, names)]
        self.report = swap_linear(model, skip=skip or None, **config.options())
        if not self.report.swapped:
            raise ValueError(
                f"TcgemmConfig: {type(model).__name__} has no layer that can become a "
                f"{config.layer}; load it without this config.\n{self.report}"
            )

    def _process_model_before_weight_loading(self, model: torch.nn.Module, **_others: Any) -> None:
        if self._has_values():
            self._swap(model)

    def _process_model_after_weight_loading(self, model: Any, **_others: Any) -> Any:
        if not self._has_values():
            self._swap(model)
        return model

    def _has_values(self) -> bool:
        """The saved tensors are those of the layers, value by value."""
        return self.pre_quantized and self._config.layer == "QuantLinear"

    def is_serializable(self, *_arguments: Any, **_options: Any) -> Any:
        """save_pretrained writes the layers' tensors and the config."""
        return True

    @property
    def is_trainable(self) -> Any:
        """The weights of these layers do not learn; an adapter beside them does."""
        return False


# Calls and not decorators, which would hide the classes from type checkers.
register_quantization_config(METHOD)(TcgemmConfig)
register_quantizer(METHOD)(TcgemmQuantizer)
