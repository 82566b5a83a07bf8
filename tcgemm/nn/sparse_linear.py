"""The layer with 2:4 sparse weights: tcgemm.nn.SparseLinear24.

    frozen     weight: a SparseTensor24
    learning   weight: dense (a Parameter), kept: a SparseTensor24 of the kept positions
               forward: linear(x, kept.mask(weight), bias); every n steps kept is chosen again

compressed_buffers.py makes buffers of the tensors inside of the SparseTensor24, sparse_state.py has
state_dict().
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from tcgemm.nn import exchange
from tcgemm.nn.activation import check_activation
from tcgemm.nn.linear import Linear
from tcgemm.nn.optimizer_steps import follow
from tcgemm.nn.sparse_state import SparseState
from tcgemm.ops import functional
from tcgemm.ops._torch_private import (
    is_exporting,
    is_tracing,
    is_wrapped_by_transform,
    transforms_active,
)
from tcgemm.ops.dtensor import full_tensor, is_dtensor
from tcgemm.ops.epilogue import epilogue_of
from tcgemm.ops.operators import Scaled
from tcgemm.ops.prepack import TensorVersionGuard
from tcgemm.sparse.fast_path import (
    Operands,
    is_plain,
    is_plain_eager,
    metadata_argument,
    operands_of,
)
from tcgemm.sparse.prune import METHODS, prune24
from tcgemm.sparse.tensor import SparseTensor24, default_pattern, gather

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GRADIENTS = ("masked", "straight_through")
_NAME = "tcgemm.nn.SparseLinear24"
_tensor = torch.Tensor
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


class _Ready(NamedTuple):
    """The prepared arguments of a call without gradients."""

    weight: SparseTensor24
    names: tuple[str, str]  # of the buffers of values and metadata
    guard: TensorVersionGuard | None  # of the dense weight that `weight` was compressed from
    operands: Operands
    call: Callable  # of x and the bias

    def holds(self, buffers):
        """Are the tensors inside and the buffers still those of the operands?"""
        values, metadata = self.names
        return (
            self.operands is self.weight.fast_operands
            and buffers.get(values) is self.operands.values
            and buffers.get(metadata) is self.weight.metadata
        )


class SparseLinear24(SparseState):
    """A linear layer that multiplies with 2:4 sparse weights: act(x @ weight.t() + bias).

    x (..., in_features) of the weight's dtype, float16, bfloat16 or float32 (pattern 1:2,
    multiplied as tf32).

    A layer is frozen (`learns=False`): `weight` is a tcgemm.SparseTensor24, a buffer. Gradients go
    through to x and the bias. Or it learns: `weight` is a dense Parameter, and each forward
    compresses what it has at the kept positions, `kept`, which are chosen anew by refresh().

    Arguments:
        in_features, out_features, bias, device, dtype: as of torch.nn.Linear.
        activation: "relu", "gelu", "gelu_tanh", "silu" or None, fused.
        method (str): how tcgemm.prune24 chooses: "magnitude", or "transposable", with which the
            gradient of x is a sparse product too (otherwise its backward takes weight.to_dense(),
            and a dense product). from_linear takes "mask" as well.
        learns (bool): see above.
        refresh_every (int): of a layer that learns: refresh() comes by itself in the first forward
            after so many changes of the weight (steps of an optimizer); 0: never. Inside
            torch.compile it does not: call refresh() between steps there.
        gradient (str): the dense weight's: "masked" (zero where nothing is kept), or
            "straight_through" (dense, as if nothing had been pruned, so that what was pruned
            learns too and may come back).

    A new layer has torch.nn.Linear's initialisation, pruned. from_linear makes one of a
    torch.nn.Linear, to_linear goes back (from_dense and to_dense are their older names), and
    tcgemm.swap_linear exchanges those of a model.

    state_dict() holds plain tensors: weight.values, weight.metadata, weight.format (version, group,
    K), the bias, and weight if the layer learns. load_state_dict takes these, or a dense weight,
    which is pruned.

    Example:
        >>> layer = tcgemm.nn.SparseLinear24.from_linear(torch.nn.Linear(64, 32), learns=True)
        >>> layer(torch.randn(10, 64)).sum().backward()
        >>> float((layer.weight.grad == 0).float().mean())
        0.5
        >>> layer.to_linear().weight.shape
        torch.Size([32, 64])
    """

    # Class attributes serve modules that an older version pickled.
    _stepped = False  # an optimizer has changed the weight since the last training forward

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        activation: str | None = None,
        method: str = "magnitude",
        learns: bool = False,
        refresh_every: int = 0,
        gradient: str = "masked",
    ):
        check_activation(_NAME, activation)
        linear = torch.nn.Linear(in_features, out_features, bias, device, dtype)
        linear.activation = activation
        super().__init__()
        options = {"learns": learns, "refresh_every": refresh_every, "gradient": gradient}
        self._become(linear, method, None, **options)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        method: str = "magnitude",
        mask: torch.Tensor | None = None,
        learns: bool = False,
        refresh_every: int = 0,
        gradient: str = "masked",
    ) -> "SparseLinear24":
        """The layer with the pruned weight, and a copy of the bias, of a torch.nn.Linear.

        method "mask" keeps where `mask` is true, and, where that is less than the pattern takes,
        the first others as zeros, which may learn. The layer has the activation of a
        tcgemm.nn.Linear. A layer that learns starts with a copy of the weight; with a mask, zero
        outside of it.
        """
        exchange.check_linear(_NAME, linear)
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        options = {"learns": learns, "refresh_every": refresh_every, "gradient": gradient}
        layer._become(linear, method, mask, **options)
        return layer

    from_dense = from_linear  # the method's first name

    @torch.no_grad()
    def _become(self, linear, method, mask, *, learns, refresh_every, gradient):
        weight = linear.weight.detach()
        _check(weight, method, gradient, learns, refresh_every)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.activation = getattr(linear, "activation", None)
        self.method = method
        self.learns, self.gradient = learns, gradient
        self.refresh_every = refresh_every
        self._seen, self._changes, self._stepped = None, 0, False
        if mask is not None or method == "mask":
            weight = prune24(weight, method=method, mask=mask)
            compressed = self._compress(mask.to(weight.dtype)).mask(weight)
        else:
            compressed = self._compress(weight)
        if learns:
            self.register_parameter("weight", torch.nn.Parameter(weight.clone()))
        self._set(compressed)
        bias = linear.bias
        bias = bias if bias is None else torch.nn.Parameter(bias.detach().clone())
        self.register_parameter("bias", bias)
        self.train(linear.training)

    def refresh(self) -> None:
        """Chooses the kept positions again, by the present dense weight."""
        if not self.learns or self.method == "mask":
            raise RuntimeError(
                f"{_NAME}: this layer {'keeps a given mask' if self.learns else 'is frozen'}, so "
                "there is nothing to refresh; make it by from_linear with learns=True and a method."
            )
        self._set(self._compress(full_tensor(self.weight)))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        ready = self._ready
        if (
            ready is not None
            and type(input) is _tensor
            and input.dim() > 1
            and is_plain_eager()
            and ready.holds(self._buffers)
            and (ready.guard is None or self._unchanged(ready.guard))
            and ready.operands.beside(input)
            and is_plain(input)
        ):
            bias = self._parameters["bias"]
            if (bias is None or is_plain(bias)) and (
                not _grad_enabled()
                or not (
                    input.requires_grad or (bias is not None and bias.requires_grad) or self.learns
                )
            ):
                return ready.call(input, bias)
        return self._multiply(input)

    def _unchanged(self, guard):
        return guard.tensor is self._parameters.get("weight") and guard.unchanged

    def _multiply(self, input):
        kept = not (self.training or _compiling())
        if not _compiling() and is_dtensor(input):
            raise RuntimeError(
                f"{_NAME}: x is a DTensor, but sparse products have no sharding rules; pass "
                "x.full_tensor(), or x.to_local() if it is sharded by rows."
            )
        if kept:
            self._check_positions()
        if is_exporting() or (not _compiling() and is_tracing()):  # by torch.jit.trace
            return self._exported(input)
        if self.learns:
            if not _compiling():
                self._check_weight()
            if isinstance(input, torch.fx.Proxy):  # fx.symbolic_trace
                weight = torch.ops.tcgemm.mask24.default(self.weight, self.compressed)
                kept = False
            elif kept and not (_grad_enabled() and self.weight.requires_grad):
                with torch.inference_mode(False), torch.no_grad():
                    self._set(self.kept.mask(self.weight))
                weight = self.kept
            else:
                if self.training and not _compiling():
                    self._count()
                weight, kept = self.compressed.mask(self.weight), False
        else:
            weight = self.compressed
        if kept:
            self._prepare(weight)
        return functional.linear(input, weight, self.bias, activation=self.activation)

    def _check_weight(self):
        """Refuses dense weights that mask24 cannot take."""
        weight = self.weight
        if transforms_active() and is_wrapped_by_transform(weight):
            raise RuntimeError(
                f"{_NAME}: torch.func transforms the dense weight of a layer that learns, but "
                "there are no derivatives per sample and no batches of it; transform to_linear(), "
                "or use backward()."
            )
        if is_dtensor(weight):
            raise RuntimeError(
                f"{_NAME}: the weight is a DTensor, but a forward multiplies with the whole "
                "weight; call the module that fully_shard was applied to, or leave this layer out "
                "of the plan of parallelize_module."
            )

    def _exported(self, input):
        """The product for torch.export and torch.jit.trace, in operators of plain tensors. It has
        no derivatives."""
        (values, *positions), _ = self.inner_buffers()
        if self.learns:
            values = gather(self.weight, positions[0], self._pattern)
        epilogue = epilogue_of(self.activation, 1.0, 1.0, None, None, None)
        if values.dtype is torch.float32:
            epilogue = epilogue.with_precision("high")
        rows = input.unsqueeze(0) if input.dim() == 1 else input
        call = Scaled(sparse_b=metadata_argument(*positions))
        result = call.run(rows, values.t(), None, self.bias, None, epilogue)
        return result.squeeze(0) if input.dim() == 1 else result

    def _count(self):
        """Counts the changes of the weight that forwards in training find, and refreshes."""
        if self.refresh_every:
            follow(self)
        version = self.weight._version
        if self._stepped or self._seen not in (None, version):
            self._changes += 1
            if self.refresh_every and self._changes % self.refresh_every == 0:
                self.refresh()
        self._seen, self._stepped = version, False

    def _prepare(self, weight):
        """Prepares the fast path of later calls. It multiplies float32 as tf32."""
        if self.learns and self.weight.is_inference():
            return  # its changes would go unnoticed
        operands = operands_of(weight) if is_plain_eager() else None
        if operands is None or weight.pattern != default_pattern(weight.dtype):
            return
        keywords = {} if self.activation is None else {"activation": self.activation}
        if weight.dtype is torch.float32:
            keywords["precision"] = "high"
        guard = TensorVersionGuard(self.weight) if self.learns else None
        names = f"{self._own}_values", f"{self._own}_metadata"
        self._ready = _Ready(weight, names, guard, operands, operands.linear(keywords))

    def to_linear(self) -> torch.nn.Linear:
        """A tcgemm.nn.Linear with the pruned weight, zeros included, and a copy of the bias."""
        with torch.no_grad():
            weight = self.kept.mask(self.weight) if self.learns else self.weight
            weight = weight.to_dense()
        options = {"device": "meta", "dtype": weight.dtype, "activation": self.activation}
        linear = Linear(self.in_features, self.out_features, self.bias is not None, **options)
        linear.weight = torch.nn.Parameter(weight)
        if self.bias is not None:
            linear.bias = torch.nn.Parameter(self.bias.detach().clone())
        return linear.train(self.training)

    to_dense = to_linear  # the method's first name

    def extra_repr(self) -> str:
        activation = "" if self.activation is None else f", activation={self.activation}"
        learns = ""
        if self.learns:
            learns = f", learns=True, refresh_every={self.refresh_every}, gradient={self.gradient}"
        weight = self.compressed
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, dtype={weight.dtype}, pattern={weight.pattern}, "
            f"method={self.method}{activation}{learns}"
        )

    def train(self, mode: bool = True):
        self._ready = None
        return super().train(mode)

    def _apply(self, fn, recurse=True):
        self._seen = None
        super()._apply(fn, recurse)
        other = self.compressed.pattern != default_pattern(self.compressed.dtype)
        if other and self.learns and self.method != "transposable":
            self._set(self._compress(self.kept.mask(self.weight).to_dense()))
        return self

    def __getstate__(self):
        return super().__getstate__() | {"_seen": None}


def _check(weight, method, gradient, learns, refresh_every):
    if weight.dtype not in DTYPES:
        names = ", ".join(str(each) for each in DTYPES)
        raise RuntimeError(
            f"{_NAME}: the weight is {weight.dtype}, but sparse layers have {names}; convert it "
            "with .to(...)."
        )
    if method not in METHODS or gradient not in GRADIENTS:
        raise RuntimeError(
            f"{_NAME}: method is {method!r} and gradient {gradient!r}, but there are "
            f"{', '.join(METHODS)}, and {', '.join(GRADIENTS)}; pass one of each."
        )
    if refresh_every and (not learns or method == "mask" or refresh_every < 0):
        raise RuntimeError(
            f"{_NAME}: refresh_every is {refresh_every} with learns={learns} and method "
            f"{method!r}, but only a layer that learns, by another method than a mask, chooses "
            "anew; leave it away, or pass learns=True."
        )
    if method == "transposable" and weight.dtype is torch.float32:
        raise RuntimeError(
            f"{_NAME}: method is 'transposable', which is of pattern 2:4, but a torch.float32 "
            "weight is multiplied in pattern 1:2; convert the layer to torch.bfloat16 or "
            "torch.float16."
        )


_NAMES = (
    *("_parameters", "_buffers", "_non_persistent_buffers_set", "activation", "method"),
    *("learns", "gradient", "refresh_every", "_seen", "_changes", "_stepped"),
    *("_sparse", "_inside", "_pattern", "_checked", "_ready"),
)


def _state(module, **options):
    return exchange.state_of(SparseLinear24.from_linear(module, **options), module, _NAMES)


exchange.register(
    exchange.Exchange(
        layer=SparseLinear24,
        options=("method", "learns", "refresh_every", "gradient"),
        names=_NAMES,
        state=_state,
        why_not=lambda module: exchange.why_not_converted(module, DTYPES, "pruned"),
    )
)
