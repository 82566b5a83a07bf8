"""The precision of float32 products on CUDA where precision=None: the one that torch would use.

torch has two settings, and either may be the one that the user touched:

    torch.set_float32_matmul_precision("highest" | "high" | "medium")
    torch.backends.cuda.matmul.fp32_precision = "ieee" | "tf32" | "none" (= torch.backends' own)
    torch.backends.fp32_precision             = "ieee" | "tf32" | "bf16" | "none"

Newer versions of torch have more words, such as "bfx9": float32 by nine products in bfloat16.

torch's own products obey the second; the first writes into it. The first is read only for
"medium", which cuBLAS treats as "high". Its getter raises if both were set and disagree.
"""

import functools
import warnings
from typing import Any

import torch

from tcgemm.ops._torch_private import assume_constant_result

_backends: Any = torch.backends
MODES: dict[str, str] = {
    "ieee": "highest",
    "bfx9": "highest",
    "tf32": "high",
    "bf16": "medium",
    "none": "highest",
}


@assume_constant_result
def default() -> str:
    """ "highest", "high" or "medium", from torch's settings.

    A constant of a compiled graph: torch.compile compiles anew when TF32 becomes allowed or
    forbidden (that is one of its own guards), but not between "high" and "medium".
    """
    mode = _backends.cuda.matmul.fp32_precision
    if mode == "none":
        mode = _backends.fp32_precision
    if mode != "tf32":
        return MODES.get(mode) or _unknown(mode)
    try:
        return "medium" if torch.get_float32_matmul_precision() == "medium" else "high"
    except RuntimeError:  # set by the newer names alone, which have no "medium" for CUDA
        return "high"


@functools.cache  # warns once for each word
def _unknown(mode: str) -> str:
    warnings.warn(
        f"tcgemm: torch's fp32_precision is {mode!r}, a word that this version of tcgemm does not "
        'know; float32 products have precision "highest". Pass precision= to choose another.',
        stacklevel=2,
    )
    return "highest"
