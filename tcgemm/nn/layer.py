"""What the linear layers of tcgemm share: what they take from a torch.nn.Linear, and show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tcgemm.ops.activations import ACTIVATIONS

if TYPE_CHECKING:
    from typing import Self

    from tcgemm.typing import Activation


class Layer(torch.nn.Module):
    """The base class of the layers. Every assignment to `activation` is checked."""

    # Class attributes are for modules that swap_linear or pickle made without __init__.
    activation: Activation | None = None
    batch_invariant: bool = False
    _LAYER: ClassVar[str]  # the name of the layer in tcgemm.nn

    @classmethod
    def _inherited(cls, linear: object, batch_invariant: bool) -> dict[str, Any]:
        """The options that from_linear takes from its argument, which must be a torch.nn.Linear."""
        if not isinstance(linear, torch.nn.Linear):
            raise TypeError(
                f"tcgemm.nn.{cls._LAYER}.from_linear: linear must be a torch.nn.Linear, but is "
                f"{type(linear).__name__}; pass one layer, or a model to tcgemm.swap_linear."
            )
        return {
            "activation": getattr(linear, "activation", None),
            "batch_invariant": batch_invariant or getattr(linear, "batch_invariant", False),
        }

    @classmethod
    def _copied(cls, linear: torch.nn.Linear, batch_invariant: bool, **options: Any) -> Self:
        """A layer with copies of the Parameters of a torch.nn.Linear."""
        options |= cls._inherited(linear, batch_invariant)
        layer: Any = cls(
            *(linear.in_features, linear.out_features, linear.bias is not None, "meta"), **options
        )
        for name, parameter in linear.named_parameters(recurse=False):
            copy = parameter.detach().clone()
            setattr(layer, name, torch.nn.Parameter(copy, parameter.requires_grad))
        return layer.train(linear.training)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "activation" and not (
            value is None or (isinstance(value, str) and value in ACTIVATIONS)
        ):
            words = ", ".join(f'"{word}"' for word in ACTIVATIONS)
            shown = f'"{value}"' if isinstance(value, str) else repr(value)
            raise RuntimeError(
                f"tcgemm.nn.{self._LAYER}: activation is {shown}, but it must be {words} or None; "
                "pass one of these words, or call another activation after the layer."
            )
        super().__setattr__(name, value)

    def _shown(self) -> dict[str, Any]:
        """What extra_repr shows of one class. It leaves out what is None."""
        return {"activation": self.activation}

    def extra_repr(self) -> str:
        own: Any = self
        shown = {"in_features": own.in_features, "out_features": own.out_features}
        shown |= {"bias": own.bias is not None, **self._shown()}
        shown["batch_invariant"] = self.batch_invariant or None
        return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)
