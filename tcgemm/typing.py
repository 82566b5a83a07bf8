"""Types for annotations: the words that arguments take, and the keyword arguments of the products.

    def layer(x: Tensor, activation: tcgemm.typing.Activation | None = None) -> Tensor: ...
    def project(x: Tensor, w: Tensor, **options: Unpack[tcgemm.typing.Options]) -> Tensor: ...

Each Literal is the one list of its words: checks of arguments take them from it, by words().
"""

from typing import Any, Literal, TypedDict, get_args

import torch

__all__ = [
    "Activation",
    "AddOptions",
    "BinaryOperation",
    "DTypeName",
    "ExplainOptions",
    "Float8Precision",
    "Float8Scaling",
    "Float32Precision",
    "Granularity",
    "Layout",
    "LinearOptions",
    "MeasuredDType",
    "Options",
    "PackMethod",
    "PackedFormat",
    "Precision",
    "PruneMethod",
    "SparseGradient",
    "SparsePattern",
    "TorchBaseline",
    "TorchDTypeName",
    "WeightGranularity",
    "words",
]

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
"""The activations. gelu_tanh is the approximation of gelu by tanh."""

Float32Precision = Literal["highest", "high", "medium", "prepared"]
"""The bits of float32 operands that are multiplied: all, the bits of tf32, or of bfloat16.
"prepared" multiplies all bits, by the kernel that a product with a tcgemm.Prepared has."""

Float8Scaling = Literal["current", "delayed"]
"""Where the scales of tcgemm.nn.Float8Linear come from: the tensor, or tensors of former steps."""

Float8Precision = Literal["promoted", "fast"]
"""The sums of float8 products: in float32 after every 128, or in the tensor cores alone."""

Precision = Literal[Float32Precision, Float8Precision]
"""The words of the argument precision."""

DTypeName = Literal["f16", "bf16", "f32", "f64", "e4m3", "e5m2", "s8", "u8"]
"""The short names of the dtypes of operands."""

MeasuredDType = Literal[DTypeName, "tf32", "s4", "u4", "b1"]
"""The dtypes of tcgemm.compare. "tf32" is float32 operands, rounded to tf32. "s4" and "u4" are
tcgemm.Int4Tensor, and "b1" is tcgemm.BinaryTensor with the operation "and"."""

TorchDTypeName = Literal[
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "uint8",
]
"""The names that torch has for the dtypes of operands."""

Layout = Literal["TN", "NN", "TT", "NT"]
"""The storage of b and of a, in this order. T is the transpose of a row-major matrix."""

Granularity = Literal["tensor", "row", "1x128", "128x128"]
"""The elements of a quantised tensor that share a scale: all, a row, or a block."""

WeightGranularity = Literal["tensor", "row", "128x128"]
"""The elements of the weight of a layer in 8 bits that share a scale."""

PackedFormat = Literal["int4", "int8", "e4m3", "nf4", "fp4", "mxfp4", "nvfp4", "table"]
"""What a code of a tcgemm.PackedWeight is: a whole number, a float8, or an index of a table."""

PackMethod = Literal["nearest", "mse"]
"""How tcgemm.pack_weight chooses scales: by largest magnitudes, or by the least squared error."""

BinaryOperation = Literal["and", "xor", "pm1"]
"""What tcgemm.binary_mm counts: pairs of ones, bits that differ, or products of -1 and 1."""

SparsePattern = Literal["2:4", "1:2"]
"""The elements of a group that are stored: two of four, or one of two."""

PruneMethod = Literal["magnitude", "transposable", "mask"]
"""The ways in which tcgemm.prune24 chooses the elements that it keeps."""

SparseGradient = Literal["masked", "straight_through"]
"""The gradient of the dense weight of a SparseLinear24 that learns."""

TorchBaseline = Literal["torch", "torch.compile"]
"""The baselines of tcgemm.compare that are functions of torch."""


def words(literal: Any) -> tuple[Any, ...]:
    """Returns the words of one of these types, in their order.

    Example:
        >>> tcgemm.typing.words(tcgemm.typing.Float8Precision)
        ('promoted', 'fast')
    """
    return get_args(literal)


class LinearOptions(TypedDict, total=False):
    """The keyword arguments of tcgemm.linear without amax: Options without bias, which
    linear takes as its third argument."""

    activation: Activation | None
    residual: torch.Tensor | None
    alpha: float
    scale_a: torch.Tensor | None
    scale_b: torch.Tensor | None
    zero_a: torch.Tensor | None
    zero_b: torch.Tensor | None
    scale_out: torch.Tensor | None
    out_dtype: torch.dtype | str | None
    acc_dtype: torch.dtype | str | None
    precision: Precision | None
    batch_invariant: bool
    out: torch.Tensor | None


class Options(LinearOptions, total=False):
    """The keyword arguments that mm, bmm, matmul, addmm and baddbmm share, without amax.

    Order of operations: everything is computed in the accumulator's dtype and rounded once, at the
    end::

        value = act(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
                + residual
        out = value * scale_out

    Keyword arguments:
        activation (str): the function act above, one of tcgemm.typing.Activation, or None.
        residual (Tensor): is added after the activation. It broadcasts to the shape of the result.
        alpha (float): multiplies the product.
        scale_a (Tensor): float32 factors of the elements of a, as tcgemm.quantize returns them: one
            element, or (M, 1) with a factor for each row. For float8 operands also (M,
            ceil(K/128)), with a factor for each block of 1 x 128 elements, or (ceil(M/128),
            ceil(K/128)), for each block of 128 x 128. Batch dimensions in front broadcast.
        scale_b (Tensor): float32 factors of the elements of b: one element, or (1, N); for float8
            operands also (ceil(K/128), N) or (ceil(K/128), ceil(N/128)). If b is the transpose of
            a quantised tensor, pass the transpose of its scale.
        zero_a, zero_b (Tensor): int32 zero points of int8 or uint8 operands: one element, or (M, 1)
            for a and (1, N) for b.
        scale_out (Tensor): one float32 element that multiplies the result.
        amax (bool): True returns the pair (out, amax). amax is the largest magnitude of `value`, a
            float32 scalar; it is NaN if an element is NaN. It cannot be combined with out=.
        out_dtype (torch.dtype or str): the dtype of the result, or its name. The table shows the
            default and the other possible dtypes. Results of 8 bits saturate::

                operands                    default         others
                float16, bfloat16, float32  the operands'   these three, the two of float8
                float64                     float64         none
                float8_e4m3fn, float8_e5m2  bfloat16        float16, float32, the two of float8
                int8, uint8                 int32           float16, bfloat16, float32, int8

            An int32 result is exact modulo 2**32 and takes no scales. Other results of integers are
            computed from such a sum. With two int8 operands it cannot overflow up to K = 131,071;
            quantized_linear adds longer sums in float32.
        acc_dtype (torch.dtype or str): the dtype in which products are summed. Default: float64 for
            float64, int32 for integers, and float32 for all others. float16 operands may have
            float16 instead; their gradients use float32.
        precision (str): for float32 operands, how many of their bits are multiplied: "highest"
            (all), "high" (rounded to tf32) or "medium" (rounded to bfloat16). For float8 operands,
            how products are summed: "promoted" (sums of 128 products are added in float32; the
            default) or "fast" (all inside the tensor cores, which keep about 14 bits). Operands of
            other dtypes ignore the words for float32.
        batch_invariant (bool): True makes the bits of a row independent of M and of the other rows,
            also in the gradients of a, c and residual: see tcgemm.batch_invariant.
        out (Tensor): receives the result. It must have the shape, the dtype and the device of the
            result, and share no memory with an input. Its elements may have any strides that do not
            overlap. As in torch, no input may require a gradient, and autocast has no effect.

    Default of precision for float32: the CPU uses "highest". CUDA uses what torch would use, which
    is torch.backends.cuda.matmul.fp32_precision: "ieee" means "highest", "tf32" means "high". If it
    is "none", torch.backends.fp32_precision decides, whose "bf16" means "medium".
    torch.set_float32_matmul_precision changes the same setting. Each call reads it, and the
    backward uses the precision of its forward. A compiled graph contains it as a constant:
    torch.compile compiles again when TF32 becomes allowed or forbidden, but not when "high" becomes
    "medium".

    "highest" on CUDA is at least as accurate as sums in float32, and needs compute capability 9.0.
    Large products split their operands into 16-bit terms and multiply these on tensor cores; small
    ones run in float64. The GPU chooses between terms of float16 and of bfloat16 by the values.
    During the call the terms take 1.5 times the memory of the operands. tcgemm.prepare splits a
    weight once for many calls.

    Operands have one dtype: float16, bfloat16, float32 or float64. The two float8 dtypes may be
    mixed with each other, and so may int8 and uint8. c, bias and residual may each be float16,
    bfloat16 or float32; they may also be float64 if the operands are float64, and they are int32 if
    the result is int32. All strides and all sizes work; tcgemm.check_layout says which strides are
    fast. With K = 0 the product is zero. One operand of mm, matmul, addmm or linear may be a
    tcgemm.SparseTensor24.

    Gradients work as with torch.mm: of any order, in forward mode, in torch.func, torch.compile and
    torch.autocast. Operands of 8 bits have no gradient, and one that requires it is refused; c,
    bias and residual beside them have gradients. Scales and zero points are constants, and a scale
    that requires a gradient is refused. amax carries no gradient, nor does a result of 8 bits or
    of int32.

    Raises:
        TypeError: an operand is no tensor, or an option has a wrong type, such as a str in place
            of a torch.dtype, or a function in place of the name of an activation.
        RuntimeError: a shape, dtype, device or option is not supported. The message names the
            tensor, what was expected, what came, and a remedy.
    """

    bias: torch.Tensor | None


class AddOptions(Options, total=False):
    """The keyword arguments of tcgemm.addmm and baddbmm without amax: Options, and the factor beta
    of c."""

    beta: float


class ExplainOptions(AddOptions, total=False):
    """The keyword arguments that tcgemm.explain and check_layout share with the products."""

    amax: bool
