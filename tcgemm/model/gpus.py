"""What the models need to know of a GPU: cycles of instructions, and rates.

An RTX 2070 and a T4 have the figures of Yan, Wang and Chu, tables I to V (tcgemm.published).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tcgemm import info, published

HGEMM = published.DOCUMENTS["000"].short


@dataclass(frozen=True)
class Costs:
    """The costs of a GPU. Cycles are those from one warp's instruction to its next (CPI).

    Attributes:
        name (str): of the GPU.
        source (str): where the numbers come from.
        mma (float | None): cycles of an HMMA.1688 in one of an SM's four parts.
        load_global (float | None): cycles of a 16-byte load a lane from L2 (LDG.128).
        store_shared (float | None): cycles of a 16-byte store a lane (STS.128).
        load_shared (float | None): cycles of a 4-byte load a lane (LDS.32).
        memory (float): bytes per second of device memory.
        l2 (float | None): bytes per second of L2.
        tensor (float): operations per second of the tensor cores; a product and a sum are two.
        simt (float | None): the same of the float16 units.
        shared (int): bytes of shared memory in an SM.
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


def _turing(gpu: str) -> Costs:
    """A GPU of tables I to V. The cycles are those of both GPUs."""
    rates = published.table("000", "II", gpu)
    return Costs(
        gpu,
        HGEMM,
        mma=published.table("000", "I")["f16 f16 m16n8k8"]["CPI"],
        load_global=published.table("000", "III")["LDG L2"]["128"],
        store_shared=published.table("000", "IV")["STS"]["128"],
        load_shared=published.table("000", "IV")["LDS"]["32"],
        memory=1e9 * (rates["DRAM read"]["value"] or 0),
        l2=1e9 * (rates["L2 read"]["value"] or 0),
        tensor=1e12 * (rates["tensor cores"]["peak"] or 0),
        simt=1e12 * (published.table("000", "figure 3", gpu)["FP16 units"]["peak"] or 0),
        shared=65536,
    )


TURING = tuple(_turing(gpu) for gpu in published.gpus("000", "II"))


def known() -> list[Costs]:
    """The published GPUs, and those of tcgemm.info.devices(), whose cycles nobody measured yet."""
    others = [
        Costs(
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
    return [*TURING, *others]


def costs(name: str) -> Costs:
    """The costs of a GPU by its name, or those in a JSON file with the attributes of Costs."""
    found = {each.name.lower().replace(" ", ""): each for each in known()}
    key = name.lower().replace(" ", "")
    if key in found:
        return found[key]
    path = Path(name)
    if not path.is_file():
        names = ", ".join(each.name for each in known())
        raise ValueError(
            f"{name!r} is no GPU and no file; expected a JSON file, or one of {names}."
        )
    given = json.loads(path.read_text())
    wanted = [field.name for field in fields(Costs)]
    wrong = sorted(set(wanted) ^ set(given)) if isinstance(given, dict) else wanted
    if wrong:
        raise ValueError(
            f"{name} has to be a JSON object with {', '.join(wanted)}; wrong or missing: "
            f"{', '.join(wrong)}. `python -m tcgemm model example` prints one."
        )
    return Costs(**given)


def example() -> str:
    """A file of costs, as JSON."""
    return json.dumps(asdict(TURING[0]), indent=1)
