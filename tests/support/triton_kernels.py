"""A kernel of Triton that writes past torch. Importing this needs Triton."""

import triton
import triton.language as tl


@triton.jit
def copy(to, source, size):
    """Copies bytes: 256 in each program."""
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(to + at, tl.load(source + at, at < size), at < size)
