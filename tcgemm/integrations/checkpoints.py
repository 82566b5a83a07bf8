"""Checkpoints of other 8-bit methods: what their configs say, and where their scales are.

    method               scale of a weight          config
    fp8                  weight_scale_inv           weight_block_size: [128, 128], or none
    compressed-tensors   weight_scale               config_groups, each with its strategy

In both a weight is its 8-bit values times the scale, as in QuantLinear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

# Method -> the last part of the name of a scale.
READERS = {"fp8": "weight_scale_inv", "compressed-tensors": "weight_scale"}
BLOCK = [128, 128]
STRATEGIES = {"tensor": "tensor", "channel": "row", "block": "128x128"}
TYPES = {("float", 8): "float8_e4m3fn", ("int", 8): "int8"}
_NAME = "TcgemmConfig.of"
# The beginnings of names of scales of activations, which QuantLinear computes itself.
_ACTIVATIONS = ("input_", "output_", "activation_", "q_", "k_", "v_")


def options_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a TcgemmConfig for the quantization_config of a checkpoint.

    ValueError: no QuantLinear has such weights.
    """
    method = str(getattr(config.get("quant_method"), "value", config.get("quant_method")))
    if method not in READERS:
        raise ValueError(
            f"{_NAME}: quant_method is {method!r}; expected {' or '.join(map(repr, READERS))}."
        )
    dtype, granularity, left = _fp8(config) if method == "fp8" else _compressed(config)
    return {
        "layer": "QuantLinear",
        "dtype": dtype,
        "granularity": granularity,
        "modules_to_not_convert": left or ["lm_head"],
        "checkpoint": method,
    }


def _fp8(config: Mapping[str, Any]) -> tuple[str, str, Any]:
    """(dtype, granularity, modules without 8-bit weights)."""
    block = config.get("weight_block_size")
    if block is not None and list(block) != BLOCK:
        raise ValueError(f"{_NAME}: weight_block_size is {block}; expected {BLOCK} or none.")
    granularity = "tensor" if block is None else "128x128"
    return "float8_e4m3fn", granularity, config.get("modules_to_not_convert")


def _compressed(config: Mapping[str, Any]) -> tuple[str, str, Any]:
    """As _fp8."""
    kinds = {_group(group) for group in (config.get("config_groups") or {}).values()}
    if len(kinds) != 1:
        raise ValueError(
            f"{_NAME}: config_groups has {len(kinds)} kinds of weights; expected one of all layers."
        )
    return *kinds.pop(), config.get("ignore")


def _group(group: Mapping[str, Any]) -> tuple[str, str]:
    """(dtype, granularity) of the weights of a group of layers."""
    weights: dict[str, Any] = group.get("weights") or {}
    inputs = group.get("input_activations")
    kind: Any = weights.get("type"), weights.get("num_bits")
    strategy: Any = weights.get("strategy")
    if kind not in TYPES or strategy not in STRATEGIES or not weights.get("symmetric", True):
        raise ValueError(
            f"{_NAME}: config_groups has weights of type {kind[0]!r}, {kind[1]} bits, strategy "
            f"{strategy!r}, symmetric {weights.get('symmetric', True)}; expected 8 bits that are "
            f"symmetric, of a strategy in {', '.join(STRATEGIES)}."
        )
    if strategy == "block" and (kind[0] == "int" or weights.get("block_structure") != BLOCK):
        raise ValueError(
            f"{_NAME}: config_groups has blocks of {weights.get('block_structure')} of type "
            f"{kind[0]!r}; expected {BLOCK} of float."
        )
    if inputs is None:
        raise ValueError(
            f"{_NAME}: config_groups has no input_activations: only the weights have 8 bits. "
            "QuantLinear multiplies in 8 bits, and quantises its input, too."
        )
    return TYPES[kind], STRATEGIES[strategy]


def scaled_modules(files: Iterable[Any], suffix: str) -> tuple[list[str], list[str]]:
    """The names of the modules that have such a scale in files of safetensors, and the names of
    all other scales of weights."""
    modules, others = [], []
    for file in files:
        if not str(file).endswith(".safetensors"):
            raise ValueError(f"{file} is no file of safetensors, so its scales are not found.")
        with safe_open(str(file), framework="pt") as opened:
            names = [name.rpartition(".") for name in opened.keys()]  # noqa: SIM118
        modules += [module for module, _, last in names if last == suffix]
        others += [
            f"{module}.{last}"
            for module, _, last in names
            if "scale" in last and last != suffix and not last.startswith(_ACTIVATIONS)
        ]
    return modules, others


def has(modules: Sequence[str], name: str) -> bool:
    """Is a module of a model one of these of a checkpoint, which may have a prefix more or less?"""
    return bool(name) and any(
        path == name or path.endswith(f".{name}") or name.endswith(f".{path}") for path in modules
    )


def check_all_read(modules: Sequence[str], read: Sequence[str], unused: Iterable[str]) -> None:
    """ValueError: a module of the checkpoint has a scale, and no layer takes it."""
    patterns = [re.compile(pattern) for pattern in unused]
    left = [
        module
        for module in modules
        if not has(read, module) and not any(pattern.search(module) for pattern in patterns)
    ]
    if left:
        raise ValueError(
            f"The checkpoint has 8-bit weights of {len(left)} modules that are no linear layers of "
            f"this model, such as {left[0]}; their scales would be lost. Load it by its own method."
        )


def check_other_scales(
    scales: Sequence[str], model: torch.nn.Module, unused: Iterable[str], method: str
) -> None:
    """ValueError: the checkpoint has a scale by a name that neither the method nor the model has,
    so 8-bit values would be read without it."""
    patterns = [re.compile(pattern) for pattern in unused]
    own = {name.rpartition(".")[2] for name in model.state_dict()}
    for scale in scales:
        last = scale.rpartition(".")[2]
        if last not in own and not any(pattern.search(scale) for pattern in patterns):
            raise ValueError(
                f"The checkpoint has {scale}, but the scales of the method {method!r} have the "
                f"name {READERS[method]}, so no layer takes it. Load it by its own method."
            )


def as_scale(scale: Tensor, own: Tensor, name: str) -> Tensor:
    """A scale with the dtype and shape of QuantLinear's; ValueError if it has other elements."""
    if scale.numel() != own.numel():
        raise ValueError(
            f"{name} has shape {tuple(scale.shape)} in the checkpoint; expected the "
            f"{own.numel()} elements of {tuple(own.shape)}."
        )
    return scale.to(torch.float32).reshape(own.shape)
