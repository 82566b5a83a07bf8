"""A training step of one variant: forward, loss, backward, AdamW.

Weights, gradients and the states of AdamW are bf16, as in a fine-tuning that fits into memory.
AdamW is the optimizer that Llama-like models are trained with; its fused form is one kernel for all
weights, so that it takes little of the step. All variants have the same seed, data and number of
steps, and so comparable losses.
"""

import contextlib
from typing import Any

import torch

from benchmarks.models.cases import Case
from benchmarks.models.stack import build
from benchmarks.models.variants import Variant

DTYPE = torch.bfloat16
RATE = 1e-4
FOLLOWS = 0.5  # the share of tokens that the token before decides


def text(case: Case, count: int, seed: int) -> torch.Tensor:
    """Token ids (count, batch, tokens + 1) that a model can learn to foresee.

    Half of the tokens follow from the token before, by a permutation. The others have frequencies
    in proportion to 1 / rank (Zipf's law).
    """
    generator = torch.Generator().manual_seed(seed)
    size = case.sizes.vocabulary
    share = (1 / torch.arange(1, size + 1, dtype=torch.float64)).cumsum(0)
    shape = (case.tokens + 1, count * case.batch)
    numbers = torch.rand(shape, generator=generator, dtype=torch.float64) * share[-1]
    ids = torch.searchsorted(share, numbers).clamp_(max=size - 1)
    follows = torch.rand(shape, generator=generator) < FOLLOWS
    successor = torch.randperm(size, generator=generator)
    for index in range(1, len(ids)):
        ids[index] = torch.where(follows[index], successor[ids[index - 1]], ids[index])
    return ids.t().reshape(count, case.batch, -1).contiguous()


class Training:
    """The model and the optimizer of a variant; a call is one step on the next batch."""

    def __init__(
        self, case: Case, variant: Variant, device: torch.device, batches: torch.Tensor, seed: int
    ) -> None:
        """batches: what text() returned, on the device; the last one is kept for loss()."""
        self.variant, self.batches, self.steps = variant, batches, 0
        self.model = build(case.sizes, device, DTYPE, seed).requires_grad_(True).train()
        variant.apply(self.model)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=device.type == "cuda")
        self.run = variant.runnable(self.model)

    def session(self) -> contextlib.AbstractContextManager[None]:
        return self.variant.session()

    def __call__(self, _: int) -> Any:
        ids = self.batches[self.steps]
        self.run(ids[:, :-1], labels=ids[:, 1:]).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1

    @torch.no_grad()
    def outcome(self) -> dict[str, Any]:
        """The loss of a batch that no step has seen, and the number of steps before."""
        ids = self.batches[-1]
        with self.session():
            loss = float(self.model(ids[:, :-1], labels=ids[:, 1:]))
        return {"steps": self.steps, "loss": round(loss, 4)}
