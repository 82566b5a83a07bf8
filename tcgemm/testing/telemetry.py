"""Clock and power of the GPU, sampled by a thread while a measurement runs.

A tensor-core product at full rate is limited by power: the clock that a figure was taken at is
part of the figure. NVML is read where its Python module (nvidia-ml-py) is installed, nvidia-smi
elsewhere; with neither, and on the CPU, both readings are None. Nothing is ever set, only read.
"""

import contextlib
import shutil
import statistics
import subprocess
import threading

import torch

PERIOD = 0.02  # seconds between two samples
QUERY = "--query-gpu=clocks.sm,power.draw"


class _Nvml:
    """Reads (MHz, W) of one GPU through NVML."""

    def __init__(self, device):
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        # torch counts the visible devices, NVML all of them: the UUID names the same one to both.
        uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except Exception:  # an old module wants bytes, an old torch knows no UUID
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(torch.device(device).index or 0)
        self.read()  # a driver that refuses shows it here, before a thread depends on it

    def read(self):
        clock = self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM)
        return float(clock), self._power()

    def _power(self):
        # The plain reading is an average over a second on Hopper, longer than a measurement.
        field = getattr(self.nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        if field is not None:
            with contextlib.suppress(Exception):
                value = self.nvml.nvmlDeviceGetFieldValues(self.handle, [field])[0]
                if value.nvmlReturn == 0 and value.value.uiVal:
                    return value.value.uiVal / 1000.0
        return self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1000.0


class _Smi:
    """Reads (MHz, W) by running nvidia-smi once a sample: coarse, but there with any driver."""

    def __init__(self, device):
        if not shutil.which("nvidia-smi"):
            raise FileNotFoundError("nvidia-smi")
        uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
        chosen = [f"--id=GPU-{uuid}"] if uuid else []
        self.command = ["nvidia-smi", *chosen, QUERY, "--format=csv,noheader,nounits"]
        self.read()

    def read(self):
        answer = subprocess.run(
            self.command, capture_output=True, text=True, timeout=10, check=True
        ).stdout
        clock, power = answer.strip().splitlines()[0].split(",")
        return float(clock), float(power)


def open_reader(device):
    """The reader that works here, or None."""
    if torch.device(device).type != "cuda":
        return None
    for reader in (_Nvml, _Smi):
        # A reading is a convenience: whatever keeps it from working must not stop a benchmark.
        with contextlib.suppress(Exception):
            return reader(device)
    return None


class Sampler:
    """`with Sampler(reader) as sampler:` ... then its clock_mhz and power_w are medians."""

    def __init__(self, reader, period=PERIOD):
        self.reader = reader
        self.period = period
        self.samples = []
        self._stop = threading.Event()
        self._thread = None

    def __enter__(self):
        if self.reader is not None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exception):
        if self._thread is not None:
            self._stop.set()
            self._thread.join()

    def _run(self):
        while not self._stop.wait(self.period):
            try:
                self.samples.append(self.reader.read())
            except Exception:  # the same reason as in open_reader: no reading, no entry
                return

    def _median(self, column):
        values = [sample[column] for sample in self.samples]
        return round(statistics.median(values), 1) if values else None

    @property
    def clock_mhz(self):
        return self._median(0)

    @property
    def power_w(self):
        return self._median(1)
