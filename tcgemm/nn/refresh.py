"""tcgemm.refresh_weights: the kept forms of weights are written again, after writes that torch does
not count."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tcgemm.nn.layer import Layer

_NAME = "refresh_weights"
_one_at_a_time = threading.RLock()


class Refreshed(NamedTuple):
    """A kept form that was written again.

    Attributes:
        layer (str): the name of its layer, as in model.named_modules(); "" is the model itself.
        form (str): what it is: "device order", "terms", "kept elements" or "compressed transpose".
        nbytes (int): its size in bytes.
    """

    layer: str
    form: str
    nbytes: int


@dataclass(repr=False)
class RefreshReport:
    """The result of tcgemm.refresh_weights.

    Attributes:
        refreshed (list): a Refreshed for each form that was written again.
    """

    refreshed: list[Refreshed]

    def __repr__(self) -> str:
        size = sum(row.nbytes for row in self.refreshed) / 2**20
        lines = [f"  {row.layer or 'the model itself'}: {row.form}" for row in self.refreshed]
        return "\n".join([f"kept forms written again: {len(lines)}, {size:.3g} MiB", *lines])


def refresh_weights(model: torch.nn.Module) -> RefreshReport:
    """Computes each kept form of a weight again, at its address, from the weight as it is now.

    Example:
        >>> layer = tcgemm.nn.SparseLinear24(64, 32, learns=True).eval()
        >>> with torch.no_grad():
        ...     before = layer(torch.ones(64))
        ...     layer.weight.detach().numpy()[:] *= 2  # torch does not count this
        ...     layer(torch.ones(64)).equal(before)
        ...     report = tcgemm.refresh_weights(layer)
        ...     layer(torch.ones(64)).equal(before)
        True
        False

    Some layers keep a copy of the weight in another form: the order in which kernels read packed
    weights, the 16-bit terms of float32 weights, the kept elements of a sparse layer that learns,
    compressed transposes. They notice what torch counts. They do not notice a write by a collective
    in place, DLPack, numpy, a raw or Triton kernel, another process, or the replay of a CUDA graph:
    call this after such a write, in the stream that waits for it. CUDA graphs that were captured
    before show the new weights from then on.

    It waits for all work of the GPU, and returns when the forms are written, so that later products
    and replays in any stream read them. Inside the capture of a CUDA graph it waits for nothing,
    and each replay writes the forms. Nothing is pruned again: SparseLinear24.refresh() chooses
    kept positions.

    Arguments:
        model: a layer, or a module that has layers of tcgemm.

    Returns a RefreshReport.

    Raises:
        TypeError: model is no module.
        RuntimeError: a captured graph reads a form that cannot keep its address, because the layer
            was moved or converted since; the message names the layer. Nothing is written then.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"tcgemm.{_NAME}: model must be a torch.nn.Module, but is {type(model).__name__}; pass "
            "the layer, or a module that has it."
        )
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Layer)]
    for name, layer in layers:
        form = layer._form
        if form is not None and (form.graphs or (form.captured and not layer._can_refresh(form))):
            raise RuntimeError(
                f"tcgemm.{_NAME}: a captured CUDA graph reads the weight of "
                f"{name or 'the model itself'} ({type(layer).__name__}) in a form that cannot be "
                "written again, because the layer was moved, converted or sharded since; call its "
                "release_graphs(), and capture the graph again."
            )
    devices = {tensor.device for _, layer in layers for tensor in _tensors(layer) if tensor.is_cuda}
    refreshed = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(_one_at_a_time)
        for _, layer in layers:  # no thread launches a product of these layers meanwhile
            stack.enter_context(layer._kept_form().lock)
        _wait(devices)  # for products in other streams, which read the forms
        for name, layer in layers:
            if form := layer._refresh_form():
                refreshed.append(Refreshed(name, form, sum(one.nbytes for one in _tensors(layer))))
        _wait(devices)
    return RefreshReport(refreshed)


def _tensors(layer: Layer) -> Iterator[torch.Tensor]:
    if layer._form is not None:
        yield from layer._form.tensors


def _wait(devices: set[torch.device]) -> None:
    for device in devices:
        with torch.cuda.device(device):
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize()
