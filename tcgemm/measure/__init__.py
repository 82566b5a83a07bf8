"""Measuring: products and layers of tcgemm beside those of torch.

Operands and calls
    case.py, cases.py, drawn.py   a case (operation, dtype, layout, size, epilogue); sets of cases
    operands.py    random operands in each layout, and enough sets of them to leave the cache
    baseline.py    the calls of torch and cuSPARSELt that tcgemm is compared with
    workloads.py, works.py   a case made runnable: GEMMs, and other operations
Time and error
    timing.py      kernel time from CUDA graphs, and host time
    telemetry.py   the SM clock and the power while a measurement runs
    errors.py      error bounds against float64, exact checks on integers, unit roundoffs
    machine.py     the GPU, the driver and the versions that a measurement belongs to
    amx.py         keeps torch from AMX instructions that a virtual machine forbids
Results
    results.py     <gpu>.json: rows, their repetitions, medians and ranges; merging
    work.py        check -> time -> row
    run.py         tcgemm bench
Fronts
    compare, tune, demo   tcgemm.compare, tcgemm.tune, tcgemm demo
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from tcgemm.info import catalog
from tcgemm.operands.packed import PackedWeight
from tcgemm.ops.explanation import Explanation, explain
from tcgemm.ops.prepared import Prepared

if TYPE_CHECKING:
    from tcgemm.measure import compare as compare
    from tcgemm.measure import demo as demo
    from tcgemm.measure import tune as tune


class Plan(NamedTuple):
    """The kernel that a product runs on a GPU, and why it is this one."""

    kernel: str  # "cpu" if the product launches no kernel
    why: str
    launch: str = ""  # the kernel with its cluster and its slices of k, as `name_of` writes them


def plan(a: Tensor, b: Tensor | Prepared | PackedWeight, **options: Any) -> Plan:
    """Returns the plan of matmul(a, b, ...) on a GPU. The options are tcgemm.explain's.

    Example:
        >>> from tcgemm import measure
        >>> a = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
        >>> measure.plan(a, a.t(), device="H200").kernel.startswith("sm90")
        True
    """
    explanation = explain(a, b, **options)
    if not explanation.kernel:
        return Plan("cpu", explanation.why or "")
    return Plan(explanation.kernel, explanation.why or "", name_of(explanation))


def name_of(explanation: Explanation) -> str:
    """The kernel of a plan, with the CTAs of its cluster and its slices of k: "kernel@2/4".

    With a "c" behind it, the CTAs of a cluster add the slices; "/streamk" is stream-K. With "^T" at
    its end, the kernel stores the result by columns, for which it takes the other orientation.
    tcgemm.explain takes the name.
    """
    slices = "streamk" if explanation.stream_k else f"{explanation.slices}"
    slices += "c" if explanation.cluster_adds else ""
    by_columns = explanation.store_path == "tma_columns" and stores_columns(explanation.kernel)
    suffix = "^T" if by_columns else ""
    return f"{explanation.kernel}@{explanation.cluster}/{slices}{suffix}"


@functools.cache
def stores_columns(kernel: str | None) -> bool:
    """Has the kernel of the catalog the epilogue path "columns"?"""
    return any(row["name"] == kernel and "columns" in row["epilogue_paths"] for row in catalog())


def kernel_name(a: Tensor, b: Tensor | Prepared | PackedWeight, **options: Any) -> str:
    """Returns the name of the kernel that plan(a, b, ...) chooses."""
    return plan(a, b, **options).kernel


if not TYPE_CHECKING:  # a checker would take every name for one of the module

    def __getattr__(name: str) -> Any:
        """Imports a front at its first use."""
        if name in ("compare", "demo", "tune"):
            return importlib.import_module(f"tcgemm.measure.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
