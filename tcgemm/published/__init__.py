"""Published figures of tensor cores, each once, with its source.

tcgemm's instruments repeat the experiments of five documents. figures.json has their tables:
document, table, GPU, unit, columns, and a list of values for each row; null is a cell that the
document leaves empty.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple


class Document(NamedTuple):
    """A document whose experiments tcgemm repeats."""

    number: str
    short: str  # "Sun et al. 2023", as tables cite it
    title: str


DOCUMENTS = {
    "000": Document(
        "000",
        "Yan, Wang and Chu 2020",
        "D. Yan, W. Wang, X. Chu: Demystifying Tensor Cores to Optimize Half-Precision Matrix "
        "Multiply. IPDPS 2020.",
    ),
    "001": Document(
        "001",
        "CUDA Fortran 2021",
        "Using Tensor Cores in CUDA Fortran. NVIDIA Technical Blog, 2021.",
    ),
    "002": Document(
        "002",
        "vantaa89 cuda-matmul",
        "An article on matrix multiplication in CUDA, kernels 0 to 5: github.com/vantaa89/"
        "cuda-matmul.",
    ),
    "003": Document(
        "003",
        "Sun et al. 2023",
        "W. Sun, A. Li, T. Geng, S. Stuijk, H. Corporaal: Dissecting Tensor Cores via "
        "Microbenchmarks: Latency, Throughput and Numeric Behaviors. IEEE Transactions on Parallel "
        "and Distributed Systems 34(1), 2023; arXiv 2206.02874.",
    ),
    "004": Document(
        "004",
        "spatters mma-matmul",
        "An article on mma.sync kernels that reach cuBLAS on an RTX 4090: github.com/spatters/"
        "mma-matmul.",
    ),
}


@functools.cache
def _tables() -> list[dict[str, Any]]:
    return json.loads((Path(__file__).parent / "figures.json").read_text())


def gpus(document: str, name: str) -> list[str]:
    """The GPUs that the table with this name has figures of; none if there is no such table.

    Example:
        >>> from tcgemm import published
        >>> published.gpus("000", "II")
        ['RTX 2070', 'T4']
    """
    key = (document, name)
    return [entry["gpu"] for entry in _tables() if (entry["document"], entry["table"]) == key]


def table(document: str, name: str, gpu: str | None = None) -> dict[str, dict[str, float | None]]:
    """{row: {column: value}} of the table with this name; without a GPU the table of its first GPU.

    ValueError: there is no such table.

    Example:
        >>> from tcgemm import published
        >>> published.table("000", "IV")["LDS"]
        {'32': 2.11, '64': 4.0, '128': 8.0}
    """
    for entry in _tables():
        if (entry["document"], entry["table"]) == (document, name) and gpu in (None, entry["gpu"]):
            columns, rows = entry["columns"], entry["rows"].items()
            return {row: dict(zip(columns, values, strict=True)) for row, values in rows}
    names = sorted({f"{x['document']} {x['table']} ({x['gpu']})" for x in _tables()})
    raise ValueError(
        f"There are no published figures of document {document!r}, table {name!r}, GPU {gpu!r}; "
        f"expected one of {', '.join(names)}."
    )


def figure(document: str, name: str, *, row: str, column: str, gpu: str) -> float | None:
    """One figure, or None where the document has none for this row, column or GPU.

    Example:
        >>> from tcgemm import published
        >>> published.figure("003", "III", row="f16 f32 m16n8k16", column="completion", gpu="A100")
        24.7
    """
    if gpu not in gpus(document, name):
        return None
    return table(document, name, gpu).get(row, {}).get(column)
