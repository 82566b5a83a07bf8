"""The sets models and swap: Llama-like models with torch's layers, and with tcgemm's.

    train     forward, loss, backward and a step of AdamW: 4 sequences of 2048 tokens
    decode    the logits of the last token of 1024, the others in a cache: 1 and 16 sequences
    forward   the logits of the last of 1, 64 and 2048 tokens, without a cache

The decoder blocks are from Llama 3.2 1B, Llama 3.2 3B and Llama 3 8B. There are fewer of them, and
the vocabulary is smaller, so that the head does not dominate. The layers that lose bits leave the
head to torch. Weights and data are random, and the same for all variants.

A row has the loss after some steps of training, or else the error of the logits: the norm of their
difference from torch's in float32 with the same bf16 weights, over the norm of these.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

import tcgemm
from benchmarks.experiments.side_by_side import COMPILED, Build, SideBySide, Step, difference
from benchmarks.experiments.stack import HEAD, Cache, Decoder, Sizes, build
from tcgemm.measure.results import Row

DTYPE = torch.bfloat16
RATE = 1e-4  # of AdamW
BATCHES = 32  # of training; their order repeats, and one more is kept for the loss
STEPS = 24  # of training, before the loss
FOLLOWS = 0.5  # the share of tokens that the token before decides
TRAIN, DECODE, FORWARD = "train", "decode", "forward"
MODELS = {
    "8B": Sizes(4, 4096, 14336, 32, 8),
    "3B": Sizes(4, 3072, 8192, 24, 8),
    "1B": Sizes(4, 2048, 8192, 32, 8),
}
SMALL = Sizes(1, 128, 256, 4, 2, 128, 32)  # of --max-size
SWAPPED_BLOCKS = 8  # of the model of the set swap


@dataclass(frozen=True)
class Variant:
    """A way to run the model.

    Arguments:
        tasks: what it is measured for.
        swap: options of swap_linear; None swaps nothing.
        compiled: measured under torch.compile, too.
        diverted: runs inside tcgemm.use().
    """

    tasks: tuple[str, ...]
    swap: Mapping[str, Any] | None = None
    compiled: bool = False
    diverted: bool = False


EVAL = (DECODE, FORWARD)
FLOAT8 = {"to": tcgemm.nn.Float8Linear, "skip": HEAD}
QUANT = {"to": tcgemm.nn.QuantLinear, "skip": HEAD}
PACKED = {"to": tcgemm.nn.PackedLinear, "skip": HEAD}
SPARSE = {"to": tcgemm.nn.SparseLinear24, "skip": HEAD}
VARIANTS = {
    "torch": Variant((TRAIN, *EVAL), compiled=True),
    "use": Variant((TRAIN, DECODE), diverted=True),
    "Linear": Variant((TRAIN, *EVAL), {"to": tcgemm.nn.Linear}, compiled=True),
    "Float8Linear": Variant((TRAIN,), FLOAT8),
    "Float8Linear delayed": Variant((TRAIN,), FLOAT8 | {"scaling": "delayed"}),
    "SparseLinear24 learning": Variant((TRAIN,), SPARSE | {"learns": True}),
    "QuantLinear e4m3": Variant(EVAL, QUANT | {"dtype": torch.float8_e4m3fn}, compiled=True),
    "QuantLinear int8": Variant(EVAL, QUANT | {"dtype": torch.int8}, compiled=True),
    "PackedLinear int4": Variant(EVAL, PACKED | {"format": "int4"}, compiled=True),
    "PackedLinear e4m3": Variant(EVAL, PACKED | {"format": "e4m3"}),
    "SparseLinear24": Variant(EVAL, SPARSE),
}


def names_of(task: str) -> tuple[str, ...]:
    """The variants of a task. A compiled one follows the one that it is compiled of."""
    return tuple(
        name + end
        for name, variant in VARIANTS.items()
        if task in variant.tasks
        for end in ("", COMPILED)[: 1 + variant.compiled]
    )


@dataclass(frozen=True)
class Case:
    """One task of one model. tokens: of a sequence; in decode, with those in the cache."""

    model: str
    sizes: Sizes
    task: str
    batch: int
    tokens: int


class ModelStep(Step):
    """The model of a variant. Subclasses have the step."""

    def __init__(self, case: Case, name: str, device: torch.device) -> None:
        self.variant = VARIANTS[name.removesuffix(COMPILED)]
        self.model = build(case.sizes, device, DTYPE).requires_grad_(case.task == TRAIN)
        if self.variant.swap is not None:
            report = tcgemm.swap_linear(self.model, **self.variant.swap)
            for layer in report.skipped.keys() - {HEAD}:
                raise RuntimeError(f"{layer} is not swapped: {report.skipped[layer]}")
        self.model.train(case.task == TRAIN)
        self.run: Any = self.model
        if name.endswith(COMPILED):
            self.run = torch.compile(self.model, dynamic=False, fullgraph=True)

    def session(self) -> contextlib.AbstractContextManager[object]:
        """tcgemm.use(), or nothing."""
        return tcgemm.use() if self.variant.diverted else contextlib.nullcontext()


class Training(ModelStep):
    """Forward, loss, backward and AdamW, each time on the next batch.

    Weights, gradients and the states of AdamW are bf16, as in a fine-tuning that fits into memory.
    The fused form of AdamW is one kernel for all weights, so that it takes little of the step.
    """

    def __init__(self, case: Case, batches: torch.Tensor, name: str, device: torch.device) -> None:
        super().__init__(case, name, device)
        self.batches, self.steps = batches, 0
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=device.type == "cuda")
        with self.session():
            for index in range(STEPS):
                self(index)
        self.loss = self.loss_of_unseen()

    def __call__(self, index: int) -> None:
        """One step."""
        ids = self.batches[self.steps % BATCHES]
        self.run(ids[:, :-1], labels=ids[:, 1:]).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1

    @torch.no_grad()
    def loss_of_unseen(self) -> float:
        """The loss of a batch that no step has seen."""
        ids = self.batches[BATCHES]
        return round(float(self.model(ids[:, :-1], labels=ids[:, 1:])), 4)

    def facts(self) -> Row:
        """The loss, and the number of steps before it."""
        return {"steps": STEPS, "loss": self.loss}


class Logits(ModelStep):
    """The logits of the last token. In decode, the variant itself has filled its cache before.

    A step stores keys and values at the same place each time, so that all steps do the same work.
    """

    def __init__(
        self, case: Case, ids: torch.Tensor, exact: torch.Tensor, name: str, device: torch.device
    ) -> None:
        super().__init__(case, name, device)
        self.exact = exact
        with torch.no_grad(), self.session():
            self.ids, self.options = last_token(self.model, case, ids)
            self.model(self.ids, **self.options)  # makes the device order of packed weights

    @torch.no_grad()
    def __call__(self, index: int) -> torch.Tensor:
        """The logits, (batch, vocabulary)."""
        return self.run(self.ids, **self.options)

    def facts(self) -> Row:
        """How far the logits are from torch's in float32."""
        return {"error": difference(self.exact, self(0))}


def last_token(model: Decoder, case: Case, ids: torch.Tensor) -> tuple[torch.Tensor, Row]:
    """What the model is called with: (ids, options). In decode, all but the last are cached."""
    if case.task == FORWARD:
        return ids, {}
    cache: Cache = model.cache(*ids.shape)
    model(ids[:, :-1], cache=cache)
    return ids[:, -1:].contiguous(), {"cache": cache, "start": case.tokens - 1}


@torch.no_grad()
def exact_logits(case: Case, ids: torch.Tensor) -> torch.Tensor:
    """torch's logits in float32, of the same bf16 weights."""
    model = build(case.sizes, ids.device, torch.float32)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(DTYPE))
    last, options = last_token(model, case, ids)
    return model(last, **options)


def text(case: Case) -> torch.Tensor:
    """Token ids (BATCHES + 1, batch, tokens + 1) that a model can learn to foresee.

    Half of the tokens follow from the token before, by a permutation. The others have frequencies
    in proportion to 1 / rank (Zipf's law).
    """
    generator = torch.Generator().manual_seed(0)
    size = case.sizes.vocabulary
    share = (1 / torch.arange(1, size + 1, dtype=torch.float64)).cumsum(0)
    shape = (case.tokens + 1, (BATCHES + 1) * case.batch)
    numbers = torch.rand(shape, generator=generator, dtype=torch.float64) * share[-1]
    ids = torch.searchsorted(share, numbers).clamp_(max=size - 1)
    follows = torch.rand(shape, generator=generator) < FOLLOWS
    successor = torch.randperm(size, generator=generator)
    for index in range(1, len(ids)):
        ids[index] = torch.where(follows[index], successor[ids[index - 1]], ids[index])
    return ids.t().reshape(BATCHES + 1, case.batch, -1).contiguous()


def builder(case: Case, device: torch.device) -> Build:
    """What builds the step of a variant; the data that all variants share is made here."""
    if case.task == TRAIN:
        return functools.partial(Training, case, text(case).to(device), device=device)
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch, case.tokens)
    ids = torch.randint(case.sizes.vocabulary, shape, generator=generator).to(device)
    return functools.partial(Logits, case, ids, exact_logits(case, ids), device=device)


def job(set_name: str, case: Case, repetitions: int) -> SideBySide:
    """The job of a case."""
    name = f"{set_name} {case.model}, {case.sizes.blocks} blocks, {case.task}"
    fields = {"set": set_name, "task": case.task, "model": case.model, "blocks": case.sizes.blocks}
    return SideBySide(
        f"{name} {case.batch} x {case.tokens}",
        fields | {"batch": case.batch, "tokens": case.tokens},
        names_of(case.task),
        functools.partial(builder, case),
        repetitions,
        captured=case.task != TRAIN,
    )


SETS = {
    "models": [
        Case(model, sizes, task, batch, tokens)
        for model, sizes in MODELS.items()
        for task, batch, tokens in ((TRAIN, 4, 2048), (DECODE, 1, 1024), (DECODE, 16, 1024))
    ],
    "swap": [
        Case("8B", replace(MODELS["8B"], blocks=SWAPPED_BLOCKS), FORWARD, 1, tokens)
        for tokens in (1, 64, 2048)
    ],
}


def jobs(set_name: str, options: argparse.Namespace) -> list[SideBySide]:
    """The jobs of a set. With --max-size they have a tiny model of another name."""
    cases = SETS[set_name]
    if options.max_size:
        small = {"model": "small", "sizes": SMALL}
        cases = [replace(case, **small, tokens=min(case.tokens, SMALL.positions)) for case in cases]
    return [job(set_name, case, options.repetitions) for case in dict.fromkeys(cases)]
