"""A GPU for tests of the probe without one: ptxas compiles its kernels, and clocks are a model's.

The SASS is real. A launch writes the clocks of four parts of an SM, each of which has one pipe, and
the clocks of one pipe for shared memory.
"""

import re
import types

import torch

from tcgemm import _driver
from tcgemm.lab.model import banks
from tcgemm.lab.probe import kernels_memory, rows, sass, session
from tcgemm.measure import timing
from tcgemm.numerics import device

LATENCY = 33.0  # clocks of a product
CYCLES = 8.0  # of a product in one part of an SM
MHZ = 1500


class FakeGpu:
    """The driver's functions, and what the last launch was."""

    def __init__(self, arch):
        self.arch, self.launches, self.scale = arch, 0, 1.0
        self.addresses = None
        self.chip_ms = 1.0

    def load(self, image):
        return image

    def assembled(self, text, target):
        return sass.assemble(text, target)[0]

    def function(self, module, name):
        return name

    def properties(self, entry):
        return _driver.Properties(1024, 64, 0)

    def events_us(self, work):
        self.chip_ms = 0.25
        work()
        return 1e3 * self.chip_ms

    def launch(self, entry, grid, block, arguments, shared=0):
        self.launches += 1
        if entry in kernels_memory.MOVERS:
            return
        times, bodies = arguments[0], arguments[3]
        warps = block // 32
        if entry.startswith("cpi"):
            count = int(entry.split("_")[-1])
            width = int(entry.split("_")[-2])
            cycles = width // 32 * count
            times.view(-1)[:4] = torch.tensor([100, 100 + cycles, 100, 130 + cycles])
            return
        clocks = round(self.body(entry, warps, arguments[1]) * bodies * self.scale)
        flat = times.flatten()[: grid * warps * 2].view(grid, warps, 2)
        flat[..., 0] = 1000
        flat[..., 1] = 1000 + clocks
        self.chip_ms = clocks / MHZ / 1e3

    def body(self, entry, warps, data):
        if match := re.fullmatch(r"(c|a0|a1)(\d)", entry):
            return max(LATENCY, CYCLES * int(match[2]) * -(-warps // 4))
        if match := re.fullmatch(r"(rs|ss)_(\d+)_(\d+)", entry):
            n, depth = int(match[2]), int(match[3])
            return max(60 + n / 2 * depth, warps // 4 * n / 2 * depth)
        name, ilp = entry.rsplit("_", 1)
        name = next(x for x in kernels_memory.ACCESSES if x.replace(".", "_") == name)
        access = kernels_memory.ACCESSES[name]
        table = data[: access.lanes].tolist()
        cycles = banks.cycles(table, access.width)
        return max(22 + 2 * (cycles - 1), warps * int(ilp) * cycles)

    def install(self, monkeypatch):
        """Replaces the driver and torch.cuda by this GPU."""
        names = ("load", "assembled", "function", "properties", "launch")
        for name in names:
            monkeypatch.setattr(_driver, name, getattr(self, name))
        monkeypatch.setattr(timing, "events_us", self.events_us)
        monkeypatch.setattr(_driver, "unload", lambda module: None)
        monkeypatch.setattr(_driver, "allow_shared", lambda entry, size: None)
        monkeypatch.setattr(_driver, "target", lambda: rows.TARGETS[self.arch])
        monkeypatch.setattr(session, "DEVICE", "cpu")
        monkeypatch.setattr(device, "DEVICE", "cpu")
        capability = {"Ampere": (8, 0), "Ada": (8, 9), "Hopper": (9, 0)}[self.arch]
        properties = types.SimpleNamespace(
            multi_processor_count=4,
            L2_cache_size=1 << 20,
            shared_memory_per_multiprocessor=228 * 1024,
            major=capability[0],
            minor=capability[1],
        )
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda *_: properties)
        monkeypatch.setattr("tcgemm.lab.probe.bandwidth.LEAST", 1 << 20)
        header = {"gpu": f"a fake {self.arch}", "clocks": {"sm_max_mhz": 1600.0}}
        monkeypatch.setattr("tcgemm.lab.probe.measure.facts", lambda _: dict(header))
        return self
