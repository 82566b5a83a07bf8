"""Runs the probe on the GPU of this machine, and keeps its records in a file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.lab import progress, store
from tcgemm.lab.probe import rows
from tcgemm.lab.probe.groups import GROUPS, ILPS, WARPS, Options
from tcgemm.lab.probe.kernels_mma import CHAINS
from tcgemm.lab.probe.session import Session
from tcgemm.measure.command_line import Interrupted
from tcgemm.measure.machine import facts
from tcgemm.measure.results import commit, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    Results = dict[str, Any]

ALL = "all"
SAVE_SECONDS = 5.0  # the file has a megabyte, and is written as a whole
SHARED = ("ptx", "sass", "instructions", "native", "unit", "peak")


def run(
    groups: str | Sequence[str] = ALL,
    *,
    row: str | None = None,
    warps: Sequence[int] = WARPS,
    ilp: Sequence[int] = ILPS,
    chain: Sequence[str] = CHAINS,
    path: str | Path | None = None,
    resume: bool = False,
) -> Results:
    """Measures this GPU's tensor-core and memory instructions.

    Example:
        >>> from tcgemm.lab import probe
        >>> probe.run("mma", row="f16")["records"][0]["sass"]  # doctest: +SKIP
        {'HMMA.16816.F32': 1}

    Arguments:
        groups: "mma", "sparse", "wgmma", "wmma", "ldmatrix", "shared", "global", "bandwidth",
            "layout" or several of them; "all" is everything that this GPU has.
        row: a type of a such as "f16", a shape such as "m16n8k16" or a name of an instruction;
            None measures all instructions whose a and b have one type.
        warps: of a block, each from 1 to 32.
        ilp: independent instructions of a warp, each from 1 to 8.
        chain: "c" adds to the result; "a0" and "a1" multiply its first or second register again.
        path: a JSON file, written every few seconds and at the end.
        resume: keep the records of the file and measure the others.

    Returns:
        The header, which has the GPU, driver and versions, and the list of records.

    Raises:
        ValueError: There is no GPU, group, row or number like that, or the file to resume is
            another GPU's or has other warps, ilp or chain.
        RuntimeError: The driver does not compile a kernel.
        KeyboardInterrupt: Ctrl-C. Its attribute `result` has the records so far.
    """
    names = check_groups(groups)
    options = Options(row, check_numbers("warps", warps, 32), check_numbers("ilp", ilp, 8), ())
    options = options._replace(chains=check_chains(chain))
    if not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA GPU.")
    session = Session()
    pairs = plan(session.arch, names, options)
    results = _start(path, resume, options)
    keys = {(record["group"], record.get("base", record["row"])) for record in results["records"]}
    remainder = [(group, name) for group, name in pairs if (group, name) not in keys]
    save_time = time.monotonic()
    try:
        with progress.bar(len(remainder), "probe", "row") as bar:
            for group, name in remainder:
                with torch.inference_mode():
                    results["records"] += list(GROUPS[group].measure(session, name, options))
                if path is not None and time.monotonic() - save_time > SAVE_SECONDS:
                    save(results, Path(path))
                    save_time = time.monotonic()
                if bar is not None:
                    bar.set_postfix_str(name)
                    bar.update()
    except KeyboardInterrupt as error:
        raise Interrupted(results) from error
    finally:  # an interrupted run keeps all rows that it has measured
        if path is not None:
            save(results, Path(path))
    return results


def check_groups(groups: str | Sequence[str]) -> list[str]:
    """The groups in order; ValueError names one that there is not."""
    names = [groups] if isinstance(groups, str) else list(groups)
    for name in names:
        if name != ALL and name not in GROUPS:
            raise ValueError(f"group is {name!r}; expected one of {', '.join((*GROUPS, ALL))}.")
    return [group for group in GROUPS if group in names or ALL in names or not names]


def check_numbers(name: str, numbers: Sequence[int], most: int) -> tuple[int, ...]:
    """The numbers in order; ValueError names one out of range."""
    for number in numbers:
        if not isinstance(number, int) or not 1 <= number <= most:
            raise ValueError(f"{name} has {number!r}; expected integers from 1 to {most}.")
    if not numbers:
        raise ValueError(f"{name} is empty; expected integers from 1 to {most}.")
    return tuple(sorted(set(numbers)))


def check_chains(chains: Sequence[str]) -> tuple[str, ...]:
    """The chains; ValueError names one that there is not."""
    names = (chains,) if isinstance(chains, str) else tuple(chains)
    for name in names:
        if name not in CHAINS:
            raise ValueError(f"chain is {name!r}; expected one of {', '.join(CHAINS)}.")
    return names


def plan(arch: str, groups: Sequence[str], options: Options) -> list[tuple[str, str]]:
    """(group, row) of what would be measured; ValueError if that is nothing."""
    pairs, complaints = [], []
    for group in groups:
        try:
            names = GROUPS[group].names(arch, options)
            if options.row and group in ("global", "bandwidth", "ldmatrix", "shared"):
                names = [name for name in names if options.row in name]
        except ValueError as error:
            complaints.append(str(error))
            names = []
        pairs += [(group, name) for name in names]
    if not pairs:
        raise ValueError(
            complaints[0]
            if complaints
            else f"{arch} has nothing to measure in {', '.join(groups)} for row {options.row!r}."
        )
    return pairs


def narrow(results: Results, groups: Sequence[str], row: str) -> Results:
    """Stored results with the records of one row alone; ValueError where there are none."""
    options = Options(row)
    arch = results["header"]["arch"]
    pairs = set(plan(arch, groups, options))
    records = [
        record
        for record in results["records"]
        if (record["group"], record.get("base", record["row"])) in pairs
    ]
    if not records:
        raise ValueError(
            f"The stored results of {results['header']['gpu']} have no record of row {row!r} in "
            f"{', '.join(groups)}; they have the rows of tcgemm probe --stored FILE."
        )
    return results | {"records": records}


def _start(path: str | Path | None, resume: bool, options: Options) -> dict[str, Any]:
    header: dict[str, Any] = facts("cuda") | {"commit": commit()}
    gpu = torch.cuda.get_device_properties()
    header |= {
        "arch": rows.arch_of((gpu.major, gpu.minor)),
        "capability": f"{gpu.major}.{gpu.minor}",
        "processors": gpu.multi_processor_count,
        "l2_bytes": gpu.L2_cache_size,
        "shared_bytes": gpu.shared_memory_per_multiprocessor,
        "options": {  # on which the records of a row depend
            "warps": list(options.warps),
            "ilp": list(options.ilps),
            "chain": sorted(options.chains),
        },
    }
    old = store.to_resume(path, resume, header["gpu"], load)
    if old is None:
        return {"header": header, "records": []}
    before = old["header"]["options"]
    for name, value in header["options"].items():
        if before[name] != value:
            raise ValueError(
                f"{name} is {_listed(value)}, but {path} was measured with "
                f"{_listed(before[name])}; resume with these, or name another file."
            )
    return {"header": header, "records": old["records"]}


def _listed(values: Sequence[Any]) -> str:
    return ",".join(map(str, values))


def load(path: Path) -> dict[str, Any]:
    """The results of a file; ValueError if it has none."""
    try:
        results = json.loads(path.read_text())
        if isinstance(results["header"]["gpu"], str) and isinstance(results["records"], list):
            return expand(results)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no result of the probe: tcgemm probe all --json FILE.")


def expand(content: dict[str, Any]) -> dict[str, Any]:
    """The results of a file's object: each record gets the fields that its row has once."""
    common = content.get("rows", {})
    records = [common.get(_row(record), {}) | record for record in content["records"]]
    return {"header": content["header"], "records": records}


def _row(record: dict[str, Any]) -> str:
    return f"{record['group']}: {record['row']}"


def save(results: dict[str, Any], path: Path) -> None:
    """Writes a file with one record a line, or leaves the old one.

    Fields that all records of a row share stand once, in "rows".
    """
    common: dict[str, dict[str, Any]] = {}
    for record in results["records"]:
        fields = {key: record[key] for key in SHARED if key in record}
        shared = common.setdefault(_row(record), fields)
        common[_row(record)] = {k: v for k, v in shared.items() if k in record and record[k] == v}
    records = []
    for record in results["records"]:
        own_fields = {k: _short(v) for k, v in record.items() if k not in common[_row(record)]}
        records.append({k: v for k, v in own_fields.items() if (k, v) != ("clock_mhz", None)})
    content = {"header": results["header"], "rows": common, "records": records}
    write(path, content)


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
