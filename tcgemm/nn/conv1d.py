"""The Conv1D of transformers (GPT-2 and others), a linear layer whose weight is (in, out)."""

import torch

from tcgemm.nn import exchange
from tcgemm.nn.linear import Linear
from tcgemm.ops import functional


class Conv1D(torch.nn.Module):
    """transformers.pytorch_utils.Conv1D on tcgemm's products: x @ weight + bias.

    Arguments, initialisation, attributes and state_dict are those of transformers, which need not
    be installed. x (..., nx) -> (..., nf); weight (nx, nf), bias (nf,). tcgemm.swap_linear makes
    such layers of a model's own. Errors and dtypes are tcgemm.linear's.

    Example:
        >>> layer = tcgemm.nn.Conv1D(48, 32)
        >>> layer(torch.randn(10, 32)).shape
        torch.Size([10, 48])
    """

    original: type[torch.nn.Module] | None = None  # the class that swap_linear found

    def __init__(self, nf: int, nx: int):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = torch.nn.Parameter(torch.empty(nx, nf))
        self.bias = torch.nn.Parameter(torch.zeros(nf))
        torch.nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight.t(), self.bias)

    def extra_repr(self) -> str:
        return f"nf={self.nf}, nx={self.nx}"


def _is_theirs(kind: type) -> bool:
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")


CONV1D = exchange.Source(
    "transformers' Conv1D",
    lambda module: any(_is_theirs(base) for base in type(module).__mro__),
    lambda module: _is_theirs(type(module)),
)

exchange.register(
    exchange.Exchange(
        layer=Conv1D,
        options=(),
        names=("original",),
        state=lambda module, **options: {"original": type(module)},
        why_not=lambda module: exchange.LAYERS[Linear].why_not(module),
        source=CONV1D,
        to=Linear,
    )
)
