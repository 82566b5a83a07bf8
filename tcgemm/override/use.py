"""tcgemm.use: torch's own matrix products run through tcgemm for a while, or for a whole program.

The uses that are active form a list; the last one decides and counts. The kernels of kernels.py are
registered while the list is not empty. There is one list a process, not one a thread, since
torch runs the backward in threads of its own.
"""

import atexit
import os
import threading
from collections.abc import Iterable
from typing import Self

import torch

from tcgemm.ops._torch_private import runs_as_it_is
from tcgemm.override import compiled, inductor, kernels, policy  # noqa: F401  (compiled registers)
from tcgemm.override.choices import Choices
from tcgemm.override.kernels import state
from tcgemm.override.policy import Measurements, Policy
from tcgemm.override.report import UseReport

_lock = threading.RLock()
_active: list["Use"] = []


def _renew_lock() -> None:
    """Makes a new lock in a forked child: a thread that the child lacks may hold the old one."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _activate(uses: "list[Use]") -> None:
    """Makes these the active uses, and changes what depends on them. The caller holds the lock."""
    before = bool(_active)
    _active[:] = uses
    state.choices = uses[-1].choices if uses else None
    if uses and not before:
        try:
            kernels.register()
            inductor.install()
        except BaseException:
            _activate([])
            raise
    elif before and not uses:
        inductor.remove()
        kernels.unregister()


def is_active() -> bool:
    """Says whether a use is active, so that torch's own products may run through tcgemm."""
    return bool(_active)


class Use:
    """A use that tcgemm.use began. It is active until its `with` block or end() ends it."""

    choices: Choices

    @runs_as_it_is
    def __init__(self, policy: Policy) -> None:
        self.choices = Choices(policy)
        self._waits_for_with = True
        with _lock:
            _activate([*_active, self])

    @runs_as_it_is
    def __enter__(self) -> Self:
        with _lock:
            if not (self._waits_for_with and self in _active):
                _activate([*_active, self])
            self._waits_for_with = False  # the first block ends what the call began
        return self

    @runs_as_it_is
    def __exit__(self, *_error: object) -> None:
        with _lock:
            if self in _active:
                last = len(_active) - 1 - _active[::-1].index(self)
                _activate(_active[:last] + _active[last + 1 :])

    @runs_as_it_is
    def end(self) -> None:
        """Ends this use, even inside a `with` block of it. A second call changes nothing."""
        with _lock:
            _activate([use for use in _active if use is not self])
            self._waits_for_with = False

    @property
    def active(self) -> bool:
        """True until the use ends. If another use began later, that one decides and counts."""
        return self in _active

    def report(self) -> UseReport:
        """The products seen so far: which of them tcgemm computed, which torch, and why."""
        return UseReport(self.choices.rows())

    def reset(self) -> None:
        """Sets all counts to zero."""
        self.choices.reset()

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<tcgemm.use {'active' if self.active else 'ended'}: {report.taken} products taken, "
            f"{report.left} left to torch>"
        )


@runs_as_it_is
def use(
    *,
    dtypes: Iterable[torch.dtype | str] | None = None,
    min_size: int = 0,
    min_flops: float = 0,
    table: Measurements | None = None,
) -> Use:
    """Runs torch's own matrix products through tcgemm, in a `with` block or until end() is called.

    Example:
        >>> with tcgemm.use() as u:
        ...     y = torch.nn.functional.linear(torch.randn(4, 8), torch.randn(5, 8))
        >>> u.report().taken
        1

    tcgemm computes the calls of torch.mm, addmm, bmm, baddbmm, _scaled_mm, _scaled_mm_v2,
    _int_mm, _addmm_activation and _grouped_mm, with out= as well. torch computes linear, scaled_mm,
    grouped_mm, matmul, einsum, attention that is written as products, experts and the backward by
    these functions, so tcgemm computes them, too. Rows that are in no group of _grouped_mm are zero
    then.
    It takes the calls for which it has a kernel; torch computes the others, and report() says why.
    Autograd, autocast, torch.func, dispatch modes and error messages remain torch's.

    Results have the error bounds of tcgemm's products, so their bits can differ from torch's.
    The precision of float32 products follows torch's settings.

    Arguments:
        dtypes: the operand dtypes that tcgemm takes, such as (torch.bfloat16,) or ("bf16", "f16").
            Default: all of them. With dtypes=() it takes nothing.
        min_size (int): torch computes products with m, n or k below this number.
        min_flops (float): torch computes products with 2 * batch * m * n * k below this number.
        table: measurements: what tcgemm.compare returned, the path of a file that it saved, or its
            rows. tcgemm takes a product if it was at least as fast as torch at the nearest size in
            the table with the same dtype, layout and blocks of scales. torch computes it if there
            is no such row. The nearest size has the smallest sum of |log2(size / size in the row)|
            over batch, m, n and k.

    Returns:
        A Use. report() counts the products, reset() sets the counts to zero, end() ends the use,
        and `active` says whether it has ended.

    Scope: the use begins with the call and holds for all threads of the process. If several uses
    are active, the one that began last decides and counts. After the last one has ended, torch's
    own kernels are registered again.

    torch.compile: a pass of inductor replaces the products, and folds bias, activation and
    residual into them. Compiled code asks in each call whether a use is active. So code that was
    compiled inside a use runs torch's kernels after the end of the use.

    Raises:
        ValueError: a dtype is unknown, a limit is negative, or a row of the table has not all
            fields.
        TypeError: table is something else.
        RuntimeError: the call stands inside a function that torch.compile compiles.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError(
            "tcgemm.use: it begins inside a function that torch.compile compiles; begin it outside "
            "of that function."
        )
    limits = (policy.read_count("min_size", min_size), policy.read_count("min_flops", min_flops))
    return Use(Policy(policy.read_dtypes(dtypes), *limits, policy.read_table(table)))


@atexit.register
def _end_all() -> None:
    """The interpreter's end must not find kernels in Python in torch's dispatcher."""
    with _lock:
        _activate([])
