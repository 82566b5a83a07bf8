"""The report of tcgemm.use: the calls that tcgemm computed, the calls of torch, and the reasons."""

from dataclasses import dataclass

from tcgemm import _tables
from tcgemm.ops.markup import escape, table
from tcgemm.override.policy import size_text

_HEAD = ("function", "dtype", "batch x m x n x k", "calls", "kernel of", "why")


@dataclass(frozen=True)
class UseRow:
    """The calls of one function with one dtype and one size.

    Attributes:
        function (str): the function of torch, such as "addmm".
        dtype (str): the dtype of the operands, such as "bf16".
        sizes (tuple[int, int, int, int]): (batch, m, n, k). The groups of _grouped_mm count as one
            product. None if the call is no product, or if the row stands for many sizes.
        calls (int): the number of calls.
        reason (str): why torch computed them. None if tcgemm did.
    """

    function: str
    dtype: str
    sizes: tuple[int, int, int, int] | None
    calls: int
    reason: str | None

    @property
    def flops(self) -> int:
        """2 * batch * m * n * k for each call; 0 where the sizes are not known."""
        if self.sizes is None:
            return 0
        batch, m, n, k = self.sizes
        return 2 * batch * m * n * k * self.calls


class UseReport:
    """The products of torch that a tcgemm.use has seen. It prints as a table.

    Attributes:
        rows (list[UseRow]): one row for each function, dtype, size and reason; the row with the
            most FLOPs comes first.
        taken (int): calls that tcgemm computed.
        left (int): calls that torch computed.
        flops_taken (int): floating-point operations of the calls that tcgemm computed.
        flops_left (int): floating-point operations of the calls that torch computed.
        reasons (dict[str, int]): the number of calls that torch computed, by reason.
    """

    rows: list[UseRow]
    taken: int
    left: int
    flops_taken: int
    flops_left: int
    reasons: dict[str, int]

    def __init__(self, rows: list[UseRow]) -> None:
        self.rows = sorted(rows, key=lambda row: (-row.flops, row.function, row.dtype))
        self.taken = self.left = self.flops_taken = self.flops_left = 0
        self.reasons = {}
        for row in rows:
            if row.reason is None:
                self.taken += row.calls
                self.flops_taken += row.flops
            else:
                self.left += row.calls
                self.flops_left += row.flops
                self.reasons[row.reason] = self.reasons.get(row.reason, 0) + row.calls

    def _head(self) -> str:
        flops = self.flops_taken + self.flops_left
        share = f" ({self.flops_taken / flops:.1%} of the FLOPs)" if flops else ""
        return f"tcgemm.use: {self.taken} products taken{share}, {self.left} left to torch"

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.function,
                row.dtype,
                "" if row.sizes is None else size_text(row.sizes),
                str(row.calls),
                "torch" if row.reason else "tcgemm",
                row.reason or "",
            )
            for row in self.rows
        ]

    def __str__(self) -> str:
        cells = self._cells()
        if not cells:
            return self._head()
        lines = _tables.aligned([_HEAD, *cells], "<" * len(_HEAD))
        return "\n".join([self._head(), *(f"  {line}" for line in lines)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._head())}</p>{table(_HEAD, self._cells())}"
