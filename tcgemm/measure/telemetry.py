"""Clock and power of the GPU, which nvidia-smi samples while a measurement runs.

A GEMM at full rate is limited by power, so a time needs the clock at which it was measured. Without
nvidia-smi, and on the CPU, both are None. This module never changes a setting.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess

import torch

from tcgemm.measure import machine

PERIOD = 20  # milliseconds between two samples
# On Hopper, power.draw is an average over a second, which is longer than a measurement.
FIELDS = ("clocks.sm", "power.draw.instant")


class Sampler:
    """Samples clock and power of a device within a `with` block.

    clock_mhz and power_w are the medians, the SM clock in MHz and the power in W.

    Example:
        >>> from tcgemm.measure import telemetry
        >>> with telemetry.Sampler("cpu") as sampler:
        ...     sum(range(1000))
        499500
        >>> print(sampler.clock_mhz)
        None
    """

    device: torch.device
    clock_mhz: float | None = None
    power_w: float | None = None

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        """The call of nvidia-smi for this device."""
        return [*machine.nvidia_smi(self.device, FIELDS), f"-lms={PERIOD}"]

    def __enter__(self) -> Sampler:
        if self.device.type == "cuda":
            with contextlib.suppress(OSError):  # a benchmark does not fail because a reading does
                self._process = subprocess.Popen(
                    self.command(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        samples: list[list[float]] = []
        for line in self._process.communicate()[0].splitlines():
            with contextlib.suppress(ValueError):  # "[N/A]", or half a line at the end
                clock, power = map(float, line.split(","))
                samples.append([clock, power])
        if samples:
            medians = (statistics.median(values) for values in zip(*samples, strict=True))
            self.clock_mhz, self.power_w = (round(value, 1) for value in medians)

    def fields(self) -> dict[str, float | None]:
        """The fields of a row: clock_mhz and power_w."""
        return {"clock_mhz": self.clock_mhz, "power_w": self.power_w}
