"""torch.nn.Linear on tcgemm's products."""

import torch

from tcgemm import dtypes
from tcgemm.nn import exchange
from tcgemm.nn.activation import HasActivation, check_activation
from tcgemm.ops import explanation, functional, precision
from tcgemm.ops._torch_private import transforms_active
from tcgemm.ops.dtensor import is_dtensor
from tcgemm.ops.prepack import capturing
from tcgemm.ops.prepack import prepare as prepare_weight

_compiling = torch.compiler.is_compiling


def _exporting():
    """Does torch.export trace this call? is_exporting() is also true under torch.compile."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def _on_gpu(weight):
    return weight.is_cuda


def _multiplies_parts(input, weight):
    """Can this call use parts of the weight? Only a Parameter outlives the call: DataParallel,
    parametrizations and DTensor pass other tensors in its place."""
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


class Linear(HasActivation, torch.nn.Linear):
    """torch.nn.Linear with an optional fused activation: act(x @ weight.t() + bias).

    Arguments, initialisation and state_dict are torch.nn.Linear's; `activation` is "relu", "gelu",
    "gelu_tanh", "silu" or None. x (..., in_features) -> (..., out_features). Errors and dtypes are
    tcgemm.linear's.

    In eval mode the first call with precision "highest" prepares a float32 weight on a GPU
    (tcgemm.prepare) and keeps the parts for later calls. This takes 1 to 1.5 times the memory of
    the weight beside it (up to 2.5 times during the call), and one wait for the GPU. `prepared` is
    the tcgemm.Prepared that is kept, or None. train(), moves, conversions, in-place changes and
    another weight drop it. A weight that changed is prepared again when two calls have seen it
    unchanged. No state_dict, copy or pickle contains it. Results have the same bits with and
    without parts, also in train mode, and so have gradients.

    Under autocast, torch.func, torch.export and other precisions parts are neither prepared nor
    used. A layer that fully_shard (FSDP2) has sharded prepares nothing, for each forward gathers
    its weight into other memory. The capture of a CUDA graph and torch.compile prepare nothing, but
    use parts that exist: call the layer once before. A compiled function notices a change of the
    weight; a captured graph does not, so capture it again. `prepare=False`, as an argument or an
    attribute, switches all this off. Use it where graphs are replayed with new weights, and where
    weights are written in eval mode through `weight.data`, which goes unnoticed (or call train()
    and eval() after that).

    Example:
        >>> layer = tcgemm.nn.Linear(32, 48, activation="gelu")
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])
    """

    # Class attributes serve modules that swap_linear or pickle created, without __init__.
    activation: str | None = None
    prepare: bool = True
    _prepared = None
    _changed = None  # the weight's version when a call found it changed
    _captured = None  # parts that a captured CUDA graph reads; kept when the weight changes
    _sharded = False  # FSDP2 gives the weight new memory for each forward
    _LAYER = "Linear"
    _OWN = ("_prepared", "_changed", "_captured")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        activation: str | None = None,
        prepare: bool = True,
    ):
        check_activation("tcgemm.nn.Linear", activation)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.prepare = prepare
        self._drop()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight, precision_used = self.weight, None
        if self.prepare and _multiplies_parts(input, weight):
            keeps = not (self.training or self._sharded)
            kept = self._prepared_weight(weight) if keeps else None
            # A call without parts is computed as one with parts, so that both have the same bits.
            weight, precision_used = (weight, "prepared") if kept is None else (kept, "highest")
        return functional.linear(
            input, weight, self.bias, activation=self.activation, precision=precision_used
        )

    @property
    def prepared(self):
        """The tcgemm.Prepared that eval mode keeps, or None."""
        return self._prepared

    def _prepared_weight(self, weight):
        """The Prepared weight, kept or new; None where neither is possible."""
        if _exporting():
            return None
        prepared = self._prepared
        recorded = not _compiling() and capturing(weight)
        if prepared is not None and prepared.weight is weight and prepared.guard.unchanged:
            if recorded:
                self._captured = prepared
            return prepared
        if recorded or _compiling() or weight.is_inference():
            return None
        if prepared is not None or self._changed not in (None, weight._version):
            self._prepared, self._changed = None, weight._version
            return None
        self._prepared, self._changed = prepare_weight(weight), None
        return self._prepared

    def _drop(self, names=_OWN):
        """Sets the attributes of the module, not of the class, so that compiled functions guard on
        them."""
        for name in names:
            vars(self)[name] = None

    def __setattr__(self, name, value):
        if name == "weight" and is_dtensor(value):  # FSDP2 does so before and after each forward
            self._sharded = True
            self._drop()
        super().__setattr__(name, value)

    def train(self, mode: bool = True):
        if mode:
            self._drop(self._OWN[:2])
        return super().train(mode)

    def _apply(self, fn, recurse=True):
        self._drop()
        return super()._apply(fn, recurse)

    def __getstate__(self):
        return vars(self) | dict.fromkeys(self._OWN)

    def extra_repr(self) -> str:
        activation = "" if self.activation is None else f", activation={self.activation}"
        return super().extra_repr() + activation + ("" if self.prepare else ", prepare=False")


def _why_not(module):
    dtype = module.weight.dtype
    if dtype not in dtypes.DIFFERENTIABLE:
        names = ", ".join(str(each) for each in dtypes.DIFFERENTIABLE)
        return f"has weights of {dtype} on {module.weight.device.type}; there are {names}"
    return _why_not_multiplied(module.weight)


def _why_not_multiplied(weight: torch.Tensor) -> str | None:
    """The planner's sentence where this GPU has no kernel for the weight's dtype and the precision
    in force; autocast would cast it first."""
    if type(weight) is not torch.nn.Parameter or not _on_gpu(weight):
        return None
    if torch.is_autocast_enabled("cuda"):
        return None
    try:
        explanation.check_layout(weight, weight.t())
    except RuntimeError as error:
        return str(error)
    return None


exchange.register(
    exchange.Exchange(
        layer=Linear,
        options=("prepare",),
        names=("prepare", *Linear._OWN),
        state=lambda module, **options: options | dict.fromkeys(Linear._OWN),
        why_not=_why_not,
        caches=Linear._OWN,
        replaceable=True,
    )
)
