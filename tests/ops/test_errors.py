"""Every sentence that a caller of the operators can get, and that there is a test for each of them.

A row is: a call, and pieces of the sentence in their order - the tensor's name, what was expected,
what came, and how to mend it. The rows of scales, integers, precision and quantize are
in scaled_errors.py, the rows of structured sparsity in sparse_errors.py, of packed weights in
packed_weight_errors.py, of int4 and bits in subbyte_errors.py, of grouped products in
grouped_errors.py.
"""

import re
from pathlib import Path

import pytest
import torch

from tcgemm import _library, info

from support import (
    backward_errors,
    grouped_errors,
    packed_weight_errors,
    programs,
    scaled_errors,
    sparse_errors,
    subbyte_errors,
)
from support.cases import BF16, F16, F32, F64
from support.error_asserts import assert_error_message, error_message, quantised, rows_of, t

OPS = torch.ops.tcgemm
SOURCES = Path(__file__).resolve().parents[2] / "csrc" / "ops"


def meta(*shape, dtype=F16):
    return torch.empty(shape, dtype=dtype, device="meta")


def freed(*shape):
    tensor = torch.zeros(shape)
    tensor.untyped_storage().resize_(0)
    return tensor


A, B = t(3, 4), t(4, 5)
HALF_A, HALF_B = A.half(), B.half()
DOUBLE_A, DOUBLE_B = A.double(), B.double()
SQUARE = t(4, 4)
MANY = meta(1).as_strided((1,) * 65, (1,) * 65)

SHAPES = {
    "mm a": (
        lambda: OPS.mm(t(2, 3, 4), B),
        ["tcgemm.mm: a must be a matrix (M, K)", "has shape (2, 3, 4)", "tcgemm.matmul takes"],
    ),
    "mm b": (
        lambda: OPS.mm(A, t(4)),
        ["tcgemm.mm: b must be a matrix (K, N)", "has shape (4,)", "tcgemm.matmul takes vectors"],
    ),
    "addmm a": (lambda: OPS.addmm(A, t(4), B), ["tcgemm.addmm: a must be a matrix (M, K)", "(4,)"]),
    "bmm a": (
        lambda: OPS.bmm(A, t(2, 4, 5)),
        ["tcgemm.bmm: a must be a batch of matrices (B, M, K)", "(3, 4)", "tcgemm.mm takes"],
    ),
    "bmm b": (
        lambda: OPS.bmm(t(2, 3, 4), t(2, 2, 4, 5)),
        ["tcgemm.bmm: b must be a batch of matrices (B, K, N)", "(2, 2, 4, 5)", "tcgemm.matmul"],
    ),
    "baddbmm a": (
        lambda: OPS.baddbmm(A, A, t(2, 4, 5)),
        ["tcgemm.baddbmm: a must be a batch of matrices (B, M, K)", "tcgemm.addmm takes matrices"],
    ),
    "baddbmm batch": (
        lambda: OPS.baddbmm(A, t(1, 3, 4), t(2, 4, 5)),
        ["tcgemm.baddbmm: a of shape (1, 3, 4)", "1 against 2", "tcgemm.matmul broadcasts"],
    ),
    "matmul a": (
        lambda: OPS.matmul(t(), B),
        ["tcgemm.matmul: a must be at least a vector (K,)", "has shape ()", "with *"],
    ),
    "linear x": (
        lambda: OPS.linear(t(), B),
        ["tcgemm.linear: x must be at least a vector (K,)", "has shape ()", "reshape it"],
    ),
    "linear weight": (
        lambda: OPS.linear(A, t(4)),
        ["tcgemm.linear: weight must be a matrix (N, K)", "(4,)", "(out_features, in_features)"],
    ),
    "gemm a": (
        lambda: OPS._gemm(t(4), B),
        ["tcgemm: a must be at least a matrix (M, K)", "(4,)", "tcgemm.matmul takes vectors"],
    ),
    "gemm b": (lambda: OPS._gemm(A, t(4)), ["tcgemm: b must be at least a matrix (K, N)", "(4,)"]),
    "too many dimensions": (
        lambda: OPS.explain(MANY, meta(1, 1)),
        ["tcgemm.explain: a has 65 dimensions", "at most 64", "flatten"],
    ),
    "mm depth": (
        lambda: OPS.mm(A, t(6, 5)),
        ["tcgemm.mm: a of shape (3, 4) and b of shape (6, 5)", "4 columns", "6 rows", "b.mT"],
    ),
    "matmul depth of vectors": (
        lambda: OPS.matmul(t(4), t(5)),
        ["tcgemm.matmul: a of shape (4,) and b of shape (5,)", "K = 4"],
    ),
    "linear depth": (
        lambda: OPS.linear(A, B),
        ["x has shape (3, 4) and weight (4, 5)", "4 in x and 5 in weight", "weight.t()"],
    ),
    "bmm batch": (
        lambda: OPS.bmm(t(2, 3, 4), t(1, 4, 5)),
        ["tcgemm.bmm: a of shape (2, 3, 4) and b of shape (1, 4, 5)", "2 against 1", "matmul"],
    ),
    "matmul batch": (
        lambda: OPS.matmul(t(2, 3, 4), t(3, 4, 5)),
        ["tcgemm.matmul: a of shape", "2 against 3", "neither is 1", "expand"],
    ),
    "dimension of 2**31": (
        lambda: OPS.check_layout(meta(2**31, 1), meta(1, 8)),
        ["tcgemm.check_layout: a of shape (2147483648, 1)", "at most 2**31 - 1024", "torch.split"],
    ),
    "linear bias": (
        lambda: OPS.linear(A, t(5, 4), t(4)),
        ["tcgemm.linear: bias must have shape (5,)", "has (4,)", "as residual"],
    ),
    "linear bias 2-D": (
        lambda: OPS.linear(A, t(5, 4), t(1, 5)),
        ["tcgemm.linear: bias must have shape (5,)", "has (1, 5)"],
    ),
    "mm bias": (
        lambda: OPS.mm(A, B, t(3)),
        ["tcgemm.mm: bias must have shape (5,), (1, 5) or (3, 1)", "has (3,)", "residual"],
    ),
    "mm bias full": (
        lambda: OPS.mm(A, B, t(3, 5)),
        ["tcgemm.mm: bias must have shape (5,), (1, 5) or (3, 1)", "has (3, 5)", "as residual"],
    ),
    "mm bias 3-D": (lambda: OPS.mm(A, B, t(1, 1, 5)), ["tcgemm.mm: bias", "has (1, 1, 5)"]),
    "bmm bias": (
        lambda: OPS.bmm(t(2, 3, 4), t(2, 4, 5), t(2, 3, 5)),
        ["tcgemm.bmm: bias must have shape (5,)", "has (2, 3, 5)"],
    ),
    "matmul bias batch": (
        lambda: OPS.matmul(t(2, 3, 4), t(2, 4, 5), t(3, 1, 5)),
        ["tcgemm.matmul: bias of shape (3, 1, 5)", "does not broadcast", "(2, 3, 5)"],
    ),
    "residual": (
        lambda: OPS.mm(A, B, residual=t(2, 3, 5)),
        ["tcgemm.mm: residual of shape (2, 3, 5) does not broadcast to", "(3, 5)", "must be 1"],
    ),
    "residual of a vector": (
        lambda: OPS.matmul(t(4), B, residual=t(4)),
        ["tcgemm.matmul: residual of shape (4,) does not broadcast to the result's shape (5,)"],
    ),
    "addmm c": (
        lambda: OPS.addmm(t(4), A, B),
        ["tcgemm.addmm: c of shape (4,) does not broadcast to the result's shape (3, 5)"],
    ),
    "addmm c without beta": (
        lambda: OPS.addmm(t(2, 5), A, B, beta=0.0),
        ["tcgemm.addmm: c of shape (2, 5) does not broadcast"],
    ),
}

THERE = (
    "torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, "
    "torch.float8_e5m2, torch.int8 and torch.uint8"
)
FLOAT_RESULTS = "torch.bfloat16, torch.float32, torch.float8_e4m3fn or torch.float8_e5m2"
TYPES = {
    "mixed": (
        lambda: OPS.mm(A, HALF_B),
        [
            "tcgemm.mm: b is torch.float16, but a is torch.float32",
            "one dtype",
            "the two of float8 may be mixed, and so may int8 and uint8",
            ".to(...)",
        ],
    ),
    "linear mixed": (
        lambda: OPS.linear(HALF_A, t(5, 4)),
        ["tcgemm.linear: weight is torch.float32, but x is torch.float16"],
    ),
    "int32": (
        lambda: OPS.mm(A.int(), B.int()),
        ["tcgemm.mm: a is torch.int32", THERE, ".to(...)"],
    ),
    "other fp8": (
        lambda: OPS.mm(A, B.to(torch.float8_e4m3fnuz)),
        ["tcgemm.mm: b is torch.float8_e4m3fnuz", THERE],
    ),
    "fp8 and int8": (
        lambda: OPS.mm(A.to(torch.float8_e4m3fn), B.char()),
        ["tcgemm.mm: b is torch.int8, but a is torch.float8_e4m3fn", "one dtype"],
    ),
    "complex": (lambda: OPS.mm(A.cfloat(), B), ["tcgemm.mm: a is torch.complex64", THERE]),
    "bool": (lambda: OPS.mm(A.bool(), B), ["tcgemm.mm: a is torch.bool", THERE]),
    "quantised": (
        lambda: OPS.mm(A, quantised(4, 5)),
        ["tcgemm.mm: b is", "nothing here takes such a tensor", "b.dequantize()"],
    ),
    "bias f64": (
        lambda: OPS.mm(A, B, t(5, dtype=F64)),
        ["tcgemm.mm: bias is torch.float64", "or torch.float32 when the result is torch.float32"],
    ),
    "c int": (
        lambda: OPS.addmm(t(3, 5).int(), DOUBLE_A, DOUBLE_B),
        [
            "tcgemm.addmm: c is torch.int32",
            "or torch.float64 when the result is torch.float64",
            ".to(...), or pass another out_dtype",
        ],
    ),
    "residual int": (
        lambda: OPS.linear(A, t(5, 4), residual=t(3, 5).long()),
        ["tcgemm.linear: residual is torch.int64", "when the result is torch.float32"],
    ),
    "out_dtype f64": (
        lambda: OPS.mm(HALF_A, HALF_B, out_dtype=F64),
        ["out_dtype is torch.float64", "operands of torch.float16 give", FLOAT_RESULTS, "leave"],
    ),
    "out_dtype of f64": (
        lambda: OPS.mm(DOUBLE_A, DOUBLE_B, out_dtype=F32),
        ["out_dtype is torch.float32", "operands of torch.float64 give torch.float64"],
    ),
    "out_dtype int": (
        lambda: OPS.mm(A, B, out_dtype=torch.int32),
        ["tcgemm.mm: out_dtype is torch.int32", "operands of torch.float32 give", FLOAT_RESULTS],
    ),
    "acc_dtype of f32": (
        lambda: OPS.mm(A, B, acc_dtype=F16),
        ["tcgemm.mm: acc_dtype is torch.float16", "accumulated in torch.float32", "leave"],
    ),
    "acc_dtype of f16": (
        lambda: OPS.mm(HALF_A, HALF_B, acc_dtype=BF16),
        ["acc_dtype is torch.bfloat16", "accumulated in torch.float32 or torch.float16"],
    ),
    "acc_dtype of f64": (
        lambda: OPS.mm(DOUBLE_A, DOUBLE_B, acc_dtype=F32),
        ["acc_dtype is torch.float32", "torch.float64 are accumulated in torch.float64"],
    ),
    "activation": (
        lambda: OPS.mm(A, B, activation="tanh"),
        ['tcgemm.mm: activation is "tanh"', '"relu", "gelu", "gelu_tanh" and "silu"', "None"],
    ),
    "activation none": (
        lambda: OPS._gemm(A, B, activation="none"),
        ['tcgemm: activation is "none"', "None"],
    ),
}

OUT = {
    "dtype": (
        lambda: OPS.mm(A, B, out=t(3, 5, dtype=F16)),
        ["tcgemm.mm: out is torch.float16, but the result is torch.float32", "out_dtype"],
    ),
    "integer": (
        lambda: OPS.mm(A, B, out=t(3, 5).int()),
        ["tcgemm.mm: out is torch.int32, but the result is torch.float32"],
    ),
    "shape": (
        lambda: OPS.mm(A, B, out=t(5, 3)),
        ["tcgemm.mm: out has shape (5, 3), but the result has shape (3, 5)", "never resized"],
    ),
    "empty": (lambda: OPS.mm(A, B, out=t(0)), ["out has shape (0,)", "shape (3, 5)"]),
    "expanded": (
        lambda: OPS.mm(A, B, out=t(5).expand(3, 5)),
        ["tcgemm.mm: out of shape (3, 5) with strides (0, 1)", "more than once", "torch.empty"],
    ),
    "overlapping": (
        lambda: OPS.mm(A, B, out=t(20).as_strided((3, 5), (3, 1))),
        ["out of shape (3, 5) with strides (3, 1)", "more than once"],
    ),
    "a": (
        lambda: OPS.mm(SQUARE, t(4, 4), out=SQUARE),
        ["tcgemm.mm: out shares memory with a", "read while out is written", "a.clone()"],
    ),
    "weight": (
        lambda: OPS.linear(t(4, 4), SQUARE, out=SQUARE.t()),
        ["tcgemm.linear: out shares memory with weight", "weight.clone()"],
    ),
    "bias": (
        lambda: OPS.mm(t(4, 4), t(4, 4), SQUARE[2], out=SQUARE),
        ["out shares memory with bias", "bias.clone()"],
    ),
    "residual": (
        lambda: OPS.mm(t(4, 4), t(4, 4), residual=SQUARE, out=SQUARE),
        ["out shares memory with residual"],
    ),
    "c": (
        lambda: OPS.addmm(SQUARE, t(4, 4), t(4, 4), out=SQUARE),
        ["tcgemm.addmm: out shares memory with c"],
    ),
}

PLACES = {
    "sparse": (
        lambda: OPS.mm(A.to_sparse(), B),
        ["tcgemm.mm: a has the layout torch.sparse_coo", "strided", "a.to_dense()", "compress24"],
    ),
    "sparse weight": (
        lambda: OPS.linear(A, t(5, 4).to_sparse_csr()),
        ["tcgemm.linear: weight has the layout torch.sparse_csr", "weight.to_dense()"],
    ),
    "sparse residual": (
        lambda: OPS.mm(A, B, residual=t(3, 5).to_sparse_csc()),
        ["tcgemm.mm: residual has the layout torch.sparse_csc", "residual.to_dense()"],
    ),
    "mkldnn": (lambda: OPS.mm(A, B.to_mkldnn()), ["b has the layout torch._mkldnn"]),
    "sparse explained": (
        lambda: OPS.explain(HALF_A.to_sparse(), HALF_B),
        ["tcgemm.explain: a has the layout torch.sparse_coo"],
    ),
    "two devices": (
        lambda: OPS.explain(HALF_A, meta(4, 5)),
        [
            "tcgemm.explain: b is on meta, but a is on cpu",
            "one device",
            "no values",
            "make it on cpu",
        ],
    ),
    "b elsewhere": (
        lambda: OPS.explain(meta(3, 4), HALF_B),
        ["tcgemm.explain: b is on cpu, but a is on meta", "one device", 'move b with .to("meta")'],
    ),
    "bias elsewhere": (
        lambda: OPS.check_layout(meta(3, 4), meta(4, 5), t(5)),
        ["tcgemm.check_layout: bias is on cpu, but a is on meta", '.to("meta")'],
    ),
    "freed memory": (
        lambda: OPS.mm(freed(3, 4), B),
        ["tcgemm.mm: a of shape (3, 4) with strides (4, 1)", "48 bytes", "has 0", "fill it again"],
    ),
    "unknown GPU": (
        lambda: OPS.explain(HALF_A, HALF_B, device="TPU"),
        ['tcgemm.explain: device is "TPU"', "known GPUs are", "H200", "A100", "None"],
    ),
    "arches": (
        lambda: info.code(90, "9" * 12),
        ["tcgemm: arches is '999999999999'; expected architectures such as 8.0", "by commas."],
    ),
}

TABLE = rows_of({"shape": SHAPES, "type": TYPES, "out": OUT, "place": PLACES})


@pytest.mark.parametrize("call, pieces", TABLE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_error_message(call, pieces):
    assert_error_message(call, pieces)


def test_nothing_is_written_when_a_call_is_refused():
    out = torch.full((3, 5), 7.0)
    error_message(lambda: OPS.mm(A, B, t(3), out=out))
    assert (out == 7).all()


@pytest.mark.parametrize("call", ["mm(x, x)", "linear(x, x)", "quantize(x, torch.int8, 'row')[0]"])
def test_meta_tensors_without_the_python_package(call):
    """The library itself checks them, and knows the shapes."""
    script = (
        f"import torch; torch.ops.load_library({str(_library.path())!r}); "
        f"x = torch.empty(2, 2, device='meta'); print(torch.ops.tcgemm.{call}.shape); x = x.int(); "
        f"torch.ops.tcgemm.{call}"
    )
    process = programs.run(script)
    assert process.stdout.strip() == "torch.Size([2, 2])"
    assert " is torch.int32, but " in process.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call, pieces",
    [
        (lambda a, b: OPS.mm(a.cpu(), b), ["a is on cpu"]),
        (lambda a, b: OPS.mm(a, b.cpu()), ["b is on cpu, but a is on cuda:0", '.to("cuda:0")']),
        (lambda a, b: OPS.mm(a, b, t(5)), ["bias is on cpu, but a is on cuda:0"]),
        (lambda a, b: OPS.mm(a, b, out=t(3, 5, dtype=F16)), ["out is on cpu"]),
        (
            lambda a, b: OPS.scaled_mm(
                a.float(), b.float(), terms_b=torch.empty(0, dtype=torch.uint8)
            ),
            ["terms_b is on cpu, but a is on cuda:0"],
        ),
        (
            lambda a, b: OPS.scaled_mm(
                a.float(), b.float(), terms_b=torch.empty(8, dtype=torch.uint8, device="cuda")
            ),
            ["terms_b has 8 bytes, but the terms of b of shape (4, 5)", "prepare this b"],
        ),
        (lambda a, b: OPS.mm(a, b, out_dtype=F64), ["out_dtype is torch.float64"]),
        (
            lambda a, b: OPS._activation_backward(a, a.cpu(), "gelu", F16),
            ["z is on cpu, but g is on cuda:0; both must be on one device"],
        ),
        (
            lambda a, b: OPS.quantize.scaled(a, t(), torch.int8),
            ["tcgemm.quantize: scale is on cpu, but x is on cuda:0", "move it with .to(x.device)"],
        ),
        (lambda a, b: OPS._gemm(a, b, kernel="abacus"), ["abacus"]),
    ],
)
def test_error_message_on_a_gpu(call, pieces):
    a, b = t(3, 4, dtype=F16, device="cuda"), t(4, 5, dtype=F16, device="cuda")
    text = error_message(lambda: call(a, b))
    for piece in pieces:
        assert piece in text


# Pieces of the sentences that no row of the table can cause, and why.
UNREACHABLE = {
    "could not take over a text": "torch's own call fails",
    " failed; torch gave no message.": "torch's log level hides it",
    "but no CUDA kernel was built": "needs a GPU and a CPU build",
    "computed on cuda and cpu; move": "needs a third kind of device",
    "both must be on one device: move z": "needs a GPU",
    ": scale is on ": "needs a GPU: the fake answers for tensors on meta",
}


def test_every_error_message_has_a_test():
    """Every longer literal of every fail(...) in csrc/ops stands in a sentence of the table."""
    other_rows = (*scaled_errors.TABLE, *sparse_errors.TABLE)
    other_rows += (*backward_errors.TABLE, *subbyte_errors.TABLE, *packed_weight_errors.TABLE)
    other_rows += (*grouped_errors.TABLE,)
    messages = [error_message(param.values[0]) for param in (*TABLE, *other_rows)]
    calls = 0
    for path in sorted(SOURCES.rglob("*.cpp")):
        for match in re.finditer(r"\bfail\((.*?)\);\n", path.read_text(), re.DOTALL):
            calls += 1
            body = re.sub(r'"\s*\n\s*"', "", match.group(1))
            literals = re.findall(r'"((?:[^"\\]|\\.)*)"', body)
            texts = [text.replace('\\"', '"') for text in literals if len(text) > 12]
            if any(piece in text for piece in UNREACHABLE for text in texts):
                continue
            for text in texts:
                assert any(text in line for line in messages), f"{path.name}: no test says {text!r}"
    assert calls > 25
