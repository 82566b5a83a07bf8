"""The state_dict of SparseLinear24: plain tensors, and DTensors under fully_shard (FSDP2).

weight.values, weight.metadata, weight.format (version, group, K), bias
weight              only if the layer learns
weight.refresh      only with refresh_every: the changes of the weight that training forwards have
                    counted, and whether one more is not counted yet
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.nn.compressed_buffers import CompressedBuffers
from tcgemm.nn.layer import Loading, StateError
from tcgemm.operands.sparse.parts import (
    FORMAT_VERSION,
    GROUPS,
    check_version,
    default_pattern,
    reaches_past_storage,
)
from tcgemm.operands.sparse.positions import gather, keep, stored_elements
from tcgemm.operands.sparse.prune import compress24, parts_of_both
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops.dtensor import distributed_as, full_tensor, is_dtensor
from tcgemm.ops.kept import changes

if TYPE_CHECKING:
    import torch.distributed.tensor
    from torch import Tensor

_PARTS = ("values", "metadata", "format")
# What state_dict() has in place of `weight`.
SAVED_PARTS = tuple(f"weight.{name}" for name in _PARTS)
REFRESH = "weight.refresh"
_NAME = "tcgemm.nn.SparseLinear24"


class SparseState(CompressedBuffers):
    """Saves and loads the layer."""

    # The Parts of tcgemm.integrations.tensor_parallel, if this process has a part of the weight.
    _parts: Any = None
    refresh_every: int
    _stepped: bool  # an optimizer has changed the weight since the last training forward
    _seen: int | None  # the weight's changes at the last training forward; None: not known
    _changes: int  # the changes of the weight between training forwards

    @property
    def _is_changed(self) -> bool:
        """Has the weight of a layer that learns changed since the last training forward?"""
        seen = self._seen
        weight: Any = self.weight
        return self._stepped or (seen is not None and seen != changes(weight))

    def _dense(self) -> Tensor:
        """The dense weight; of a parallel layer the part of this process."""
        weight: Any = self.weight
        return weight if self._parts is None else self._parts.local("weight", weight)

    def _whole_or_part(self, tensor: Tensor) -> Tensor:
        """What `compressed` comes from, of a dense weight or of one in a state: under fully_shard
        all of it, in a parallel layer the part of this process."""
        return full_tensor(tensor) if self._parts is None else self._parts.local("weight", tensor)

    def _compress(self, weight: Tensor) -> SparseTensor24:
        return compress24(
            weight.detach(),
            prune=True,
            transposable=self.method == "transposable",
            dense_gradient=self.gradient == "straight_through",
        )

    def _pruned(self, weight: Tensor) -> SparseTensor24:
        if self.method != "mask":
            return self._compress(weight)
        compressed = self.compressed
        return compressed.mask(weight.to(compressed.device, compressed.dtype))

    def _fqn_modifiers(self) -> dict[str, str]:
        """The attribute in which torch.distributed.checkpoint.state_dict looks up the names of the
        state: its get_model_state_dict reads each name as a path of attributes."""
        return {"weight": "_names_of_state"}

    @property
    def _names_of_state(self) -> Any:
        return SimpleNamespace(weight=SimpleNamespace(**dict.fromkeys((*_PARTS, "refresh"))))

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight = self.compressed
        values, metadata, _tiles = weight.stored()
        dense = self._dense().detach() if self.learns else None
        if is_dtensor(dense):
            values, metadata = _masked_shards(weight, dense)
        elif dense is not None:
            if dense.shape != weight.shape or reaches_past_storage(dense):
                return  # FSDP1 takes the state of another process, and has the weight there
            # FSDP1 may have moved the weight to the CPU, but not the positions.
            values = weight.mask(dense.to(metadata.device), transpose=False).values
        numbers = [FORMAT_VERSION, GROUPS[weight.pattern], self.in_features]
        parts = (values, metadata, torch.tensor(numbers, device="cpu"))
        for name, tensor in zip(_PARTS, parts, strict=True):
            destination[f"{prefix}weight.{name}"] = tensor
        if self.refresh_every:
            numbers = [self._changes, self._is_changed]
            destination[prefix + REFRESH] = torch.tensor(numbers, dtype=torch.int64, device="cpu")

    def _before_load(self, loading: Loading) -> tuple[SparseTensor24 | None, Tensor | None]:
        state_dict, prefix = loading.state, loading.prefix
        refresh = state_dict.pop(prefix + REFRESH, None)
        if self._parts is not None:  # the hooks of torch.nn.Module come later
            self._parts.prepare(self, state_dict, prefix)
        key = prefix + "weight"
        parts = [state_dict.pop(f"{key}.{name}", None) for name in _PARTS]
        tensor = state_dict.get(key)
        if not self.learns:
            state_dict.pop(key, None)
        compressed = None
        try:
            _check_tensors(key, dict(zip(_PARTS, parts, strict=True)), tensor)
            self._check_all_processes(key, parts)
            if all(part is not None for part in parts):
                compressed = self._restored(*map(full_tensor, parts))
            elif tensor is not None:
                dense = tensor.detach()
                compressed = self._pruned(
                    self._whole_or_part(dense) if is_dtensor(dense) else dense
                )
            else:
                loading.missing_keys.extend(f"{key}.{name}" for name in _PARTS)
            shape = (self.out_features, self.in_features)
            if compressed is not None and compressed.shape != shape:
                raise RuntimeError(
                    f"{_NAME}: the weight of the state has shape {tuple(compressed.shape)}, but "
                    f"this layer has {shape}; load it into a layer of the shape of the state."
                )
        except RuntimeError as error:
            raise StateError(f"{key}: {error}") from None
        if self.learns and tensor is None and compressed is not None:
            state_dict |= self._dense_state(key, compressed)
        return compressed, refresh

    def _after_load(
        self, loading: Loading, result: tuple[SparseTensor24 | None, Tensor | None]
    ) -> None:
        compressed, refresh = result
        if compressed is not None:
            self._take(compressed, loading.assign)
        if refresh is not None and self.refresh_every:
            numbers: list[int] = full_tensor(refresh).tolist()
            self._changes, self._stepped = numbers[0], bool(numbers[1])

    def _check_all_processes(self, key: str, parts: list[Any]) -> None:
        """Raises RuntimeError if only some processes have the kept positions: the others would
        choose their own."""
        if not (self.learns and is_dtensor(self.weight)):
            return
        mesh: Any = self.weight
        mesh, missing = mesh.device_mesh, any(part is None for part in parts)
        counts = torch.tensor([missing, not missing], dtype=torch.int32, device=mesh.device_type)
        for group in mesh.get_all_groups():
            torch.distributed.all_reduce(counts, torch.distributed.ReduceOp.MAX, group)
        if counts.sum() != 1:
            raise RuntimeError(
                f"{_NAME}: the state of some processes has {key}.values, {key}.metadata and "
                f"{key}.format, and others have not, as broadcast_from_rank0 leaves it; "
                "pass the whole state in every process."
            )

    @torch.no_grad()
    def _dense_state(self, key: str, compressed: SparseTensor24) -> dict[str, Tensor]:
        """The entry of the dense weight for a state that has only the compressed one.

        A frozen layer has such a state, and so has a layer with a tied weight, which
        safetensors saves under the name of the embedding. The embedding is already loaded then, so
        the elements at the kept positions are equal: the Parameter stays as it is, and its name is
        reported as missing.
        """
        weight: Any = self.weight
        dense = compressed.to_dense()
        if not weight.is_meta:
            current = self._whole_or_part(weight)
            loaded = compressed.to(current.device, current.dtype)
            same = torch.equal(loaded.mask(current, transpose=False).values, loaded.values)
            if same and not torch.equal(loaded.to_dense(), current):
                return {}
        if self._parts is not None:
            dense = self._parts.shared("weight", dense).full_tensor()
        return {key: distributed_as(dense, weight) if is_dtensor(weight) else dense}

    def _restored(self, values: Tensor, metadata: Tensor, numbers: Tensor) -> SparseTensor24:
        """The SparseTensor24 of a state, with a compressed transpose if this layer has one."""
        if numbers.shape != (3,) or numbers.is_floating_point():
            raise RuntimeError(
                f"{_NAME}: weight.format of the state is {numbers.dtype} of shape "
                f"{tuple(numbers.shape)}, but it must be three integers: version, group and K; "
                "load a state that state_dict() made."
            )
        version, group, k = numbers.tolist()
        check_version(version)
        patterns: Any = {size: name for name, size in GROUPS.items()}
        pattern = patterns.get(group, f"of groups of {group}")
        straight = self.gradient == "straight_through"
        restored = SparseTensor24.from_parts(values, metadata, k, pattern, dense_gradient=straight)
        restored = restored.to(self.compressed.dtype)
        cast = self.learns and is_dtensor(self.weight)  # as MixedPrecisionPolicy does
        if restored.pattern != default_pattern(restored.dtype) and not cast:
            raise RuntimeError(
                f"{_NAME}: the weight of the state has the pattern {restored.pattern}, but there "
                f"are no products of {restored.dtype} with that pattern; convert the layer to "
                "torch.bfloat16."
            )
        if self.method == "transposable":
            dense = restored.to_dense()
            compress24(dense, transposable=True)  # raises the error if it is not transposable
            kept = stored_elements(restored.values, restored.metadata, k + -k % 4, pattern)
            values, metadata, transpose = parts_of_both(dense, kept)
            options: Any = {"transpose": transpose, "dense_gradient": straight, "trusted": True}
            return SparseTensor24.from_parts(values, metadata, k, pattern, **options)
        return restored

    @torch.no_grad()
    def _take(self, compressed: SparseTensor24, assign: bool) -> None:
        """Copies in place if possible, so that captured CUDA graphs use the new weight."""
        current = self.compressed
        self._ready, self._seen = None, None
        if assign or current.is_meta or current.pattern != compressed.pattern:
            if not assign:
                compressed = compressed.to(current.device, current.dtype)
            self._set(compressed)
        else:
            current.copy_(compressed)
            self._kept_form().forget()


def _check_tensors(key: str, parts: dict[str, object], weight: object) -> None:
    for name, value in (parts | {"weight": weight}).items():
        if value is not None and not isinstance(value, torch.Tensor):
            place = key if name == "weight" else f"{key}.{name}"
            raise RuntimeError(
                f"{_NAME}: {place} of the state is a {type(value).__name__}, but it must be a "
                "torch.Tensor; load a state that state_dict() made."
            )


def _masked_shards(mask: SparseTensor24, weight: Any) -> tuple[Tensor, Tensor]:
    """(values, metadata) of kept.mask(weight) for a DTensor. If the ranks have whole rows, they do
    not communicate; otherwise every rank must call it."""
    distributed = torch.distributed.tensor  # is imported already, because there is a DTensor
    whole_rows = all(
        type(placement) is distributed.Replicate
        or (type(placement) is distributed.Shard and placement.dim == 0)
        for placement in weight.placements
    )
    if not whole_rows:
        return mask.mask(full_tensor(weight), transpose=False).stored()[:2]
    metadata: Any = distributed_as(mask.metadata, weight)
    positions = metadata.to_local()
    shard = weight.to_local().to(positions.device)  # CPUOffloadPolicy keeps it on the CPU
    if mask.transposable:
        other_values, other_metadata, _tiles = mask.stored(True)
        common = stored_elements(other_values, other_metadata, len(weight), mask.pattern).t()
        shared: Any = distributed_as(common, weight)
        shard = keep(shared.to_local(), shard)
    values = gather(shard, positions, mask.pattern)
    shape, stride = mask.values.shape, mask.values.stride()
    mesh, placements = weight.device_mesh, weight.placements
    values = distributed.DTensor.from_local(values, mesh, placements, shape=shape, stride=stride)
    return values, metadata
