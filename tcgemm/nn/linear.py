"""torch.nn.Linear on tcgemm's products."""

import torch

from tcgemm import dtypes, precision
from tcgemm.nn import exchange
from tcgemm.ops import functional
from tcgemm.ops._torch_private import transforms_active
from tcgemm.ops.prepack import capturing
from tcgemm.ops.prepack import prepare as prepare_weight

_compiling = torch.compiler.is_compiling


def _exporting():
    """To a program, which will have weights of its own. Traced by torch.compile, torch's function
    says that everything is exported."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def _on_gpu(weight):
    return weight.is_cuda


def _multiplies_parts(input, weight):
    """Can parts of the weight that were made before serve this call? Tensors that stand in for a
    Parameter (of DataParallel, parametrizations, DTensor) come and go with the call."""
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


class Linear(torch.nn.Linear):
    """torch.nn.Linear with an optional fused activation: act(x @ weight.t() + bias).

    Arguments, initialisation and state_dict are torch.nn.Linear's; `activation` is "relu", "gelu",
    "gelu_tanh", "silu" or None. x (..., in_features) -> (..., out_features). Errors and dtypes are
    tcgemm.linear's.

    In eval mode a float32 weight on a GPU is prepared (tcgemm.prepare) by the first call of
    precision "highest", and its parts are kept for the next: 1 to 1.5 times the weight's memory
    beside it (up to 2.5 times while they are made), and one wait for the GPU. `prepared` is what is
    kept, or None. It is dropped by train(), by moves and conversions, and when the weight is
    another one or was changed in place; of a weight that changes between calls parts are made when
    it stays the same for two. It is in no state_dict, copy or pickle. Gradients are as without it.

    Under autocast, torch.func, torch.export and other precisions nothing is made or used. While a
    CUDA graph is captured or a function compiled nothing is made, but what is there is used: call
    the layer once before. A compiled function notices that the weight has changed; a captured graph
    does not, so capture again. `prepare=False`, as an argument or an attribute, switches all this
    off: do so where graphs are replayed with new weights, and where weights are written in eval
    mode through `weight.data`, which nothing can notice (or call train() and eval() after that).

    Example:
        >>> layer = tcgemm.nn.Linear(32, 48, activation="gelu")
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])
    """

    # Of the class, for a module that swap_linear or pickle made.
    activation: str | None = None
    prepare: bool = True
    _prepared = None
    _changed = None  # the weight's version when a call found it changed
    _captured = None  # parts that a CUDA graph reads, whatever becomes of the weight
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
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.prepare = prepare
        self._drop()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight, precision_used = self.weight, None
        if self.prepare and not self.training and _multiplies_parts(input, weight):
            weight, precision_used = self._prepared_weight(weight) or weight, "highest"
        return functional.linear(
            input, weight, self.bias, activation=self.activation, precision=precision_used
        )

    @property
    def prepared(self):
        """The tcgemm.Prepared that eval mode keeps, or None."""
        return self._prepared

    def _prepared_weight(self, weight):
        """The parts that are kept of the weight, or made now; None where neither can be."""
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
        """Of the module itself, so that compiled functions see it when parts are there."""
        for name in names:
            vars(self)[name] = None

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
        functional.check_layout(weight, weight.t())
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
