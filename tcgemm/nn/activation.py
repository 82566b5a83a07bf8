"""The activation of a layer: one word, checked when it is set."""

from __future__ import annotations

from typing import Any, ClassVar

from tcgemm.ops.activations import ACTIVATIONS


def check_activation(layer: str, activation: object) -> None:
    """Raises RuntimeError if `activation` is not one of the words; the message names `layer`."""
    if activation is None or (isinstance(activation, str) and activation in ACTIVATIONS):
        return
    words = ", ".join(f'"{word}"' for word in ACTIVATIONS)
    shown = f'"{activation}"' if isinstance(activation, str) else repr(activation)
    raise RuntimeError(
        f"{layer}: activation is {shown}, but it must be {words} or None; pass one of these words, "
        "or call another activation after the layer."
    )


class HasActivation:
    """A base class of layers that checks every assignment to `activation`."""

    _LAYER: ClassVar[str]  # the name of the layer in tcgemm.nn

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "activation":
            check_activation(f"tcgemm.nn.{self._LAYER}", value)
        super().__setattr__(name, value)
