"""constant_weights: weights that nobody writes while their layer runs.

A kernel waits for the kernel before it, because that may write what it reads. Of a constant weight
it loads the first blocks before it waits. A write that torch counts is safe: the next call of the
layer waits. A write that torch does not count is not, and so this is for those who decode with
fixed weights and ask for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tcgemm.ops._torch_private import is_exporting, transforms_active
from tcgemm.ops.arguments import check_flag
from tcgemm.ops.direct import is_plain
from tcgemm.ops.dtensor import is_dtensor
from tcgemm.ops.explanation import explain
from tcgemm.ops.kept import Guarded, TensorGuard, changes, guards_of

_compiling = torch.compiler.is_compiling


class ConstantWeight(Guarded):
    """What a layer with constant_weights knows of its weight: how it was at the last call."""

    name: str | None  # of the layer, in the block of tcgemm.constant_weights
    guards: tuple[TensorGuard, ...]

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.guards = ()

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Is the weight what it was at the last call? Raises RuntimeError if it is not, in the
        block of tcgemm.constant_weights."""
        if self and self.is_of(tensors):
            return True
        self.check(tensors)
        self.watch(tensors)
        return False

    def watch(self, tensors: Sequence[Tensor]) -> None:
        """Takes the tensors as they are now. Nothing counts the changes of inference tensors."""
        counted = all(is_plain(tensor) and changes(tensor) is not None for tensor in tensors)
        self.guards = guards_of(tensors) if tensors and counted else ()

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raises RuntimeError if these are others or were written, in the block."""
        if self.name is not None and self.guards and not (self and self.is_of(tensors)):
            raise RuntimeError(
                f"tcgemm.constant_weights: the weight of {self.name} was written or replaced "
                "inside the block, but kernels load it before earlier kernels have ended; write "
                "weights outside of the block."
            )

    def __reduce__(self) -> Any:  # a copy of the layer has other tensors
        return ConstantWeight, (self.name,)


class ConstantWeights(torch.nn.Module):
    """A layer with the attribute constant_weights."""

    _constant: ConstantWeight | None = None
    _sharded: bool = False  # FSDP2 writes the weight before each forward, and torch counts nothing

    @property
    def constant_weights(self) -> bool:
        """May kernels load the weight early? See tcgemm.constant_weights."""
        return self._constant is not None

    @constant_weights.setter
    def constant_weights(self, value: bool) -> None:
        check_flag(f"nn.{type(self).__name__}", "constant_weights", value)
        self._set_constant(ConstantWeight() if value else None)

    def _set_constant(self, constant: ConstantWeight | None) -> None:
        # In the module, not in the class, because compiled functions guard only on these.
        vars(self)["_constant"] = constant

    def _watched(self) -> Sequence[Tensor]:
        """The tensors of the weight."""
        weight = self._parameters.get("weight")
        return () if weight is None else (weight,)

    def _product(self, rows: int) -> tuple[Tensor, Any, dict[str, Any]] | None:
        """The arguments of tcgemm.explain for a call with so many rows; None if constant_weights
        saves nothing."""
        (weight, *_) = self._watched()
        return weight.new_empty(rows, weight.shape[1]), weight.t(), {}

    def _saved_microseconds(self, rows: int) -> float:
        """What constant_weights saves of a call, estimated by tcgemm.explain."""
        product = self._product(rows)
        if product is None:
            return 0.0
        x, weight, options = product
        try:
            return explain(x, weight, **options).constant_microseconds or 0.0
        except RuntimeError:  # there is no such product on this GPU
            return 0.0

    def _is_constant(self) -> bool:
        """May this call load the weight before the kernel before it has ended?"""
        constant = self._constant
        if constant is None or self._sharded:
            return False
        tensors = self._watched()
        if tensors and torch.is_autocast_enabled(tensors[0].device.type):
            return False  # what autocast casts is new
        if _compiling():
            # Guards of the compiled function see a write, and compile it again.
            return not is_exporting() and constant.unchanged and constant.is_of(tensors)
        return constant.holds(tensors) and not transforms_active()

    def __setattr__(self, name: str, value: Any) -> None:
        if "weight" in name and is_dtensor(value):  # FSDP2 does so before and after each forward
            vars(self)["_sharded"] = True
        super().__setattr__(name, value)


@contextlib.contextmanager
def constant_weights(model: torch.nn.Module) -> Iterator[None]:
    """Inside, nobody writes the weights of tcgemm's layers, and kernels load them early.

    Example:
        >>> layer = tcgemm.nn.Linear(64, 32)
        >>> with torch.no_grad(), tcgemm.constant_weights(layer):
        ...     y = layer(torch.randn(1, 64))

    On a GPU of compute capability 9.0 a kernel loads the first blocks of a weight while the kernel
    before it still runs. This is for a model that decodes with fixed weights: tcgemm.explain and
    the report of swap_linear say what it gains. The argument `constant_weights` of the layers and
    of swap_linear does the same without a block. The default is to wait.

    Torch counts most writes (copy_, optimizers, load_state_dict, assignments). A call after such a
    write raises RuntimeError inside the block, and so does its end; a layer with the argument waits
    in its next call, and loads early again after it. Other writes go unnoticed: collectives in
    place, DLPack, numpy, raw and Triton kernels, and the replay of a CUDA graph that writes a
    weight. A product behind such a write may read the old weight. Write so only where the GPU is
    idle (torch.cuda.synchronize()), and in no function of torch.compile.

    A CUDA graph that was captured inside loads early in each replay. These are loaded after the
    wait: a weight that fully_shard (FSDP2) shards, tensors of torch.inference_mode, weights under
    autocast and torch.func, and what a layer computes of its weight in a call: the 8-bit weight of
    Float8Linear, and the kept elements of a SparseLinear24 that trains. The device order of a
    PackedLinear is loaded early always.

    Arguments:
        model: a layer, or a module that has layers of tcgemm.

    Raises:
        TypeError: model is no module.
        RuntimeError: a weight was written or replaced inside; the message names the layer.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"tcgemm.constant_weights: model must be a torch.nn.Module, but is "
            f"{type(model).__name__}; pass the layer, or a module that has it."
        )
    entered: list[tuple[ConstantWeights, ConstantWeight, ConstantWeight | None]] = []
    for name, layer in model.named_modules():
        if isinstance(layer, ConstantWeights):
            constant = ConstantWeight(name or "the model itself")
            constant.watch(layer._watched())
            entered.append((layer, constant, layer._constant))
    try:
        for layer, constant, _ in entered:
            layer._set_constant(constant)
        yield
        for layer, constant, _ in entered:
            constant.check(layer._watched())
    finally:
        for layer, _, before in entered:
            layer._set_constant(before)
