"""The layer that trains in float8: tcgemm.nn.Float8Linear.

    _parameters   weight, bias: as in torch.nn.Linear, of 16 or 32 bits, which learn
    _buffers      only with delayed scaling, all float32:
                  amax (2,), gradient_amax (1,)   the largest magnitudes since the last step
                  amax_history (3, H)             amax of the last H steps, the newest first
                  scales (3,)                     for the next step, from the history

The forward lets amax grow, and the backward gradient_amax. Both are idempotent: gradient
checkpointing may run a forward twice, and a step may have several forwards. A hook of the optimizer
moves them into the history after each step, so that all forwards of a step have the same scales.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.nn import exchange
from tcgemm.nn.layer import Layer, Loading
from tcgemm.nn.optimizer_steps import follow
from tcgemm.operands.quant.float8 import SOURCES, Delayed, State, float8_linear, move_history
from tcgemm.operands.quant.float8_parallel import parallel_float8_linear
from tcgemm.ops.arguments import check_flag, integer
from tcgemm.ops.dtensor import is_dtensor, local_tensor
from tcgemm.typing import Activation, Float8Precision, Float8Scaling, words

_NAME = "tcgemm.nn.Float8Linear"
HISTORY = 16  # steps, as in "FP8 Formats for Deep Learning" by way of NVIDIA's Transformer Engine
_OPTIONS: dict[str, Any] = {"scaling": "current", "history": HISTORY, "precision": None}


def _check(scaling: object, history: object, precision: object, batch_invariant: object) -> None:
    check_flag("nn.Float8Linear", "batch_invariant", batch_invariant)
    if batch_invariant:
        raise RuntimeError(
            f"{_NAME}: batch_invariant is True, but the scale of x comes from all rows, and so do "
            "the bits of each row; leave batch_invariant out, or use tcgemm.nn.QuantLinear with "
            'the granularity "row".'
        )
    if scaling not in words(Float8Scaling):
        raise RuntimeError(
            f'{_NAME}: scaling is {scaling!r}, but there are "current" and "delayed"; pass one of '
            "these."
        )
    if integer("nn.Float8Linear", "history", history) < 1:
        raise RuntimeError(
            f"{_NAME}: history is {history!r}, but it must be a number of steps, at least 1; pass "
            f"an int such as {HISTORY}."
        )
    if precision is not None and precision not in words(Float8Precision):
        raise RuntimeError(
            f'{_NAME}: precision is {precision!r}, but products in float8 have "promoted" and '
            '"fast"; pass one of these, or None.'
        )


class Float8Linear(Layer, torch.nn.Linear):
    """A linear layer whose forward and backward multiply in float8, for training.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 64))
        >>> report = tcgemm.swap_linear(model, to=tcgemm.nn.Float8Linear)
        >>> model(torch.randn(10, 64)).sum().backward()
        >>> model[0].weight.grad.dtype
        torch.float32

    The forward is act(x @ weight.t() + bias) of x and the weight in float8_e4m3fn. The backward
    multiplies the gradient in float8_e5m2 by both. Each tensor has one scale. The weight stays a
    Parameter of 16 or 32 bits, which the optimizer changes; so does the gradient of the bias.
    Parameters and initialisation are as in torch.nn.Linear.

    Scales: with "current" scaling tcgemm.quantize computes them. With "delayed" scaling they
    come from the largest magnitude of the last `history` optimizer steps, and a tensor is read once
    less. What grows beyond it saturates. Steps up to the first one after which all magnitudes are
    known have current scaling, and so has eval mode. Delayed scaling has state: the buffers amax,
    gradient_amax, amax_history and scales, which state_dict() contains. An optimizer from
    torch.optim that has the layer's weight must make the steps. Each process has its own state.
    DistributedDataParallel sends the buffers of process 0 to all others. Processes that share a
    weight by tensor parallelism agree on the largest magnitudes after each step.

    torch.compile, autocast, gradient checkpointing, fully_shard (FSDP2) and parallelize_module
    (ColwiseParallel, RowwiseParallel and SequenceParallel of torch) work. torch.func and second
    derivatives are refused: tcgemm.quantized_linear has them.

    Arguments:
        in_features, out_features, bias, device, dtype: as for torch.nn.Linear. The weight is
            float16, bfloat16 or float32.
        activation (str): one of tcgemm.typing.Activation, or None.
        scaling (str): "current" or "delayed".
        history (int): the steps that delayed scaling looks back on.
        precision (str): "promoted" or "fast" for the forward, as in tcgemm.linear. The products of
            the backward are promoted.
        batch_invariant (bool): only False. True is refused, because the one scale of x comes from
            all of its rows, and with delayed scaling from the amax of former steps.
        constant_weights (bool): nothing is loaded early, because each call quantises the weight; in
            the block of tcgemm.constant_weights a write raises as in other layers.

    Shapes: x (..., in_features), of float16, bfloat16 or float32 -> (..., out_features). x may be
        a jagged NestedTensor.

    Raises:
        RuntimeError: an option is none of these; x or the weight has another dtype or shape.
    """

    activation: Activation | None
    scaling: Float8Scaling = "current"
    history: int = HISTORY
    precision: Float8Precision | None = None
    _measured: bool = False  # every magnitude of the history is known
    _LAYER = "Float8Linear"
    _BUFFERS = ("amax", "gradient_amax", "amax_history", "scales")
    amax: Tensor
    gradient_amax: Tensor
    amax_history: Tensor
    scales: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        *,
        activation: Activation | None = None,
        scaling: Float8Scaling = "current",
        history: int = HISTORY,
        precision: Float8Precision | None = None,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> None:
        _check(scaling, history, precision, batch_invariant)
        dtype = dtypes.of(_NAME, "dtype", dtype)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.constant_weights = constant_weights
        self.scaling, self.history, self.precision = scaling, history, precision
        for name, buffer in _buffers(self.weight, scaling, history).items():
            self.register_buffer(name, buffer)
        self._measured = False
        follow(self)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        scaling: Float8Scaling = "current",
        history: int = HISTORY,
        precision: Float8Precision | None = None,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> Self:
        """Makes a layer with copies of the weight and the bias of a torch.nn.Linear.

        Example:
            >>> layer = tcgemm.nn.Float8Linear.from_linear(torch.nn.Linear(64, 128))
            >>> layer(torch.randn(32, 64)).shape
            torch.Size([32, 128])

        The layer has the activation of a tcgemm.nn.Linear. tcgemm.swap_linear keeps the Parameters
        instead. Raises TypeError if `linear` is no torch.nn.Linear, and RuntimeError if an option
        is not supported, or if `linear` is batch_invariant.
        """
        options = {"scaling": scaling, "history": history, "precision": precision}
        layer = cls._copied(linear, batch_invariant, constant_weights, **options)
        layer._buffers.update(_buffers(layer.weight, scaling, history))
        return layer

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """act(x @ weight.t() + bias), in float8."""
        if self._constant is not None:
            self._is_constant()  # raises after a write in the block
        delayed = Delayed()
        if self.scaling == "delayed" and self.training:
            state = self._state()
            scales = state.scales if self._measured else None
            delayed = Delayed(scales, state.amax, state.gradient_amax)
        parallel = is_dtensor(input) or is_dtensor(self.weight)
        run = parallel_float8_linear if parallel else float8_linear
        return run(input, self.weight, self.bias, delayed, self.activation, self.precision)

    def _product(self, rows: int) -> None:
        """Each call quantises the weight."""

    @staticmethod
    def _after_step(layers: list[Float8Linear]) -> None:
        alike: dict[Any, list[Float8Linear]] = {}
        for layer in layers:
            if layer.scaling == "delayed":
                # parallelize_module makes DTensors of the buffers, too.
                scales: Any = layer.scales
                mesh = scales.device_mesh if is_dtensor(scales) else None
                alike.setdefault((scales.device, layer.history, mesh), []).append(layer)
        for (_, _, mesh), group in alike.items():
            measured = all(layer._measured for layer in group)
            processes = mesh.get_group() if mesh is not None else None
            are_known = move_history([layer._state() for layer in group], processes)
            if not measured:  # reads the GPU, in the first steps only
                for layer, is_known in zip(group, are_known.tolist(), strict=True):
                    layer._measured = is_known

    def _state(self) -> State:
        """The buffers of delayed scaling, of this process."""
        return State(*(local_tensor(getattr(self, name)) for name in self._BUFFERS))

    def _after_load(self, loading: Loading, result: None) -> None:
        """Takes the state of a torch.nn.Linear, too: its history begins with the next step."""
        if self.scaling == "delayed":
            missing = loading.missing_keys
            absent = [loading.prefix + name for name in self._BUFFERS]
            if all(name in missing for name in absent):
                missing[:] = [name for name in missing if name not in absent]
            if not self.amax_history.is_meta:
                self._measured = bool((self._state().history.amax(1) > 0).all())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        follow(self)

    def _shown(self) -> dict[str, Any]:
        history = self.history if self.scaling == "delayed" else None
        return {"activation": self.activation, "scaling": self.scaling, "history": history}


def _buffers(weight: Tensor, scaling: Float8Scaling, history: int) -> dict[str, Tensor]:
    if scaling != "delayed":
        return {}
    device, dtype = weight.device, torch.float32
    return {
        "amax": torch.zeros(2, dtype=dtype, device=device),
        "gradient_amax": torch.zeros(1, dtype=dtype, device=device),
        "amax_history": torch.zeros(3, history, dtype=dtype, device=device),
        "scales": torch.ones(3, dtype=dtype, device=device),
    }


def _state(
    module: torch.nn.Linear, batch_invariant: bool = False, **options: Any
) -> dict[str, Any]:
    options = _OPTIONS | options
    _check(**options, batch_invariant=batch_invariant)
    follow(module)
    buffers = _buffers(module.weight, options["scaling"], options["history"])
    return {"_buffers": dict(module._buffers) | buffers, **options, "_measured": False}


def _why_not(module: Any, **_options: Any) -> str | None:
    if getattr(module, "batch_invariant", False):
        return "is batch_invariant, but in float8 the scale of x comes from all rows"
    return exchange.why_not_converted(module, SOURCES, "multiplied in float8")


exchange.register(
    exchange.Exchange(
        layer=Float8Linear,
        options=(*_OPTIONS, "batch_invariant"),
        names=("_buffers", *_OPTIONS, "_measured"),
        state=_state,
        why_not=_why_not,
    )
)
