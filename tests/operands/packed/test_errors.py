"""Every refusal of packed weights, word for word."""

import pytest
import torch

import tcgemm
from tcgemm.operands.packed.weight import restored

from support import packed_weight_errors
from support.error_asserts import assert_error_message, error_message

W = torch.ones(6, 256)
X = torch.ones(2, 256).half()
PACKED = tcgemm.pack_weight(W, "int4", 32)
NF4 = tcgemm.pack_weight(W, "nf4", 64)
FLOATS = "torch.float16, torch.bfloat16 or torch.float32"
FORMATS = "int4, int8, e4m3, nf4, fp4, mxfp4, nvfp4, table"


def pack(*args, **options):
    return lambda: tcgemm.pack_weight(*args, **options)


def parts(packed=PACKED, **changes):
    """from_parts with some arguments changed."""
    names = ("codes", "scales", "zero_points", "offsets", "table", "global_scale", "format")
    arguments = {name: getattr(packed, name) for name in (*names, "group_size")} | changes
    return lambda: tcgemm.PackedWeight.from_parts(**arguments)


PACKING = {
    "tensor": (
        pack([1.0]),
        "tcgemm.pack_weight: w must be a torch.Tensor, but is list; convert it with "
        "torch.as_tensor.",
    ),
    "matrix": (
        pack(torch.ones(2, 3, 4)),
        f"tcgemm.pack_weight: w must be a dense matrix (N, K) of {FLOATS}, but is torch.float32 "
        "of shape (2, 3, 4) and layout torch.strided; pack one matrix at a time, and convert it "
        "with .to(...).",
    ),
    "dtype": (
        pack(W.double()),
        f"tcgemm.pack_weight: w must be a dense matrix (N, K) of {FLOATS}, but is torch.float64 "
        "of shape (6, 256) and layout torch.strided; pack one matrix at a time, and convert it "
        "with .to(...).",
    ),
    "format": (
        pack(W, "int3"),
        f"tcgemm.pack_weight: format is 'int3', but there are {FORMATS}; pass one of these.",
    ),
    "group": (
        pack(W, "int4", 48),
        "tcgemm.pack_weight: group_size is 48, but the format 'int4' has groups of 32, 64, 128, "
        "None (a whole row); pass one of these.",
    ),
    "group of mxfp4": (
        pack(W, "mxfp4", 64),
        "tcgemm.pack_weight: group_size is 64, but the format 'mxfp4' has groups of 32; pass one "
        "of these.",
    ),
    "not divided": (
        pack(W[:, :160], "int4"),
        "tcgemm.pack_weight: group_size is 128, which does not divide the 160 columns of the "
        "weight; pass 32.",
    ),
    "not divided at all": (
        pack(W[:, :100], "int4"),
        "tcgemm.pack_weight: group_size is 128, which does not divide the 100 columns of the "
        "weight; pass None, for one group a row.",
    ),
    "not divided, fixed": (
        pack(W[:, :40], "nvfp4"),
        "tcgemm.pack_weight: group_size is 16, which does not divide the 40 columns of the "
        "weight; pass a weight with more columns, which are zero.",
    ),
    "method": (
        pack(W, method="gptq"),
        "tcgemm.pack_weight: method is 'gptq', but there are nearest, mse; pass one of these.",
    ),
    "zero points": (
        pack(W, "nf4", zero_points=True),
        "tcgemm.pack_weight: zero_points is True, but only the format 'int4' has them, not "
        "'nf4'; leave it out.",
    ),
    "zero points as a word": (
        pack(W, zero_points="yes"),
        "tcgemm.pack_weight: zero_points is 'yes', but it must be True or False.",
    ),
    "scale_dtype": (
        pack(W, scale_dtype=torch.float64),
        f"tcgemm.pack_weight: scale_dtype is torch.float64, but it must be {FLOATS}; pass one of "
        "these, or leave it out for the dtype of w.",
    ),
    "scale_dtype of mxfp4": (
        pack(W, "mxfp4", scale_dtype=torch.float16),
        "tcgemm.pack_weight: scale_dtype is torch.float16, but the format 'mxfp4' has scales of "
        "torch.float8_e8m0fnu; leave it out.",
    ),
    "table of 15": (
        pack(W, "table", table=torch.ones(15)),
        "tcgemm.pack_weight: table is 15 values, but the format 'table' has a code book of 16 "
        "finite numbers, not all of them 0; pass these.",
    ),
    "table with nan": (
        pack(W, "table", table=[float("nan")] * 16),
        "tcgemm.pack_weight: table is values that are not finite, but the format 'table' has a "
        "code book of 16 finite numbers, not all of them 0; pass these.",
    ),
    "no table": (
        pack(W, "table"),
        "tcgemm.pack_weight: table is None, but the format 'table' has a code book of 16 finite "
        "numbers, not all of them 0; pass these.",
    ),
    "table of another format": (
        pack(W, "nf4", table=torch.ones(16)),
        "tcgemm.pack_weight: table is given, but the format is 'nf4'; pass format='table', or "
        "leave table out.",
    ),
}
ONE = "pass the tensors of one packed weight."
TENSORS = tuple(PACKED.stored.parts)
PARTS = {
    "codes": (
        parts(codes=[1]),
        "tcgemm.PackedWeight: codes must be a torch.Tensor, but is list; convert it with "
        "torch.as_tensor.",
    ),
    "scales": (
        parts(scales=None),
        "tcgemm.PackedWeight: scales must be a torch.Tensor, but is NoneType; convert it with "
        "torch.as_tensor.",
    ),
    "table is a list": (
        parts(NF4, table=[1.0] * 16),
        "tcgemm.PackedWeight: table must be a torch.Tensor or None, but is list; convert it with "
        "torch.as_tensor.",
    ),
    "format": (
        parts(format=4),
        f"tcgemm.PackedWeight: format is 4, but there are {FORMATS}; pass one of these.",
    ),
    "dimensions": (
        parts(codes=PACKED.codes[0]),
        "tcgemm.PackedWeight: codes must have two dimensions, a row for each row of the weight, "
        "but has shape (128,); reshape it.",
    ),
    "k": (
        parts(k=-1),
        "tcgemm.PackedWeight: k is -1, but it must be the number of columns of the weight; pass "
        "a whole number that is not negative.",
    ),
    "k of other codes": (
        parts(k=128),
        "tcgemm.PackedWeight: codes must be torch.uint8 of shape (6, 64), but is torch.uint8 of "
        f"shape (6, 128); {ONE}",
    ),
    "dtype of codes": (
        parts(codes=PACKED.codes.int()),
        "tcgemm.PackedWeight: codes must be torch.uint8 of shape (6, 128), but is torch.int32 of "
        f"shape (6, 128); {ONE}",
    ),
    "shape of scales": (
        parts(scales=PACKED.scales.t()),
        "tcgemm.PackedWeight: scales must be torch.float16 or torch.bfloat16 or torch.float32 of "
        f"shape (6, 8), but is torch.float32 of shape (8, 6); {ONE}",
    ),
    "group of other scales": (
        parts(group_size=64),
        "tcgemm.PackedWeight: scales must be torch.float16 or torch.bfloat16 or torch.float32 of "
        f"shape (6, 4), but is torch.float32 of shape (6, 8); {ONE}",
    ),
    "table of 15": (
        parts(NF4, table=torch.ones(15)),
        "tcgemm.PackedWeight: table must be torch.float32 of shape (16,), but is torch.float32 "
        f"of shape (15,); {ONE}",
    ),
    "no table": (
        parts(NF4, format="table", table=None),
        "tcgemm.PackedWeight: table is None, but the format 'table' needs it; pass a float32 "
        "tensor.",
    ),
    "no global scale": (
        parts(tcgemm.pack_weight(W, "nvfp4"), global_scale=None),
        "tcgemm.PackedWeight: global_scale is None, but the format 'nvfp4' needs it; pass a "
        "float32 tensor.",
    ),
    "zero points of a table": (
        parts(NF4, zero_points=torch.zeros(6, 4).byte()),
        "tcgemm.PackedWeight: zero_points is given, but the format 'nf4' has none; leave it out.",
    ),
    "both zeros": (
        parts(zero_points=torch.zeros(6, 8).byte(), offsets=torch.zeros(6, 8)),
        "tcgemm.PackedWeight: zero_points and offsets are both given, but a weight has one of "
        "them; leave one out.",
    ),
    "dtype of offsets": (
        parts(offsets=torch.zeros(6, 8).half()),
        "tcgemm.PackedWeight: offsets must be torch.float32 of shape (6, 8), but is "
        f"torch.float16 of shape (6, 8); {ONE}",
    ),
    "device": (
        parts(scales=PACKED.scales.to("meta")),
        "tcgemm.PackedWeight: scales is on meta, but codes is on cpu; all tensors of a packed "
        "weight must be on one device: move it with .to(...).",
    ),
    "layout": (
        parts(codes=PACKED.codes.to_sparse()),
        "tcgemm.PackedWeight: codes must be a dense, strided tensor, torch.uint8 of shape "
        "(6, 128), but is torch.sparse_coo; pass codes.to_dense().",
    ),
    "gradient": (
        parts(scales=PACKED.scales.clone().requires_grad_()),
        "tcgemm.PackedWeight: scales needs a gradient, but a packed weight has none; pass "
        "scales.detach().",
    ),
    "replaced": (
        lambda: setattr(tcgemm.pack_weight(W), "scales", torch.ones(6, 3)),
        "tcgemm.PackedWeight: scales must be torch.float16 or torch.bfloat16 or torch.float32 of "
        f"shape (6, 2), but is torch.float32 of shape (6, 3); {ONE}",
    ),
    "dtype of dequantize": (
        lambda: PACKED.to(torch.int8),
        "tcgemm.PackedWeight.to: the dtype is torch.int8, but dequantize() has torch.float16, "
        "torch.bfloat16, torch.float32 or torch.float64; pass one of these, or call "
        "dequantize(dtype).",
    ),
    "saved": (
        lambda: restored(2, (), (), torch.float16, False),
        "tcgemm.PackedWeight: the saved weight has version 2 of the format, or is damaged, but "
        "this tcgemm reads version 1; install the tcgemm that saved it, or load another copy of "
        "the file.",
    ),
    "forged": (
        lambda: restored(1, TENSORS, ("int4", 99, 256, 32), torch.float16, False),
        "tcgemm.PackedWeight: codes must be torch.uint8 of shape (99, 128), but is torch.uint8 "
        f"of shape (6, 128); {ONE}",
    ),
}


def linear(x=X, w=PACKED, *args, **options):
    return lambda: tcgemm.linear(x, w, *args, **options)


PRODUCTS = {
    "dtype": (
        linear(X.float()),
        "tcgemm.linear: x is torch.float32, but a PackedWeight is multiplied by torch.float16 or "
        "torch.bfloat16; convert x with .to(torch.bfloat16), or pass "
        "weight.dequantize(torch.float32).",
    ),
    "shape": (
        linear(X[:, :200]),
        "tcgemm.linear: x has shape (2, 200), but weight is a PackedWeight of K = 256, so x must "
        "have shape (..., 256); reshape it.",
    ),
    "number": (
        linear(X[0, 0]),
        "tcgemm.linear: x has shape (), but weight is a PackedWeight of K = 256, so x must have "
        "shape (..., 256); reshape it.",
    ),
    "dimensions": (
        lambda: tcgemm.mm(X[0], PACKED.t()),
        "tcgemm.mm: a has shape (256,), but b is a PackedWeight of K = 256, so a must have shape "
        "(M, 256); reshape it.",
    ),
    "transpose": (
        linear(w=PACKED.t()),
        "tcgemm.linear: weight is a PackedWeight of shape (256, 6), but the linear function takes "
        "it as it was packed; pass weight.t().",
    ),
    "no transpose": (
        lambda: tcgemm.mm(X, PACKED),
        "tcgemm.mm: b is a PackedWeight of shape (6, 256), but the mm function takes it as its "
        "transpose; pass b.t().",
    ),
    "batch": (
        lambda: tcgemm.bmm(X[None], PACKED.t()),
        "tcgemm.bmm: b is a PackedWeight, which is one matrix, but bmm multiplies batches; call "
        "tcgemm.matmul with it, or pass batches of b.dequantize().",
    ),
    "x is packed": (
        linear(PACKED, X),
        "tcgemm.linear: x is a PackedWeight, which is the weight of tcgemm.linear, and whose "
        ".t() is the b of mm, matmul and addmm; pass a tensor, such as its dequantize().",
    ),
    "explain": (
        lambda: tcgemm.explain(PACKED, X.t()),
        "tcgemm.explain: a is a PackedWeight, which is the weight of tcgemm.linear, and whose "
        ".t() is the b of mm, matmul and addmm; pass a tensor, such as its dequantize().",
    ),
    "explain of a sparse a": (
        lambda: tcgemm.explain(tcgemm.compress24(X, prune=True), PACKED.t()),
        "tcgemm.explain: a is a SparseTensor24, but a packed weight is multiplied by a dense "
        "tensor of torch.float16 or torch.bfloat16; pass such a tensor.",
    ),
    "x is a list": (
        linear([1.0]),
        "tcgemm.linear: x must be a torch.Tensor, but is list; convert it with torch.as_tensor.",
    ),
    "c is missing": (
        lambda: tcgemm.addmm(None, X, PACKED.t()),
        "tcgemm.addmm: c must be a torch.Tensor, but is NoneType; convert it with torch.as_tensor.",
    ),
    "bias": (
        linear(X, PACKED, torch.ones(1, 6)),
        "tcgemm.linear: bias must have shape (6,), but has (1, 6); pass anything that varies "
        "along other dimensions as residual.",
    ),
    "length of bias": (
        linear(X, PACKED, torch.ones(5)),
        "tcgemm.linear: bias must have shape (6,), (1, 6) or (2, 1), but has (5,); pass anything "
        "that varies along both as residual, or as c of tcgemm.addmm.",
    ),
    "scale_b": (
        linear(scale_b=torch.tensor(1.0)),
        "tcgemm.linear: scale_b is given, but weight is a PackedWeight, which has its own scales; "
        "leave it out, or pass weight.dequantize().",
    ),
    "amax and out": (
        linear(amax=True, out=torch.empty(2, 6).half()),
        "tcgemm.linear: with amax=True two tensors are returned, so there is no out=; leave one of "
        "them out.",
    ),
    "amax is no bool": (
        linear(amax="yes"),
        "tcgemm.linear: amax is 'yes', but it must be True or False.",
    ),
    "acc_dtype": (
        linear(acc_dtype=torch.float16),
        "tcgemm.linear: acc_dtype is torch.float16, but products with a PackedWeight are summed "
        "in torch.float32; leave it out.",
    ),
    "activation": (
        linear(activation="tanh"),
        'tcgemm.linear: activation is "tanh", but there are "relu", "gelu", "gelu_tanh" and '
        '"silu"; pass one of these, or None.',
    ),
    "device": (
        linear(X.to("meta")),
        "tcgemm.linear: weight is on cpu, but x is on meta; all tensors of a call must be on one "
        "device: x has no values on meta; make it on cpu, or load its values with "
        "load_state_dict(..., assign=True).",
    ),
    "scale_out learns": (
        linear(scale_out=torch.tensor(1.0, requires_grad=True)),
        "tcgemm.linear: scale_out needs a gradient, but scales are constants of a product; pass "
        "scale_out.detach().",
    ),
}


@pytest.mark.parametrize(
    ("call", "text"),
    [*PACKING.values(), *PARTS.values(), *PRODUCTS.values()],
    ids=[*PACKING, *PARTS, *PRODUCTS],
)
def test_what_is_refused(call, text):
    assert error_message(call, (RuntimeError, TypeError)) == text


@pytest.mark.parametrize(("call", "pieces"), packed_weight_errors.TABLE)
def test_the_operator_refuses(call, pieces):
    assert_error_message(call, pieces)


def test_a_sparse_operand_is_refused():
    sparse = tcgemm.compress24(torch.ones(4, 256).half(), prune=True)
    with pytest.raises(NotImplementedError, match="not supported for 2:4 sparse tensors; call it"):
        tcgemm.mm(sparse, PACKED.t())
