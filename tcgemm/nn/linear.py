"""torch.nn.Linear computed by tcgemm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.nn import exchange
from tcgemm.nn.layer import Layer
from tcgemm.ops import explanation, functional, precision
from tcgemm.ops._torch_private import is_exporting, transforms_active
from tcgemm.ops.dtensor import is_dtensor
from tcgemm.ops.kept import KeptForm, capturing, changes
from tcgemm.ops.prepared import Prepared, prepared_in
from tcgemm.typing import Activation

_compiling = torch.compiler.is_compiling


def _on_gpu(weight: Tensor) -> bool:
    return weight.is_cuda


def _multiplies_parts(input: Tensor, weight: Tensor) -> bool:
    """Can this call use a prepared weight? Only a Parameter exists longer than the call:
    DataParallel, parametrizations and DTensor pass other tensors in its place."""
    return (
        type(weight) is torch.nn.Parameter
        and _on_gpu(weight)
        and weight.dtype is torch.float32
        and isinstance(input, torch.Tensor)
        and input.dtype is torch.float32
        and not torch.is_autocast_enabled("cuda")
        and precision.default() == "highest"
        and (_compiling() or not transforms_active())
    )


class Linear(Layer, torch.nn.Linear):
    """torch.nn.Linear with an optional fused activation: act(x @ weight.t() + bias).

    Example:
        >>> layer = tcgemm.nn.Linear(32, 48, activation="gelu")
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])

    Initialisation and state_dict are as in torch.nn.Linear. Dtypes and errors are the same as for
    tcgemm.linear.

    Arguments:
        in_features, out_features, bias, device, dtype: as for torch.nn.Linear.
        activation (str): one of tcgemm.typing.Activation, or None.
        prepare (bool): whether float32 weights are prepared in eval mode; see below.
        batch_invariant (bool): True makes the bits of a row independent of the number of rows and
            of the other rows, in the forward and in the gradient of x: see tcgemm.batch_invariant.
        constant_weights (bool): True says that nobody writes the weight while the layer runs, so
            that kernels load it early: see tcgemm.constant_weights. It is an attribute, too.

    Shapes: x (..., in_features) -> (..., out_features).

    Prepared weights: in eval mode the first call with precision "highest" prepares a float32 weight
    on a GPU (tcgemm.prepare) and keeps the result for later calls, with a copy of the weight. It
    takes 2 to 2.5 times the memory of the weight in addition (up to 3.5 times during the call), and
    one wait for the GPU.
    `prepared` is the kept tcgemm.Prepared, or None. train(), moves and conversions drop it. A
    weight that changed is prepared again after two calls found it unchanged, at the same address.
    No state_dict, copy or pickle contains it. Results and gradients have the same bits with and
    without it, also in train mode.

    Under autocast, torch.func, torch.export, other precisions and with batch_invariant=True no
    weight is prepared, and none is used. A layer that fully_shard (FSDP2) has sharded prepares
    nothing, because each forward gathers the weight into other memory. The capture of a CUDA graph
    and torch.compile prepare nothing, but use a weight that is prepared already: call the layer
    once before. A compiled function notices a change of the weight. A captured graph does not: call
    tcgemm.refresh_weights, as after each write that torch does not count.

    `prepare=False`, as an argument or an attribute, switches this off.
    """

    activation: Activation | None
    prepare: bool = True
    _prepared: Prepared | None = None
    _changed: int | None = None  # the changes of the weight when a call found it changed
    _LAYER = "Linear"
    _OWN = ("_prepared", "_changed", "_form")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        *,
        activation: Activation | None = None,
        prepare: bool = True,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> None:
        dtype = dtypes.of("tcgemm.nn.Linear", "dtype", dtype)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.prepare = prepare
        self.batch_invariant = batch_invariant
        self.constant_weights = constant_weights
        vars(self).update(dict.fromkeys(self._OWN))

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        prepare: bool = True,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> Self:
        """Makes a layer with copies of the weight and the bias of a torch.nn.Linear.

        Example:
            >>> layer = tcgemm.nn.Linear.from_linear(torch.nn.Linear(32, 48))
            >>> layer(torch.randn(10, 32)).shape
            torch.Size([10, 48])

        The layer has the activation of a tcgemm.nn.Linear, and is batch_invariant or has
        constant_weights if that does. tcgemm.swap_linear keeps the Parameters instead. Raises
        TypeError if `linear` is no torch.nn.Linear.
        """
        return cls._copied(linear, batch_invariant, constant_weights, prepare=prepare)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """act(x @ weight.t() + bias), by tcgemm.linear."""
        weight: Tensor | Prepared = self.weight
        options = self._options()
        if self.prepare and not self.batch_invariant and _multiplies_parts(input, weight):
            keeps = not (self.training or self._sharded)
            prepared = self._prepared_weight(weight) if keeps else None
            if prepared is None:  # but the bits of a call with one
                options["precision"] = "prepared"
            else:
                weight = prepared
        if (
            self._constant is not None
            and self._is_constant()
            and (type(weight) is not Prepared or weight.form.settled)
        ):
            options["constant_b"] = True
        return functional.linear(input, weight, self.bias, **options)

    @property
    def prepared(self) -> Prepared | None:
        """The tcgemm.Prepared that eval mode keeps, or None."""
        prepared = self._prepared
        return prepared if prepared is not None and prepared.fresh else None

    def _prepared_weight(self, weight: Tensor) -> Prepared | None:
        """The Prepared weight, kept or new; None if neither is possible."""
        if is_exporting():
            return None
        prepared = self._prepared
        if prepared is not None and prepared.weight is weight and prepared.form.unchanged:
            return prepared
        if _compiling() or capturing(weight) or weight.is_inference():
            return None
        if prepared is not None and prepared.weight is not weight:
            return None  # of torch.func.functional_call, for this call
        if prepared is not None or self._changed not in (None, changes(weight)):
            vars(self).update(_prepared=None, _changed=changes(weight))
            return None
        prepared = prepared_in(self._kept_form(), weight, copies=True)
        vars(self).update(_prepared=prepared, _changed=None)
        return prepared

    def _can_refresh(self, form: KeptForm) -> bool:
        weight: Any = self._parameters.get("weight")
        is_plain = type(weight) is torch.nn.Parameter and weight.dtype is torch.float32
        return is_plain and weight.device == form.tensors[0].device

    def _refresh_form(self) -> str | None:
        form, weight = self._form, self._parameters.get("weight")
        if form is None or not form.tensors or not self._can_refresh(form):
            return None
        assert weight is not None
        vars(self).update(_prepared=prepared_in(form, weight, copies=True), _changed=None)
        return "terms"

    def _drop(self) -> None:
        """Sets the attributes of the module, not of the class, because compiled functions guard
        only on these."""
        vars(self).update(_prepared=None, _changed=None)
        if self._form is not None:
            self._form.drop()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            if is_dtensor(value):  # FSDP2 does so before and after each forward
                self._drop()
            elif self._prepared is not None:
                vars(self).update(_prepared=None, _changed=-1)
        super().__setattr__(name, value)

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._drop()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Any:
        self._drop()
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | dict.fromkeys(self._OWN)

    def _shown(self) -> dict[str, Any]:
        return {"activation": self.activation, "prepare": None if self.prepare else False}


def dense_linear(layer: Any, weight: Tensor, bias: Tensor | None) -> Linear:
    """The Linear that a layer becomes, with this weight and a copy of this bias."""
    linear = Linear(
        *(layer.in_features, layer.out_features, bias is not None, "meta", weight.dtype),
        activation=layer.activation,
        batch_invariant=layer.batch_invariant,
        constant_weights=layer.constant_weights,
    )
    linear.weight = torch.nn.Parameter(weight)
    if bias is not None:
        linear.bias = torch.nn.Parameter(bias.detach().clone())
    return linear.train(layer.training)


def _why_not(module: Any, **_options: Any) -> str | None:
    dtype = module.weight.dtype
    if dtype not in dtypes.DIFFERENTIABLE:
        names = ", ".join(str(dtype) for dtype in dtypes.DIFFERENTIABLE)
        return f"has weights of {dtype}; layers of tcgemm have {names}"
    is_parameter = type(module.weight) is torch.nn.Parameter
    # Under autocast the weight is cast first.
    if is_parameter and _on_gpu(module.weight) and not torch.is_autocast_enabled("cuda"):
        try:  # raises if this GPU has no kernel for the dtype and the present precision
            explanation.check_layout(module.weight, module.weight.t())
        except RuntimeError as error:
            return str(error)
    return None


exchange.register(
    exchange.Exchange(
        layer=Linear,
        options=("prepare", "batch_invariant"),
        names=("prepare", "batch_invariant", *Linear._OWN),
        state=lambda module, **options: options | dict.fromkeys(Linear._OWN),
        why_not=_why_not,
        caches=Linear._OWN,
    )
)
