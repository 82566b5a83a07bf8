"""A kernel that lets the next kernel start at once, and writes its result much later."""

import torch

from tcgemm import info

# A GEMV kernel lets the next kernel start before it multiplies. This one does not divide k between
# CTAs, so with DEPTH it takes much longer than a kernel's start.
WRITER = "sm90a_bf16_f32_8x64x64_w2_s3_tn_gemv"
IS_BUILT = WRITER in info.build()["kernels"]
DEPTH = 1 << 17
BF16 = torch.bfloat16


class SlowWriter:
    """Fills a row (1, columns) with one of the rows of `values`, both of bfloat16.

    The result is a product with a matrix that has one element of a row in each sum. So every number
    but -0, Inf and NaN is written as it is.
    """

    def __init__(self, row, values):
        count, columns = values.shape
        self.row = row
        self.weight = torch.zeros(columns, DEPTH, device="cuda", dtype=BF16)
        self.factors = torch.zeros(count, 1, DEPTH, device="cuda", dtype=BF16)
        for i in range(count):
            self.weight[:, -1 - i] = values[i]
            self.factors[i, 0, -1 - i] = 1

    def write(self, index):
        factors, weight = self.factors[index], self.weight.t()
        torch.ops.tcgemm.scaled_mm.out(
            factors, weight, out_dtype=BF16, kernel_name=WRITER, out=self.row
        )
