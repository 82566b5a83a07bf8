"""What precision=None means for float32 operands on CUDA: what torch would use.

torch has two settings, and either may be the one that the user touched:

    torch.set_float32_matmul_precision("highest" | "high" | "medium")
    torch.backends.cuda.matmul.fp32_precision = "ieee" | "tf32" | "none" (= torch.backends' own)
    torch.backends.fp32_precision             = "ieee" | "tf32" | "bf16" | "none"

The second is what torch's own products obey; the first writes into it, and is asked besides for
"medium", which cuBLAS treats as "high". Where both were set and disagree, its getter raises.
"""

import torch

WORDS = {"ieee": "highest", "tf32": "high", "bf16": "medium", "none": "highest"}


@torch.compiler.assume_constant_result
def default() -> str:
    """ "highest", "high" or "medium", from torch's settings.

    A constant of a compiled graph: torch.compile compiles anew when TF32 becomes allowed or
    forbidden (that is one of its own guards), but not between "high" and "medium".
    """
    word = torch.backends.cuda.matmul.fp32_precision
    if word == "none":
        word = torch.backends.fp32_precision
    if word != "tf32":
        return WORDS[word]
    try:
        return "medium" if torch.get_float32_matmul_precision() == "medium" else "high"
    except RuntimeError:  # set by the newer names alone, which have no "medium" for CUDA
        return "high"
