"""The CUDA driver, by ctypes: it compiles PTX text, and launches the kernels of the result.

NVML, which comes with the driver, says what it is and which GPUs there are.

A context is torch's, which a tensor on the GPU creates. Errors have the words of the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

VERSION = "8.7"  # of the PTX text, from CUDA 12.8
# Of CUfunction_attribute and CUjit_option.
_MAX_THREADS, _LOCAL_BYTES, _REGISTERS, _DYNAMIC_SHARED = 0, 3, 4, 8
_ERROR_LOG, _ERROR_LOG_BYTES, _TARGET = 5, 6, 9
_PTX = 1  # CU_JIT_INPUT_PTX
_ACCELERATED = 0x10000  # CU_COMPUTE_ACCELERATED_TARGET_BASE, of the targets with an "a"


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def _management() -> ctypes.CDLL | None:
    """NVML, initialised; None where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


@functools.cache
def release() -> str:
    """The release of the driver: "570.86.15"; without NVML the CUDA version that it supports.

    "" without a driver. It does not start CUDA.
    """
    text, version = ctypes.create_string_buffer(96), ctypes.c_int()
    management = _management()
    if management is not None and management.nvmlSystemGetDriverVersion(text, len(text)) == 0:
        return text.value.decode(errors="replace")
    with contextlib.suppress(OSError, RuntimeError):
        call("cuDriverGetVersion", ctypes.byref(version))
        return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return ""


def gpu_names() -> list[str]:
    """The names of this machine's GPUs, by NVML, without a start of CUDA. Each stands once."""
    management, count = _management(), ctypes.c_uint()
    names: dict[str, None] = {}
    if management is None or management.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if management.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        if management.nvmlDeviceGetName(handle, text, len(text)) == 0:
            names[text.value.decode(errors="replace")] = None
    return list(names)


def call(name: str, *arguments: object) -> None:
    """Calls a function of the driver; RuntimeError says what failed."""
    status = getattr(_library(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(status, ctypes.byref(text))
        reason = (text.value or b"unknown").decode()
        raise RuntimeError(f"{name} of the CUDA driver failed: {reason} ({status}).")


def target() -> str:
    """The target of PTX text for the GPU of this machine: "sm_90a" of an H100."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if (major, minor) == (9, 0) else ''}"


def head(of: str) -> str:
    """The first lines of PTX text for a target."""
    return f".version {VERSION}\n.target {of}\n.address_size 64\n"


def load(image: bytes) -> ctypes.c_void_p:
    """A module from PTX text or from a cubin, in the context that torch has made current."""
    torch.zeros(1, device="cuda")
    module = ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), image)
    return module


def unload(module: ctypes.c_void_p) -> None:
    """Frees a module."""
    call("cuModuleUnload", module)


def function(module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
    """An entry of a module."""
    entry = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(entry), module, name.encode())
    return entry


def assembled(text: str, of: str) -> bytes:
    """The cubin that the driver makes of PTX text for a target; RuntimeError has its complaint."""
    torch.zeros(1, device="cuda")
    log = ctypes.create_string_buffer(8192)
    number = int("".join(filter(str.isdigit, of))) + (_ACCELERATED if of.endswith("a") else 0)
    names = (ctypes.c_int * 3)(_ERROR_LOG, _ERROR_LOG_BYTES, _TARGET)
    values = (ctypes.c_void_p * 3)(ctypes.addressof(log), len(log), number)
    state, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    call("cuLinkCreate_v2", 3, names, values, ctypes.byref(state))
    try:
        data = text.encode() + b"\0"
        length = ctypes.c_size_t(len(data))
        call("cuLinkAddData_v2", state, _PTX, data, length, b"probe", 0, None, None)
        call("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
        return ctypes.string_at(image.value or 0, size.value)
    except RuntimeError as error:
        message = log.value.decode(errors="replace").strip()
        raise RuntimeError(f"{error} {message}".strip()) from None
    finally:
        call("cuLinkDestroy", state)


@dataclass(frozen=True)
class Properties:
    """The resources of an entry.

    Attributes:
        threads (int): the most threads of a block.
        registers (int): of a thread.
        local_bytes (int): of a thread; more than 0 where registers are spilled.
    """

    threads: int
    registers: int
    local_bytes: int


def properties(entry: ctypes.c_void_p) -> Properties:
    """The resources that an entry takes."""
    values = []
    for attribute in (_MAX_THREADS, _REGISTERS, _LOCAL_BYTES):
        value = ctypes.c_int()
        call("cuFuncGetAttribute", ctypes.byref(value), attribute, entry)
        values.append(value.value)
    return Properties(*values)


def allow_shared(entry: ctypes.c_void_p, size: int) -> None:
    """Lets an entry have so many bytes of dynamic shared memory."""
    call("cuFuncSetAttribute", entry, _DYNAMIC_SHARED, size)


def launch(
    entry: ctypes.c_void_p,
    grid: int,
    block: int,
    arguments: Sequence[Tensor | int],
    shared: int = 0,
) -> None:
    """Launches an entry on torch's stream; a tensor is its address, an integer has 32 bits."""
    values = [
        ctypes.c_uint64(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_uint32(x)
        for x in arguments
    ]
    pointers = (ctypes.c_void_p * len(values))(
        *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
    )
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    call("cuLaunchKernel", entry, grid, 1, 1, block, 1, 1, shared, stream, pointers, None)
