"""The GPU of a probe: buffers for operands and times, compiled modules, and their launches."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from tcgemm import _driver
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import rows, sass
from tcgemm.lab.probe.kernels_mma import CELL
from tcgemm.measure import timing

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from torch import Tensor

    from tcgemm.emulate.table import Instruction

Found = TypeVar("Found")

CELLS = 257  # registers in the buffer of operands; the first has the metadata
METADATA = 0x44444444  # the first two of each four; of TF32 the first of each two
MOST_WARPS = 32
DEVICE = "cuda"
DISASSEMBLERS = 8  # nvdisasm takes up to half a second to start
LAUNCHES = 2  # of a cell; the first one loads the instructions


class Timed(NamedTuple):
    """A launch: clocks from the first warp's start to the last one's stop, and its time."""

    cycles: int
    ms: float


class Session:
    """The current GPU; ValueError if its instructions are not known.

    Attributes:
        arch (str): "Ampere", "Ada" or "Hopper".
        target (str): of its PTX text.
        processors (int): its SMs.
        has_peaks (bool): the peaks of its architecture are its own.
    """

    def __init__(self) -> None:
        self.arch: str = rows.arch_of(torch.cuda.get_device_capability())
        capability = torch.cuda.get_device_capability()
        self.has_peaks: bool = capability in ((8, 0), (9, 0))
        self.target: str = _driver.target()
        self.processors: int = torch.cuda.get_device_properties().multi_processor_count
        self.data: Tensor = torch.zeros(CELLS * CELL // 4, dtype=torch.int32, device=DEVICE)
        self.sink: Tensor = torch.zeros_like(self.data)
        times = (64, self.processors, MOST_WARPS, 2)
        self.times: Tensor = torch.zeros(times, dtype=torch.int64, device=DEVICE)
        self.threads: ThreadPoolExecutor = ThreadPoolExecutor(DISASSEMBLERS)

    def fill(self, mma: Instruction) -> None:
        """Random operands of the types of an instruction, and the metadata before them."""
        size = self.data.numel() * 4
        dtype = {"tf32": torch.float32}.get(mma.input) or TORCH.get(mma.input, torch.int8)
        generator = torch.Generator(DEVICE).manual_seed(0)
        if dtype.is_floating_point:
            values = torch.randn(size // dtype.itemsize, device=DEVICE, generator=generator)
            bits = values.to(dtype).view(torch.int32)
        else:
            options = {"dtype": torch.int32, "generator": generator}
            bits = torch.randint(-(2**31), 2**31 - 1, (size // 4,), device=DEVICE, **options)
        self.data.copy_(bits)
        self.data[: CELL // 4] = METADATA

    def write(self, words: Tensor) -> None:
        """Puts words at the start of the buffer of operands."""
        self.data[: words.numel()] = words.to(device=DEVICE, dtype=torch.int32)

    def module(self, text: str) -> Module:
        """Compiles a module; the driver does it, and a thread reads its cubin by nvdisasm.

        RuntimeError: the driver refuses the text.
        """
        cubin = None
        try:
            cubin = _driver.assembled(text, self.target)
            module = _driver.load(cubin)
        except RuntimeError:  # the driver's linker does not take every target; loading text does
            cubin = None
            module = _driver.load(text.encode())
        code = None if cubin is None else self.threads.submit(sass.disassemble, cubin)
        return Module(self, module, code)


@dataclass
class Module:
    """A loaded module of a session."""

    session: Session
    handle: ctypes.c_void_p
    machine_code: Future[str | None] | None  # None: the cubin is not known

    def loop(self, entry: str) -> Counter[str] | None:
        """The opcodes of an entry's loop, or None where nvdisasm or the cubin does not show it."""
        return self._read(sass.loop, entry)

    def between_clocks(self, entry: str) -> Counter[str] | None:
        """The opcodes between an entry's first two reads of the clock, or None."""
        opcodes = self._read(sass.between_clocks, entry)
        return None if opcodes is None else Counter(opcodes)

    def _read(self, reader: Callable[[str, str], Found], entry: str) -> Found | None:
        text = None if self.machine_code is None else self.machine_code.result()
        try:
            return reader(text, entry) if text else None
        except ValueError:
            return None

    def launch(
        self, entry: str, warps: int, bodies: int, cell: int = 0, blocks: int = 1, shared: int = 0
    ) -> bool:
        """Launches an entry that writes its clocks into a cell; False if the block does not fit."""
        function = _driver.function(self.handle, entry)
        properties = _driver.properties(function)
        if properties.threads < 32 * warps or properties.local_bytes:
            return False
        if shared > 48 * 1024:
            _driver.allow_shared(function, shared)
        of = self.session
        arguments = (of.times[cell], of.data, of.sink, bodies, 0)
        for _ in range(LAUNCHES if blocks == 1 else 1):
            _driver.launch(function, blocks, 32 * warps, arguments, shared)
        return True

    def cycles(self, cell: int, warps: int, blocks: int = 1) -> int:
        """Clocks of a cell: the largest of its blocks."""
        of = self.session.times[cell].flatten()[: blocks * warps * 2].view(blocks, warps, 2).cpu()
        return int((of[..., 1].amax(1) - of[..., 0].amin(1)).max())

    def chip(self, entry: str, warps: int, bodies: int, shared: int = 0) -> Timed | None:
        """The entry on all SMs, timed by events, after a first launch."""
        blocks = self.session.processors
        if not self.launch(entry, warps, bodies, blocks=blocks, shared=shared):
            return None
        us = timing.events_us(
            lambda: self.launch(entry, warps, bodies, blocks=blocks, shared=shared)
        )
        return Timed(self.cycles(0, warps, blocks), us / 1e3)

    def grid(
        self, grid: Sequence[tuple[str, int, int]], bodies: int, shared: int = 0
    ) -> list[int | None]:
        """The clocks of each (entry, warps, cell); None where the block does not fit."""
        fits = [
            self.launch(entry, warps, bodies, cell, shared=shared) for entry, warps, cell in grid
        ]
        times = self.session.times[:, 0].cpu()
        clocks: list[int | None] = []
        for (_, warps, cell), fit in zip(grid, fits, strict=True):
            of = self.session.times.shape[2]
            pairs = times[cell][: min(warps, of)]
            clocks.append(int(pairs[:, 1].max() - pairs[:, 0].min()) if fit else None)
        return clocks

    def close(self) -> None:
        """Frees the module; its launches are done, since their clocks have been read."""
        _driver.unload(self.handle)
