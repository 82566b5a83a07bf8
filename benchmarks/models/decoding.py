"""A decode step of one variant: the logits of one token, the earlier ones in a static cache."""

import contextlib
from typing import Any

import torch

from benchmarks.models.cases import Case
from benchmarks.models.stack import Cache, Decoder, build
from benchmarks.models.training import DTYPE
from benchmarks.models.variants import Variant, difference


def prompt(case: Case, device: torch.device, seed: int) -> torch.Tensor:
    """Random token ids (batch, tokens)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (case.batch, case.tokens)
    return torch.randint(case.sizes.vocabulary, shape, generator=generator).to(device)


def filled(model: Decoder, ids: torch.Tensor) -> Cache:
    """A cache with all tokens but the last one."""
    cache = model.cache(*ids.shape)
    model(ids[:, :-1], cache=cache)
    return cache


@torch.no_grad()
def exact_logits(case: Case, device: torch.device, ids: torch.Tensor, seed: int) -> torch.Tensor:
    """torch's logits in float32, of the same bf16 weights."""
    model = build(case.sizes, device, torch.float32, seed)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(DTYPE))
    return model(ids[:, -1:], cache=filled(model, ids), start=case.tokens - 1)


class Decoding:
    """The model of a variant, with a cache that the variant itself has filled.

    A call computes the last token. It stores the keys and values at the same place each time, so
    every call does the same work.
    """

    def __init__(
        self,
        case: Case,
        variant: Variant,
        device: torch.device,
        ids: torch.Tensor,
        exact: torch.Tensor,
        seed: int,
    ) -> None:
        """ids: what prompt() returned; exact: what exact_logits() returned."""
        self.variant, self.exact = variant, exact
        self.last, self.start = ids[:, -1:].contiguous(), case.tokens - 1
        self.model = build(case.sizes, device, DTYPE, seed)
        variant.apply(self.model)
        with torch.no_grad(), self.session():
            self.cache = filled(self.model, ids)
        self.run = variant.runnable(self.model)

    def session(self) -> contextlib.AbstractContextManager[None]:
        return self.variant.session()

    @torch.no_grad()
    def __call__(self, _: int) -> Any:
        return self.run(self.last, cache=self.cache, start=self.start)

    def captured(self, _: int) -> Any:
        """The call for a CUDA graph, which keeps the kernels that it was captured with."""
        with self.session():
            return self(0)

    def outcome(self) -> dict[str, Any]:
        """How far the logits are from torch's in float32."""
        with self.session():
            return {"error": difference(self.exact, self(0))}
