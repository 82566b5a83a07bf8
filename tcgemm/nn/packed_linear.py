"""The layer with weights of 4 or 8 bits and 16-bit activations: tcgemm.nn.PackedLinear.

    _parameters   bias, which needs no gradient; placeholder, if swap_linear leaves no other one
    _buffers      codes, scales, zero_points, offsets, table, global_scale: the parts of a
                  PackedWeight, each None where the format has none; float8 as uint8
    packed        a PackedWeight of the buffers, kept with the order of the kernels
    _form         the order, whose address stays when the buffers become others
    .weight       a PackedView of it: a matrix of a usual dtype, for code that reads it

state_dict() has the parts in their own dtypes. The buffers are no Parameters because fully_shard of
torch 2.11 raises an error for Parameters of integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.nn import exchange
from tcgemm.nn.layer import Loading, StateError
from tcgemm.nn.stored_weight import StoredWeight
from tcgemm.operands.packed.formats import E8M0, FLOATS, check_group, format_of, table_of
from tcgemm.operands.packed.pack import pack_weight
from tcgemm.operands.packed.parts import Layout, Parts, bytes_of, check_parts, of_bytes
from tcgemm.operands.packed.stored import Stored
from tcgemm.operands.packed.view import PackedView
from tcgemm.operands.packed.weight import PackedWeight
from tcgemm.ops import functional
from tcgemm.ops._torch_private import any_autocast_enabled
from tcgemm.ops.kept import KeptForm
from tcgemm.typing import Activation, PackedFormat, PackMethod

_NAME = "tcgemm.nn.PackedLinear"
_PARTS = Parts._fields
_compiling = torch.compiler.is_compiling


class PackedLinear(StoredWeight):
    """A linear layer with a weight of 4 or 8 bits an element and 16-bit activations.

    Example:
        >>> linear = torch.nn.Linear(128, 32).bfloat16()
        >>> layer = tcgemm.nn.PackedLinear.from_linear(linear, "int4", 128, method="mse")
        >>> layer(torch.randn(10, 128).bfloat16()).shape
        torch.Size([10, 32])
        >>> layer.to_linear().weight.dtype
        torch.bfloat16

    The result is act(x @ weight.t() + bias) in x's dtype, float16 or bfloat16, or in autocast's
    under torch.autocast. A float32 x is cast to the dtype of `weight` if that has 16 bits, and the
    result is float32: peft.prepare_model_for_kbit_training makes such activations. x and the bias
    have gradients. The weight does not learn: adapters beside
    it do, as in QLoRA.

    A new layer has a weight of zeros. `from_linear` makes a layer from a torch.nn.Linear, and
    `from_packed` from a tcgemm.PackedWeight, such as one of another library's checkpoint.
    load_state_dict takes the state_dict of a PackedLinear, or of a Linear, which it packs by
    rounding to nearest.

    `weight` is a matrix of a usual dtype, because models cast activations to weight.dtype.
    `packed` is the tcgemm.PackedWeight. Its tensors are buffers. The bias is a Parameter that needs
    no gradient, so that next(model.parameters()) has a device and a dtype. half() and to(dtype)
    convert the bias and the dtype of `weight`, never the codes and scales.

    Arguments:
        in_features, out_features, bias, device: as for torch.nn.Linear.
        format (str), group_size (int), zero_points (bool), scale_dtype (torch.dtype): as for
            tcgemm.pack_weight. The default of scale_dtype is the dtype of the bias. group_size
            divides in_features; None, for one group a row, fits every layer of "int4".
        table (Tensor): the 16 values of the format "table".
        activation (str): one of tcgemm.typing.Activation, or None.
        bias_dtype (torch.dtype): default: torch.get_default_dtype().
        batch_invariant (bool): as for tcgemm.nn.Linear.
        constant_weights (bool): the device order is loaded early without it, too.

    The kernels read the weight in another order, which the first forward makes, and which takes as
    much memory again. It is written again at its address when a buffer is replaced or changed in
    place, and made anew when the layer moves. No state_dict, copy or pickle contains it.
    torch.compile and the capture of a CUDA graph use an order that is there, and else make one in
    each run: call the layer once before. Call tcgemm.refresh_weights after a write that torch does
    not count.

    Shapes: x (..., in_features) -> (..., out_features).
    """

    format: PackedFormat
    group_size: int | None
    weight: PackedView
    _packed: PackedWeight | None = None
    _borrowed: PackedWeight | None = None  # of buffers that are here for some calls
    _LAYER = "PackedLinear"
    _BUFFERS = _PARTS
    _COMPARES = True  # DistributedDataParallel writes the same buffers before each forward

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        *,
        format: PackedFormat = "int4",
        group_size: int | Literal["default"] | None = "default",
        zero_points: bool = False,
        scale_dtype: torch.dtype | str | None = None,
        table: Tensor | Sequence[float] | None = None,
        activation: Activation | None = None,
        bias_dtype: torch.dtype | str | None = None,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> None:
        super().__init__()
        bias_dtype = dtypes.of(_NAME, "bias_dtype", bias_dtype)
        shown = bias_dtype or torch.get_default_dtype()
        one = torch.zeros(1, in_features, dtype=shown, device=device)
        packed = pack_weight(
            *(one, format, group_size),
            zero_points=zero_points,
            scale_dtype=scale_dtype,
            table=table,
        )
        stored = packed.stored
        rows = {  # the table and the global scale stay
            name: part.repeat(out_features, 1) if part.dim() == 2 else part
            for name, part in stored.parts.tensors().items()
        }
        if stored.layout.form.scales != (E8M0,):  # which have no 0
            rows["scales"].zero_()
        layout = stored.layout._replace(n=out_features)
        zeros = torch.zeros(out_features, device=device, dtype=bias_dtype) if bias else None
        self._become(Stored(stored.parts._replace(**rows), layout, shown), zeros, activation)
        self.batch_invariant = batch_invariant
        self.constant_weights = constant_weights

    def _become(self, stored: Stored, bias: Tensor | None, activation: Activation | None) -> None:
        self.format, n, k, self.group_size = stored.layout
        self._set((n, k), stored.dtype, activation)
        self._set_bias(bias)
        for name, tensor in stored.parts._asdict().items():
            self.register_buffer(name, tensor)
        self._tensors_first()
        vars(self).update(dict.fromkeys(_OWN))

    def _tensors_first(self) -> None:
        """Puts the buffers that are None last. torch.export of torch 2.11 counts them as inputs of
        the graph, so a buffer after one of them would have no input."""
        for name in [name for name, buffer in self._buffers.items() if buffer is None]:
            self._buffers[name] = self._buffers.pop(name)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        format: PackedFormat = "int4",
        group_size: int | Literal["default"] | None = "default",
        *,
        method: PackMethod = "nearest",
        zero_points: bool = False,
        scale_dtype: torch.dtype | str | None = None,
        table: Tensor | Sequence[float] | None = None,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> Self:
        """Makes a layer with the packed weight and a copy of the bias of a torch.nn.Linear.

        The arguments are the same as for tcgemm.pack_weight. The layer has the activation of a
        tcgemm.nn.Linear, and is batch_invariant if that is. Raises TypeError if `linear` is no
        torch.nn.Linear, and RuntimeError if an argument is not supported.
        """
        options = cls._inherited(linear, batch_invariant, constant_weights)
        packed = pack_weight(
            *(linear.weight.detach(), format, group_size),
            method=method,
            zero_points=zero_points,
            scale_dtype=scale_dtype,
            table=table,
        )
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return cls.from_packed(packed, bias, **options).train(linear.training)

    @classmethod
    def from_packed(
        cls,
        packed: PackedWeight,
        bias: Tensor | None = None,
        *,
        activation: Activation | None = None,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> Self:
        """Makes a layer of a tcgemm.PackedWeight (N, K), whose tensors are not copied.

        Example:
            >>> packed = tcgemm.pack_weight(torch.randn(32, 128).half(), "nf4")
            >>> tcgemm.nn.PackedLinear.from_packed(packed, torch.zeros(32)).format
            'nf4'

        Raises TypeError if `packed` is none, and RuntimeError if it is a transpose or the bias does
        not fit it.
        """
        if type(packed) is not PackedWeight:
            raise TypeError(
                f"{_NAME}.from_packed: packed must be a tcgemm.PackedWeight, but is "
                f"{type(packed).__name__}; make one with tcgemm.pack_weight."
            )
        n = packed.stored.layout.n
        if packed.transposed or (bias is not None and bias.shape != (n,)):
            shape = None if bias is None else tuple(bias.shape)
            raise RuntimeError(
                f"{_NAME}.from_packed: packed has shape {tuple(packed.shape)}, and is "
                f"{'' if packed.transposed else 'not '}a transpose, and bias has shape {shape}, "
                f"but a layer has a weight (N, K) and a bias (N,); pass the weight of {n} rows "
                "as it was packed."
            )
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer._become(packed.stored, bias, activation)
        layer.batch_invariant = batch_invariant
        layer.constant_weights = constant_weights
        return layer

    @property
    def packed(self) -> PackedWeight:
        """The weight as a tcgemm.PackedWeight, which shares the buffers."""
        own, borrowed, buffers = self._packed, self._borrowed, self._buffers
        if own is not None and _is_of(own, buffers):
            return own
        if borrowed is not None and _is_of(borrowed, buffers):
            return borrowed
        parts = Parts(*(buffers[name] for name in _PARTS))
        if own is not None and parts.codes is None:
            parts = parts._replace(codes=own.stored.parts.codes)
        if _compiling():
            return PackedWeight(Stored(parts, self._layout(), self.shown_dtype))
        # Other buffers than the layer's own, as torch.func.functional_call puts them here, have an
        # order of their own.
        form = self._kept_form() if own is None else KeptForm(compares=True)
        packed = PackedWeight(Stored(parts, self._layout(), self.shown_dtype, form))
        self._return_borrowed()
        vars(self)["_packed" if own is None else "_borrowed"] = packed
        return packed

    def _return_borrowed(self) -> None:
        """Lets the order of borrowed buffers go, but for what captured graphs read."""
        if self._borrowed is not None:
            self._kept_form().hold(self._borrowed.stored.form)
            vars(self)["_borrowed"] = None

    def _let_go(self) -> None:
        """Forgets the PackedWeight, because the buffers become others, and brings released codes
        back."""
        if self._buffers["codes"] is None and self._packed is not None:
            self._buffers["codes"] = self._packed.stored.parts.codes
            self._tensors_first()
        self._return_borrowed()
        vars(self)["_packed"] = None

    def release_codes(self) -> None:
        """Frees the buffer of the codes, and keeps them in the order of the kernels alone.

        It saves half of the memory, and forwards and state_dict() stay the same. Copies, moves and
        load_state_dict read the codes back. Call it when the layer is on its device:

            for layer in model.modules():
                if isinstance(layer, tcgemm.nn.PackedLinear):
                    layer.release_codes()
        """
        self.packed.release_codes()
        self._buffers["codes"] = None
        self._tensors_first()

    def _layout(self) -> Layout:
        return Layout(self.format, self.out_features, self.in_features, self.group_size)

    def _can_refresh(self, form: KeptForm) -> bool:
        return self._device() == form.tensors[0].device

    def _refresh_form(self) -> str | None:
        if self._form is None or not self._form.tensors:
            return None
        self.packed.stored.refresh()
        return "device order"

    def _watched(self) -> Sequence[Tensor]:
        return [part for part in map(self._buffers.get, _PARTS) if part is not None]

    def _product(self, rows: int) -> None:
        """The device order is loaded early without constant_weights."""

    def to_linear(self, dtype: torch.dtype | str | None = None) -> torch.nn.Linear:
        """A tcgemm.nn.Linear with the dequantised weight and a copy of the bias.

        The default of dtype is the bias's dtype; without a bias it is the dtype of `weight`.
        """
        dtype = dtypes.of(f"{_NAME}.to_linear", "dtype", dtype)
        if dtype is None:
            dtype = self.shown_dtype if self.bias is None else self.bias.dtype
        return self._dense_linear(self.packed.dequantize(dtype), self.bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """act(x @ weight.t() + bias), by tcgemm.linear."""
        self._refuse_dtensor(input)
        if self._constant is not None:
            self._is_constant()  # raises after a write in the block
        bias, narrow = self.bias, self.shown_dtype
        # float32 activations and biases of a 16-bit model, as PEFT prepares it for training.
        casts = getattr(input, "dtype", None) is torch.float32 and narrow is not torch.float32
        if casts and not any_autocast_enabled():
            input, bias = input.to(narrow), None if bias is None else bias.to(narrow)
        else:
            casts = False
        result = functional.linear(input, self.packed, bias, **self._options())
        return result.float() if casts else result

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            if _compiling():
                return self.packed.dequantize()
            return PackedView(self.packed)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            raise RuntimeError(
                f"{_NAME}: weight is assigned {type(value).__name__}, but it is the dequantised "
                "form of the codes and scales; load a weight with load_state_dict, or make another "
                "layer with from_linear or from_packed."
            )
        if name in _PARTS:
            self._let_go()
            if isinstance(value, torch.Tensor):
                value = bytes_of(value.detach())
        super().__setattr__(name, value)

    def _shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"format": self.format, "group_size": str(self.group_size)}
        zeros = [name for name in ("zero_points", "offsets") if self._buffers[name] is not None]
        return shown | dict.fromkeys(zeros[:1], True) | super()._shown()

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Any:
        """Moves the parts, but never converts them: half() is for the bias."""
        before = self._device()
        self._let_go()
        super()._apply(fn, recurse)
        if self._device() != before:
            self._kept_form().drop()
        return self

    def __getstate__(self) -> dict[str, Any]:
        codes = self.packed.stored.parts.codes  # also if they were released
        buffers = self._buffers | {"codes": codes}
        return vars(self) | dict.fromkeys(_OWN) | {"_buffers": buffers}

    def _saved(self) -> dict[str, Tensor]:
        return of_bytes(self.packed.stored.parts, format_of(_NAME, self.format)).tensors()

    def _before_load(self, loading: Loading) -> None:
        """Packs the weight if the state is a Linear's."""
        self._let_go()
        state_dict, prefix = loading.state, loading.prefix
        weight = state_dict.pop(prefix + "weight", None)
        try:
            if isinstance(weight, torch.Tensor):
                for name in _PARTS:
                    if prefix + name in state_dict:
                        raise RuntimeError(
                            f"{_NAME}: the state has {prefix}weight, which is packed while it is "
                            f"loaded, and {prefix + name} as well; leave one of them out."
                        )
                parts = self._pack(weight).stored.parts.tensors()
            else:
                parts = self._checked(state_dict, prefix)
        except (RuntimeError, TypeError) as error:
            raise StateError(f"{prefix.rstrip('.') or 'the layer'}: {error}") from None
        for name, tensor in parts.items():
            state_dict[prefix + name] = tensor
            own: Any = self._buffers[name]
            if own.dtype is not tensor.dtype:  # scales of another dtype
                self._buffers[name] = torch.empty_like(own, dtype=tensor.dtype)

    def _after_load(self, loading: Loading, result: None) -> None:
        self._let_go()
        super()._after_load(loading, result)

    def _pack(self, weight: Tensor) -> PackedWeight:
        """A dense weight in the format of the layer."""
        if weight.shape != (self.out_features, self.in_features):
            raise RuntimeError(
                f"{_NAME}: weight has shape {tuple(weight.shape)}, but the layer has "
                f"{(self.out_features, self.in_features)}; load the weight of such a layer."
            )
        own = self.packed
        return pack_weight(
            *(weight.detach(), self.format, self.group_size),
            zero_points=own.zero_points is not None,
            scale_dtype=own.scales.dtype,
            table=own.table if self.format == "table" else None,
        )

    def _checked(self, state_dict: dict[str, Any], prefix: str) -> dict[str, Tensor]:
        """The parts of a saved layer that this layer has as well, as buffers."""
        names = [name for name in _PARTS if self._buffers[name] is not None]
        tensors = {name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
        form = format_of(_NAME, self.format)
        if len(tensors) == len(names):
            check_parts(_NAME, of_bytes(Parts(**tensors), form), self._layout())
            own: Any = table_of(form, "cpu")
            has_own = form.table is not None and not tensors["table"].is_meta
            if has_own and not torch.equal(tensors["table"].cpu(), own):
                raise RuntimeError(
                    f"{_NAME}: table differs from the table of {self.format!r}; load the state "
                    "into a layer of its format, or of the format 'table'."
                )
        return {name: bytes_of(tensor) for name, tensor in tensors.items()}


def _is_of(packed: PackedWeight, buffers: dict[str, Any]) -> bool:
    """Are the tensors of a PackedWeight these buffers? Released codes are none."""
    stored = packed.stored
    released = stored.released is not None
    if released is not (buffers["codes"] is None):
        return False
    own = map(buffers.__getitem__, _PARTS[released:])
    return all(map(operator.is_, own, stored.tensors[released:]))


_STATE = (
    *("_parameters", "_buffers", "format", "group_size", "activation", "shown_dtype"),
    "batch_invariant",
)
_OWN = ("_packed", "_borrowed", "_form")
_OPTIONS = ("format", "group_size", "method", "zero_points", "scale_dtype", "table")


def _why_not(
    module: Any, format: str = "int4", group_size: Any = "default", **_: Any
) -> str | None:
    """The reason why a module is not packed with these options of swap_linear."""
    form = format_of("tcgemm.swap_linear", format)
    size = form.default_group if group_size == "default" else group_size
    check_group("tcgemm.swap_linear", form, size, size or 0)
    k = module.in_features
    if size is not None and k % size:
        return f"has {k} inputs, which groups of {size} do not divide"
    return exchange.why_not_converted(module, FLOATS, "packed")


exchange.register(
    exchange.Exchange(
        layer=PackedLinear,
        options=(*_OPTIONS, "batch_invariant"),
        names=(*_STATE, *_OWN),
        state=exchange.converted(PackedLinear, (*_STATE, *_OWN)),
        why_not=_why_not,
        caches=_OWN,
    )
)
