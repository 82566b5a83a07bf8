"""Facts about the installation: the build, and which products run on this machine.

build()                                 what the loaded library was built from
catalog(), instructions(), devices()    its kernels, their instructions, the GPUs that it knows
known_device(...), device_rates(...)    the rates that the planner uses for a GPU
support(), support_table(), report()    which products run where, as rows and as texts
"""

import functools
import platform
from typing import Any, NamedTuple

import torch

from tcgemm import _library, dtypes
from tcgemm._tables import aligned, markdown
from tcgemm.ops import query
from tcgemm.ops.explanation import Text
from tcgemm.version import __version__

# Architecture of a kernel -> the GPUs that run it.
GPUS: dict[str, str] = {"sm80": "8.0 and later", "sm89": "8.9 and later", "sm90a": "9.0"}
# Instructions that kernels are written around -> the one for dense operands.
FAMILIES = {"mma.sync": "mma.sync", "mma.sp": "mma.sync", "wgmma": "wgmma", "wgmma.sp": "wgmma"}
# The input type of float32 products with precision "high". "medium" uses the kernels of bf16, and
# "highest" multiplies 16-bit terms or f64.
F32_INPUT = "tf32"
_TYPES = ("arch", "input", "input_b", "accumulator", "terms")  # of a row of build()["configs"]


@functools.cache
def build() -> dict[str, Any]:
    """Says what the library was built from and what it contains.

    Example:
        >>> tcgemm.info.build()["version"] == tcgemm.__version__
        True

    The dict has these keys:

    - version, compiler, torch_target (the oldest version of torch that it runs with).
    - cuda: the version of CUDA, or None for a CPU build.
    - arches: the architectures that it has code for.
    - code: compute capability of a GPU -> the architecture whose code it runs.
    - kernels: the names of the kernels. missing_kernels: the ones that should be there and are not.
    - configs: for each kernel its row of catalog() and the types that it multiplies.
    """
    facts = query.ask("build_info")
    kernels = set(facts["kernels"])
    facts["configs"] = [
        {"index": index, "sparse": bool(row["sparse"])} | {name: row[name] for name in _TYPES}
        for index, row in enumerate(_tables()["configs"])
        if row["name"] in kernels
    ]
    return facts


@functools.cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    """configs, instructions and devices, as the library has them."""
    return query.ask("_catalog")


def catalog(grouped: bool = False) -> list[dict[str, Any]]:
    """Lists every kernel of tcgemm, with those that the loaded library does not have.

    grouped: those of grouped products, and not the others.

    Example:
        >>> rows = tcgemm.info.catalog()
        >>> sorted({row["layout"] for row in rows if row["arch"] == "sm90a"})
        ['NN', 'NT', 'TN', 'TT']
        >>> pandas.DataFrame(rows)  # doctest: +SKIP

    The dict of a kernel has these keys:

    - name, arch, layout, accumulator (the type of the sums).
    - input, input_b: the types of a and b that the kernel multiplies.
    - mainloop: how the kernel multiplies, such as "dense", "split_fp32" or "sparse".
    - promoted: whether the sums of 128 products are added in float32.
    - block_scaled: whether the kernel takes the scales of blocks.
    - operand_source: "RS" if the kernel transposes or decodes a in registers; else "SS".
    - pingpong: whether one warpgroup multiplies while another one stores.
    - gemv, gemv_cluster, k_groups: whether the kernel is one for few rows, the blocks of its
      clusters, and the groups of warpgroups that divide the k of a tile.
    - weight_bits: 4 or 8 if the kernel decodes a packed weight; else 0.
    - terms: the number of terms of a float32 operand, else 1. They are of the type `input`; the
      mainloop "tf32x2" makes terms of tf32.
    - sparse: the pattern of a, "2:4" or "1:2"; "" if a is dense.
    - uses_tma, k_major_only: whether TMA loads the operands, and whether both must be K-major.
    - interleaved_rows: whether a lane holds two adjacent rows of a column.
    - divides_k, sums_in_cluster, streams_k: whether another kernel, or a cluster, adds sums of
      slices of k, and whether stream-K can divide the tiles.
    - shares_a: whether the CTAs of a cluster can share a as well as b.
    - epilogue_paths: what the epilogue can compute: "direct" (nothing), "plain" (scales, bias,
      relu), "fused" (also activations, c or the residual), "rolled" (all terms), "columns" (a
      column-major result, all terms but zero points; also a row-major one whose a and b are
      swapped) and "slices" (slices of k, which the grid adds, and all terms).
    - columns_only: whether the kernel computes "columns" alone, but for stream-K.
    - grouped: what groups divide, "rows" or "k"; "" if the kernel is none of grouped products.
    - tile (m, n, k), stages, threads, shared_bytes (the bytes of shared memory).
    - built: whether the loaded library has the kernel.
    """
    kernels = set(build()["kernels"])
    return [
        {**row, "tile": tuple(row["tile"]), "built": row["name"] in kernels}
        for row in _tables()["configs"]
        if bool(row["grouped"]) is grouped
    ]


def instructions() -> list[dict[str, Any]]:
    """Lists the tensor-core instructions of the kernels, as dicts with the keys family, arch,
    input, input_b, accumulator and shape (m, n, k)."""
    return [{**row, "shape": tuple(row["shape"])} for row in _tables()["instructions"]]


def devices() -> list[dict[str, Any]]:
    """Lists the GPUs that tcgemm.explain knows by name.

    Example:
        >>> "H200" in [device["name"] for device in tcgemm.info.devices()]
        True

    Returns:
        A list with a dict for each GPU. memory_rate (bytes per second), tensor_rate and f64_rate
        (FLOP per second) are sustained rates. rates_from says where they come from: "measured",
        "datasheet" or "driver".
    """
    return [dict(row) for row in _tables()["devices"]]


def known_device(name: str, capability: int, multiprocessors: int) -> dict[str, Any] | None:
    """Finds the row of devices() for a GPU as the driver reports it.

    Arguments:
        name (str): the driver's name of the GPU.
        capability (int): its compute capability, 10 * major + minor.
        multiprocessors (int): the number of its multiprocessors.

    Returns:
        The row of devices() that agrees in words of the name, in the compute capability and in the
        number of multiprocessors. None if there is no such row.
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
    """Says which rates the planner uses for a GPU that the driver reports like this.

    Arguments:
        name, capability, multiprocessors: as for known_device.
        clock_khz, memory_clock_khz (float): clocks in kHz.
        memory_bus_bits (int): the width of the memory bus in bits.

    Returns:
        A dict like a row of devices(). It has the rates of a known GPU, or estimates from the
        clocks and the memory bus.
    """
    clocks = (clock_khz, memory_clock_khz, memory_bus_bits)
    return query.ask("_device_rates", name, capability, multiprocessors, *clocks)


def code(capability: int, arches: str = "") -> str:
    """Says which architecture's code a GPU runs.

    Example:
        >>> tcgemm.info.code(90, "8.0,9.0a"), tcgemm.info.code(86, "8.0,9.0a")
        ('9.0a', '8.0')

    Arguments:
        capability (int): the compute capability of the GPU, 10 * major + minor.
        arches (str): the architectures of a build, as build() has them, joined by commas. Default:
            the architectures of the loaded library.

    Returns:
        An architecture such as "8.0" or "9.0a", or "none" if the build has no code for the GPU.
    """
    return query.ask("_code", capability, arches)


class Support(NamedTuple):
    """Says whether products of one dtype and accumulator run in one place of this machine.

    Attributes:
        dtype (str): the short name of the operands' dtype, such as "bf16".
        accumulator (str): the short name of the sums' dtype, such as "f32".
        place (str): "CPU", or an instruction of GPUs: "mma.sync", "mma.sp", "wgmma" or "wgmma.sp".
        runs (bool): whether they run there.
        why (str): why they do not run there; empty if they do.
        kernels (str): parts of the names of the kernels of this place, joined by commas.
    """

    dtype: str
    accumulator: str
    place: str
    runs: bool
    why: str
    kernels: str = ""


def _family(arch: str, dtype: str) -> str:
    """The instruction that a kernel is written around."""
    return "wgmma" if arch == "sm90a" and dtype != "f64" else "mma.sync"


def _holds(code: str, arch: str) -> bool:
    """Does the code that a GPU runs hold kernels of this architecture?"""
    if code == "none" or arch == "sm90a":
        return code == "9.0a"
    return float(code.rstrip("a")) >= (8.9 if arch == "sm89" else 8.0)


def _kernels_of(family: str, row: dtypes.DType, accumulator: str) -> list[dict[str, Any]]:
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
    if (row.name, accumulator, family) in dtypes.NO_INSTRUCTION:
        return "there is no such instruction"
    if (row.name, accumulator, family) in dtypes.NO_KERNEL:
        return "there is no such kernel"
    if build()["cuda"] is None:
        return "no CUDA kernel was built"
    kernels = _kernels_of(family, row, accumulator)
    if not kernels:
        return f"not among the kernels of this build (architectures {', '.join(build()['arches'])})"
    if capability is None:
        return "no GPU here"
    name = f"{capability[0]}.{capability[1]}"
    code = build()["code"].get(name, "none")
    if not any(_holds(code, kernel["arch"]) for kernel in kernels):
        return f"this GPU has compute capability {name}, which runs this build's code for {code}"
    return ""


def support() -> list[Support]:
    """Says for each dtype, accumulator and place whether such products run on this machine.

    Example:
        >>> next(row.runs for row in tcgemm.info.support() if row.place == "CPU")
        True

    Returns:
        A list of Support. Rows about GPUs are about the first GPU of this machine.
    """
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    rows = []
    for row in (*dtypes.TABLE, *dtypes.SUBBYTE):
        for accumulator in map(dtypes.NAMES.__getitem__, row.accumulators):
            rows.append(Support(row.name, accumulator, "CPU", "cpu" in row.devices, ""))
            for family in FAMILIES:
                why = _why_not(family, row, accumulator, capability)
                kernels = ",".join(
                    dict.fromkeys(
                        "{arch}_{input}_{accumulator}_".format(**kernel)
                        for kernel in _kernels_of(family, row, accumulator)
                    )
                )
                rows.append(Support(row.name, accumulator, family, not why, why, kernels))
    return rows


def _operands(kernel: dict[str, Any]) -> str:
    a, b = kernel["input"], kernel["input_b"]
    if kernel["sparse"]:
        first, second = ("f32 as tf32" if operand == F32_INPUT else operand for operand in (a, b))
        return f"{first} {kernel['sparse']} by {second}"
    if kernel["terms"] > 1:
        return f"f32 as {kernel['terms']} {_instruction_types(kernel)[1]} terms"
    if a == F32_INPUT or _instruction_types(kernel)[1] != a:
        return f"f32 as {_instruction_types(kernel)[1]}"
    if bits := kernel["weight_bits"]:
        b = f"a packed weight of {bits} bits"
    return a if a == b else f"{a} by {b}"


def _instruction_types(kernel: dict[str, Any]) -> tuple[str, ...]:
    """Architecture and types of a kernel's instruction, and whether its a is sparse: f32 that is
    added up as f64, or split into terms by the kernel, becomes what is multiplied."""
    arch, a, b, accumulator = (kernel[i] for i in ("arch", "input", "input_b", "accumulator"))
    if accumulator == "f64":
        a = b = "f64"
    elif kernel["mainloop"] == "tf32x2":
        a = b = "tf32"
    return (arch, a, b, accumulator, "sp" if kernel["sparse"] else "")


def support_table() -> str:
    """Makes the table of docs/support.md: operands, accumulators, instructions, layouts, tiles."""
    kinds: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for kernel in catalog():
        sums = "scales of blocks" if kernel["block_scaled"] else "promoted"
        key = (*_instruction_types(kernel), _operands(kernel), sums if kernel["promoted"] else "")
        kind = kinds.setdefault(key, {"layouts": [], "tiles": []})
        source = {"RS": " (RS)", "SS": ""}[kernel["operand_source"]]
        kind["layouts"].append(kernel["layout"] + source)
        kind["tiles"].append("x".join(str(size) for size in kernel["tile"]))
    shapes: dict[tuple[str, ...], str] = {
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
    heads = ("operands", "accumulator", "GPU", "instruction", "layouts", "tiles (m x n x k)")
    rows = [
        (", ".join(operands), accumulator, GPUS[arch], *rest)
        for (arch, accumulator, *rest), operands in sorted(
            lines.items(), key=lambda item: item[0][0]
        )
    ]
    for row in (*dtypes.TABLE, *dtypes.SUBBYTE):
        accumulators = ", ".join(map(dtypes.NAMES.__getitem__, row.accumulators))
        strides = "any strides" if row in dtypes.TABLE else "TN, any other strides"
        rows.append((row.name, accumulators, "CPU", "", strides, ""))
    return markdown(heads, rows)


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
        entry = known_device(facts.name, capability, facts.multi_processor_count)
        lines.append(f"   planned {_planned_from(entry)}")
    return lines


def _planned_from(entry: dict[str, Any] | None) -> str:
    """The origin of the rates that a GPU is planned with."""
    if entry is None:
        return "from what the driver reports: clock, memory bus, multiprocessors"
    if entry["rates_from"] == "measured":
        return f"with rates measured on an {entry['name']}"
    return f"with the rates of the {entry['name']}'s datasheet"


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

    table = [["operands", "accumulator", *places.values()]]
    table += [[*types, *map(row.__getitem__, places)] for types, row in cells.items()]
    lines = [f"  {line}" for line in aligned(table, "<" * len(table[0]))]
    lines += [f"  {mark} {why}" for why, mark in marks.items()]
    high = 'precision "high" multiplies as tf32, "medium" as bf16; "highest", on'
    lines.append(f"  f32 on a GPU: {high}")
    return [*lines, "  compute capability 9.0, as 16-bit terms or as f64, with all bits"]


def report() -> Text:
    """Says what is installed and what runs on this machine: the text of the command `tcgemm`.

    Example:
        >>> print(tcgemm.info.report())  # doctest: +ELLIPSIS
        tcgemm ...
    """
    facts = build()
    kind = f"CUDA {facts['cuda']} build" if facts["cuda"] else "CPU build"
    lines = [
        f"tcgemm {__version__}",
        f"  library         {_library.path()}",
        f"                  {kind} for torch >= {facts['torch_target']}, {facts['compiler']}",
        f"  architectures   {', '.join(facts['arches']) or 'none'}",
        f"  kernels         {len(facts['kernels'])} of the catalog's {len(catalog())}",
        f"  torch           {torch.__version__} ({torch.get_num_threads()} CPU threads)",
        f"  python          {platform.python_version()}, {platform.platform()}",
    ]
    lines += [f"  {'' if i else 'GPU':16}{text}" for i, text in enumerate(_gpu_lines())]
    if facts["cuda"] is None:
        lines.append(f"  note: {_library.no_cuda_kernel()}")
    if facts["version"] != __version__:
        lines.append(f"  warning: the library is {facts['version']}; run: {_library.rebuild()}")
    return Text("\n".join([*lines, "", "What runs here", *_support_lines()]))
