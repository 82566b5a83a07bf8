"""Facts about the installation: the build, and which products run on this machine.

    catalog() instructions() devices() plan(...)    the C++ tables and the planner
    known_device(...) device_rates(...)             what a GPU is planned with
    build()                                         what went into the library that is loaded
    support() support_table() report()              the same for people

All of it comes from the operator library, on every Python.
"""

import functools
import platform
from typing import Any, NamedTuple

import torch

from tcgemm import _library, dtypes
from tcgemm.ops import query
from tcgemm.ops.explanation import Text
from tcgemm.version import __version__

# Architecture of a kernel -> the GPUs that run it.
GPUS = {"sm80": "8.0 and later", "sm89": "8.9 and later", "sm90a": "9.0"}
# Instructions that kernels are written around -> the one for dense operands.
FAMILIES = {"mma.sync": "mma.sync", "mma.sp": "mma.sync", "wgmma": "wgmma", "wgmma.sp": "wgmma"}
# The input type of float32 products with precision "high". "medium" uses the kernels of bf16, and
# "highest" those of 16-bit terms or of f64.
F32_INPUT = "tf32"


@functools.cache
def build() -> dict[str, Any]:
    """Facts that the library was built with: version, cuda, arches, code (compute capability of a
    GPU -> the architecture whose code it runs), kernels (names), configs (for each kernel its row
    of the catalog and the types that it multiplies), torch_target, compiler."""
    return query.ask("build_info")


@functools.cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    """configs, instructions and devices, as the library has them."""
    return query.ask("_catalog")


def catalog() -> list[dict[str, Any]]:
    """Every kernel there is: name, arch, input (of a), input_b, accumulator, promoted,
    block_scaled, layout, registers (the kernel transposes a in registers), parts (of an f32
    operand, of type input; else 1), sparse (the pattern of a, "2:4" or "1:2", or ""), tile
    (m, n, k), stages, threads, shared_bytes, and `built`: whether the loaded library has it.
    """
    kernels = set(build()["kernels"])
    return [
        {**row, "tile": tuple(row["tile"]), "built": row["name"] in kernels}
        for row in _tables()["configs"]
    ]


def instructions() -> list[dict[str, Any]]:
    """Every tensor-core instruction in use: family, arch, input, input_b, accumulator, shape."""
    return [{**row, "shape": tuple(row["shape"])} for row in _tables()["instructions"]]


def devices() -> list[dict[str, Any]]:
    """Every GPU that `explain` and `plan` know by name, with what the planner knows about it.

    memory_rate (bytes a second), tensor_rate and f64_rate (FLOP a second) are sustained rates.
    rates_from says where they come from: "measured", "datasheet" or "driver".
    """
    return [dict(row) for row in _tables()["devices"]]


def known_device(name: str, capability: int, multiprocessors: int) -> dict[str, Any] | None:
    """The row of devices() for a GPU as the driver reports it, or None: it is not known.

    name is the driver's; words of it, the compute capability (10 * major + minor) and the number of
    multiprocessors must all agree.
    """
    return query.ask("_known_device", name, capability, multiprocessors)


def device_rates(
    name: str,
    capability: int,
    multiprocessors: int,
    clock_khz: float,
    memory_clock_khz: float,
    memory_bus_bits: int,
) -> dict[str, Any]:
    """What a GPU of this machine would be planned with.

    These are the rates of a known GPU, or estimates from the clocks and the memory bus.
    """
    return query.ask(
        "_device_rates",
        name,
        capability,
        multiprocessors,
        clock_khz,
        memory_clock_khz,
        memory_bus_bits,
    )


def code(capability: int, arches: str = "") -> str:
    """The architecture whose code of a build a GPU runs ("8.0", or "none").

    capability: 10 * major + minor. arches: those of the build, as build() has them, joined by
    commas; by default those of the loaded library.
    """
    return query.ask("_code", capability, arches)


def plan(
    device: str, dtype: str | torch.dtype, m: int, n: int, k: int, **options: Any
) -> dict[str, Any]:
    """The plan for one product on a named GPU, without tensors and without that GPU.

    options: batch, layout ("TN", "NN", "TT", "NT"), dtype_b, precision ("high", "medium", "fast"),
    accumulator, out_dtype, strides `a`, `b`, `out` as (batch, row, column) in elements, a_address,
    b_address, out_address in bytes (for alignment), alpha, scale_a, scale_b ("tensor", "row",
    "1x128", "128x128"), epilogue (a list of "c", "bias", "residual", "zero_a", "zero_b", "amax",
    "scale_out" and activations), sparse ("a" or "b"), kernel (a part of a name). A dtype is a torch
    dtype, its name ("bfloat16") or the name of info.support() ("bf16").

    The dict has the fields of tcgemm.explain's answer, the passes, and both texts. Raises
    RuntimeError with a sentence where nothing fits.
    """
    options["epilogue"] = ",".join(options.get("epilogue", ()))
    for option in ("dtype_b", "accumulator", "out_dtype"):
        if option in options:
            options[option] = dtypes.short_name(options[option])
    made = query.ask("_plan", device, dtypes.short_name(dtype), m, n, k, **options)
    return {**made, "tile": tuple(made["tile"])}


class Support(NamedTuple):
    """Says whether one pair of types runs in one place here; `why` is the reason if not."""

    dtype: str
    accumulator: str
    place: str  # "CPU" or one of FAMILIES
    runs: bool
    why: str
    kernels: str = ""  # a filter of kernels that leaves those of the place


def _family(arch: str, dtype: str) -> str:
    """The instruction that a kernel is written around."""
    return "wgmma" if arch == "sm90a" and dtype != "f64" else "mma.sync"


def _holds(code: str, arch: str) -> bool:
    """Does the code that a GPU runs hold kernels of this architecture?"""
    if code == "none" or arch == "sm90a":
        return code == "9.0a"
    return float(code.rstrip("a")) >= (8.9 if arch == "sm89" else 8.0)


def _built(family: str, row: dtypes.DType, accumulator: str) -> list[dict[str, Any]]:
    """The kernels of this build for these types, as build()["configs"] has them."""
    dtype = F32_INPUT if row.name == "f32" else row.name
    dense = FAMILIES[family]
    return [
        config
        for config in build()["configs"]
        if config["input"] == config["input_b"] == dtype
        and config["accumulator"] == accumulator
        and config["terms"] == 1
        and config["sparse"] is (family != dense)
        and _family(config["arch"], dtype) == dense
    ]


def _why_not(
    family: str, row: dtypes.DType, accumulator: str, capability: tuple[int, int] | None
) -> str:
    """The reason why kernels of `family` do not run these types here; empty where they do."""
    if "cuda" not in row.devices:
        return "there is no such kernel yet; it runs on the CPU"
    if family != "mma.sync" and (row.name == "f64" or (family, accumulator) == ("wgmma.sp", "f16")):
        return "there is no such instruction"
    if family == "mma.sp" and (accumulator == "f16" or row.torch in dtypes.FP8):
        return "there is no such kernel"
    if build()["cuda"] is None:
        return "the library is a CPU build"
    kernels = _built(family, row, accumulator)
    if not kernels:
        return f"not among the kernels of this build (architectures {', '.join(build()['arches'])})"
    if capability is None:
        return "no GPU here"
    name = f"{capability[0]}.{capability[1]}"
    code = build()["code"].get(name, "none")
    if not any(_holds(code, kernel["arch"]) for kernel in kernels):
        return f"this GPU has compute capability {name}, whose code in this build is that of {code}"
    return ""


def support() -> list[Support]:
    """One row for each dtype, accumulator and place, for the first GPU of this machine."""
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    found = []
    for row in dtypes.TABLE:
        for accumulator in map(dtypes.NAMES.get, row.accumulators):
            found.append(Support(row.name, accumulator, "CPU", "cpu" in row.devices, ""))
            for family in FAMILIES:
                why = _why_not(family, row, accumulator, capability)
                kernels = ",".join(
                    dict.fromkeys(
                        "{arch}_{input}_{accumulator}_".format(**kernel)
                        for kernel in _built(family, row, accumulator)
                    )
                )
                found.append(Support(row.name, accumulator, family, not why, why, kernels))
    return found


def _operands(kernel: dict[str, Any]) -> str:
    a, b = kernel["input"], kernel["input_b"]
    if kernel["sparse"]:
        first, second = ("f32 as tf32" if each == F32_INPUT else each for each in (a, b))
        return f"{first} {kernel['sparse']} by {second}"
    if kernel["parts"] > 1:
        return f"f32 as {kernel['parts']} {a} terms"
    if a == F32_INPUT or _multiplied(kernel)[1] != a:
        return f"f32 as {_multiplied(kernel)[1]}"
    return a if a == b else f"{a} by {b}"


def _multiplied(kernel: dict[str, Any]) -> tuple[str, ...]:
    """Architecture and types of a kernel's instruction, and whether its a is sparse: f32 that is
    added up as f64 becomes it."""
    arch, a, b, accumulator = (kernel[i] for i in ("arch", "input", "input_b", "accumulator"))
    if accumulator == "f64":
        a = b = "f64"
    return (arch, a, b, accumulator, "sp" if kernel["sparse"] else "")


def support_table() -> str:
    """The table of docs/support.md: the catalog, by types and architecture."""
    kinds: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for kernel in catalog():
        sums = "scales of blocks" if kernel["block_scaled"] else "promoted"
        key = (*_multiplied(kernel), _operands(kernel), sums if kernel["promoted"] else "")
        kind = kinds.setdefault(key, {"layouts": [], "tiles": []})
        kind["layouts"].append(kernel["layout"] + (" (RS)" if kernel["registers"] else ""))
        kind["tiles"].append("x".join(str(size) for size in kernel["tile"]))
    shapes = {
        (
            *(row[i] for i in ("arch", "input", "input_b", "accumulator")),
            row["family"].partition(".sp")[1].removeprefix("."),
        ): row["family"] + " m{}n{}k{}".format(*row["shape"])
        for row in instructions()
    }
    # Operands that differ in nothing else share a line.
    lines: dict[tuple[str, ...], list[str]] = {}
    for (*types, operands, sums), kind in kinds.items():
        layouts, tiles = (", ".join(dict.fromkeys(kind[name])) for name in ("layouts", "tiles"))
        accumulator = f"{types[3]}, {sums}" if sums else types[3]
        line = (types[0], accumulator, shapes[tuple(types)], layouts, tiles)
        lines.setdefault(line, []).append(operands)
    table = [
        "| operands | accumulator | GPU | instruction | layouts | tiles (m x n x k) |",
        "|---|---|---|---|---|---|",
    ]
    for (arch, accumulator, *rest), operands in sorted(lines.items(), key=lambda item: item[0][0]):
        cells = (", ".join(operands), accumulator, GPUS[arch], *rest)
        table.append(f"| {' | '.join(cells)} |")
    for row in dtypes.TABLE:
        accumulators = ", ".join(dtypes.NAMES[accumulator] for accumulator in row.accumulators)
        table.append(f"| {row.name} | {accumulators} | CPU | | any strides | |")
    return "\n".join(table)


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
            f"{facts.total_memory / 2**30:.0f} GiB, "
            f"code for {build()['code'].get(f'{facts.major}.{facts.minor}', 'none')}"
        )
        capability = 10 * facts.major + facts.minor
        known = known_device(facts.name, capability, facts.multi_processor_count)
        lines.append(f"   planned {_planned_from(known)}")
    return lines


def _planned_from(known: dict[str, Any] | None) -> str:
    """The origin of the rates that a GPU is planned with."""
    if known is None:
        return "from what the driver reports: clock, memory bus, multiprocessors"
    if known["rates_from"] == "measured":
        return f"with rates measured on an {known['name']}"
    return f"with the rates of the {known['name']}'s datasheet"


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
    places = {"CPU": "CPU", **{family: f"GPU, {family}" for family in FAMILIES}}

    def line(*cells: str) -> str:
        dtype, accumulator, *rest = cells
        return f"  {dtype:10}{accumulator:13}{''.join(f'{cell:16}' for cell in rest)}".rstrip()

    lines = [line("operands", "accumulator", *places.values())]
    for types, row in cells.items():
        lines.append(line(*types, *(row[place] for place in places)))
    lines += [f"  {mark} {why}" for why, mark in marks.items()]
    lines.append(
        '  f32 on a GPU: precision "high" multiplies as tf32, "medium" as bf16; "highest", on'
    )
    lines.append("  compute capability 9.0, as 16-bit terms or as f64, with all bits")
    return lines


def report() -> Text:
    """The text that `python -m tcgemm` prints. A notebook shows it as print does."""
    facts = build()
    kind = f"CUDA {facts['cuda']} build" if facts["cuda"] else "CPU build"
    architectures = ", ".join(facts["arches"]) or "none"
    lines = [
        f"tcgemm {__version__}",
        f"  library         {_library.path()}",
        f"                  {kind} for torch >= {facts['torch_target']}, {facts['compiler']}",
        f"  architectures   {architectures}",
        f"  kernels         {len(facts['kernels'])} of the catalog's {len(catalog())}",
        f"  torch           {torch.__version__} ({torch.get_num_threads()} CPU threads)",
        f"  python          {platform.python_version()}, {platform.platform()}",
    ]
    lines += [f"  {'GPU' if i == 0 else '':16}{text}" for i, text in enumerate(_gpu_lines())]
    if facts["version"] != __version__:
        lines.append(
            f"  warning: the library is version {facts['version']}; rebuild it with: "
            f"{_library.rebuild()}"
        )
    return Text("\n".join([*lines, "", "What runs here", *_support_lines()]))
