"""TcgemmConfig: which layers of a model of transformers are tcgemm's, in words that JSON has."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from transformers.utils.quantization_config import QuantizationConfigMixin

from tcgemm import dtypes
from tcgemm.integrations import checkpoints
from tcgemm.nn import (
    Float8Linear,
    PackedLinear,
    QuantConv1D,
    QuantLinear,
    SparseLinear24,
    exchange,
)
from tcgemm.operands.packed.pack import pack_weight
from tcgemm.typing import PackedFormat, PackMethod, WeightGranularity, words

METHOD = "tcgemm"
# The layers whose saved tensors are not those of a torch.nn.Linear, or that need options.
LAYERS: dict[str, type[torch.nn.Module]] = {
    "QuantLinear": QuantLinear,
    "PackedLinear": PackedLinear,
    "SparseLinear24": SparseLinear24,
    "Float8Linear": Float8Linear,
}
# The options of a config for each layer that it may name by `layer`.
OPTIONS: dict[str, tuple[str, ...]] = {
    "QuantLinear": ("dtype", "granularity"),
    "PackedLinear": ("format", "group_size", "zero_points", "method"),
    "SparseLinear24": ("method",),
}
NAMES = (
    *("layer", "dtype", "granularity", "method", "format", "group_size", "zero_points"),
    *("modules_to_not_convert", "checkpoint", "layers"),
)
FLAGS = ("batch_invariant", "constant_weights")
DTYPES = tuple(str(dtype).removeprefix("torch.") for dtype in dtypes.QUANTIZED)
METHODS = ("magnitude", "transposable")  # of SparseLinear24
# What other quantisers and swap_linear call these options.
_FOREIGN = {
    **dict.fromkeys(("bits", "num_bits", "w_bit", "nbits", "weight_bits"), "format"),
    **dict.fromkeys(("load_in_4bit", "quant_type", "bnb_4bit_quant_type"), "format"),
    **dict.fromkeys(("weights", "weight_dtype", "load_in_8bit"), "dtype"),
    **dict.fromkeys(("weight_block_size", "strategy", "block_size"), "granularity"),
    **dict.fromkeys(("q_group_size", "blocksize"), "group_size"),
    **dict.fromkeys(("sym", "symmetric", "zero_point", "desc_act"), "zero_points"),
    **dict.fromkeys(("skip", "ignore", "ignored_layers"), "modules_to_not_convert"),
    **dict.fromkeys(("llm_int8_skip_modules", "exclude"), "modules_to_not_convert"),
    **dict.fromkeys(("to", "layer_type"), "layer"),
}
_HINTS = {
    "format": ' (format="int4" or "nf4" has 4 bits, format="int8" has 8)',
    "dtype": ' (dtype="int8" or "float8_e4m3fn")',
}


def _check(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(
            f"TcgemmConfig: {name} is {value!r}; expected one of {', '.join(allowed)}."
        )


def _check_known(given: Sequence[str], names: tuple[str, ...], where: str = "") -> None:
    """TypeError: an option has a name that no option has."""
    for name in given:
        if name not in names:
            near = _FOREIGN.get(name)
            if near not in names:
                near = difflib.get_close_matches(name, names, 1, 0.0)[0]
            raise TypeError(
                f"TcgemmConfig: there is no option {name!r}{where}; the nearest is {near!r}"
                f"{_HINTS.get(near, '') if name in _FOREIGN else ''}, and the options are "
                f"{', '.join(names)}."
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
            8 bits alone, "SparseLinear24" for frozen 2:4 sparse weights. The default is
            "PackedLinear" where one of its options is given, and else "QuantLinear".
        dtype (str | torch.dtype): of the values of a QuantLinear: "float8_e4m3fn" (the default),
            "float8_e5m2" or "int8".
        granularity (str): of its scales: "row" (the default), "tensor" or "128x128".
        method (str): how a SparseLinear24 prunes: "magnitude" (the default) or "transposable"; how
            a PackedLinear packs: "nearest" (the default) or "mse".
        format (str), group_size (int), zero_points (bool): of a PackedLinear, as for
            tcgemm.pack_weight. The format "table" needs `layers`.
        modules_to_not_convert (list[str]): names of modules or patterns that stay as they are; by
            default ["lm_head"]. Layers that share a weight with another module, as a tied head
            does, stay, too.
        checkpoint (str): whose names and shapes the scales of a saved model have: "tcgemm", "fp8"
            or "compressed-tensors". `of` sets it.
        layers (list[dict]): in place of all these, for a model with several kinds of layers: each
            dict has "modules", the names of modules or patterns, "layer", one of the layers above
            or "Float8Linear", and the options of swap_linear for it. Other modules stay.

    Raises:
        ValueError: One of the words is not known, or an option is one of another layer.
        TypeError: There is no option of this name. The error names the nearest.
    """

    quant_method: Any
    layer: str
    dtype: str
    granularity: str
    method: str
    format: str
    group_size: int | str | None
    zero_points: bool
    modules_to_not_convert: list[str]
    layers: list[dict[str, Any]]
    checkpoint: str

    def __init__(
        self,
        layer: str | None = None,
        dtype: str | torch.dtype | None = None,
        granularity: str | None = None,
        method: str | None = None,
        format: str | None = None,
        group_size: int | str | None = "default",
        zero_points: bool | None = None,
        modules_to_not_convert: list[str] | tuple[str, ...] | None = None,
        checkpoint: str = METHOD,
        layers: Sequence[dict[str, Any]] | None = None,
        quant_method: str = METHOD,
        **others: Any,
    ) -> None:
        _check_known(list(others), NAMES)
        _check("quant_method", quant_method, (METHOD,))
        _check("checkpoint", checkpoint, (METHOD, *checkpoints.READERS))
        self.quant_method = METHOD
        self.checkpoint = checkpoint
        given = {
            "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
            "granularity": granularity,
            "format": format,
            "group_size": "a row" if group_size is None else group_size,
            "zero_points": zero_points,
            "method": method,
        }
        chosen = [name for name, value in given.items() if value not in (None, "default")]
        if layers is not None:
            more = {"layer": layer, "modules_to_not_convert": modules_to_not_convert}
            chosen += [name for name, value in more.items() if value is not None]
            if chosen or checkpoint != METHOD:
                raise ValueError(
                    "TcgemmConfig: layers says which modules become which layers, but "
                    f"{', '.join(chosen) or 'checkpoint'} came as well; put options into the dicts "
                    "of layers, and leave out of them the modules that stay."
                )
            self.layers = [_checked(entry) for entry in layers]
            return
        if layer is None:
            packed = set(chosen) & {"format", "group_size", "zero_points"}
            layer = "PackedLinear" if packed else "QuantLinear"
        _check("layer", layer, tuple(OPTIONS))
        for name in chosen:
            if name not in OPTIONS[layer]:
                shown = group_size if name == "group_size" else given[name]
                having = " or ".join(repr(one) for one in OPTIONS if name in OPTIONS[one])
                raise ValueError(
                    f"TcgemmConfig: {name} is {shown!r}, but a {layer} has no {name}; its options "
                    f"are {', '.join(OPTIONS[layer])}. Pass layer={having}, or leave {name} out."
                )
        self.layer = layer
        self._set_options(given, group_size)
        left = ("lm_head",) if modules_to_not_convert is None else modules_to_not_convert
        self.modules_to_not_convert = list(left)

    def _set_options(self, given: dict[str, Any], group_size: int | str | None) -> None:
        if self.layer == "QuantLinear":
            self.dtype = given["dtype"] or DTYPES[0]
            self.granularity = given["granularity"] or "row"
            _check("dtype", self.dtype, DTYPES)
            _check("granularity", self.granularity, words(WeightGranularity))
            return
        methods = words(PackMethod) if self.layer == "PackedLinear" else METHODS
        self.method = given["method"] or methods[0]
        _check("method", self.method, methods)
        if self.layer == "PackedLinear":
            self.format = given["format"] or "int4"
            self.group_size, self.zero_points = group_size, bool(given["zero_points"])
            names = tuple(name for name in words(PackedFormat) if name != "table")
            _check("format", self.format, names)

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

    @classmethod
    def of_model(cls, model: torch.nn.Module) -> TcgemmConfig:
        """The config of the layers that a model has, such as swap_linear made them.

        Example:
            >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
            >>> report = tcgemm.swap_linear(model, "0", to=tcgemm.nn.QuantLinear, dtype="int8")
            >>> TcgemmConfig.of_model(model).layers[0]["modules"]
            ['0']

        swap_linear gives it to a model of transformers itself, so save_pretrained writes it. Where
        only a part of such a model was swapped, as by swap_linear(model.model, ...), set it before
        save_pretrained:

            model.config.quantization_config = TcgemmConfig.of_model(model)

        Raises:
            ValueError: No layer of the model needs a config, or one cannot be made again by it.
        """
        layers = layers_of(model)
        if not layers:
            raise ValueError(
                f"TcgemmConfig.of_model: {type(model).__name__} has no layer of tcgemm that needs "
                f"a config; expected one of {', '.join(LAYERS)}. Save it without."
            )
        return cls(layers=layers)

    def swaps(self) -> list[tuple[list[str] | None, dict[str, Any]]]:
        """(names of modules, or None for all; the arguments of swap_linear) of each swap."""
        if vars(self).get("layers") is None:
            return [(None, self.options())]
        result: list[tuple[list[str] | None, dict[str, Any]]] = []
        for entry in self.layers:
            options = {k: v for k, v in entry.items() if k not in ("layer", "modules")}
            result.append((entry["modules"], {"to": LAYERS[entry["layer"]], **options}))
        return result

    def options(self) -> dict[str, Any]:
        """The arguments of swap_linear, of a config without `layers`."""
        chosen = {name: getattr(self, name) for name in OPTIONS[self.layer]}
        return {"to": LAYERS[self.layer], **chosen}


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    """A dict of `layers` in words that JSON has."""
    _check("layer in layers", entry.get("layer"), tuple(LAYERS))
    layer, modules = entry["layer"], entry.get("modules")
    options = (*exchange.EXCHANGES[LAYERS[layer]][0].options, "constant_weights")
    names = tuple(dict.fromkeys(("layer", "modules", *options)))
    _check_known(list(entry), names, f" of a {layer} in layers")
    if not isinstance(modules, (list, tuple)) or not modules:
        raise ValueError(
            f"TcgemmConfig: modules in layers is {modules!r}; expected a list of names of modules "
            f"or patterns, such as ['*.mlp.*'], which become a {layer}."
        )
    return {name: _word(value) for name, value in entry.items()}


def _word(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def layers_of(model: torch.nn.Module) -> list[dict[str, Any]]:
    """The `layers` of a config that makes the layers of this model."""
    groups: list[dict[str, Any]] = []
    for name, module in model.named_modules():
        options = _options_of(name, module)
        if options is None:
            continue
        name = name.removesuffix(".base_layer")  # PEFT puts the layer of an adapter there
        for group in groups:
            if {**group, "modules": None} == {**options, "modules": None}:
                group["modules"].append(name)
                break
        else:
            groups.append({**options, "modules": [name]})
    return groups


def _options_of(name: str, module: Any) -> dict[str, Any] | None:
    """What swap_linear needs to make this layer; None if it is no layer that needs a config."""
    options: dict[str, Any]
    if isinstance(module, (QuantLinear, QuantConv1D)):
        options = {"layer": "QuantLinear", "dtype": module.dtype, "granularity": module.granularity}
    elif isinstance(module, PackedLinear):
        options = {"layer": "PackedLinear", **_packed(name, module)}
    elif isinstance(module, SparseLinear24):
        options = {"layer": "SparseLinear24", **_sparse(name, module)}
    elif isinstance(module, Float8Linear):
        names = ("scaling", "history", "precision")
        options = {"layer": "Float8Linear"} | {name: getattr(module, name) for name in names}
    else:
        return None
    flags = [flag for flag in FLAGS if getattr(module, flag, False)]
    return {key: _word(value) for key, value in options.items()} | dict.fromkeys(flags, True)


def _packed(name: str, layer: PackedLinear) -> dict[str, Any]:
    packed = layer.packed
    options: dict[str, Any] = {"format": layer.format, "group_size": layer.group_size}
    parts = packed.stored.parts
    options["zero_points"] = parts.zero_points is not None or parts.offsets is not None
    options["scale_dtype"] = packed.scales.dtype
    if layer.format == "table":
        options["table"] = packed.table
    one = torch.zeros(1, layer.in_features, dtype=layer.shown_dtype, device="cpu")
    made = pack_weight(one, **options).stored.parts.tensors()
    if made.keys() != parts.tensors().keys():
        raise ValueError(
            f"TcgemmConfig.of_model: {name} has the parts {', '.join(parts.tensors())}, but "
            f"pack_weight makes {', '.join(made)} of its format; pack its weight with "
            "tcgemm.pack_weight, or save the state_dict."
        )
    return options


def _sparse(name: str, layer: SparseLinear24) -> dict[str, Any]:
    if not layer.learns:  # the positions are read, and nothing chooses them again
        return {"method": METHODS[0] if layer.method == "mask" else layer.method}
    if layer.method == "mask":
        raise ValueError(
            f"TcgemmConfig.of_model: {name} is a SparseLinear24 that learns with a mask, which no "
            "config has; save the state_dict, or freeze the layer."
        )
    names = ("method", "learns", "refresh_every", "gradient")
    return {name: getattr(layer, name) for name in names}
