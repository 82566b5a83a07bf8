"""Asks the operators that answer with text, such as explain.

They return JSON in a uint8 tensor, since torch 2.11 leaks its copy of every string that an operator
returns.
"""

import json
from typing import Any

import torch

from tcgemm.ops._torch_private import (
    below_dispatch_modes,
    below_transform,
    is_batched,
    is_wrapped_by_transform,
)


def ask(name: str, *arguments: Any, **options: Any) -> Any:
    """The answer of torch.ops.tcgemm.<name>. A compiled function is interrupted for it."""
    if torch.compiler.is_compiling():
        interrupting: Any = torch.compiler.disable(_ask)
        return interrupting(name, *arguments, **options)
    return _ask(name, *arguments, **options)


def _ask(name: str, *arguments: Any, **options: Any) -> Any:
    op = getattr(torch.ops.tcgemm, name).default
    values = (*arguments, *options.values())
    tensors = [argument for argument in values if isinstance(argument, torch.Tensor)]
    # The mode of fake tensors would make the answer a fake one, without bytes.
    if not tensors or any(hasattr(tensor, "fake_mode") for tensor in tensors):
        with below_dispatch_modes():
            return json.loads(bytes(op(*arguments, **options).tolist()))
    return json.loads(bytes(op(*arguments, **options).tolist()))


def refuse_mapped(name: str, tensors: dict[str, torch.Tensor | None]) -> None:
    """A batching rule returns tensors, but the question has one answer for the whole batch."""
    for argument, tensor in tensors.items():
        while tensor is not None and is_wrapped_by_transform(tensor):
            if is_batched(tensor):
                raise RuntimeError(
                    f"tcgemm.{name}: {argument} is mapped over by torch.vmap, which runs one "
                    "product for the whole batch; ask outside of vmap, with batches as matmul "
                    "takes them."
                )
            tensor = below_transform(tensor)
