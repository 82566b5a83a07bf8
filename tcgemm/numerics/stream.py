"""The random numbers of the published experiments, as a C++ program draws them.

Sun et al. (tcgemm/published) draw from `std::normal_distribution<float>` over `std::mt19937` with
the seed 123456. csrc/emulate/library.cpp does the same with the library of the compiler.
"""

import ctypes

import torch
from torch import Tensor

from tcgemm.emulate import lab_library

SEED = 123456


class _NormalStream(ctypes.Structure):
    """NormalStream of csrc/emulate/library.cpp."""

    _fields_ = [("count", ctypes.c_int64), ("seed", ctypes.c_uint32), ("out", ctypes.c_void_p)]


def normal_stream(count: int, seed: int = SEED) -> Tensor:
    """The first `count` numbers of the stream, float32."""
    numbers = torch.empty(count, device="cpu")
    call = _NormalStream(count, seed, numbers.data_ptr())
    lab_library.function("normal", _NormalStream)(ctypes.byref(call))
    return numbers
