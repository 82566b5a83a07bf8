"""The models, and the tasks that are measured of each.

    train     forward, loss, backward and a step of AdamW: 4 sequences of 2048 tokens
    decode    the logits of the last token of 1024, the others in a cache: 1 and 16 sequences

The decoder blocks are from Llama 3.2 1B, Llama 3.2 3B and Llama 3 8B. There are fewer of them,
and the vocabulary is smaller, so that the head does not dominate. `smoke` is for the CPU.
"""

from dataclasses import dataclass, replace

import torch

from benchmarks.models.stack import Sizes
from benchmarks.models.variants import DECODE, TRAIN

VOCABULARY, POSITIONS, LAYERS = 32768, 2048, 4
MODELS = {
    "8B": Sizes(LAYERS, 4096, 14336, 32, 8, VOCABULARY, POSITIONS),
    "3B": Sizes(LAYERS, 3072, 8192, 24, 8, VOCABULARY, POSITIONS),
    "1B": Sizes(LAYERS, 2048, 8192, 32, 8, VOCABULARY, POSITIONS),
    "smoke": Sizes(1, 64, 128, 4, 2, 128, 32),
}
SMOKE = "smoke"
DEFAULT = tuple(name for name in MODELS if name != SMOKE)
SEQUENCES = {TRAIN: (4,), DECODE: (1, 16)}
TOKENS = {TRAIN: 2048, DECODE: 1024}


@dataclass(frozen=True)
class Case:
    """One task of one model. Its variants are measured in alternating order."""

    model: str
    sizes: Sizes
    task: str
    batch: int  # sequences
    tokens: int  # of a sequence; in decode, with those in the cache

    @property
    def name(self) -> str:
        return f"{self.model}, {self.sizes.blocks} blocks: {self.task} {self.batch} x {self.tokens}"

    @property
    def tokens_a_step(self) -> int:
        return self.batch * (self.tokens if self.task == TRAIN else 1)

    @property
    def weights(self) -> int:
        """The number of weights, without RMSNorm's."""
        sizes = self.sizes
        kv = sizes.kv_heads * sizes.width
        block = 2 * sizes.hidden * (sizes.hidden + kv) + 3 * sizes.hidden * sizes.intermediate
        return sizes.blocks * block + 2 * sizes.vocabulary * sizes.hidden

    def modes(self, device: torch.device) -> tuple[str, ...]:
        """How it is measured: graph is a CUDA graph, eager a call from Python."""
        captured = self.task == DECODE and device.type == "cuda"
        return ("graph", "eager") if captured else ("eager",)


def cases(
    models: tuple[str, ...] = DEFAULT,
    tasks: tuple[str, ...] = (TRAIN, DECODE),
    layers: int | None = None,
) -> list[Case]:
    """The cases of these models. `layers` is the number of decoder blocks; None is the default."""
    result = []
    for name in models:
        sizes = replace(MODELS[name], blocks=layers or MODELS[name].blocks)
        for task in tasks:
            count = sizes.positions if name == SMOKE else TOKENS[task]
            result += [Case(name, sizes, task, batch, count) for batch in SEQUENCES[task]]
    return result
