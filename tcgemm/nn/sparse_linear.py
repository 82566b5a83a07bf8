"""The layer with 2:4 sparse weights: tcgemm.nn.SparseLinear24.

    frozen     weight: a SparseTensor24
    learning   weight: dense (a Parameter), kept: a SparseTensor24 of the kept positions
               forward: linear(x, kept.mask(weight), bias)
               every n steps the kept positions are chosen again

compressed_buffers.py makes the tensors inside the SparseTensor24 buffers. sparse_state.py has
state_dict().
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.nn import exchange
from tcgemm.nn.compressed_buffers import values_of
from tcgemm.nn.linear import dense_linear
from tcgemm.nn.optimizer_steps import follow
from tcgemm.nn.sparse_call import ready_call
from tcgemm.nn.sparse_state import SparseState
from tcgemm.operands.sparse.fast_path import metadata_argument
from tcgemm.operands.sparse.operators import refresh_forms
from tcgemm.operands.sparse.parts import default_pattern
from tcgemm.operands.sparse.positions import dense_masked, gather_common
from tcgemm.operands.sparse.prune import METHODS, prune24
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops import functional
from tcgemm.ops._torch_private import (
    any_requires_grad,
    is_exporting,
    is_tracing,
    is_wrapped_by_transform,
    transforms_active,
)
from tcgemm.ops.arguments import check_flag, integer
from tcgemm.ops.direct import is_plain, is_plain_eager
from tcgemm.ops.dtensor import is_dtensor, local_bias
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.kept import KeptForm, Make, changes, have_memory
from tcgemm.ops.operators import Scaled
from tcgemm.typing import Activation, PruneMethod, SparseGradient, words

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GRADIENTS = words(SparseGradient)
_NAME = "tcgemm.nn.SparseLinear24"
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


class SparseLinear24(SparseState):
    """A linear layer that multiplies with 2:4 sparse weights: act(x @ weight.t() + bias).

    Example:
        >>> layer = tcgemm.nn.SparseLinear24.from_linear(torch.nn.Linear(64, 32), learns=True)
        >>> layer(torch.randn(10, 64)).sum().backward()
        >>> float((layer.weight.grad == 0).float().mean())
        0.5
        >>> layer.to_linear().weight.shape
        torch.Size([32, 64])

    A frozen layer (`learns=False`) has a tcgemm.SparseTensor24 as `weight`, which is a buffer.
    Gradients go to x and the bias.

    A layer that learns (`learns=True`) has a dense Parameter as `weight`. Each forward compresses
    its elements at the kept positions (`kept`). refresh() chooses the positions again.

    A new layer has the initialisation of torch.nn.Linear, pruned. from_linear makes a layer from a
    torch.nn.Linear, and to_linear goes back. tcgemm.swap_linear exchanges the layers of a model.

    Arguments:
        in_features, out_features, bias, device, dtype: as for torch.nn.Linear.
        activation (str): one of tcgemm.typing.Activation, or None.
        method (str): how tcgemm.prune24 chooses the kept elements: "magnitude" or "transposable".
            With "transposable" the gradient of x is a sparse product too. Otherwise it is a dense
            product with weight.to_dense(). from_linear also takes "mask".
        learns (bool): see above.
        refresh_every (int): for a layer that learns: the first forward after so many changes of the
            weight (steps of an optimizer) calls refresh(). 0: never. Inside torch.compile it is not
            called: call refresh() between the steps.
        gradient (str): the gradient of the dense weight: "masked" is zero at the pruned elements.
            "straight_through" is the gradient of a dense layer: pruned elements learn too, and
            refresh() may choose them again.
        batch_invariant, constant_weights (bool): as for tcgemm.nn.Linear.

    Shapes: x (..., in_features) of the weight's dtype -> (..., out_features). The dtype is float16,
    bfloat16 or float32 (pattern 1:2, multiplied as tf32).

    state_dict() has plain tensors: weight.values, weight.metadata, weight.format (version, group,
    K), the bias, weight if the layer learns, and weight.refresh, the counter of refresh_every.
    load_state_dict takes these, or a dense weight, which it prunes.
    """

    weight: SparseTensor24 | torch.nn.Parameter
    kept: SparseTensor24
    bias: torch.nn.Parameter | None
    in_features: int
    out_features: int
    activation: Activation | None
    method: PruneMethod
    learns: bool
    refresh_every: int
    gradient: SparseGradient
    batch_invariant: bool

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        *,
        activation: Activation | None = None,
        method: Literal["magnitude", "transposable"] = "magnitude",
        learns: bool = False,
        refresh_every: int = 0,
        gradient: SparseGradient = "masked",
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> None:
        dtype = dtypes.of(_NAME, "dtype", dtype)
        linear = torch.nn.Linear(in_features, out_features, bias, device, dtype)
        super().__init__()
        self.activation, self.batch_invariant = activation, batch_invariant
        self.constant_weights = constant_weights
        self._become(linear, method, None, learns, refresh_every, gradient)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        method: PruneMethod = "magnitude",
        mask: torch.Tensor | None = None,
        learns: bool = False,
        refresh_every: int = 0,
        gradient: SparseGradient = "masked",
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> Self:
        """Makes a layer with the pruned weight and a copy of the bias of a torch.nn.Linear.

        Example:
            >>> linear = torch.nn.Linear(64, 32).half()
            >>> layer = tcgemm.nn.SparseLinear24.from_linear(linear, method="transposable")
            >>> layer.weight.pattern, layer.weight.transposable
            ('2:4', True)

        The layer has the activation of a tcgemm.nn.Linear, and is batch_invariant if that is. A
        layer that learns starts with a copy of the weight. The method "mask" keeps the elements
        where `mask` (bool, of the weight's shape) is true, and sets the others to zero. If the mask
        keeps fewer elements of a group than the pattern has, the first other elements of the group
        are stored too: they are zero and may learn. The other arguments are as in the class.

        Raises TypeError if `linear` is no torch.nn.Linear, and RuntimeError if a dtype, a mask or
        an option is not supported.
        """
        options = cls._inherited(linear, batch_invariant, constant_weights)
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer.activation = options["activation"]
        layer.batch_invariant = options["batch_invariant"]
        layer.constant_weights = options["constant_weights"]
        layer._become(linear, method, mask, learns, refresh_every, gradient)
        return layer

    @torch.no_grad()
    def _become(
        self,
        linear: torch.nn.Linear,
        method: PruneMethod,
        mask: Tensor | None,
        learns: bool,
        refresh_every: int,
        gradient: SparseGradient,
    ) -> None:
        weight = linear.weight.detach()
        _check(weight, method, gradient, learns, refresh_every)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.method, self.learns, self.gradient = method, learns, gradient
        self.refresh_every = refresh_every
        self._seen, self._changes, self._stepped = None, 0, False
        if mask is None and method != "mask":
            compressed = self._compress(weight)
        else:
            positions: Any = mask
            weight = prune24(weight, method=method, mask=mask)  # raises if one of both is missing
            compressed = self._compress(positions.to(weight.dtype)).mask(weight)
        if learns:
            self.register_parameter("weight", torch.nn.Parameter(weight.clone()))
        self._set(compressed)
        bias = None if linear.bias is None else torch.nn.Parameter(linear.bias.clone())
        self.register_parameter("bias", bias)
        self.train(linear.training)

    def refresh(self) -> None:
        """Chooses the kept positions again from the present dense weight.

        Raises RuntimeError for a frozen layer and for one with the method "mask".
        """
        if not self.learns or self.method == "mask":
            raise RuntimeError(
                f"{_NAME}.refresh: this layer "
                f"{'keeps a given mask' if self.learns else 'is frozen'}, so there is nothing to "
                "refresh; make it by from_linear with learns=True and another method than a mask."
            )
        compressed = self._compress(self._whole_or_part(self.weight))
        if self._kept_form().captured:
            self._take(compressed, assign=False)
        else:
            self._set(compressed)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """act(x @ weight.t() + bias), by tcgemm.linear."""
        ready = self._ready
        if (
            ready is not None
            and is_plain_eager()  # before is_plain, which cannot be traced
            and is_plain(input)
            and input.dim() > 1
            and (input.is_cuda if ready.operands.cuda else input.is_cpu)
            and ready.is_current(parameters := self._parameters, self._buffers)
            and "bias" in parameters  # FSDP1 removes it for the time of a forward
        ):
            bias = parameters["bias"]
            if (bias is None or is_plain(bias)) and (
                not _grad_enabled() or not (self.learns or any_requires_grad(input, bias))
            ):
                call, early = ready.calls
                if self._constant is not None and self._loads_early():
                    call = early
                if not ready.operands.cuda:
                    return call(input, bias)
                with ready.form.lock:
                    return call(input, bias)
        if _compiling():
            return self._multiply(input)
        with self._kept_form().launching():
            return self._multiply(input)

    def _multiply(self, input: Any) -> Tensor:
        weight: Any
        is_constant = not (self.training or _compiling())
        self._refuse_dtensor(input)
        if is_constant:
            self._check_positions()
        if is_exporting() or (not _compiling() and is_tracing()):  # by torch.jit.trace
            return self._exported(input)
        if self.learns:
            if not _compiling():
                self._check_weight()
                if transforms_active() and is_wrapped_by_transform(self.weight):
                    dense, options = self._dense(), self._epilogue(self.weight.dtype).keywords()
                    weight = dense_masked(dense, self.compressed, self.gradient)
                    bias = local_bias(self.bias, self._parts)
                    return functional.linear(input, weight, bias, **options)
            if isinstance(input, torch.fx.Proxy):  # in fx.symbolic_trace
                weight = torch.ops.tcgemm.mask24.default(self.weight, self.compressed)
                is_constant = False
            elif is_constant and not (_grad_enabled() and self.weight.requires_grad):
                weight = self._with_elements()
                is_constant = weight is self.kept
            else:
                if self.training and not _compiling():
                    self._count()
                weight, is_constant = self.compressed.mask(self._dense()), False
        else:
            weight = self.compressed
        if is_constant:
            self._prepare(weight)
        options = self._options()
        if self._constant is not None and self._loads_early() and (is_constant or not self.learns):
            options["constant_b"] = True
        bias = local_bias(self.bias, self._parts)
        return functional.linear(cast("Tensor", input), weight, bias, **options)

    def _watched(self) -> list[Tensor]:
        """The layer itself writes the values of `kept`."""
        stored, transposed = self.inner_buffers()
        own = [self._parameters.get("weight"), stored[1], transposed[1]]
        own = own if self.learns else [*stored, *transposed]
        return [tensor for tensor in own if tensor is not None]

    def _product(self, rows: int) -> Any:
        weight = self.compressed
        x = weight.values.new_empty(rows, self.in_features)
        return x, weight.t(), {"precision": self._epilogue(weight.dtype).precision}

    def _loads_early(self) -> bool:
        """May this call load the values and the metadata early? Those of a layer that trains are
        computed in each call."""
        is_constant = self._is_constant()  # raises after a write in the block
        form = self._kept_form()
        return is_constant and (not self.learns or (form.settled and form.guards != ()))

    def _with_elements(self) -> SparseTensor24:
        """The dense weight at the kept positions: `kept`, whose values are written again if the
        weight has changed."""
        kept, form, weight = self.kept, self._kept_form(), self.weight
        dense = self._dense()
        with torch.inference_mode(False), torch.no_grad(), form.lock:
            other = form.owner is not None and form.owner is not weight and form.captured
            if other or not have_memory([dense]):
                # torch.func.functional_call puts weights here for a call; graphs must not see them.
                return kept.mask(dense)
            if (dense.dtype, dense.device) != (kept.dtype, kept.device):  # mixed precision
                self._set(kept.mask(dense))
                kept = self.kept
            if self._counts():
                self._take_values(form.current(*self._elements(dense)))
            else:
                self._take_values(form.write(*self._elements(dense)))
                form.forget(weight)
        return kept

    def _elements(self, dense: Tensor) -> tuple[list[Tensor], Make]:
        """The sources of the values of `kept`, and what computes them."""
        kept = self.kept
        return [dense, kept.metadata], lambda: values_of(kept.mask(dense))

    def _take_values(self, values: tuple[Tensor, ...]) -> None:
        """Makes them the values of `kept`. On a GPU they are these already."""
        if values[0] is not self.kept.values:
            self.kept.take_values(*values)
            self._set(self.kept)

    def _can_refresh(self, form: KeptForm) -> bool:
        return not self.learns or self._parts is not None or not is_dtensor(self.weight)

    def _refresh_form(self) -> str | None:
        with self._kept_form().lock, torch.no_grad():
            return self._write_forms()

    def _write_forms(self) -> str | None:
        compressed, form, names = self.compressed, self._kept_form(), []
        if compressed.tiles is not None or compressed.transposable:
            refresh_forms(compressed, has_values=not self.learns)
            names.append("compressed transpose" if compressed.transposable else "tiles")
        if self.learns and self._can_refresh(form) and not compressed.is_meta:
            dense = self._dense()
            self._take_values(form.write(*self._elements(dense), waits=False))
            if not self._counts():
                form.forget(self.weight)
            names.append("kept elements")
        self._checked = changes(compressed.metadata)
        return " and ".join(names) or None

    def _counts(self) -> bool:
        """Does torch count the changes of the weight? It does not for inference tensors, for the
        part of a DTensor, and for the views that FSDP1 makes."""
        is_own = self._parameters.get("weight") is not None
        return is_own and self._parts is None and not self.weight.is_inference()

    def _check_weight(self) -> None:
        """Raises RuntimeError for dense weights that mask24 does not support."""
        weight: Any = self.weight
        if is_dtensor(weight) and not (self._parts and self._parts.mesh == weight.device_mesh):
            raise RuntimeError(
                f"{_NAME}: the weight is a DTensor, but a forward needs the whole weight; call "
                "the module that fully_shard was applied to, or make the layer parallel with the "
                "styles of tcgemm.integrations.tensor_parallel."
            )

    def _exported(self, input: Tensor) -> Tensor:
        """The product for torch.export and torch.jit.trace, by operators of plain tensors. It has
        no derivatives."""
        (values, *positions), (other_values, other, _tiles) = self.inner_buffers()
        if self.learns:
            terms = positions[0], other_values, other, self._pattern
            values = gather_common(self._dense(), *terms)
        rows = input.unsqueeze(0) if input.dim() == 1 else input
        bias, epilogue = local_bias(self.bias, self._parts), self._epilogue(values.dtype)
        call = Scaled(sparse_b=metadata_argument(*positions))
        result = call.run(rows, values.t(), None, bias, None, epilogue)
        return result.squeeze(0) if input.dim() == 1 else result

    def _epilogue(self, dtype: torch.dtype) -> Epilogue:
        """Of a call past tcgemm.linear, which multiplies float32 as tf32."""
        precision = "high" if dtype is torch.float32 else None
        return Epilogue(
            activation=self.activation, precision=precision, batch_invariant=self.batch_invariant
        )

    @staticmethod
    def _after_step(layers: list[SparseLinear24]) -> None:
        for layer in layers:
            layer._stepped = True

    def _count(self) -> None:
        """Counts the changes of the weight between training forwards, and calls refresh()."""
        if self.refresh_every:
            follow(self)
        if self._is_changed:
            self._changes += 1
            if self.refresh_every and self._changes % self.refresh_every == 0:
                self.refresh()
        self._seen, self._stepped = changes(self.weight), False

    def _prepare(self, weight: SparseTensor24) -> None:
        """Prepares the fast path of later calls."""
        if self.learns and not self._counts():
            return
        if is_plain_eager() and weight.pattern == default_pattern(weight.dtype):
            keywords = self._epilogue(weight.dtype).keywords()
            names, form = (f"{self._own}_values", f"{self._own}_metadata"), self._kept_form()
            self._ready = ready_call(weight, names, form, self.learns, keywords)

    def to_linear(self) -> torch.nn.Linear:
        """A tcgemm.nn.Linear with the pruned weight, zeros included, and a copy of the bias."""
        with torch.no_grad():
            weight = self.kept.mask(self._dense()) if self.learns else self.weight
            return dense_linear(self, weight.to_dense(), local_bias(self.bias, self._parts))

    def _shown(self) -> dict[str, Any]:
        weight = self.compressed
        shown = {"dtype": weight.dtype, "pattern": weight.pattern, "method": self.method}
        shown |= super()._shown()
        if self.learns:
            shown |= {name: getattr(self, name) for name in ("learns", "refresh_every", "gradient")}
        return shown

    def train(self, mode: bool = True) -> Self:
        self._ready = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Any:
        self._seen, self._stepped = None, self._is_changed
        super()._apply(fn, recurse)
        other = self.compressed.pattern != default_pattern(self.compressed.dtype)
        if other and self.learns and self.method != "transposable":
            self._set(self._compress(self.kept.mask(self._dense()).to_dense()))
        return self

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_seen": None, "_stepped": self._is_changed}


def _check(weight: Tensor, method: str, gradient: str, learns: bool, refresh_every: int) -> None:
    if weight.dtype not in DTYPES:
        names = ", ".join(str(dtype) for dtype in DTYPES)
        raise RuntimeError(
            f"{_NAME}: the weight is {weight.dtype}, but sparse layers have {names}; convert it "
            "with .to(...)."
        )
    if method not in METHODS or gradient not in GRADIENTS:
        raise RuntimeError(
            f"{_NAME}: method is {method!r} and gradient is {gradient!r}, but the methods are "
            f"{', '.join(METHODS)}, and the gradients are {', '.join(GRADIENTS)}; pass one of each."
        )
    check_flag("nn.SparseLinear24", "learns", learns)
    refresh_every = integer("nn.SparseLinear24", "refresh_every", refresh_every)
    if refresh_every and (not learns or method == "mask" or refresh_every < 0):
        raise RuntimeError(
            f"{_NAME}: refresh_every is {refresh_every} with learns={learns} and method "
            f"{method!r}, but it must be positive, and only a layer with learns=True and another "
            "method than a mask chooses positions again; leave it out, or pass learns=True."
        )
    if method == "transposable" and weight.dtype is torch.float32:
        raise RuntimeError(
            f"{_NAME}: method is 'transposable', which has pattern 2:4, but a torch.float32 weight "
            "is multiplied with pattern 1:2; convert the layer to torch.bfloat16 or torch.float16."
        )


_NAMES = (
    *("_parameters", "_buffers", "_non_persistent_buffers_set", "activation", "method"),
    *("batch_invariant", "learns", "gradient", "refresh_every", "_seen", "_changes", "_stepped"),
    *("_sparse", "_inside", "_pattern", "_checked", "_ready", "_form"),
)


def _state(module: torch.nn.Linear, **options: Any) -> dict[str, Any]:
    """The new layer has the Parameters of the module, because an optimizer may have them."""
    layer = SparseLinear24.from_linear(module, **options)
    for name in layer._parameters:
        layer._parameters[name] = module._parameters[name]
    return {name: vars(layer)[name] for name in _NAMES}


exchange.register(
    exchange.Exchange(
        layer=SparseLinear24,
        options=("method", "learns", "refresh_every", "gradient", "batch_invariant"),
        names=_NAMES,
        state=_state,
        why_not=lambda module, **_: exchange.why_not_converted(module, DTYPES, "pruned"),
    )
)
