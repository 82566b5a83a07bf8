"""The buffers of SparseLinear24: the tensors inside of its SparseTensor24, as plain tensors.

    layer.weight (frozen), layer.kept (learning)    a SparseTensor24
    layer._buffers                                  weight_values, weight_metadata, ...: the same
                                                    memory; they are not persistent

DistributedDataParallel broadcasts buffers, accelerate moves them, torch.func replaces them: all of
these expect plain tensors. Where a buffer is another tensor, the SparseTensor24 is made anew.
"""

import torch

from tcgemm.nn.activation import HasActivation
from tcgemm.ops._torch_private import is_wrapped_by_transform
from tcgemm.ops.prepack import capturing
from tcgemm.sparse.tensor import SparseTensor24

_compiling = torch.compiler.is_compiling
_SIDES = (("values", "metadata", "tiles"),)
_SIDES += (tuple(f"transposed_{name}" for name in _SIDES[0]),)


def _version(tensor):
    return None if tensor.is_inference() else tensor._version


class CompressedBuffers(HasActivation, torch.nn.Module):
    """A module with one SparseTensor24: `kept` of a layer that learns, else `weight`.

    The subclass has the attributes learns, in_features, out_features and gradient.
    """

    _LAYER = "SparseLinear24"
    _sparse = None  # the SparseTensor24, or None
    _inside = {}  # the tensors inside by name, as they became buffers
    _checked = None  # the version of the metadata that hold valid positions
    _ready = None  # what the subclass prepares for calls

    @property
    def _own(self) -> str:
        return "kept" if self.learns else "weight"

    @property
    def compressed(self) -> SparseTensor24:
        """The multiplied tensor: `weight` of a frozen layer; else `kept`, as the last forward in
        eval mode or the last refresh() left it."""
        if _compiling():
            return self._assembled()
        sparse, inside, buffers, own = self._sparse, self._inside, self._buffers, self._own
        if sparse is not None and any(
            getattr(sparse, name) is not tensor for name, tensor in inside.items()
        ):
            self._set(sparse)  # somebody replaced the tensors inside
        elif sparse is None or any(
            buffers.get(f"{own}_{name}") is not tensor for name, tensor in inside.items()
        ):
            self._set(self._assembled())
            self._checked = -1  # somebody else made these positions
        return self._sparse

    def _keys(self):
        return [f"{self._own}_{name}" for name in self._inside]

    def inner_buffers(self) -> list[list[torch.Tensor | None]]:
        """Values, metadata and tiles; the same of the compressed transpose, or None."""
        own, buffers = self._own, self._buffers
        return [[buffers.get(f"{own}_{name}") for name in side] for side in _SIDES]

    def _assembled(self):
        """The SparseTensor24 of the buffers."""
        sides = self.inner_buffers()
        straight = self.gradient == "straight_through"
        if _compiling():
            names = zip((*_SIDES[0], *_SIDES[1]), (*sides[0], *sides[1]), strict=True)
            inner = {name: tensor for name, tensor in names if tensor is not None}
            shape = (self.out_features, self.in_features)
            return SparseTensor24(inner, shape, self._pattern, dense_gradient=straight)
        (values, metadata, _), transpose = sides
        if is_wrapped_by_transform(values):
            raise RuntimeError(
                "tcgemm.nn.SparseLinear24: torch.func transforms the values of the sparse weight, "
                "but a SparseTensor24 has no batches and no derivative there; stack or transform "
                "layers of to_linear()."
            )
        turned = None if transpose[0] is None else transpose[:2]
        options = {"turned": turned, "dense_gradient": straight, "trusted": True}
        return SparseTensor24.from_parts(
            values, metadata, self.in_features, self._pattern, **options
        )

    def _set(self, compressed):
        """Makes this the SparseTensor24, and the tensors inside buffers."""
        own = self._own
        inside = compressed.inner()
        for key in self._keys():  # the order is the same in every process
            self._buffers.pop(key, None)
            self._non_persistent_buffers_set.discard(key)
        for name, tensor in inside.items():
            self._buffers[f"{own}_{name}"] = tensor
            self._non_persistent_buffers_set.add(f"{own}_{name}")
        vars(self).update(_sparse=compressed, _inside=inside, _pattern=compressed.pattern)
        self._ready, self._checked = None, _version(inside["metadata"])

    def _check_positions(self):
        """Refuses positions that arithmetic with buffers has made, as AveragedModel does it.

        It reads the metadata, and so waits for a GPU, after they were changed in place.
        """
        metadata = self.compressed.metadata
        version = _version(metadata)
        if version == self._checked or capturing(metadata):
            return
        for (values, metadata, _), k in zip(
            self.inner_buffers(), (self.in_features, self.out_features), strict=True
        ):
            if values is None:
                continue
            try:
                SparseTensor24.from_parts(values, metadata, k, self._pattern)
            except RuntimeError as error:
                raise RuntimeError(
                    "tcgemm.nn.SparseLinear24: the positions of the kept elements were changed in "
                    "place, as an average of buffers does, and are none any more; call refresh(), "
                    f"or load_state_dict. {error}"
                ) from None
        self._checked = version

    def __getattr__(self, name):
        if name in ("weight", "kept") and name == self._own:
            return self.compressed
        return super().__getattr__(name)

    def __setattr__(self, name, value):
        if name in ("weight", "kept") and name == self._own:
            if not isinstance(value, SparseTensor24):
                raise RuntimeError(
                    f"tcgemm.nn.SparseLinear24: {name} is assigned a {type(value).__name__}, but "
                    "it must be a tcgemm.SparseTensor24; pass tcgemm.compress24(weight, "
                    "prune=True), or load_state_dict({'weight': weight, ...})."
                )
            self._set(value)
            return
        if name in ("activation", "weight"):
            vars(self)["_ready"] = None
        super().__setattr__(name, value)

    def _apply(self, fn, recurse=True):
        """Moves and converts the SparseTensor24, whose dtype decides its pattern."""
        compressed = fn(self.compressed)
        kept = {key: self._buffers.pop(key) for key in self._keys()}
        try:
            super()._apply(fn, recurse)
        finally:
            self._buffers.update(kept)
        self._set(compressed)
        return self

    def __getstate__(self):
        """A pickle holds the SparseTensor24, which makes the order of its metadata where it lands,
        in place of the tensors inside."""
        mine = set(self._keys())
        buffers = {name: each for name, each in self._buffers.items() if name not in mine}
        names = self._non_persistent_buffers_set - mine
        state = {"_sparse": None, "_inside": {}, "_checked": None, "_ready": None}
        state["_buffers"] = buffers | {self._own: self.compressed}
        state["_non_persistent_buffers_set"] = names | {self._own}
        return vars(self) | state

    def __setstate__(self, state):
        super().__setstate__(state)
        compressed = self._buffers.pop(self._own)
        self._non_persistent_buffers_set.discard(self._own)
        self._set(compressed)
