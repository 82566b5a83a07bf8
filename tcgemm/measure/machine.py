"""The machine and the software that a measurement belongs to: the head of a file of results."""

import contextlib
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import torch

from tcgemm import info
from tcgemm.version import __version__

# Field -> nvidia-smi's name of it. The clocks are in MHz, the limit is in W.
QUERY = {
    "sm_max_mhz": "clocks.max.sm",
    "memory_max_mhz": "clocks.max.memory",
    "power_limit_w": "power.limit",
}


def gpu_name(device: torch.device | str) -> str:
    """The driver's name of the GPU, or "cpu"."""
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def known_gpu(device: torch.device | str) -> dict[str, Any] | None:
    """What the planner's table of GPUs has of this one; None if it is not in the table."""
    properties = torch.cuda.get_device_properties(device)
    capability = 10 * properties.major + properties.minor
    return info.known_device(properties.name, capability, properties.multi_processor_count)


def current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """A block in which this device is torch's current one."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def now() -> str:
    """The time in UTC, to the second: "2026-05-04T03:02:01+00:00"."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def facts(device: torch.device | str) -> dict[str, Any]:
    """The conditions that all rows of a run share: GPU, driver, versions, date, and the largest
    `clocks` in MHz with the power limit in W. Without nvidia-smi, driver and clocks are None."""
    driver, clocks = _driver(device) if torch.device(device).type == "cuda" else (None, None)
    return {
        "gpu": gpu_name(device),
        "driver": driver,
        "clocks": clocks,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "tcgemm": __version__,
        "python": platform.python_version(),
        "processor": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "date": now(),
    }


def nvidia_smi(device: torch.device | str, fields: Iterable[str]) -> list[str]:
    """The call of nvidia-smi that prints these fields of a GPU. torch numbers the visible GPUs and
    nvidia-smi all of them, so the UUID names it."""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    selection = [f"--id=GPU-{uuid}"] if uuid else []
    query = f"--query-gpu={','.join(fields)}"
    return ["nvidia-smi", *selection, query, "--format=csv,noheader,nounits"]


def _driver(device: torch.device | str) -> tuple[str | None, dict[str, float] | None]:
    """(the driver's version, the clocks) of a GPU, from nvidia-smi."""
    query = nvidia_smi(device, ("driver_version", *QUERY.values()))
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout
        driver, *values = (part.strip() for part in answer.splitlines()[0].split(","))
        pairs = zip(QUERY, values, strict=False)
        return driver, {name: float(x) for name, x in pairs if x.replace(".", "", 1).isdigit()}
    return None, None
