"""Parameters that several modules of a model share, such as tied embeddings and heads."""

from __future__ import annotations

from typing import Any

import torch

_Owners = dict[object, list[tuple[str, str]]]


def _key(parameter: torch.Tensor) -> object:
    """A key that is equal for Parameters that are one object or have the same memory."""
    if type(parameter) is not torch.nn.Parameter or parameter.is_meta or not parameter.numel():
        return id(parameter)
    if parameter.layout is not torch.strided or not parameter.data_ptr():
        return id(parameter)
    return (parameter.data_ptr(), parameter.device, parameter.dtype, parameter.shape)


def owners(model: torch.nn.Module) -> _Owners:
    """Parameter -> (module, attribute) of each module that has it."""
    result: _Owners = {}
    for name, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                result.setdefault(_key(parameter), []).append((name, attribute))
    return result


def why_cut(
    module: torch.nn.Module, name: str, state: dict[str, Any], owners_of: _Owners
) -> str | None:
    """The reason if a module that gets `state` would lose a Parameter that other modules have."""
    parameters = state.get("_parameters", module._parameters)
    for attribute, parameter in module._parameters.items():
        if parameter is None or parameters.get(attribute) is parameter:
            continue
        others = [owner for owner, _ in owners_of[_key(parameter)] if owner != name]
        if others:
            more = f" and {len(others) - 3} more" if others[3:] else ""
            with_whom = ", ".join(other or "the model itself" for other in others[:3])
            return (
                f"shares its {attribute} with {with_whom}{more}; "
                "shared=True swaps it, and they no longer learn together"
            )
    return None
