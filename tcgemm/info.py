"""What is installed, what runs on this machine, and why the rest does not.

    catalog() instructions() devices() plan(...)    the C++ tables and the planner (_catalog)
    build()                                         what went into the library that is loaded
    support() support_table() report()              the same for people

tcgemm._catalog belongs to one Python and is optional: without it the names of the kernels that
were built are known from the library, and report() says what is missing.
"""

import functools
import json
import platform
from typing import Any, NamedTuple

import torch

from tcgemm import _library, dtypes
from tcgemm.version import __version__

try:
    from tcgemm import _catalog
except ImportError:
    _catalog = None

NO_CATALOG = (
    "tcgemm's catalog module is not built for this Python; in a checkout "
    "`python setup.py build_catalog` builds it (it needs g++, python3-dev and pybind11)"
)
# Architecture of a kernel -> the GPUs that run it, and the instruction it is written around.
GPUS = {"sm80": "8.0 and later", "sm90a": "9.0"}
NAMES = {row.torch: row.name for row in dtypes.TABLE}
FAMILIES = {"sm80": "mma.sync", "sm90a": "wgmma"}


@functools.cache
def build() -> dict[str, Any]:
    """The library's own account: version, cuda, arches, kernels, torch_target, compiler."""
    return json.loads(torch.ops.tcgemm.build_info())


def _module():
    if _catalog is None:
        raise RuntimeError(NO_CATALOG)
    return _catalog


def catalog() -> list[dict[str, Any]]:
    """Every kernel there is: name, arch, input, accumulator, layout, tile (m, n, k), stages,
    threads, shared_bytes, and `built`: whether the loaded library has it.

    Raises RuntimeError where the catalog module is not built.
    """
    kernels = set(build()["kernels"])
    return [{**row, "built": row["name"] in kernels} for row in _module().catalog()]


def instructions() -> list[dict[str, Any]]:
    """Every tensor-core instruction in use: family, arch, input, accumulator, shape (m, n, k)."""
    return _module().instructions()


def devices() -> list[dict[str, Any]]:
    """Every GPU that `explain` and `plan` know by name, with what the planner knows about it."""
    return _module().devices()


def plan(device: str, dtype: str, m: int, n: int, k: int, **options: Any) -> dict[str, Any]:
    """The plan for one product on a named GPU, without tensors and without that GPU.

    options: batch, layout ("TN", "NN", "TT", "NT"), accumulator, out_dtype, strides `a`, `b`, `out`
    as (batch, row, column) in elements, a_address, b_address, out_address in bytes (for alignment),
    alpha, kernel (a part of a name). Raises RuntimeError with a sentence where nothing fits.
    """
    return _module().plan(device, dtype, m, n, k, **options)


class Support(NamedTuple):
    """Whether one pair of types runs somewhere on this machine; `why` says why not."""

    dtype: str
    accumulator: str
    place: str  # "CPU", "sm80" or "sm90a"
    runs: bool
    why: str


def _why_not(arch: str, row: dtypes.DType, accumulator: str, capability: tuple | None) -> str:
    """The reason why kernels of `arch` do not run these types here; empty where they do."""
    if "cuda" not in row.devices:
        return "there is no such kernel yet; it runs on the CPU"
    if build()["cuda"] is None:
        return "the library is a CPU build"
    start = f"{arch}_{row.name}_{accumulator}_"
    if not any(name.startswith(start) for name in build()["kernels"]):
        return f"not among the kernels of this build (architectures {', '.join(build()['arches'])})"
    if capability is None:
        return "no GPU here"
    if capability != (9, 0) if arch == "sm90a" else capability < (8, 0):
        return f"this GPU has compute capability {capability[0]}.{capability[1]}"
    return ""


def support() -> list[Support]:
    """One row for each dtype, accumulator and place, for the first GPU of this machine."""
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    found = []
    for row in dtypes.TABLE:
        for accumulator in map(NAMES.get, row.accumulators):
            found.append(Support(row.name, accumulator, "CPU", "cpu" in row.devices, ""))
            for arch in GPUS:
                why = _why_not(arch, row, accumulator, capability)
                found.append(Support(row.name, accumulator, arch, not why, why))
    return found


def support_table() -> str:
    """The README's table: the catalog, by types and architecture."""
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for kernel in catalog():
        types = (kernel["input"], kernel["accumulator"], kernel["arch"])
        row = rows.setdefault(types, {"layouts": [], "tiles": []})
        row["layouts"].append(kernel["layout"])
        row["tiles"].append("x".join(str(size) for size in kernel["tile"]))
    shapes = {
        (row["input"], row["accumulator"], row["arch"]): row["family"]
        + " m{}n{}k{}".format(*row["shape"])
        for row in instructions()
    }
    lines = [
        "| operands | accumulator | GPU | instruction | layouts | tiles (m x n x k) |",
        "|---|---|---|---|---|---|",
    ]
    for types, row in sorted(rows.items(), key=lambda item: (item[0][2], item[0][:2])):
        layouts = " ".join(dict.fromkeys(row["layouts"]))
        tiles = ", ".join(dict.fromkeys(row["tiles"]))
        gpu, shape = GPUS[types[2]], shapes[types]
        lines.append(f"| {types[0]} | {types[1]} | {gpu} | {shape} | {layouts} | {tiles} |")
    for row in dtypes.TABLE:
        accumulators = ", ".join(NAMES[accumulator] for accumulator in row.accumulators)
        lines.append(f"| {row.name} | {accumulators} | CPU | | any strides | |")
    return "\n".join(lines)


def _gpu_lines() -> list[str]:
    if not torch.cuda.is_available():
        reason = "" if torch.version.cuda else f" (torch {torch.__version__} is a CPU build)"
        return [f"none that torch can use{reason}"]
    lines = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        lines.append(
            f"{index}: {facts.name}, compute capability {facts.major}.{facts.minor}, "
            f"{facts.multi_processor_count} multiprocessors, "
            f"{facts.total_memory / 2**30:.0f} GiB"
        )
    return lines


def _support_lines() -> list[str]:
    """The table of support() with a mark for each reason, and the reasons below."""
    rows = support()
    marks: dict[str, str] = {}
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row.why and row.why not in marks:
            marks[row.why] = f"({len(marks) + 1})"
        cell = "yes" if row.runs else f"no {marks.get(row.why, '')}"
        cells.setdefault((row.dtype, row.accumulator), {})[row.place] = cell
    places = {"CPU": "CPU", **{arch: f"GPU, {FAMILIES[arch]}" for arch in GPUS}}

    def line(*words: str) -> str:
        dtype, accumulator, *rest = words
        return f"  {dtype:10}{accumulator:13}{''.join(f'{word:16}' for word in rest)}".rstrip()

    lines = [line("operands", "accumulator", *places.values())]
    for types, row in cells.items():
        lines.append(line(*types, *(row[place] for place in places)))
    lines += [f"  {mark} {why}" for why, mark in marks.items()]
    lines.append("  planned: fp8, int8, tf32, fp32 on tensor cores, 2:4 sparse")
    return lines


def report() -> str:
    """What `python -m tcgemm` prints."""
    facts = build()
    kind = f"CUDA {facts['cuda']} build" if facts["cuda"] else "CPU build"
    kernels = f"{len(facts['kernels'])}"
    if _catalog:
        kernels += f" of the catalog's {len(_catalog.catalog())}"
    architectures = ", ".join(facts["arches"]) or "none"
    lines = [
        f"tcgemm {__version__}",
        f"  library         {_library.path()}",
        f"                  {kind} for torch >= {facts['torch_target']}, {facts['compiler']}",
        f"  architectures   {architectures}",
        f"  kernels         {kernels}",
        f"  catalog module  {_catalog.__file__ if _catalog else NO_CATALOG}",
        f"  torch           {torch.__version__} ({torch.get_num_threads()} CPU threads)",
        f"  python          {platform.python_version()}, {platform.platform()}",
    ]
    lines += [f"  {'GPU' if i == 0 else '':16}{text}" for i, text in enumerate(_gpu_lines())]
    if facts["version"] != __version__:
        lines.append(
            f"  warning: the library is version {facts['version']}; rebuild it with: "
            f"{_library.rebuild()}"
        )
    return "\n".join([*lines, "", "What runs here", *_support_lines()])
