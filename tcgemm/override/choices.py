"""The choice for each kind of call, made once and remembered, and the counts of all calls."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tcgemm.ops.epilogue import Epilogue
from tcgemm.override.policy import Policy, dtype_name
from tcgemm.override.product import NOT_TORCHS, Product
from tcgemm.override.report import UseRow

ENTRIES = 4096  # kinds of calls that are remembered: about 2 MB
COUNTS = 1024  # rows of the report; further sizes share a row

# How a call runs: by torch; a @ b; a @ b + bias; alpha * (a @ b) + beta * c; with other terms.
TORCH, PLAIN, BIASED, ADDED, GENERAL = range(5)


@dataclass(slots=True)
class Count:
    """The calls of one kind."""

    calls: int = 0


class Entry(NamedTuple):
    """The remembered choice for one kind of call. `form` is one of the five above."""

    form: int
    count: Count  # pyright: ignore[reportIncompatibleMethodOverride]


class Choices:
    """The choices and counts of one tcgemm.use."""

    policy: Policy

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.entries: dict[tuple[Any, ...], Entry] = {}
        self._counts: dict[tuple[Any, ...], Count] = {}

    def rows(self) -> list[UseRow]:
        """The counts of all calls."""
        return [
            UseRow(function, dtype, sizes, count.calls, reason)
            for (function, dtype, sizes, reason), count in list(self._counts.items())
            if count.calls
        ]

    def reset(self) -> None:
        """Forgets the choices and the counts."""
        self.entries.clear()
        self._counts.clear()

    def choose(
        self, lookup: tuple[Any, ...], function: str, dtype: torch.dtype, product: Product | str
    ) -> Entry:
        """The entry of a kind of call that was not seen before, or was forgotten. In place of a
        product comes the reason why tcgemm has none of this kind."""
        if isinstance(product, Product):
            return self.decide(lookup, product, self.policy.why_not(product))
        return self._entry(lookup, TORCH, function, dtype_name(dtype, None), None, product)

    def decide(self, lookup: tuple[Any, ...] | None, product: Product, reason: str | None) -> Entry:
        """The entry of a kind of call, which torch computes if there is a reason. `lookup` is None
        if the next such call may be taken."""
        dtype = dtype_name(product.a.dtype, product.epilogue.precision)
        form = TORCH if reason is not None else _form(product)
        return self._entry(lookup, form, product.function, dtype, product.sizes(), reason)

    def _entry(self, lookup: tuple[Any, ...] | None, form: int, *key: Any) -> Entry:
        """The entry of this form and of the count of (function, dtype, sizes, reason)."""
        function, dtype, _sizes, reason = key
        if key not in self._counts and len(self._counts) >= COUNTS:
            key = (function, dtype, None, reason)
        entry = Entry(form, self._counts.setdefault(key, Count()))
        if lookup is None or reason == NOT_TORCHS:  # torch raises; nothing has to be fast
            return entry
        if len(self.entries) >= ENTRIES:
            self.entries.clear()
        self.entries[lookup] = entry
        return entry


def _form(product: Product) -> int:
    epilogue = product.epilogue
    others = Epilogue(alpha=epilogue.alpha, beta=epilogue.beta)
    if product.residual is not None or product.scale_a is not None or epilogue != others:
        return GENERAL
    if product.offs is not None:
        return GENERAL
    if product.c is not None:
        return ADDED if product.bias is None else GENERAL
    if epilogue.alpha != 1:
        return GENERAL
    return PLAIN if product.bias is None else BIASED
