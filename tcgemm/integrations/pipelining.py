"""The tracer of torch.distributed.pipelining for models with 8-bit and with sparse layers.

The tracer finds the tensors of a model by their names in state_dict() and by attributes of these
names. A QuantLinear has a QuantizedWeight under `weight` and the 8-bit values in its buffer; the
state of a SparseLinear24 has names, such as weight.metadata, that are no attributes. For the time
of a trace, `weight` is the buffer, and these names are left out.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch.distributed import pipelining

from tcgemm.nn import QuantLinear, SparseLinear24
from tcgemm.nn.sparse_state import REFRESH, SAVED_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch


def _drop_parts(_layer: Any, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for name in (*SAVED_PARTS, REFRESH):
        state.pop(prefix + name, None)


@contextlib.contextmanager
def _plain_names(model: torch.nn.Module) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for layer in model.modules():
            if isinstance(layer, QuantLinear):
                layer._values()  # the buffer holds the bytes afterwards
                vars(layer)["weight"] = layer._buffers["weight"]
                stack.callback(vars(layer).pop, "weight")
            elif isinstance(layer, SparseLinear24):
                handle: Any = layer._register_state_dict_hook(_drop_parts)
                stack.callback(handle.remove)
        yield


def pipeline(
    module: torch.nn.Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, pipelining.SplitPoint] | None = None,
    split_policy: Callable[[Any], Any] | None = None,
) -> pipelining.Pipe:
    """torch.distributed.pipelining.pipeline, which also takes QuantLinear and SparseLinear24.

    Example:
        >>> from torch.distributed.pipelining import SplitPoint
        >>> from tcgemm.integrations.pipelining import pipeline
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
        >>> report = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
        >>> spec = {"1": SplitPoint.BEGINNING}
        >>> pipe = pipeline(model, mb_args=(torch.randn(4, 64),), split_spec=spec)
        >>> pipe.num_stages
        2

    Arguments, result and errors are the same as for torch's function. Stages with a
    SparseLinear24 compute forwards only, as exported models do: to train such a model, split it
    manually, with torch.distributed.pipelining.PipelineStage.

    Arguments:
        module (torch.nn.Module): the model. It is unchanged afterwards.
        mb_args (tuple): the positional arguments of one microbatch.
        mb_kwargs (dict): its keyword arguments.
        split_spec (dict): {name of a module: torch.distributed.pipelining.SplitPoint}.
        split_policy: a function that splits the traced module instead.
    """
    with _plain_names(module):
        return pipelining.pipeline(module, mb_args, mb_kwargs, split_spec, split_policy)
