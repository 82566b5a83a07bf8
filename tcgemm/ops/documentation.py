"""The documentation that all products share."""

from typing import TypeVar

Function = TypeVar("Function")
_COMMON = """
    Computed in the accumulator's type, rounded once at the end, in this order::

        value = act(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
                + residual
        out = value * scale_out

    Keyword arguments:
        activation: "relu", "gelu", "gelu_tanh" (gelu's tanh form), "silu", or None.
        residual (Tensor): added last; broadcasts to the shape of the result.
        alpha (float): multiplies the product.
        scale_a (Tensor): float32 multipliers of a's elements, as tcgemm.quantize returns them: one
            element, or (M, 1); for float8 operands also blocks, (M, ceil(K/128)) for 1 x 128 and
            (ceil(M/128), ceil(K/128)) for 128 x 128. Batch dimensions in front broadcast.
        scale_b (Tensor): float32 multipliers in the layout of b: one element, (1, N),
            (ceil(K/128), N) or (ceil(K/128), ceil(N/128)). If b is the transpose of a quantised
            tensor, pass the transpose of its scale.
        zero_a, zero_b (Tensor): int32, subtracted from int8 or uint8 operands: one element, or
            (M, 1) and (1, N).
        scale_out (Tensor): float32, one element; multiplies the value before it is rounded.
        amax (bool): True returns (out, amax), amax being the largest magnitude of `value`, a
            float32 scalar; NaN if one is NaN. Not together with out.
        out_dtype (torch.dtype): the dtype of the result. The default; the alternatives:
            float16, bfloat16, float32   the operands'; these three, float8_e4m3fn, float8_e5m2
            float64                      float64
            float8_e4m3fn, float8_e5m2   bfloat16; float16, float32, float8_e4m3fn, float8_e5m2
            int8, uint8                  int32 (exact modulo 2**32; no scales); float16, bfloat16,
                                         float32, int8
            8-bit results saturate.
        acc_dtype (torch.dtype): the dtype of the accumulator. Default: float32, for float64
            operands float64, for integers int32. float16 operands can also use float16; gradients
            use the default.
        precision (str): for float32 operands "highest" (all bits), "high" (rounded to tf32) or
            "medium" (rounded to bfloat16); None is "highest" on the CPU, and on CUDA what torch
            would use: torch.backends.cuda.matmul.fp32_precision (ieee: highest, tf32: high, none:
            torch.backends.fp32_precision, where bf16 is medium), which is also where
            torch.set_float32_matmul_precision writes. It is read once a call, and the backward
            uses the forward's. In a compiled graph it is a constant: torch.compile compiles anew
            when TF32 becomes allowed or forbidden, not between "high" and "medium". "highest" on
            CUDA is at least as accurate as float32 sums, and needs compute capability 9.0: large
            products run on tensor cores in 16-bit parts, of which the GPU itself chooses the kind,
            small ones in float64. Memory for the parts, 1.5 times that of the operands, is taken
            for the time of the call; tcgemm.prepare makes those of a weight once.
            For float8 operands "promoted" (default: sums of 128 products are added in float32) or
            "fast" (all in the tensor cores, about 14 bits). Other dtypes ignore the values for
            float32.
        out (Tensor): takes the result. It has the result's shape, dtype and device, any strides
            that do not overlap, and shares no memory with an input. As in torch, no input may
            need a gradient, and autocast does not apply.

    Operands have one dtype: float16, bfloat16, float32, float64, float8_e4m3fn and float8_e5m2 in
    any mix, int8 and uint8 in any mix. c, bias and residual are float16, bfloat16 or float32,
    independently (also float64 if the operands are; int32 for an int32 result). Any strides work
    (tcgemm.check_layout says which are fast), any size too: an empty result is empty, and with
    K = 0 the product is zero. linear takes a tcgemm.Prepared in place of its float32 weight; mm,
    matmul and addmm take its .t() as b. One of the operands (not of bmm and
    baddbmm) may be a tcgemm.SparseTensor24.

    Gradients of any order, forward mode, torch.func, torch.compile and torch.autocast work as with
    torch.mm. Operands of 8 bits have no gradient (one that needs it is refused), c, bias and
    residual beside them have. Scales and zero points are constants: a scale that needs a gradient
    is refused. Results of another dtype than float16, bfloat16, float32 and float64 carry none, nor
    does amax.

    Raises:
        TypeError: an operand is no tensor, or an option has a wrong type, such as a str in place
            of a torch.dtype or a function in place of the word of an activation.
        RuntimeError: a shape, dtype, device or option that is not supported; the message names
            the tensor, the expected and the given value, and a remedy.
"""


def documented(function: Function) -> Function:
    """Inserts the text that all functions share between a docstring's head and its example.

    `python -OO` drops docstrings.
    """
    if function.__doc__ is None:
        return function
    head, example = function.__doc__.split("\n    Example:\n")
    function.__doc__ = f"{head}{_COMMON}\n    Example:\n{example}"
    return function
