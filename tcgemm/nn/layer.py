"""What the linear layers of tcgemm share: options, how they load, move and print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from tcgemm.nn.constant import ConstantWeight, ConstantWeights
from tcgemm.ops.activations import ACTIVATIONS
from tcgemm.ops.arguments import check_flag
from tcgemm.ops.dtensor import is_dtensor
from tcgemm.ops.kept import KeptForm
from tcgemm.typing import Activation

FLAGS = ("batch_invariant", "prepare", "learns")  # the options of layers that are True or False


class Loading(NamedTuple):
    """One call of load_state_dict, as a layer sees it."""

    state: dict[str, Any]  # the whole state_dict
    prefix: str  # the beginning of the names of this layer
    assign: bool  # the layer takes the tensors of the state, not copies
    missing_keys: list[str]


class StateError(RuntimeError):
    """load_state_dict reports its text beside other errors of the state; the layer stays."""


def _is_activation(value: object) -> bool:
    return value is None or (isinstance(value, str) and value in ACTIVATIONS)


class Layer(ConstantWeights):
    """The base class of the layers. Every assignment to `activation` and to FLAGS is checked."""

    # Class attributes are for modules that swap_linear or pickle made without __init__.
    activation: Activation | None = None
    batch_invariant: bool = False
    _LAYER: ClassVar[str]  # the name of the layer in tcgemm.nn
    _BUFFERS: ClassVar[tuple[str, ...]] = ()  # that move, but never convert: half() is for the rest
    _COMPARES: ClassVar[bool] = False  # as of KeptForm
    _form: KeptForm | None = None  # of the weight
    _buffers: dict[str, Any]

    def _kept_form(self) -> KeptForm:
        """The owner of the kept form of the weight."""
        if self._form is None:
            vars(self)["_form"] = KeptForm(compares=self._COMPARES)
        form: Any = self._form
        return form

    def _replicate_for_data_parallel(self) -> Self:
        """torch.nn.DataParallel calls it. A replica has tensors of another GPU, and their form."""
        replica: Any = super()._replicate_for_data_parallel()
        vars(replica)["_form"] = None
        replica._set_constant(ConstantWeight() if self.constant_weights else None)
        return replica

    def _can_refresh(self, form: KeptForm) -> bool:
        """Can the kept form be written again at its address, of the weight as it is now?"""
        raise NotImplementedError

    def _refresh_form(self) -> str | None:
        """Writes the kept form again, without a wait; its name, or None if there is none."""
        return None

    def release_graphs(self) -> None:
        """Frees what the layer keeps for captured CUDA graphs alone.

        A copy of the weight in another form that a captured call has read stays as long as the
        layer, also after to() and load_state_dict. Call this once no such graph will be replayed.
        """
        if self._form is not None:
            self._form.release_graphs()

    def _options(self) -> dict[str, Any]:
        """The options of tcgemm.linear that are set. A call without options takes less time."""
        options: dict[str, Any] = {}
        if self.activation is not None:
            options["activation"] = self.activation
        if self.batch_invariant:
            options["batch_invariant"] = True
        return options

    @classmethod
    def _inherited(
        cls, linear: object, batch_invariant: bool, constant_weights: bool
    ) -> dict[str, Any]:
        """The options that from_linear takes from its argument, which must be a torch.nn.Linear."""
        if not isinstance(linear, torch.nn.Linear):
            raise TypeError(
                f"tcgemm.nn.{cls._LAYER}.from_linear: linear must be a torch.nn.Linear, but is "
                f"{type(linear).__name__}; pass one layer, or a model to tcgemm.swap_linear."
            )
        return {
            "activation": getattr(linear, "activation", None),
            "batch_invariant": batch_invariant or getattr(linear, "batch_invariant", False),
            "constant_weights": constant_weights or getattr(linear, "constant_weights", False),
        }

    @classmethod
    def _copied(
        cls,
        linear: torch.nn.Linear,
        batch_invariant: bool,
        constant_weights: bool,
        **options: Any,
    ) -> Self:
        """A layer with copies of the Parameters of a torch.nn.Linear."""
        options |= cls._inherited(linear, batch_invariant, constant_weights)
        layer: Any = cls(
            *(linear.in_features, linear.out_features, linear.bias is not None, "meta"), **options
        )
        for name, parameter in linear.named_parameters(recurse=False):
            copy = parameter.detach().clone()
            setattr(layer, name, torch.nn.Parameter(copy, parameter.requires_grad))
        return layer.train(linear.training)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FLAGS:
            check_flag(f"nn.{self._LAYER}", name, value)
        if name == "activation" and not _is_activation(value):
            words = ", ".join(f'"{word}"' for word in ACTIVATIONS)
            shown = f'"{value}"' if isinstance(value, str) else repr(value)
            raise RuntimeError(
                f"tcgemm.nn.{self._LAYER}: activation is {shown}, but it must be {words} or None; "
                "pass one of these words, or call another activation after the layer."
            )
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Any:
        before = {name: self._buffers[name] for name in self._BUFFERS if name in self._buffers}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self._buffers[name]
            if buffer is not None and moved is not None and moved.dtype is not buffer.dtype:
                self._buffers[name] = buffer.to(moved.device)
        return self

    def _before_load(self, loading: Loading) -> Any:
        """Puts what torch loads into the state. Its result is given to _after_load."""

    def _after_load(self, loading: Loading, result: Any) -> None:
        """Ends the load, after torch has filled Parameters and buffers."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        assign = local_metadata.get("assign_to_params_buffers", False)
        loading = Loading(state_dict, prefix, assign, missing_keys)
        try:
            result = self._before_load(loading)
        except StateError as error:
            error_msgs.append(str(error))
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._after_load(loading, result)

    def _refuse_dtensor(self, x: object) -> None:
        """Raises RuntimeError if x is a DTensor. Layers that can be parallel have `_parts`."""
        if torch.compiler.is_compiling() or not is_dtensor(x):
            return
        styles = "make the layer parallel with the styles of tcgemm.integrations.tensor_parallel, "
        raise RuntimeError(
            f"tcgemm.nn.{self._LAYER}: x is a DTensor, but the weight is not; "
            f"{styles + 'or ' if hasattr(self, '_parts') else ''}pass x.full_tensor(), or "
            "x.to_local() if it is sharded by rows."
        )

    def _shown(self) -> dict[str, Any]:
        """What extra_repr shows of one class. It leaves out what is None."""
        return {"activation": self.activation}

    def extra_repr(self) -> str:
        own: Any = self
        shown = {"in_features": own.in_features, "out_features": own.out_features}
        shown |= {"bias": own.bias is not None, **self._shown()}
        shown["batch_invariant"] = self.batch_invariant or None
        shown["constant_weights"] = self.constant_weights or None
        return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)
