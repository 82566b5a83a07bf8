"""The public functions: torch's names and order, tensors positional, all else keyword-only.

Every call goes the same way:

    __torch_function__ -> types -> out= or autocast -> autograd.call -> the operator

What is wrong with a shape, a dtype or a device is said by the operator (csrc/ops/check*.cpp).
"""

import torch
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function_variadic

from tcgemm import autograd
from tcgemm.operators import ADDMM, BMM, LINEAR, MATMUL, MM

_PRECISIONS = ("highest",)
_CAST = (torch.float16, torch.bfloat16, torch.float32)  # what torch's autocast casts
_tensor = torch.Tensor
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled


def _product(function, op, precision, out, a, b, c, bias, residual, *options):
    if has_torch_function_variadic(a, b, c, bias, residual, out):
        return _overridden(function, op, precision, out, a, b, c, bias, residual, *options)
    if not (
        isinstance(a, _tensor)
        and isinstance(b, _tensor)
        and (isinstance(c, _tensor) or (c is None and op is not ADDMM))
        and (bias is None or isinstance(bias, _tensor))
        and (residual is None or isinstance(residual, _tensor))
        and (out is None or isinstance(out, _tensor))
    ):
        raise _no_tensor(op, (a, b, c, bias, residual, out))
    if precision is not None and precision not in _PRECISIONS:
        raise RuntimeError(
            f'tcgemm.{op.name}: precision is {precision!r}, but there is None or "highest", which '
            "computes in the operands' own precision; pass one of these. (tf32 is planned.)"
        )
    try:
        if out is not None:
            return _into(op, out, a, b, c, bias, residual, *options)
        if _compiling() or _any_autocast():
            a, b, c, bias, residual = _autocast(a, b, c, bias, residual)
        return autograd.call(op, a, b, c, bias, residual, *options)
    except NotImplementedError as error:
        raise _nested(op, (a, b, c, bias, residual, out)) or error from None


def _autocast(*tensors):
    """Casts as torch.autocast does for torch.mm and torch.addmm."""
    device = tensors[0].device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [
        tensor.to(dtype)
        if tensor is not None and tensor.dtype in _CAST and tensor.device.type == device
        else tensor
        for tensor in tensors
    ]


def _into(op, out, *operands):
    """The call with out=. An operator that writes would drop gradients silently, so it refuses."""
    for name, tensor in zip(_names(op), (*operands[:5], out), strict=True):
        if tensor is None:
            continue
        tangent = forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent
        if (_grad_enabled() and tensor.requires_grad) or isinstance(tangent, _tensor):
            raise RuntimeError(
                f"tcgemm.{op.name}: out= cannot be differentiated, but {name} needs a gradient; "
                f"leave out= away, call under torch.no_grad(), or pass {name}.detach()."
            )
        if torch._C._functorch.is_batchedtensor(tensor):
            raise RuntimeError(
                f"tcgemm.{op.name}: out= does not work under torch.vmap, but {name} is mapped "
                "over; leave out= away."
            )
    op.run_out(out, *operands)
    if not (_compiling() or out.is_inference()):
        # Backward of whoever saved `out` has to notice; torch counts only for its own operators.
        torch.autograd.graph.increment_version(out)
    return out


def _overridden(function, op, precision, out, a, b, c, bias, residual, *options):
    """Hands the call to the tensors' own __torch_function__."""
    first = {ADDMM: (c, a, b), LINEAR: (a, b, bias)}.get(op, (a, b))
    keywords = op.keywords(*options) | {"residual": residual, "precision": precision, "out": out}
    if op is not LINEAR:
        keywords["bias"] = bias
    return handle_torch_function(function, (a, b, c, bias, residual, out), *first, **keywords)


def _names(op):
    a, b = ("x", "weight") if op.weight else ("a", "b")
    return (a, b, "c", "bias", "residual", "out")


def _no_tensor(op, tensors):
    required = ("a", "b", "x", "weight", *(("c",) if op is ADDMM else ()))
    for name, value in zip(_names(op), tensors, strict=True):
        if not isinstance(value, _tensor) and (value is not None or name in required):
            kind = type(value).__name__
            return TypeError(
                f"tcgemm.{op.name}: {name} must be a torch.Tensor, but is {kind}; "
                "convert it with torch.as_tensor."
            )
    raise AssertionError("every operand is a tensor")


def _nested(op, tensors):
    """The dispatcher found no kernel at all: what is left are nested tensors."""
    for name, tensor in zip(_names(op), tensors, strict=True):
        if tensor is not None and tensor.is_nested:
            return RuntimeError(
                f"tcgemm.{op.name}: {name} is a nested tensor, but every operand must be a dense, "
                f"strided tensor; pass {name}.to_padded_tensor(0.0), or one product for each part "
                f"of {name}.unbind()."
            )
    return None


_COMMON = """
    Computed as ``act(alpha * (a @ b) + beta * c + bias) + residual`` in the accumulator's type,
    rounded once at the end.

    Keyword arguments:
        activation: "relu", "gelu", "gelu_tanh" (gelu's tanh form), "silu", or None.
        residual (Tensor): added last; broadcasts to the shape of the result.
        alpha (float): multiplies the product.
        out_dtype (torch.dtype): of the result; default: the operands'. float16, bfloat16 or
            float32; for float64 operands float64.
        acc_dtype (torch.dtype): of the accumulator; default: float32, for float64 operands
            float64. float16 is there for float16 operands; gradients use the default.
        precision: None or "highest", the operands' own precision.
        out (Tensor): takes the result. It has the result's shape, dtype and device, any strides
            that do not overlap, and shares no memory with an input. As in torch, no input may
            need a gradient, and autocast does not apply.

    Operands have one dtype: float16 or bfloat16, on the CPU also float32 and float64. c, bias and
    residual are float16, bfloat16 or float32 (also float64 if the operands are), independently.
    Any strides will do (tcgemm.check_layout says which are fast), any size too: an empty result is
    empty, and with K = 0 the product is zero. Gradients of any order, forward mode, torch.func,
    torch.compile and torch.autocast work as with torch.mm.

    Raises:
        TypeError: an operand is no tensor.
        RuntimeError: a shape, dtype, device or option that is not there; the sentence names the
            tensor, what was expected, what came, and how to mend it.
"""


def _documented(function):
    """Puts what all functions share between a docstring's head and its example."""
    head, example = function.__doc__.split("\n    Example:\n")
    function.__doc__ = f"{head}{_COMMON}\n    Example:\n{example}"
    return function


@_documented
def mm(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Matrix product with a fused epilogue: a (M, K) @ b (K, N) -> (M, N).

    bias is (N,), (1, N) or (M, 1).

    Example:
        >>> a, w = torch.randn(64, 32, dtype=torch.bfloat16), torch.randn(48, 32).bfloat16()
        >>> tcgemm.mm(a, w.t(), bias=torch.zeros(48), activation="gelu").shape
        torch.Size([64, 48])
    """
    options = (activation, alpha, 1.0, out_dtype, acc_dtype)
    return _product(mm, MM, precision, out, a, b, None, bias, residual, *options)


@_documented
def bmm(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Products of equal batches of matrices: a (B, M, K) @ b (B, K, N) -> (B, M, N).

    bias is (N,), (1, N) or (M, 1), or has a batch dimension in front: (B, 1, N), (B, M, 1).

    Example:
        >>> tcgemm.bmm(torch.randn(8, 16, 32), torch.randn(8, 32, 24)).shape
        torch.Size([8, 16, 24])
    """
    options = (activation, alpha, 1.0, out_dtype, acc_dtype)
    return _product(bmm, BMM, precision, out, a, b, None, bias, residual, *options)


@_documented
def matmul(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Product with torch.matmul's rules: a (..., M, K) @ b (..., K, N) -> (..., M, N).

    Batch dimensions broadcast. A 1-D a is a row (K,), a 1-D b a column (K,), and the result has no
    such dimension. bias is (N,), (1, N) or (M, 1), with batch dimensions in front if need be.

    Example:
        >>> tcgemm.matmul(torch.randn(5, 1, 16, 32), torch.randn(3, 32, 24)).shape
        torch.Size([5, 3, 16, 24])
    """
    options = (activation, alpha, 1.0, out_dtype, acc_dtype)
    return _product(matmul, MATMUL, precision, out, a, b, None, bias, residual, *options)


@_documented
def addmm(
    c,
    a,
    b,
    *,
    beta=1.0,
    alpha=1.0,
    bias=None,
    activation=None,
    residual=None,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Adds a matrix product to c: beta * c + alpha * (a (M, K) @ b (K, N)) -> (M, N).

    c broadcasts to (M, N) as in torch.addmm; with beta = 0 it is not read, so a NaN in it does not
    spread. bias is (N,), (1, N) or (M, 1).

    Example:
        >>> c, a, b = torch.randn(24), torch.randn(16, 32), torch.randn(32, 24)
        >>> tcgemm.addmm(c, a, b, beta=0.5, activation="relu").shape
        torch.Size([16, 24])
    """
    options = (activation, alpha, beta, out_dtype, acc_dtype)
    return _product(addmm, ADDMM, precision, out, a, b, c, bias, residual, *options)


@_documented
def linear(
    x,
    weight,
    bias=None,
    *,
    activation=None,
    residual=None,
    alpha=1.0,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """The layer of torch.nn.functional.linear: x (..., K) @ weight (N, K).t() -> (..., N).

    In the formula below a is x and b is weight.t(). bias is (N,).

    Example:
        >>> x, weight = torch.randn(2, 10, 32), torch.randn(48, 32)
        >>> tcgemm.linear(x, weight, torch.zeros(48), activation="silu").shape
        torch.Size([2, 10, 48])
    """
    options = (activation, alpha, 1.0, out_dtype, acc_dtype)
    return _product(linear, LINEAR, precision, out, x, weight, None, bias, residual, *options)


def check_layout(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    out_dtype=None,
    acc_dtype=None,
    out=None,
    device=None,
    kernel=None,
):
    """Says how the operands of matmul(a, b, ...) lie in memory, and what would make it faster.

    For each operand: which major it has, its leading dimension and alignment, whether TMA can read
    it, which kernel family and which prepare pass follow. The operators decide by the same code.

    Arguments are those of matmul: a (..., M, K), b (..., K, N), bias, activation, residual, alpha,
    out_dtype, acc_dtype, out. Nothing is computed, so tensors on the CPU or on "meta" do as well.

    Keyword arguments:
        device (str): the GPU to answer for, such as "H200"; default: the tensors', or "H200".
        kernel (str): only kernels whose name contains this text.

    Returns a str; raises what matmul raises.

    Example:
        >>> a = torch.empty(4096, 4095, dtype=torch.bfloat16, device="meta")
        >>> print(tcgemm.check_layout(a, a.t()))  # doctest: +SKIP
    """
    return _question(
        torch.ops.tcgemm.check_layout.default,
        *(a, b, bias, residual, activation, alpha, out_dtype, acc_dtype, out, device, kernel),
    )


def explain(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    out_dtype=None,
    acc_dtype=None,
    out=None,
    device=None,
    kernel=None,
):
    """Says what matmul(a, b, ...) would run on a GPU, and why.

    The kernel, its tile, stages and cluster, the grid and its waves, bytes, FLOPs, arithmetic
    intensity, what bounds the time (compute, memory, launch), and the reason of the choice.

    Arguments are those of check_layout: a, b, bias, activation, residual, alpha, out_dtype,
    acc_dtype, out, device, kernel. Returns a str; raises what matmul raises.

    Example:
        >>> a = torch.empty(8192, 8192, dtype=torch.float16, device="meta")
        >>> print(tcgemm.explain(a, a, device="H200"))  # doctest: +SKIP
    """
    return _question(
        torch.ops.tcgemm.explain.default,
        *(a, b, bias, residual, activation, alpha, out_dtype, acc_dtype, out, device, kernel),
    )


def _question(
    op, a, b, bias, residual, activation, alpha, out_dtype, acc_dtype, out, device, kernel
):
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, _tensor):
            kind = type(value).__name__
            raise TypeError(f"tcgemm.{op._opname}: {name} must be a torch.Tensor, but is {kind}.")
    return op(
        a,
        b,
        bias,
        residual,
        activation=activation,
        alpha=alpha,
        out_dtype=out_dtype,
        acc_dtype=acc_dtype,
        out=out,
        device=device,
        kernel=kernel,
    )
