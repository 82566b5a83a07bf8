"""Tensor parallelism of layers with 8-bit and with 2:4 sparse weights.

torch's ColwiseParallel and RowwiseParallel take a torch.nn.Linear alone, and its SequenceParallel
makes DTensors of the buffers. Those of this module take a QuantLinear and a SparseLinear24, too,
and give every other module to torch's:

    style             a process has       of the input          its result
    ColwiseParallel   rows of the weight  all features          its columns
    RowwiseParallel   columns of it       its features          a part of the sum over all processes
    SequenceParallel  all of it           its part of the rows  the rows of its part

A layer of a process is an ordinary layer with a part of the weight, so that it runs the same
kernels. What learns is a DTensor, as after torch's styles, so that the optimizer and
clip_grad_norm_ see the whole of it. The state_dict has DTensors of everything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import style

from tcgemm.nn import QuantLinear, SparseLinear24
from tcgemm.nn.sparse_state import REFRESH, SAVED_PARTS
from tcgemm.operands.quant.quantize import BLOCK
from tcgemm.operands.sparse.parts import GROUPS
from tcgemm.ops.dtensor import distributed_as, full_tensor

_NAME = "tcgemm.integrations.tensor_parallel"
LAYERS = (QuantLinear, SparseLinear24)
LAST = Shard(-1)
K_OF_BYTE = 8  # input features whose four kept positions share a byte of metadata
# What the state_dict of a layer may have.
_SAVED = ("weight", "weight_scale", *SAVED_PARTS, REFRESH, "bias")


class Layouts(NamedTuple):
    """Placements of the input of a layer, of its gradient and of the result."""

    x: Any
    gradient: Any
    result: Any


def _at(placement: Any, ndim: int) -> Any:
    """The placement with a dimension that is counted from the first one, which torch wants."""
    return Shard(placement.dim % ndim) if isinstance(placement, Shard) else placement


@dataclass(frozen=True)
class Parts:
    """Which part of each tensor of a layer this process has.

    Arguments:
        mesh: of one dimension.
        placements: by the names of the state_dict.
        shares (int): the number of processes among which the features of a row are divided.
        saved (bool): False if the tensors of the state cannot be divided.
        whole (bool): True if each process has the whole weight, and rows of x of its own.
    """

    mesh: DeviceMesh
    placements: dict[str, Any]
    shares: int = 1
    saved: bool = True
    whole: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Parts:
        return self

    def local(self, name: str, tensor: Any) -> torch.Tensor:
        """The part of this process, of a whole tensor or of a DTensor."""
        placement = self.placements[name]
        if isinstance(tensor, DTensor) and tensor.device_mesh == self.mesh:
            # The gradients of a whole weight are added in the backward of redistribute.
            gradient = Partial() if self.whole else placement
            tensor = tensor.redistribute(self.mesh, [placement])
            return tensor.to_local(grad_placements=[gradient])
        tensor = full_tensor(tensor)  # fully_shard has divided the parts as well
        return _part(tensor, self.mesh, placement)

    def shared(self, name: str, local: torch.Tensor) -> DTensor:
        """The DTensor of the parts of all processes."""
        local = local.to(self.mesh.device_type)
        return DTensor.from_local(local, self.mesh, [self.placements[name]])

    def save(self, _layer: Any, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        """Makes DTensors of what state_dict() has. A hook of torch.nn.Module."""
        self._check()
        for name in self.placements:
            tensor = state.get(prefix + name)
            if tensor is not None and not isinstance(tensor, DTensor):
                state[prefix + name] = self.shared(name, self._features(name, tensor))

    def prepare(self, layer: Any, state: dict[str, Any], prefix: str) -> None:
        """Makes parts of what load_state_dict got, and DTensors of what learns."""
        self._check()
        for name in self.placements:
            tensor, parameter = state.get(prefix + name), layer._parameters.get(name)
            if not isinstance(tensor, torch.Tensor):
                continue
            if not isinstance(parameter, DTensor):
                tensor = self._features(name, self.local(name, tensor), -1).contiguous()
            elif not isinstance(tensor, DTensor):
                tensor = distributed_as(tensor, parameter)
            state[prefix + name] = tensor

    def _features(self, name: str, tensor: torch.Tensor, sign: int = 1) -> torch.Tensor:
        """weight.format (version, group, K) with the K of all processes, or of this one."""
        if name != "weight.format":
            return tensor
        factor = tensor.new_tensor([1, 1, self.shares])
        return tensor * factor if sign > 0 else tensor // factor

    def _check(self) -> None:
        if not self.saved:
            raise RuntimeError(
                f"tcgemm.nn.SparseLinear24: {K_OF_BYTE} input features have one byte of "
                "positions, which is not divided; save and load the model before "
                f"parallelize_module, or choose in_features that are a multiple of {K_OF_BYTE} in "
                "each process."
            )


def _part(tensor: torch.Tensor, mesh: DeviceMesh, placement: Any) -> torch.Tensor:
    """What this process has of a whole tensor."""
    if not isinstance(placement, Shard):
        return tensor
    return tensor.chunk(mesh.size(), placement.dim)[mesh.get_local_rank()]


class ColwiseParallel(style.ColwiseParallel):
    """torch's ColwiseParallel, which also takes a QuantLinear and a SparseLinear24.

    Example:
        >>> from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
        >>> plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}

    Pass the plan to torch.distributed.tensor.parallel.parallelize_module. Each process keeps its
    rows of the weight and its part of the bias. The result has the bits of one process.

    Arguments:
        input_layouts, output_layouts, use_local_output: as for torch's class.

    Raises:
        ValueError: The processes do not divide out_features, or the blocks of a scale; or the mesh
            has several dimensions.
    """

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not _takes(self, module, device_mesh):
            return super()._apply(module, device_mesh)
        return _shard(self, module, device_mesh, 0, Layouts(Replicate(), Partial(), LAST))


class RowwiseParallel(style.RowwiseParallel):
    """torch's RowwiseParallel, which also takes a QuantLinear and a SparseLinear24.

    Each process keeps its columns of the weight, and the results are added. A QuantLinear quantises
    the features that a process has, so a row of the input has a scale for each process: the result
    is within the error bound of one process, with other bits. A process adds a share of the bias,
    so that the sum has it once.

    Arguments:
        input_layouts, output_layouts, use_local_output: as for torch's class.

    Raises:
        ValueError: The processes do not divide in_features, or the blocks of a scale or the groups
            of the 2:4 pattern; or the layer has an activation, which would come before the sum; or
            the mesh has several dimensions.
    """

    desired_input_layouts: tuple[Any, ...]

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not _takes(self, module, device_mesh):
            return super()._apply(module, device_mesh)
        if module.activation is not None:
            raise ValueError(
                f"{_NAME}.RowwiseParallel: {type(module).__name__} has the activation "
                f"{module.activation!r}, which comes after the sum over all processes; put it into "
                "the layer before, which is column-parallel, or call it on the result."
            )
        self.desired_input_layouts = (LAST,)
        return _shard(self, module, device_mesh, 1, Layouts(LAST, LAST, Partial()))


class SequenceParallel(style.SequenceParallel):
    """torch's SequenceParallel, which also takes a QuantLinear and a SparseLinear24.

    Example:
        >>> from tcgemm.integrations.tensor_parallel import SequenceParallel
        >>> plan = {"norm": SequenceParallel(), "gate": SequenceParallel(use_local_output=True)}

    Each process has the whole layer, and multiplies its part of the sequence. The result is sharded
    as the input, and has the bits of one process. The gradients of the bias, and of a weight that
    learns, are summed over all processes.

    Arguments:
        sequence_dim, use_local_output: as for torch's class.

    Raises:
        ValueError: The mesh has several dimensions.
        RuntimeError: In a forward, the processes do not divide the sequence, or sequence_dim is the
            dimension of the features.
    """

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not _takes(self, module, device_mesh):
            return super()._apply(module, device_mesh)
        _send(module, device_mesh, self.src_data_rank)
        _set_parts(module, Parts(device_mesh, dict.fromkeys(_SAVED, Replicate()), whole=True))
        finish = functools.partial(self._prepare_output_fn, self.use_local_output)
        layouts = Layouts(*self.sequence_sharding * 3)
        return _hook(self, module, device_mesh, layouts, self._prepare, finish)

    def _prepare(self, layer: Any, inputs: tuple[Any, ...], mesh: DeviceMesh) -> DTensor:
        shape, dim = inputs[0].shape, self.sequence_sharding[0].dim
        if dim not in (*range(len(shape) - 1), *range(-len(shape), -1)):
            raise RuntimeError(
                f"{_NAME}.SequenceParallel: sequence_dim is {dim}, but x has the shape "
                f"{tuple(shape)}, and its last dimension has the features; pass another "
                "sequence_dim."
            )
        x: Any = self._prepare_input_fn(self.sequence_sharding, layer, inputs, mesh)
        if x.shape[dim] % mesh.size():
            raise RuntimeError(
                f"{_NAME}.SequenceParallel: x has the shape {tuple(x.shape)}, but {mesh.size()} "
                f"processes do not divide dimension {dim}; pad x."
            )
        return x


def _takes(own: Any, module: Any, mesh: DeviceMesh) -> bool:
    """Is the module a layer of this file? torch's style takes the others."""
    if mesh.ndim != 1:
        raise ValueError(
            f"{_NAME}.{type(own).__name__}: the mesh is {mesh}, but it must have one dimension; "
            'pass such a part of it as mesh["model"].'
        )
    return isinstance(module, LAYERS)


def _hook(
    own: Any,
    module: Any,
    mesh: DeviceMesh,
    layouts: Layouts,
    prepare: Callable[..., Any],
    finish: Callable[..., Any],
) -> torch.nn.Module:
    """The input is redistributed and made local, and the local result is a DTensor again.

    `prepare` and `finish` are what torch's style does with the input and with the result.
    """

    def before(layer: Any, inputs: tuple[Any, ...]) -> Any:
        x = inputs[0]
        if isinstance(x, DTensor) and x.device_mesh != mesh:
            raise RuntimeError(
                f"{_NAME}.{type(own).__name__}: x has the mesh {x.device_mesh}, but "
                f"{type(layer).__name__} has the mesh {mesh}; pass x.full_tensor(), distributed "
                "over the mesh of the layer."
            )
        x = prepare(layer, inputs, mesh)
        # A DTensor of the caller may have any placement.
        x = x.redistribute(mesh, [_at(layouts.x, x.ndim)])
        return (x.to_local(grad_placements=[_at(layouts.gradient, x.ndim)]), *inputs[1:])

    def after(layer: Any, _inputs: Any, out: Any) -> Any:
        placed = DTensor.from_local(out, mesh, [_at(layouts.result, out.ndim)], run_check=False)
        return finish(layer, placed, mesh)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    return module


def _shard(own: Any, layer: Any, mesh: DeviceMesh, dim: int, layouts: Layouts) -> torch.nn.Module:
    """Leaves a process its rows (0) or columns (1) of the weight, and hooks the layer."""
    length = (layer.out_features, layer.in_features)[dim]
    sizes = f"{('out_features', 'in_features')[dim]} is {length}"
    if length % mesh.size():
        raise ValueError(
            f"{_NAME}.{type(own).__name__}: {sizes}, which {mesh.size()} processes do not divide; "
            "leave this layer out of the plan, or take another number of processes."
        )
    _send(layer, mesh, own.src_data_rank)
    shard: Any = _shard_quantised if isinstance(layer, QuantLinear) else _shard_sparse
    _set_parts(layer, shard(layer, mesh, dim, length // mesh.size(), sizes))
    prepare = functools.partial(own._prepare_input_fn, own.input_layouts, own.desired_input_layouts)
    finish = functools.partial(own._prepare_output_fn, own.output_layouts, own.use_local_output)
    return _hook(own, layer, mesh, layouts, prepare, finish)


def _set_parts(layer: Any, parts: Parts) -> None:
    """Makes DTensors of what learns, and of what state_dict() has."""
    layer._parts = parts
    for name in ("weight", "bias"):
        whole = layer._parameters.get(name)
        if whole is not None:
            placement = [parts.placements[name]]
            tensor = distribute_tensor(whole.detach(), parts.mesh, placement, src_data_rank=None)
            parameter = torch.nn.Parameter(tensor, requires_grad=whole.requires_grad)
            setattr(layer, name, parameter)
    layer._register_state_dict_hook(parts.save)


def _send(layer: torch.nn.Module, mesh: DeviceMesh, source: int | None) -> None:
    """All processes get the tensors of one of them, as torch's styles do it; None: of none."""
    if source is None or mesh.size() == 1:
        return
    for tensor in (*layer.parameters(), *layer.buffers()):
        if not tensor.is_meta and tensor.numel():
            sent = tensor.detach().flatten().view(torch.uint8)  # of dtypes that gloo does not send
            torch.distributed.broadcast(sent, group=mesh.get_group(), group_src=source)
            tensor.detach().copy_(sent.view(tensor.dtype).view(tensor.shape))


def _shard_quantised(
    layer: QuantLinear, mesh: DeviceMesh, dim: int, length: int, sizes: str
) -> Parts:
    blocks = layer.granularity == "128x128"
    if blocks and mesh.size() > 1 and length % BLOCK:
        raise ValueError(
            f"{_NAME}: {sizes} of a QuantLinear, and its scales are of blocks of {BLOCK}, which "
            f"{mesh.size()} processes do not divide; take granularity='row'."
        )
    divided = blocks or (layer.granularity == "row" and dim == 0)
    placements: dict[str, Any] = {
        "weight": Shard(dim),
        "weight_scale": Shard(dim) if divided else Replicate(),
        "bias": Replicate() if dim else Shard(0),
    }
    shards: Any = {"weight": layer._values().view(torch.int8), "weight_scale": layer.weight_scale}
    for name, whole in shards.items():
        part = _part(whole, mesh, placements[name])
        layer._buffers[name] = part.clone(memory_format=torch.contiguous_format)
    layer.out_features, layer.in_features = layer._buffers["weight"].shape
    return Parts(mesh, placements)


@torch.no_grad()
def _shard_sparse(
    layer: SparseLinear24, mesh: DeviceMesh, dim: int, length: int, sizes: str
) -> Parts:
    compressed = layer.compressed
    group = GROUPS[compressed.pattern]
    if (dim == 1 or compressed.transposable) and length % group:
        raise ValueError(
            f"{_NAME}: {sizes} of a SparseLinear24 of pattern {compressed.pattern}, whose groups "
            f"of {group} are not divided among {mesh.size()} processes; leave this layer out of "
            "the plan, or take another number of processes."
        )
    ones = torch.ones(compressed.shape, dtype=compressed.dtype, device=compressed.device)
    mask = compressed.mask(ones).to_dense()
    weight: Any = layer.weight if layer.learns else compressed.to_dense()
    part, mask = (_part(tensor, mesh, Shard(dim)).contiguous() for tensor in (weight, mask))
    layer.out_features, layer.in_features = part.shape
    layer._set(layer._compress(mask).mask(part))
    placements: dict[str, Any] = dict.fromkeys(("weight", *SAVED_PARTS), Shard(dim))
    placements |= dict.fromkeys(("weight.format", REFRESH), Replicate())
    placements["bias"] = Replicate() if dim else Shard(0)
    shares = mesh.size() if dim else 1
    return Parts(mesh, placements, shares, shares == 1 or length % K_OF_BYTE == 0)
