"""Every operator as an expression of torch's own operators, and cases of both.

Derivatives of the fused operators are compared with what torch makes of these expressions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

import tcgemm
from tcgemm.ops.activations import activate
from tcgemm.ops.operators import ADDS_C


@dataclass(frozen=True)
class Case:
    """One call: shapes of its tensors (None: not given) and its options."""

    op: str
    a: tuple
    b: tuple
    c: tuple | None = None
    bias: tuple | None = None
    residual: tuple | None = None
    activation: str | None = None
    alpha: float = 1.0
    beta: float = 1.0

    def __str__(self):
        shapes = [f"{name}{getattr(self, name)}" for name in ("a", "b", "c", "bias", "residual")]
        words = [text.replace(" ", "") for text in shapes if not text.endswith("None")]
        return "-".join([self.op, *words, self.activation or "plain"])

    def tensors(self, dtype=torch.float64, seed=0, requires_grad=False, device="cpu"):
        """Random normal tensors by name, only those that are given."""
        generator = torch.Generator().manual_seed(seed)
        shapes = {name: getattr(self, name) for name in ("a", "b", "c", "bias", "residual")}
        return {
            name: torch.randn(shape, generator=generator)
            .to(device, dtype)
            .requires_grad_(requires_grad)
            for name, shape in shapes.items()
            if shape is not None
        }

    def fused(self, a, b, c=None, bias=None, residual=None, **options):
        """The call of tcgemm's function."""
        function = getattr(tcgemm, self.op)
        options = {"activation": self.activation, "alpha": self.alpha, **options}
        if self.op in ADDS_C:
            options["beta"] = self.beta
            return function(c, a, b, bias=bias, residual=residual, **options)
        return function(a, b, bias=bias, residual=residual, **options)

    def composed(self, a, b, c=None, bias=None, residual=None):
        """The same in torch's operators."""
        z = self.alpha * (F.linear(a, b) if self.op == "linear" else torch.matmul(a, b))
        if c is not None:
            z = z + self.beta * c
        if bias is not None:
            z = z + bias
        z = activate(z, self.activation)
        return z if residual is None else z + residual


CASES = [
    Case("mm", (3, 4), (4, 5)),
    Case("mm", (3, 4), (4, 5), bias=(5,), activation="gelu"),
    Case("mm", (3, 4), (4, 5), bias=(3, 1), activation="relu", alpha=0.5),
    Case("mm", (3, 4), (4, 5), bias=(1, 5), residual=(3, 5), activation="silu", alpha=-2.0),
    Case("mm", (3, 4), (4, 5), residual=(5,), activation="relu"),
    Case("mm", (3, 0), (0, 5), bias=(5,), activation="gelu_tanh"),
    Case("mm", (0, 4), (4, 5), bias=(5,), residual=(1, 5), activation="silu"),
    Case("bmm", (2, 3, 4), (2, 4, 5)),
    Case("bmm", (2, 3, 4), (2, 4, 5), bias=(2, 1, 5), residual=(3, 5), activation="gelu_tanh"),
    Case("matmul", (2, 1, 3, 4), (5, 4, 2), bias=(5, 3, 1), residual=(2, 5, 3, 2)),
    Case("matmul", (2, 3, 4), (4, 5), bias=(5,), activation="silu"),
    Case("matmul", (3, 4), (2, 4, 5), bias=(3, 1), residual=(5,), activation="gelu"),
    Case("matmul", (4,), (2, 4, 5), residual=(2, 5), activation="relu"),
    Case("matmul", (2, 3, 4), (4,), residual=(3,), alpha=3.0),
    Case("matmul", (4,), (4,), residual=(), activation="silu"),
    Case("addmm", (3, 4), (4, 5), c=(5,), alpha=0.5, beta=2.0),
    Case("addmm", (3, 4), (4, 5), c=(3, 1), bias=(5,), residual=(3, 5), activation="gelu", beta=-1),
    Case("addmm", (3, 4), (4, 5), c=(), activation="relu", beta=0.5),
    Case("baddbmm", (2, 3, 4), (2, 4, 5), c=(2, 3, 5), alpha=0.5, beta=2.0),
    Case("baddbmm", (2, 3, 4), (2, 4, 5), c=(3, 1), bias=(2, 1, 5), activation="gelu", beta=-1),
    Case("linear", (3, 4), (5, 4), bias=(5,), activation="gelu_tanh"),
    Case("linear", (2, 3, 4), (5, 4), bias=(5,), residual=(2, 3, 5), activation="silu", alpha=0.5),
    Case("linear", (4,), (5, 4), bias=(5,), activation="gelu"),
    Case("linear", (2, 3, 4), (5, 4), activation="relu"),
]
