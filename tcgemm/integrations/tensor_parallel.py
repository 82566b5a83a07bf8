"""Tensor parallelism of layers with 8-bit and with frozen 2:4 sparse weights.

torch's ColwiseParallel and RowwiseParallel take a torch.nn.Linear alone. Those of this module take
a QuantLinear and a SparseLinear24, too, and give every other module to torch's:

    style             a process has       of the input          its result
    ColwiseParallel   rows of the weight  all features          its columns
    RowwiseParallel   columns of it       its features          a part of the sum over all processes

A layer of a process is an ordinary layer with a part of the weight, so that it runs the same
kernels. Its state_dict has DTensors, which distributed checkpoints save and reshard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import style

from tcgemm.nn import QuantLinear, SparseLinear24
from tcgemm.quant.shapes import BLOCK

LAYERS = (QuantLinear, SparseLinear24)
LAST = Shard(-1)
K_OF_BYTE = 8  # input features whose four kept positions share a byte of metadata


class Layouts(NamedTuple):
    """Placements of the input of a layer, of its gradient and of the result."""

    x: Any
    gradient: Any
    result: Any


def _at(placement: Any, ndim: int) -> Any:
    """The placement with the number of the last dimension, which torch wants."""
    return Shard(ndim - 1) if placement == LAST else placement


class ColwiseParallel(style.ColwiseParallel):
    """torch's ColwiseParallel, which also takes a QuantLinear and a frozen SparseLinear24.

    Example:
        >>> from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
        >>> plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}

    Pass the plan to torch.distributed.tensor.parallel.parallelize_module. Each process keeps its
    rows of the weight and its part of the bias. The result has the bits of one process.

    Arguments:
        input_layouts, output_layouts, use_local_output: as for torch's class.

    Raises:
        ValueError: The processes do not divide out_features, or the blocks of a scale; or the layer
            learns its weight.
    """

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not isinstance(module, LAYERS):
            return super()._apply(module, device_mesh)
        _shard(module, device_mesh, 0)
        return _hook(self, module, device_mesh, Layouts(Replicate(), Partial(), LAST))


class RowwiseParallel(style.RowwiseParallel):
    """torch's RowwiseParallel, which also takes a QuantLinear and a frozen SparseLinear24.

    Each process keeps its columns of the weight, and the results are added. A QuantLinear quantises
    the features that a process has, so a row of the input has a scale for each process: the result
    is within the error bound of one process, with other bits. A bias is divided by the number of
    processes, so that their sum has it once.

    Arguments:
        input_layouts, output_layouts, use_local_output: as for torch's class.

    Raises:
        ValueError: The processes do not divide in_features, or the blocks of a scale or the groups
            of the 2:4 pattern; the layer learns its weight, or has an activation, which would come
            before the sum.
    """

    desired_input_layouts: tuple[Any, ...]

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not isinstance(module, LAYERS):
            return super()._apply(module, device_mesh)
        if module.activation is not None:
            raise ValueError(
                f"RowwiseParallel: {type(module).__name__} has the activation "
                f"{module.activation!r}, which comes after the sum over all processes; put it into "
                "the layer before, which is column-parallel, or call it on the result."
            )
        self.desired_input_layouts = (Shard(-1),)
        _shard(module, device_mesh, 1)
        return _hook(self, module, device_mesh, Layouts(LAST, LAST, Partial()))


def _hook(own: Any, module: Any, mesh: DeviceMesh, layouts: Layouts) -> torch.nn.Module:
    """The input is redistributed and made local, and the local result is a DTensor again."""

    def before(layer: Any, inputs: tuple[Any, ...]) -> Any:
        x = own._prepare_input_fn(own.input_layouts, own.desired_input_layouts, layer, inputs, mesh)
        # A DTensor of the caller may have any placement.
        x = x.redistribute(mesh, [_at(layouts.x, x.ndim)])
        return (x.to_local(grad_placements=[_at(layouts.gradient, x.ndim)]), *inputs[1:])

    def after(layer: Any, _inputs: Any, out: Any) -> Any:
        placed = DTensor.from_local(out, mesh, [_at(layouts.result, out.ndim)], run_check=False)
        return own._prepare_output_fn(own.output_layouts, own.use_local_output, layer, placed, mesh)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    return module


def _shard(layer: Any, mesh: DeviceMesh, dim: int) -> None:
    """Leaves a process its rows (0) or columns (1) of the weight."""
    name, processes = type(layer).__name__, mesh.size()
    if getattr(layer, "learns", False):
        raise ValueError(
            f"{name} learns its weight, and only frozen ones are parallel; use tcgemm.nn.Linear, "
            "or make it with learns=False."
        )
    length = (layer.out_features, layer.in_features)[dim]
    part, rest = divmod(length, processes)
    sizes = f"{('out_features', 'in_features')[dim]} is {length}"
    if rest:
        raise ValueError(f"{name}: {sizes}, which {processes} processes do not divide.")
    piece = slice(mesh.get_local_rank() * part, (mesh.get_local_rank() + 1) * part)
    if isinstance(layer, QuantLinear):
        _shard_quantised(layer, mesh, dim, piece, sizes)
    else:
        _shard_sparse(layer, mesh, dim, piece, sizes)


def _bias(layer: Any, mesh: DeviceMesh, dim: int, piece: slice) -> torch.Tensor | None:
    """The part of the bias of a process: its elements, or a share of all of them."""
    if layer.bias is None:
        return None
    bias = layer.bias.detach()
    return bias[piece].clone() if dim == 0 else bias / mesh.size()


def _shard_quantised(
    layer: QuantLinear, mesh: DeviceMesh, dim: int, piece: slice, sizes: str
) -> None:
    values, scale = layer._values(), layer.weight_scale
    placements: dict[str, Any] = {"weight": Shard(dim), "weight_scale": Replicate()}
    blocks = layer.granularity == "128x128"
    if blocks and mesh.size() > 1 and (piece.stop - piece.start) % BLOCK:
        raise ValueError(
            f"QuantLinear: {sizes}, and its scales are of blocks of {BLOCK}, which "
            f"{mesh.size()} processes do not divide; take granularity='row'."
        )
    values = values.view(torch.int8).narrow(dim, piece.start, piece.stop - piece.start)
    values = values.contiguous().view(layer.dtype)
    if blocks:
        first, last = piece.start // BLOCK, -(-piece.stop // BLOCK)
        scale = scale.narrow(dim, first, last - first).clone()
        placements["weight_scale"] = Shard(dim)
    elif layer.granularity == "row" and dim == 0:
        scale = scale[piece].clone()
        placements["weight_scale"] = Shard(0)
    bias = _bias(layer, mesh, dim, piece)
    placements["bias"] = Shard(0) if dim == 0 else Replicate()
    shown, granularity, activation = layer.shown_dtype, layer.granularity, layer.activation
    layer._become(values, scale, bias, shown, granularity, activation)
    _name_state(layer, mesh, placements, mesh.size() if dim else 1)


def _shard_sparse(
    layer: SparseLinear24, mesh: DeviceMesh, dim: int, piece: slice, sizes: str
) -> None:
    dense = layer.to_linear()
    weight = dense.weight.detach()
    part = weight[piece] if dim == 0 else weight[:, piece]
    local = torch.nn.Linear(part.shape[1], part.shape[0], layer.bias is not None, "meta")
    local.weight = torch.nn.Parameter(part.contiguous(), requires_grad=False)
    bias = _bias(layer, mesh, dim, piece)
    if bias is not None:
        learns = layer.bias is not None and layer.bias.requires_grad
        local.bias = torch.nn.Parameter(bias, requires_grad=learns)
    try:
        made = SparseLinear24.from_linear(local)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"SparseLinear24: {sizes}, and a part of {tuple(part.shape)} for each of "
            f"{mesh.size()} processes has no 2:4 form: {error}"
        ) from error
    layer.in_features, layer.out_features = made.in_features, made.out_features
    layer._set(made.compressed)
    if made.bias is not None:
        layer.bias = made.bias
    shares = mesh.size() if dim else 1
    if shares > 1 and part.shape[1] % K_OF_BYTE:
        layer._register_state_dict_hook(_refuse)
        layer._prepare_state = _refuse
        return
    names = ("weight", "weight.values", "weight.metadata")
    placements: dict[str, Any] = dict.fromkeys(names, Shard(dim))
    placements |= {"weight.format": Replicate(), "bias": Replicate() if dim else Shard(0)}
    _name_state(layer, mesh, placements, shares)


def _refuse(*_arguments: Any) -> None:
    raise RuntimeError(
        f"SparseLinear24: {K_OF_BYTE} input features have one byte of positions, which is not "
        "divided; save and load the model before parallelize_module, or choose in_features that "
        f"are a multiple of {K_OF_BYTE} in each process."
    )


def _name_state(layer: Any, mesh: DeviceMesh, placements: dict[str, Any], shares: int) -> None:
    """state_dict() has DTensors, and load_state_dict takes them, or whole tensors.

    A row-parallel layer has a share of the bias, and of the features that weight.format tells.
    """
    device = mesh.device_type

    def factor(name: str, tensor: torch.Tensor) -> Any:
        if shares == 1 or name not in ("bias", "weight.format"):
            return None
        return shares if name == "bias" else tensor.new_tensor([1, 1, shares])

    def save(_layer: Any, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        for name, placement in placements.items():
            tensor = state.get(prefix + name)
            if tensor is not None and not isinstance(tensor, DTensor):
                times = factor(name, tensor)
                tensor = tensor if times is None else tensor * times
                state[prefix + name] = DTensor.from_local(tensor.to(device), mesh, [placement])

    def load(_layer: Any, state: dict[str, Any], prefix: str, *_others: Any) -> None:
        for name, placement in placements.items():
            tensor = state.get(prefix + name)
            if tensor is None:
                continue
            if isinstance(tensor, DTensor):
                tensor = tensor.redistribute(mesh, [placement]).to_local()
            elif isinstance(placement, Shard):
                tensor = tensor.chunk(mesh.size(), placement.dim)[mesh.get_local_rank()]
            times = factor(name, tensor)
            if times is not None:
                tensor = tensor / times if name == "bias" else tensor // times
            state[prefix + name] = tensor.contiguous()

    layer._register_state_dict_hook(save)
    if isinstance(layer, SparseLinear24):
        layer._prepare_state = load
    else:
        layer.register_load_state_dict_pre_hook(load)
