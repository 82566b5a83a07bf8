"""What layers share whose weight is a buffer or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tcgemm.nn.layer import Layer, Loading
from tcgemm.nn.linear import dense_linear
from tcgemm.typing import Activation


class StoredWeight(Layer):
    """The base of QuantLinear and PackedLinear, whose weight is a buffer or more.

    The bias is a Parameter that needs no gradient. `weight` is a DequantizedWeight.
    """

    in_features: int
    out_features: int
    activation: Activation | None
    shown_dtype: torch.dtype  # the dtype of `weight`
    bias: torch.nn.Parameter | None

    def _set(
        self, shape: tuple[int, int], shown_dtype: torch.dtype, activation: Activation | None
    ) -> None:
        self.out_features, self.in_features = shape
        self.shown_dtype = shown_dtype
        self.activation = activation

    def _set_bias(self, bias: Tensor | None) -> None:
        parameter = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
        self.register_parameter("bias", parameter)

    def _device(self) -> torch.device:
        return next(buffer.device for buffer in self._buffers.values() if buffer is not None)

    def add_placeholder(self) -> None:
        """Gives the layer an empty Parameter, which no state_dict contains.

        swap_linear calls it in a model without other Parameters, because programs read the device
        and the dtype from next(model.parameters()).
        """
        empty = torch.empty(0, dtype=self.shown_dtype, device=self._device())
        self.register_parameter("placeholder", torch.nn.Parameter(empty, requires_grad=False))

    def _dense_linear(self, weight: Tensor, bias: Tensor | None) -> torch.nn.Linear:
        """A tcgemm.nn.Linear with this weight, and a copy of the bias in its dtype."""
        return dense_linear(self, weight, None if bias is None else bias.to(weight.dtype))

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Any:
        shown = fn(torch.empty(0, dtype=self.shown_dtype, device=self._device())).dtype
        super()._apply(fn, recurse)
        self.shown_dtype = shown
        return self

    def _saved(self) -> dict[str, Tensor]:
        """The tensors of the weight that state_dict() contains, by name."""
        raise NotImplementedError

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, tensor in {**self._saved(), "bias": self.bias}.items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars else tensor.detach()

    def _after_load(self, loading: Loading, result: None) -> None:
        placeholder = loading.prefix + "placeholder"
        if placeholder in loading.missing_keys:
            loading.missing_keys.remove(placeholder)
            self.add_placeholder()  # on the device of what was loaded
