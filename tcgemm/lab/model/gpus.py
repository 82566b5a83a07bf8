"""What the models need to know of a GPU: cycles of instructions, and rates.

An RTX 2070 and a T4 have the figures of Yan, Wang and Chu, tables I to V (tcgemm.published).
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from tcgemm import info, published
from tcgemm.lab import store

F16 = ["f16", "f16"]
HGEMM = published.DOCUMENTS["000"].short
EXAMPLE = "`tcgemm model example` prints a file of costs."


@dataclass(frozen=True)
class Costs:
    """The costs of a GPU. Cycles are those from one instruction to the next (CPI).

    Attributes:
        name (str): of the GPU.
        source (str): where the numbers come from.
        mma (float | None): cycles of an HMMA.1688 in one of an SM's four parts.
        load_global (float | None): cycles of a 16-byte load a lane from L2 (LDG.128).
        store_shared (float | None): cycles of a 16-byte store a lane (STS.128).
        load_shared (float | None): cycles of a 4-byte load a lane (LDS.32).
        memory (float): bytes per second of device memory.
        l2 (float | None): bytes per second of L2, read from a buffer of half its size.
        tensor (float): operations per second of the tensor cores; a product and a sum are two.
        simt (float | None): the same of the float16 units.
        shared (int): bytes of shared memory in an SM.
        shared_rate (float | None): bytes per second that all SMs read from their shared memories.
    """

    name: str
    source: str
    mma: float | None
    load_global: float | None
    store_shared: float | None
    load_shared: float | None
    memory: float
    l2: float | None
    tensor: float
    simt: float | None
    shared: int
    shared_rate: float | None = None


def _turing(gpu: str) -> Costs:
    """A GPU of tables I to V. Both GPUs have the same cycles."""
    rates = published.table("000", "II", gpu)
    product = published.table("000", "I")["f16 f16 m16n8k8"]
    tensor = 1e12 * (rates["tensor cores"]["peak"] or 0)
    clocks = tensor / (2 * 4 * 1024) * (product["CPI theory"] or 0)  # of all SMs, a second
    return Costs(
        gpu,
        HGEMM,
        mma=product["CPI"],
        load_global=published.table("000", "III")["LDG L2"]["128"],
        store_shared=published.table("000", "IV")["STS"]["128"],
        load_shared=published.table("000", "IV")["LDS"]["32"],
        memory=1e9 * (rates["DRAM read"]["value"] or 0),
        l2=1e9 * (rates["L2 read"]["value"] or 0),
        tensor=tensor,
        simt=1e12 * (published.table("000", "figure 3", gpu)["FP16 units"]["peak"] or 0),
        shared=65536,
        shared_rate=clocks * (published.table("000", "V")["LDS"]["128"] or 0),
    )


TURING = tuple(_turing(gpu) for gpu in published.gpus("000", "II"))


def of_probe(results: dict[str, Any], name: str | None = None) -> Costs:
    """The costs that a result of `tcgemm probe` has: tcgemm.lab.probe.

    The cycles of an instruction are 4 FMA / rate, as an SM has four parts. The cycles of shared
    memory are what its pipe takes from many warps: since Ampere a lone warp does not fill it. The
    rates of memories are measured by reads, the rate of the tensor cores by the fastest product of
    float16. Shared memory has the clock that the tensor cores had then.

    ValueError: a record is missing.
    """
    header, records = results["header"], results["records"]
    gpu = name or header["gpu"].removeprefix("NVIDIA ")

    def find(row: str, key: str, **conditions: str | int) -> float:
        values = [
            record[key]
            for record in records
            if record["row"] == row
            and key in record
            and all(record.get(x) == y for x, y in conditions.items())
        ]
        if not values:
            raise ValueError(
                f"The probe of {gpu} has no record {row!r}; measure all of it: "
                "tcgemm probe all --json FILE."
            )
        return max(values)

    def pipe(row: str, size: int) -> float:
        """Cycles of an access of so many bytes a warp, at the best rate without conflicts."""
        return size / find(row, "rate", group="shared", factor=1)

    tensor = [
        record
        for record in records
        if record.get("tflops") and record["row"].split()[:3] in (["wgmma", *F16], ["mma", *F16])
    ]
    best = find("mma f16 f16 f16 m16n8k8", "rate", mode="one")
    if not tensor:
        raise ValueError(f"The probe of {gpu} has no rate of float16 products of all SMs.")
    fastest = max(tensor, key=lambda record: record["tflops"])
    shared_bytes = find("ld.shared.u128", "rate", group="shared", factor=1)  # a clock and SM
    return Costs(
        gpu,
        f"tcgemm probe, {header.get('date', '')[:10]}",
        mma=4 * 1024 / best,
        load_global=find("LDG L2 128", "cpi"),
        store_shared=pipe("st.shared.u128", 512),
        load_shared=pipe("ld.shared.u32", 128),
        memory=1e9 * find("DRAM read", "rate"),
        l2=1e9 * find("L2 read", "rate"),
        tensor=1e12 * fastest["tflops"],
        simt=None,
        shared=header["shared_bytes"],
        shared_rate=shared_bytes * header["processors"] * 1e6 * fastest["clock_mhz"],
    )


def all_costs() -> list[Costs]:
    """The published GPUs, and the GPUs of tcgemm.info.devices().

    Cycles come from stored results of the probe; a GPU that was not measured has none.
    """
    probed = store.results("probe")
    cards = [
        of_probe(results, row["name"])
        if (results := next((probed[gpu] for gpu in probed if row["name"] in gpu.split()), None))
        else Costs(
            row["name"],
            "tcgemm.info.devices()",
            None,
            None,
            None,
            None,
            memory=row["memory_rate"],
            l2=None,
            tensor=row["tensor_rate"],
            simt=None,
            shared=row["shared_bytes"],
        )
        for row in info.devices()
    ]
    return [*TURING, *cards]


def here() -> Costs:
    """The costs of this machine's GPU if a probe of it is stored, else of an RTX 2070."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    results = store.results("probe").get(gpu) if gpu else None
    return TURING[0] if results is None else of_probe(results)


def costs(name: str) -> Costs:
    """The costs of a GPU by its name, or those in a JSON file.

    The file has the attributes of Costs, or is a result of the probe.

    ValueError: there is no such GPU or file, or the file has no costs.
    """
    by_name = {gpu.name.lower().replace(" ", ""): gpu for gpu in all_costs()}
    key = name.lower().replace(" ", "")
    if key in by_name:
        return by_name[key]
    path = Path(name)
    if not path.is_file():
        names = ", ".join(gpu.name for gpu in all_costs())
        raise ValueError(
            f"{name!r} is no GPU and no file; expected a JSON file, or one of {names}."
        )
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{name} is no JSON file: {error}. {EXAMPLE}") from None
    if isinstance(content, dict) and {"header", "records"} <= set(content):
        return _of_probe_file(content, name)
    return _of_file(content, name)


def _of_probe_file(content: dict[str, Any], name: str) -> Costs:
    try:
        return _checked(asdict(of_probe(content)), name)
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"{name} has a header and records, but not the probe's ({error!r}); measure "
            "them again: tcgemm probe all --json FILE."
        ) from None


def _of_file(content: Any, name: str) -> Costs:
    names = {field.name: field.default for field in fields(Costs)}
    required = {key for key, default in names.items() if default is MISSING}
    keys = set(content) if isinstance(content, dict) else set()
    errors = sorted((required - keys) | (keys - set(names)))
    if errors:
        raise ValueError(
            f"{name} has to be a JSON object with {', '.join(names)}; wrong or missing: "
            f"{', '.join(errors)}. {EXAMPLE}"
        )
    return _checked(content, name)


def _checked(content: dict[str, Any], name: str) -> Costs:
    """The costs of a file; ValueError names one that is no positive number."""
    for field in fields(Costs):
        value = content.get(field.name, field.default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if field.type == "str":
            is_right, expected = isinstance(value, str), "a text"
        elif "None" in str(field.type):
            is_right, expected = is_number or value is None, "a positive number or null"
        else:
            is_right, expected = is_number, "a positive number"
        if not is_right:
            raise ValueError(
                f"{name} has {field.name} = {json.dumps(value)}; expected {expected}. {EXAMPLE}"
            )
    return Costs(**content)


def example() -> str:
    """A file of costs, as JSON."""
    return json.dumps(asdict(TURING[0]), indent=1)
