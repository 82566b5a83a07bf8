"""tcgemm.explain and check_layout, and their answers: text that notebooks show as it prints."""

from typing import TYPE_CHECKING, Any, Self, Unpack

import torch
from torch import Tensor

from tcgemm.ops import dispatch, query, tuned
from tcgemm.ops import precision as torch_precision
from tcgemm.ops._torch_private import transforms_active
from tcgemm.ops.arguments import check_amax, check_flag, refusal
from tcgemm.ops.markup import escape
from tcgemm.ops.operands import Operand, TensorOperand
from tcgemm.ops.operators import MATMUL
from tcgemm.ops.options import documented, read
from tcgemm.typing import ExplainOptions


class Text(str):
    """A str of several lines. As the last line of a notebook cell it is shown as print shows it."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


class Explanation(Text):
    """The text of tcgemm.explain or check_layout; its attributes hold the same facts.

    If nothing is launched, as for an empty result, every attribute is None.

    Attributes:
        device (str): the GPU that the answer is for.
        kernel (str): the name of the kernel.
        config_index (int): the row of the kernel in tcgemm.info.catalog().
        tuned (bool): True if tcgemm.tune chose the kernel.
        product (str): the name of the product in the file of tcgemm.tune; "" if it is not tuned.
        layout (str): how a and b are stored, such as "TN (a K-major, b K-major)".
        grouped (str): what the groups of a grouped product divide: "rows", "columns" or "k"; ""
            if there are no groups.
        groups (int): the number of groups; 0 if there are none.
        swap_ab (bool): True if the kernel computes out^T = b^T a^T.
        copies (str): the operands that are copied before the kernel runs: "", "a", "b" or "ab".
        tile (tuple[int, int, int]): (m, n, k) of the tile that a block computes at a time.
        stages (int): the stages of the pipeline.
        threads (int): the threads of a block.
        cluster (int or str): the CTAs of a cluster, or "2x4" where 2 along m share b and 4 along n
            share a.
        slices (int): the slices of k, whose sums are added in the order of k.
        cluster_adds (bool): True if the CTAs of a cluster add them.
        grid_adds (bool): True if all CTAs add them, after a barrier of the grid. If both are False,
            another kernel adds them.
        stream_k (bool): True if the CTAs have equal parts of the k-blocks of all tiles (stream-K).
            `slices` is then the most that a tile has, and the CTAs of the grid add them.
        raster_group (int): the rows of clusters that the grid visits together, from the first
            column to the last.
        grid (int): the blocks of the grid.
        waves (float): tiles divided by the number of blocks that run at the same time. Groups
            count with their mean length.
        epilogue (str): what happens to the sums before they are stored.
        store_path (str): the way in which the result is stored.
        workspace (int): bytes of device memory that the call needs while it runs.
        flops (float): floating-point (or integer) operations.
        bytes (float): bytes of device memory that are read and written.
        compute_microseconds (float): the estimated time of the arithmetic of one product.
        memory_microseconds (float): the estimated time of its memory traffic.
        microseconds (float): the estimated time of the whole product.
        constant_microseconds (float): what a layer's constant_weights saves, estimated; 0 if the
            kernel does not load b early, or always does.
        products (int): how many products run one after another; 1 if one launch does the batch.
        bound (str): what bounds the time: "compute", "memory" or "launch".
        why (str): why this kernel was chosen.
    """

    device: str | None
    kernel: str | None
    config_index: int | None
    tuned: bool | None
    product: str | None
    layout: str | None
    grouped: str | None
    groups: int | None
    swap_ab: bool | None
    copies: str | None
    tile: tuple[int, int, int] | None
    stages: int | None
    threads: int | None
    cluster: int | str | None
    slices: int | None
    cluster_adds: bool | None
    grid_adds: bool | None
    stream_k: bool | None
    raster_group: int | None
    grid: int | None
    waves: float | None
    workspace: int | None
    epilogue: str | None
    store_path: str | None
    flops: float | None
    bytes: float | None
    compute_microseconds: float | None
    memory_microseconds: float | None
    microseconds: float | None
    constant_microseconds: float | None
    products: int | None
    bound: str | None
    why: str | None

    if TYPE_CHECKING:  # `fields` leaves them out
        split_fp32: dict[str, Any] | None  # the passes of split float32 operands
        recompute: dict[str, Any] | None  # what computes tiles again after a kernel of tf32 terms
        _in_short: bool  # Does a notebook show a table of the plan, and the text on demand?

    def __new__(
        cls, text: str, fields: dict[str, Any] | None = None, in_short: bool = True
    ) -> Self:
        self = super().__new__(cls, text)
        self._in_short = in_short
        values = fields or {}
        for name in cls.__annotations__:
            value = values.get(name)
            setattr(self, name, tuple(value) if isinstance(value, list) else value)
        self.split_fp32 = values.get("split")
        self.recompute = values.get("recompute")
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """All attributes by name, which can be a row of a table."""
        return {name: getattr(self, name) for name in type(self).__annotations__}

    def _repr_html_(self) -> str:
        first = escape(self.splitlines()[0])
        if self.kernel is None or self.tile is None or not self._in_short:
            return super()._repr_html_()
        shown = {
            "kernel": self.kernel,
            "layout": self.layout,
            "tile": " x ".join(map(str, self.tile)),
            "grid": f"{self.grid} blocks, {self.waves:.2f} waves",
            "epilogue": self.epilogue,
            "estimate": f"{self.microseconds:.1f} us, bound by {self.bound}",
            "why": self.why,
        }
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in shown.items()
        )
        return (
            f"<p><b>{first}</b></p><table>{rows}</table>"
            f"<details><summary>all of it</summary>{super()._repr_html_()}</details>"
        )


@documented(ExplainOptions)
def check_layout(
    a: Tensor,
    b: Tensor | Operand,
    *,
    offs: Tensor | None = None,
    accumulate: bool = False,
    c: Tensor | None = None,
    device: str | None = None,
    kernel: str | None = None,
    **options: Unpack[ExplainOptions],
) -> Explanation:
    """Says how the operands of matmul(a, b, ...) are stored in memory, and what would be faster.

    Example:
        >>> a = torch.empty(4096, 4095, dtype=torch.bfloat16, device="meta")
        >>> tcgemm.check_layout(a, a.t()).copies  # rows of 8190 bytes: TMA needs a multiple of 16
        'ab'

    For each operand the text says which dimension is contiguous, its leading dimension and
    alignment, whether TMA can read it, which kernels can run, and whether the operand is copied
    first. The operators decide by the same code.

    Arguments:
        a (Tensor): (..., M, K). Nothing is computed, so operands may be on the CPU or on the device
            "meta". One of a and b may be a tcgemm.SparseTensor24.
        b (Tensor): (..., K, N), or the .t() of a tcgemm.Prepared or a tcgemm.PackedWeight.
        offs (Tensor): the ends of groups. With it the answer is for tcgemm.grouped_mm, whose shapes
            a, b, bias and residual then have. Its values are not read on the device "meta".
        accumulate (bool): as for tcgemm.grouped_mm, with offs. The epilogue calls it beta * c.
        c, beta: as for tcgemm.addmm.
        options: as for tcgemm.matmul.
        device (str): the GPU that the answer is for, such as "H200". Default: the GPU of the
            tensors, or "H200".
        kernel (str): considers only kernels whose name contains this text. "@1", "@2", "@4" or "@8"
            at its end asks for so many CTAs of a cluster along m, which share b; "@2x4" for 4 along
            n as well, which share a. "/8" after it asks for so many slices of k, which another
            kernel adds. With "/2c" the CTAs of a cluster add them, and "/streamk" asks for equal
            parts of the k-blocks of all tiles. "^T" after all asks for the other orientation: for a
            row-major result the kernel computes out^T = b^T a^T.

    Returns:
        A tcgemm.ops.explanation.Explanation. It is a str with attributes such as kernel, tile,
        grid, microseconds, bytes, bound and why. Its attribute `fields` is a dict of them all.

    Raises:
        TypeError, RuntimeError: what tcgemm.matmul (with offs tcgemm.grouped_mm) raises for these
            arguments.
    """
    return explained("check_layout", a, b, offs, accumulate, c, device, kernel, **options)


@documented(ExplainOptions)
def explain(
    a: Tensor,
    b: Tensor | Operand,
    *,
    offs: Tensor | None = None,
    accumulate: bool = False,
    c: Tensor | None = None,
    device: str | None = None,
    kernel: str | None = None,
    **options: Unpack[ExplainOptions],
) -> Explanation:
    """Says which kernel matmul(a, b, ...) runs on a GPU, and why. It needs no GPU.

    Example:
        >>> a = torch.empty(8192, 8192, dtype=torch.float16, device="meta")
        >>> plan = tcgemm.explain(a, a, device="H200")
        >>> print(plan)  # doctest: +ELLIPSIS
        tcgemm: out 8192 x 8192 = a 8192 x 8192 @ b 8192 x 8192, ...
        >>> plan.bound
        'compute'

    The text names the kernel with its tile, stages and cluster, the grid and its waves, the bytes,
    the FLOPs and the arithmetic intensity. It says whether arithmetic, memory or the launch bounds
    the time, and why this kernel was chosen.

    Arguments:
        a, b, offs, accumulate, c, device, kernel: as for tcgemm.check_layout.
        options: as for tcgemm.check_layout.

    Returns:
        A tcgemm.ops.explanation.Explanation, as from tcgemm.check_layout.

    Raises:
        TypeError, RuntimeError: what tcgemm.matmul (with offs tcgemm.grouped_mm) raises for these
            arguments.
    """
    return explained("explain", a, b, offs, accumulate, c, device, kernel, **options)


def _refuse_kinds(name: str, **operands: Any) -> None:
    """Raises the error for operands that no grouped product takes."""
    for argument, value in operands.items():
        if not isinstance(value, Operand | TensorOperand):
            continue
        kind = type(value).__name__
        mend = (
            value.mend.format(argument) if isinstance(value, Operand) else value.instead(argument)
        )
        raise TypeError(
            f"tcgemm.{name}: {argument} is of type {kind}, but the operands of a grouped product "
            f"are plain tensors; pass {mend}."
        )


def explained(
    name: str,
    a: Any,
    b: Any,
    offs: Tensor | None,
    accumulate: bool,
    c: Tensor | None,
    device: str | None,
    kernel: str | None,
    **options: Any,
) -> Explanation:
    """The answer of the operator `name` to the call with these arguments.

    A compiled function is interrupted for it.
    """
    if torch.compiler.is_compiling():
        ask: Any = torch.compiler.disable(explained)
        return ask(name, a, b, offs, accumulate, c, device, kernel, **options)
    bias, residual, out, epilogue, scales, amax = read(name, options)
    if epilogue.precision is None and getattr(a, "dtype", None) is torch.float32:
        # The answer is for a GPU.
        epilogue = epilogue.with_precision(torch_precision.default())
    words: dict[str, Any] = {}
    if offs is not None:
        _refuse_kinds(name, a=a, b=b)
    if isinstance(b, Operand):
        b, words = b.described(name, a, epilogue)
    if not dispatch.all_tensors(MATMUL, a, b, offs, c, bias, residual, out, *scales):
        named = {"a": a, "b": b, "offs": offs, "c": c}
        named |= {"bias": bias, "residual": residual, "out": out}
        raise dispatch.no_tensor(name, named | scales._asdict())
    check_amax(name, amax)
    check_flag(name, "accumulate", accumulate)
    if amax and out is not None:
        raise dispatch.amax_with_out(name)
    if transforms_active():
        mapped = {"a": a, "b": b, "offs": offs, "c": c, "bias": bias, "residual": residual}
        query.refuse_mapped(name, mapped)
    tensors = {"offs": offs, "c": c, "bias": bias, "residual": residual, "out": out}
    tensors |= scales._asdict()
    tuned.load_for_explain()
    words |= {
        "amax": bool(amax),
        "accumulate": bool(accumulate),
        "device": device,
        "kernel": kernel,
        **epilogue._asdict(),
    }
    del words["constant_b"]  # the answer says what it would gain
    try:
        answer = query.ask(name, a, b, **tensors, **words)
    except RuntimeError as error:
        refused = refusal(name, error, epilogue, device=device, kernel=kernel)
        if refused is None:
            raise
        raise refused from None
    return Explanation(answer["text"], answer, in_short=name == "explain")
