"""What is measured beside torch. A new kind of layer or of call is a row of VARIANTS."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import tcgemm
from benchmarks.models.stack import HEAD, Decoder

BASELINE = "torch"
TRAIN, DECODE = "train", "decode"
# Name -> options of swap_linear. The layers that lose bits leave the head to torch.
SWAPS: dict[str, dict[str, Any]] = {
    "Linear": {"to": tcgemm.nn.Linear},
    "QuantLinear e4m3": {
        "to": tcgemm.nn.QuantLinear,
        "dtype": torch.float8_e4m3fn,
        "skip": HEAD,
    },
    "QuantLinear int8": {"to": tcgemm.nn.QuantLinear, "dtype": torch.int8, "skip": HEAD},
    "SparseLinear24": {"to": tcgemm.nn.SparseLinear24, "skip": HEAD},
}
FLOAT8: dict[str, Any] = {"to": tcgemm.nn.Float8Linear, "skip": HEAD}


@dataclass(frozen=True)
class Variant:
    """A way to run the model. The baseline has the defaults of all fields but the name.

    Arguments:
        name: as rows and tables name it.
        tasks: what it is measured for.
        swap: options of swap_linear; None swaps nothing.
        compiled: torch.compile(model, dynamic=False).
        diverted: runs inside tcgemm.use().
        by_default: measured without being named in --variants.
    """

    name: str
    tasks: tuple[str, ...] = (TRAIN, DECODE)
    swap: Mapping[str, Any] | None = None
    compiled: bool = False
    diverted: bool = False
    by_default: bool = True

    def apply(self, model: Decoder) -> None:
        """Swaps the layers of the model."""
        if self.swap is not None:
            tcgemm.swap_linear(model, **self.swap)  # the report holds the old weights: dropped

    def runnable(self, model: Decoder) -> Any:
        """What the steps call: the model, or its compiled form."""
        return torch.compile(model, dynamic=False) if self.compiled else model

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """The context in which all calls of the variant run."""
        with tcgemm.use() if self.diverted else contextlib.nullcontext():
            yield


VARIANTS = (
    Variant(BASELINE),
    Variant("torch.compile", compiled=True),
    Variant("use", diverted=True),
    Variant("Linear", swap=SWAPS["Linear"]),
    Variant("Linear compiled", swap=SWAPS["Linear"], compiled=True, by_default=False),
    Variant("Float8Linear", (TRAIN,), FLOAT8),
    Variant("Float8Linear delayed", (TRAIN,), {**FLOAT8, "scaling": "delayed"}),
    Variant("QuantLinear e4m3", (DECODE,), SWAPS["QuantLinear e4m3"]),
    Variant("SparseLinear24", (DECODE,), SWAPS["SparseLinear24"]),
    Variant("SparseLinear24 learning", (TRAIN,), {**SWAPS["SparseLinear24"], "learns": True}),
)
BY_NAME = {variant.name: variant for variant in VARIANTS}


def select(task: str, names: tuple[str, ...] = ()) -> list[Variant]:
    """The variants of a task: the baseline, and those named; without names, the default ones."""
    return [
        variant
        for variant in VARIANTS
        if task in variant.tasks
        and (variant.name == BASELINE or (variant.name in names if names else variant.by_default))
    ]


def difference(expected: torch.Tensor, result: torch.Tensor) -> float:
    """|other - one| over |one|, in the Frobenius norm."""
    expected, result = expected.float(), result.float()
    return float(f"{float((result - expected).norm() / expected.norm()):.3g}")
