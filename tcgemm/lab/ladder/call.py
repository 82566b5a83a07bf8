"""Calls the kernels of the ladders in libtcgemm_lab.so."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from tcgemm import _library
from tcgemm.emulate import lab_library
from tcgemm.lab.ladder.steps import MOST_PARAMETERS, Step, Variant

INTS = ("registers", "static_shared", "dynamic_shared", "local_bytes", "threads", "blocks")
FUNCTION = "ladder"


class Call(ctypes.Structure):
    """The structure of csrc/lab/ladder.h."""

    _fields_ = (
        ("step", ctypes.c_char_p),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("cycles", ctypes.c_void_p),
        ("m", ctypes.c_int32),
        ("n", ctypes.c_int32),
        ("k", ctypes.c_int32),
        ("parameters", ctypes.c_int32 * MOST_PARAMETERS),
        ("checks_only", ctypes.c_int32),
        ("multiples", ctypes.c_int32 * 3),
        ("largest", ctypes.c_int32 * 3),
        *((name, ctypes.c_int32) for name in INTS),
        ("error", ctypes.c_char * 256),
    )


def _filled(step: Step, variant: Variant, m: int, n: int, k: int) -> Call:
    call = Call(step=step.name.encode(), m=m, n=n, k=k)
    call.parameters[: len(variant.parameters)] = variant.parameters
    return call


def _run(call: Call) -> str:
    """The error of a call, or an empty text."""
    if not lab_library.has(FUNCTION):
        raise ImportError(f"the library has no kernels of the ladders: {_library.no_cuda_kernel()}")
    lab_library.function(FUNCTION, Call)(ctypes.byref(call))
    return call.error.decode()


def check(step: Step, variant: Variant, m: int, n: int, k: int) -> str:
    """Why a step does not take a problem, in one sentence, or an empty text."""
    call = _filled(step, variant, m, n, k)
    call.checks_only = 1
    error = _run(call)
    return f"{error}." if error else ""


def sizes(step: Step, variant: Variant) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(multiples of M, N and K that a step takes, the largest M, N and K, or 0 for any)."""
    call = _filled(step, variant, 1 << 10, 1 << 10, 1 << 10)
    call.checks_only = 1
    _run(call)
    return tuple(call.multiples), tuple(call.largest)


def launch(
    step: Step, variant: Variant, a: Tensor, b: Tensor, c: Tensor, cycles: Tensor | None = None
) -> dict[str, int]:
    """Starts a step's kernel on torch's current stream; what it needs of an SM.

    ValueError: the step does not take these sizes, or this GPU does not have what it needs.
    """
    call = _filled(step, variant, a.shape[0], b.shape[1], a.shape[1])
    call.a, call.b, call.c = a.data_ptr(), b.data_ptr(), c.data_ptr()
    call.cycles = None if cycles is None else cycles.data_ptr()
    call.stream = torch.cuda.current_stream().cuda_stream
    error = _run(call)
    if error:
        raise ValueError(f"{error}.")
    facts = {name: getattr(call, name) for name in INTS}
    shared = facts.pop("static_shared") + facts.pop("dynamic_shared")
    return facts | {"shared_bytes": shared}
