"""The choice for each kind of call, made once and remembered, and the counts of all calls."""

from typing import Any, NamedTuple

import torch

from tcgemm.override.policy import Policy, dtype_name
from tcgemm.override.product import NOT_TORCHS, Product
from tcgemm.override.report import Count

ENTRIES = 4096  # kinds of calls that are remembered: about 2 MB
COUNTS = 1024  # rows of the report; further sizes share a row


# How a call runs: by torch; a @ b; a @ b + bias; alpha * (a @ b) + beta * c; with other terms.
TORCH, PLAIN, BIASED, ADDED, GENERAL = range(5)


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

    def counts(self) -> list[Count]:
        """The counts of all calls."""
        return list(self._counts.values())

    def reset(self) -> None:
        """Forgets the choices and the counts."""
        self.entries.clear()
        self._counts.clear()

    def choose(
        self, lookup: tuple[Any, ...], function: str, dtype: torch.dtype, product: Product | str
    ) -> Entry:
        """The entry of a kind of call that was not seen before, or was forgotten. In place of a
        product comes the reason why tcgemm has none of this kind."""
        if isinstance(product, str):
            count = self._count(function, dtype_name(dtype, None), None, product)
            entry = Entry(TORCH, count)
        else:
            entry = self._entry(product, self.policy.why_not(product))
        return self._remember(lookup, entry)

    def refuse(self, lookup: tuple[Any, ...] | None, product: Product, sentence: str) -> Entry:
        """The entry of a kind of call that the operator refused; `lookup` is None if the next
        such call may be taken."""
        entry = self._entry(product, sentence)
        return entry if lookup is None else self._remember(lookup, entry)

    def _entry(self, product: Product, reason: str | None) -> Entry:
        form = TORCH if reason is not None else _form(product)
        dtype = dtype_name(product.a.dtype, product.precision)
        return Entry(form, self._count(product.function, dtype, product.sizes(), reason))

    def _count(self, function: str, dtype: str, sizes: Any, reason: str | None) -> Count:
        key = (function, dtype, sizes, reason)
        if key not in self._counts and len(self._counts) >= COUNTS:
            key = (function, dtype, None, reason)
        return self._counts.setdefault(key, Count(*key))

    def _remember(self, lookup: tuple[Any, ...], entry: Entry) -> Entry:
        if entry.count.reason == NOT_TORCHS:  # torch raises; nothing has to be fast
            return entry
        if len(self.entries) >= ENTRIES:
            self.entries.clear()
        self.entries[lookup] = entry
        return entry


def _form(product: Product) -> int:
    others = (product.residual, product.scale_a, product.activation, product.out_dtype)
    if any(option is not None for option in others):
        return GENERAL
    if product.c is not None:
        return ADDED if product.bias is None else GENERAL
    if product.alpha != 1:
        return GENERAL
    return PLAIN if product.bias is None else BIASED
