"""The buffers of SparseLinear24: the tensors inside its SparseTensor24, as plain tensors.

    layer.weight (frozen), layer.kept (learning)    a SparseTensor24
    layer._buffers                                  weight_values, weight_metadata, ...: the same
                                                    memory; these buffers are not persistent

DistributedDataParallel broadcasts buffers, accelerate moves them, and torch.func replaces them. All
of these expect plain tensors. If a buffer was replaced, a new SparseTensor24 is made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from tcgemm.nn.layer import Layer
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops._torch_private import is_wrapped_by_transform
from tcgemm.ops.kept import capturing, changes
from tcgemm.typing import PruneMethod, SparseGradient, SparsePattern

_compiling = torch.compiler.is_compiling
_STORED = ("values", "metadata", "tiles")
_TRANSPOSED = ("transposed_values", "transposed_metadata", "transposed_tiles")


def values_of(compressed: SparseTensor24) -> tuple[Tensor, ...]:
    """The values, and those of the compressed transpose if there is one."""
    both = compressed.stored()[0], compressed.stored(True)[0]
    return tuple(values for values in both if values is not None)


class CompressedBuffers(Layer):
    """A module with one SparseTensor24: `kept` of a layer that learns, else `weight`."""

    in_features: int
    out_features: int
    learns: bool
    method: PruneMethod
    gradient: SparseGradient
    _LAYER = "SparseLinear24"
    _pattern: SparsePattern
    _sparse: SparseTensor24 | None = None
    _inside: dict[str, Tensor] = {}  # the tensors inside by name, as they became buffers
    _checked: int | None = None  # the version of the metadata that have valid positions
    _ready: Any = None  # the arguments that the subclass prepares for calls

    @property
    def _own(self) -> str:
        return "kept" if self.learns else "weight"

    @property
    def compressed(self) -> SparseTensor24:
        """The multiplied tensor: `weight` of a frozen layer; else `kept` with the values of the
        last forward in eval mode, or of the last refresh()."""
        if _compiling():
            return self._assembled()
        if self._has_buffers_of(self._sparse):
            return self._sparse
        with self._kept_form().lock:  # another thread may be in the middle of _set
            sparse = self._sparse
            if not self._has_buffers_of(sparse):
                inside = self._inside.items()
                if sparse is not None and any(getattr(sparse, n) is not t for n, t in inside):
                    self._set(sparse)  # the tensors inside were replaced
                else:
                    self._set(self._assembled())
                    self._checked = -1  # the positions come from outside and are not checked yet
            assert self._sparse is not None
            return self._sparse

    def _has_buffers_of(self, sparse: SparseTensor24 | None) -> TypeGuard[SparseTensor24]:
        """Are the tensors inside, as they became buffers, those of the buffers and of `sparse`?"""
        inside, buffers, own = self._inside, self._buffers, self._own
        return (
            sparse is not None
            and sparse.device == inside["values"].device  # fully_shard moves by tensor.data
            and all(
                getattr(sparse, name) is tensor and buffers.get(f"{own}_{name}") is tensor
                for name, tensor in inside.items()
            )
        )

    def _keys(self) -> list[str]:
        return [f"{self._own}_{name}" for name in self._inside]

    def inner_buffers(self) -> tuple[list[Any], list[Any]]:
        """The buffers of the stored matrix and of its compressed transpose, which may be None.

        Each list has the values, the metadata and the tiles, which are None on the CPU.
        """
        own, buffers = self._own, self._buffers
        return (
            [buffers.get(f"{own}_{name}") for name in _STORED],
            [buffers.get(f"{own}_{name}") for name in _TRANSPOSED],
        )

    def _assembled(self) -> SparseTensor24:
        """The SparseTensor24 of the buffers."""
        stored, transpose = self.inner_buffers()
        straight = self.gradient == "straight_through"
        if _compiling():
            names = zip((*_STORED, *_TRANSPOSED), (*stored, *transpose), strict=True)
            inner = {name: tensor for name, tensor in names if tensor is not None}
            shape = (self.out_features, self.in_features)
            return SparseTensor24(inner, shape, self._pattern, dense_gradient=straight)
        values, metadata, _tiles = stored
        if is_wrapped_by_transform(values):
            raise RuntimeError(
                "tcgemm.nn.SparseLinear24: torch.func transforms the values of the sparse weight, "
                "but a SparseTensor24 has no batches and no derivative there; stack or transform "
                "layers of to_linear()."
            )
        options: dict[str, Any] = {"dense_gradient": straight, "trusted": True}
        if transpose[0] is not None:
            options["transpose"] = tuple(transpose[:2])
        return SparseTensor24.from_parts(
            values, metadata, self.in_features, self._pattern, **options
        )

    def _set(self, compressed: SparseTensor24) -> None:
        """Takes this SparseTensor24, and makes the tensors inside it buffers."""
        with self._kept_form().lock:  # another thread may write the values meanwhile
            own = self._own
            inside = compressed.tensors()
            self._kept_form().adopt(values_of(compressed), tuple(inside.values()))
            if inside.keys() != self._inside.keys():  # else other threads read them meanwhile
                for key in self._keys():  # the order is the same in every process
                    self._buffers.pop(key, None)
                    self._non_persistent_buffers_set.discard(key)
            for name, tensor in inside.items():
                self._buffers[f"{own}_{name}"] = tensor
                self._non_persistent_buffers_set.add(f"{own}_{name}")
            vars(self).update(_sparse=compressed, _inside=inside, _pattern=compressed.pattern)
            self._ready, self._checked = None, changes(inside["metadata"])

    def _check_positions(self) -> None:
        """Raises RuntimeError if arithmetic with buffers, as of AveragedModel, has made positions
        that are not valid.

        The check reads the metadata and waits for the GPU. It runs only after they were changed in
        place.
        """
        metadata = self.compressed.metadata
        version = changes(metadata)
        if version == self._checked or capturing(metadata):
            return
        for (values, metadata, _tiles), k in zip(
            self.inner_buffers(), (self.in_features, self.out_features), strict=True
        ):
            if values is None:
                continue
            try:
                SparseTensor24.from_parts(values, metadata, k, self._pattern)
            except RuntimeError as error:
                raise RuntimeError(
                    "tcgemm.nn.SparseLinear24: the positions of the kept elements were changed in "
                    "place, for example by an average of buffers, and are not valid; call "
                    f"refresh() or load_state_dict. {error}"
                ) from None
        self._checked = version

    def __getattr__(self, name: str) -> Any:
        if name in ("weight", "kept") and name == self._own:
            return self.compressed
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("weight", "kept") and name == self._own:
            if not isinstance(value, SparseTensor24):
                raise RuntimeError(
                    f"tcgemm.nn.SparseLinear24: {name} is assigned a {type(value).__name__}, but "
                    "it must be a tcgemm.SparseTensor24; pass tcgemm.compress24(weight, "
                    "prune=True), or call load_state_dict({'weight': weight, ...})."
                )
            self._set(value)
            return
        if name in ("activation", "weight"):
            vars(self)["_ready"] = None
            if name == "weight":  # of a layer that learns
                self._kept_form().forget(value)
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Any:
        """Moves and converts the SparseTensor24, whose dtype decides its pattern."""
        compressed = fn(self.compressed)
        buffers = {key: self._buffers.pop(key) for key in self._keys()}
        try:
            super()._apply(fn, recurse)
        finally:
            self._buffers.update(buffers)
        self._set(compressed)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A pickle has the SparseTensor24 in place of the tensors inside it, because the metadata
        are reordered for the device on which it is loaded."""
        own_names = set(self._keys())
        buffers = {name: buffer for name, buffer in self._buffers.items() if name not in own_names}
        names = self._non_persistent_buffers_set - own_names
        state = dict.fromkeys(("_sparse", "_checked", "_ready", "_form")) | {"_inside": {}}
        state["_buffers"] = buffers | {self._own: self.compressed}
        state["_non_persistent_buffers_set"] = names | {self._own}
        return vars(self) | state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        compressed: Any = self._buffers.pop(self._own)
        self._non_persistent_buffers_set.discard(self._own)
        self._set(compressed)
