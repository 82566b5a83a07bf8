"""Clock and power of the GPU, sampled by a thread while a measurement runs.

A GEMM at full rate is limited by power, so a time needs the clock at which it was measured. The
readings come from NVML if its Python module (nvidia-ml-py) is installed, else from nvidia-smi.
Without both, and on the CPU, they are None. This module never changes a setting.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import threading
from typing import Protocol

import torch

PERIOD = 0.02  # seconds between two samples
QUERY = "--query-gpu=clocks.sm,power.draw"


class Reader(Protocol):
    """An object that reads clock and power of one GPU."""

    def read(self) -> tuple[float, float]:
        """The SM clock in MHz and the power in W."""
        ...


class _Nvml:
    """Reads (MHz, W) of one GPU through NVML."""

    def __init__(self, device: torch.device | str) -> None:
        import pynvml  # pyright: ignore[reportMissingImports]

        pynvml.nvmlInit()
        self.nvml = pynvml
        # torch numbers the visible devices and NVML all of them, so the device is found by UUID.
        uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except Exception:  # an old module takes bytes, an old torch has no UUID
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(torch.device(device).index or 0)
        self.read()  # if the driver refuses, it does so here and not in the thread

    def read(self) -> tuple[float, float]:
        clock = self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM)
        return float(clock), self._power()

    def _power(self) -> float:
        # On Hopper, the plain reading is an average over a second, longer than a measurement.
        field = getattr(self.nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        if field is not None:
            with contextlib.suppress(Exception):
                value = self.nvml.nvmlDeviceGetFieldValues(self.handle, [field])[0]
                if value.nvmlReturn == 0 and value.value.uiVal:
                    return value.value.uiVal / 1000.0
        return self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1000.0


class _Smi:
    """Reads (MHz, W) by running nvidia-smi for each sample: slow, but part of every driver."""

    def __init__(self, device: torch.device | str) -> None:
        if not shutil.which("nvidia-smi"):
            raise FileNotFoundError("nvidia-smi")
        uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
        selection = [f"--id=GPU-{uuid}"] if uuid else []
        self.command = ["nvidia-smi", *selection, QUERY, "--format=csv,noheader,nounits"]
        self.read()

    def read(self) -> tuple[float, float]:
        answer = subprocess.run(
            self.command, capture_output=True, text=True, timeout=10, check=True
        ).stdout
        clock, power = answer.strip().splitlines()[0].split(",")
        return float(clock), float(power)


def open_reader(device: torch.device | str) -> Reader | None:
    """The first reader that works for this device, or None."""
    if torch.device(device).type != "cuda":
        return None
    for reader in (_Nvml, _Smi):
        # A benchmark must not fail because a reading does.
        with contextlib.suppress(Exception):
            return reader(device)
    return None


class Sampler:
    """Samples clock and power within a `with` block; clock_mhz and power_w are the medians.

    Example:
        >>> from tcgemm.measure import telemetry
        >>> with telemetry.Sampler(telemetry.open_reader("cpu")) as sampler:
        ...     sum(range(1000))
        499500
        >>> print(sampler.clock_mhz)
        None

    A reader of None samples nothing. `period` is the time between two samples in seconds.
    """

    reader: Reader | None
    period: float
    samples: list[tuple[float, float]]

    def __init__(self, reader: Reader | None, period: float = PERIOD) -> None:
        self.reader = reader
        self.period = period
        self.samples = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        if self.reader is not None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        while self.reader is not None and not self._stop.wait(self.period):
            try:
                self.samples.append(self.reader.read())
            except Exception:  # a benchmark must not fail because a reading does
                return

    def _median(self, column: int) -> float | None:
        values = [sample[column] for sample in self.samples]
        return round(statistics.median(values), 1) if values else None

    @property
    def clock_mhz(self) -> float | None:
        """The median of the SM clock in MHz; None without samples."""
        return self._median(0)

    @property
    def power_w(self) -> float | None:
        """The median of the power in W; None without samples."""
        return self._median(1)
