"""The formats of a weight beside each other: speed, memory and error, for layers and for a model.

    of_layers()     one layer of each format, for several numbers of rows
    of_model()      a model of the caller's, with all its linear layers in each format
    recorded()      of_layers() as the project has measured it, by GPU

The notebook weight_formats.ipynb shows them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

import tcgemm
from tcgemm.measure import command_line, machine, results
from tcgemm.measure.results import Results, Row
from tcgemm.nn import Linear, PackedLinear, QuantLinear, SparseLinear24

# The options of swap_linear for each format.
FORMATS: dict[str, dict[str, Any]] = {
    "bf16": {"to": Linear},
    "e4m3": {"to": QuantLinear, "dtype": torch.float8_e4m3fn},
    "int8": {"to": QuantLinear, "dtype": torch.int8},
    "int4": {"to": PackedLinear, "format": "int4"},
    "nf4": {"to": PackedLinear, "format": "nf4"},
    "mxfp4": {"to": PackedLinear, "format": "mxfp4"},
    "2:4": {"to": SparseLinear24},
}
SET = "formats"  # of the rows of of_layers
ROWS = (1, 16, 64, 512, 4096)  # of the input
SIZE = 4096  # in_features and out_features


def swapped(model: torch.nn.Module, name: str) -> Any:
    """swap_linear of the model to a format; the report, which takes it back."""
    return tcgemm.swap_linear(model, **_options(name))


def stored_bytes(model: torch.nn.Module) -> int:
    """The bytes of the tensors in the state_dict, each memory once."""
    tensors = [each for each in model.state_dict().values() if isinstance(each, torch.Tensor)]
    return sum({each.untyped_storage().data_ptr(): each.nbytes for each in tensors}.values())


def of_layers(
    *,
    rows: Sequence[int] = ROWS,
    size: int = SIZE,
    formats: Iterable[str] = FORMATS,
    seconds: float = 0.1,
    device: torch.device | str | None = None,
    progress: bool | Callable[[str], None] = False,
) -> Results:
    """Measures a bf16 torch.nn.Linear of size x size beside tcgemm's layer of each format.

    Example:
        >>> measured = of_layers(rows=[4], size=64, formats=["int4"], seconds=0.01, device="cpu")
        >>> [(row["format"], row["m"]) for row in measured.rows]
        [('int4', 4)]

    Arguments:
        rows: the numbers of rows of the input; each has a row of the result for each format.
        size (int): in_features and out_features.
        formats: names of FORMATS.
        seconds (float): the time of each candidate, as of tcgemm.compare.
        device: the GPU, or the CPU. Default: the GPU if there is one.
        progress: as of tcgemm.compare.

    Returns:
        Results whose rows have `us`, the time of a call in microseconds, and in `ratios` torch's
        time over it ("torch"). `facts` has stored_bytes and `error`, which is |difference of the
        outputs| over |outputs|, in the Frobenius norm.
    """
    device = torch.device(device or command_line.default_device())
    linear = torch.nn.Linear(size, size, bias=False, device=device, dtype=torch.bfloat16)
    found = Results(machine.facts(device))
    for name in formats:
        model = torch.nn.Sequential(linear)
        report = swapped(model, name)
        stored = stored_bytes(model)
        report.undo()
        for m in rows:
            x = torch.randn(m, size, device=device, dtype=torch.bfloat16)
            options: dict[str, Any] = _options(name)
            compared = tcgemm.compare(model, x, seconds=seconds, progress=progress, **options)
            (row,) = compared.rows
            facts = {"stored_bytes": stored, "error": compared.facts["model"]["difference"]}
            case = {"set": SET, "format": name, "commit": results.commit(), "date": machine.now()}
            found.put(row | case | {"facts": facts})
    return found


def of_model(
    model: torch.nn.Module,
    example_input: Any,
    *,
    formats: Iterable[str] = FORMATS,
    seconds: float = 0.1,
) -> list[Row]:
    """A row for each format: the model with its linear layers in it, beside the model as it is.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        >>> [row["format"] for row in of_model(model.bfloat16(), torch.randn(4, 64).bfloat16())]
        ['bf16', 'e4m3', 'int8', 'int4', 'nf4', 'mxfp4', '2:4']

    Arguments:
        model: the model, on the GPU where it shall be measured. It is as before afterwards.
        example_input: the input of a forward, as of tcgemm.compare.
        formats: names of FORMATS.
        seconds (float): the time of the forwards of each format.

    Returns:
        Rows with `format`, `MiB` (of the state_dict), `of bf16` (that over the model's own),
        `error` (as of of_layers), `x torch` (the time of the model's forward over that with the
        format, the host's part included), and `layers`, the number of layers that have it.
    """
    rows, own = [], stored_bytes(model)
    for name in formats:
        report = swapped(model, name)
        stored = stored_bytes(model)
        report.undo()
        options: dict[str, Any] = _options(name)
        facts = tcgemm.compare(
            model, example_input, seconds=seconds, progress=False, **options
        ).facts["model"]
        rows.append(
            {
                "format": name,
                "MiB": round(stored / 2**20, 3),
                "of bf16": round(stored / own, 3) if own else None,
                "error": facts["difference"],
                "x torch": facts["speedup"],
                "layers": facts["swapped"],
            }
        )
    return rows


@functools.cache
def recorded() -> dict[str, Results]:
    """{name of the GPU: of_layers() there}, as the project has measured it."""
    return results.recorded(SET)


def fastest(
    measured: Results, m: int, *, largest: float = 1.0, formats: Iterable[str] = FORMATS
) -> Row | None:
    """The row of the fastest of the formats for m rows of input; None if there is none.

    largest: the most bytes that a format may store, as a fraction of those of bf16.
    """
    allowed = set(formats)
    fit = [
        row
        for row in measured.rows
        if row["m"] == m
        and row["us"]
        and row["format"] in allowed
        and row["facts"]["stored_bytes"] <= largest * 2 * row["n"] * row["k"]
    ]
    return min(fit, key=lambda row: row["us"], default=None)


def save(measured: Results, folder: Path | str) -> Path:
    """Writes of_layers() into a file of the folder, named after the GPU; its path."""
    path = results.path_in(Path(folder), measured.header["gpu"])
    measured.save(path)
    return path


def _options(name: str) -> dict[str, Any]:
    if name not in FORMATS:
        raise ValueError(f"{name!r} is no format; expected one of {', '.join(FORMATS)}.")
    return FORMATS[name]
