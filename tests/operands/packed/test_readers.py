"""Weights in the layouts of other libraries have their values, bit by bit."""

import json
import math

import numpy
import pytest
import torch

import tcgemm
from tcgemm import packed
from tcgemm.operands.packed.formats import E2M1, NF4

from support import packed_weight_layouts as layouts
from support.error_asserts import error_message
from support.source_tree import ROOT

N, K = 16, 256
RECORDED = ROOT / "tests/data/packed/gptq_awq.npz"
FLOATS = "torch.float16 or torch.bfloat16 or torch.float32"
BNB_FP4 = torch.tensor([0.0, 0.0052, 0.6667, 1.0, 0.3333, 0.5, 0.1667, 0.25] * 2) * torch.tensor(
    [1.0] * 8 + [-1.0] * 8
)


def random_codes(n=N, k=K):
    return torch.randint(0, 16, (n, k))


def random_scales(groups, dtype=torch.float16):
    return (torch.rand(N, groups) + 0.1).to(dtype)


def product_is_that_of(w):
    x = torch.randn(3, w.shape[1]).half()
    assert torch.equal(tcgemm.linear(x, w), tcgemm.linear(x, w.dequantize(torch.float16)))


def test_groups_that_no_kernel_has_are_divided():
    codes, scales = random_codes(), random_scales(2, torch.bfloat16)
    zeros = torch.randint(1, 16, (N, 2))
    codes = torch.cat([codes, codes], 1)  # groups of 256
    qweight, qzeros = layouts.gptq(codes, zeros, 1)
    w = packed.from_gptq(qweight, scales.t(), qzeros, dtype=torch.float32)
    assert (w.group_size, w.scales.shape, w.dtype) == (128, (N, 4), torch.float32)
    assert torch.equal(w.dequantize(), layouts.grouped(codes, zeros, scales).float())


@pytest.mark.parametrize("size", [32, 64, 128, 256])
def test_awq(size):
    groups = K // size
    codes, scales = random_codes(), random_scales(groups)
    zeros = torch.randint(0, 16, (N, groups))
    qweight, qzeros = layouts.awq(codes, zeros)
    w = packed.from_awq(qweight, scales.t().contiguous(), qzeros)
    assert torch.equal(w.dequantize(torch.float32), layouts.grouped(codes, zeros, scales).float())
    product_is_that_of(w)
    symmetric = packed.from_awq(qweight, scales.t())
    eights = torch.full_like(zeros, 8)
    expected = layouts.grouped(codes, eights, scales)
    assert torch.equal(symmetric.dequantize(torch.float32), expected.float())


@pytest.mark.parametrize("blocksize", [32, 64, 128, 256, 1024])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_bitsandbytes(kind, blocksize):
    k = 2048 if blocksize == 1024 else K
    codes = random_codes(N, k)
    absmax = torch.rand(N * k // blocksize) + 0.1
    table = torch.tensor(NF4) if kind == "nf4" else BNB_FP4
    weight, state = layouts.bitsandbytes(codes, absmax, table, kind, blocksize)
    w = packed.from_bitsandbytes(weight, state)
    assert (w.format, w.dtype) == ("nf4" if kind == "nf4" else "table", torch.float16)
    expected = table[codes] * absmax.view(N, -1).repeat_interleave(blocksize, 1)
    assert torch.equal(w.dequantize(torch.float32), expected)
    product_is_that_of(w)
    stored = weight.flatten().view(torch.float16)  # another quant_storage has the same bytes
    copy = packed.from_bitsandbytes(stored, state)
    assert torch.equal(copy.codes, w.codes)


def test_bitsandbytes_with_nested_absmax():
    codes, absmax = random_codes(128, K), torch.zeros(128 * 4)
    weight, state = layouts.bitsandbytes(codes, absmax, torch.tensor(NF4), "nf4", 64)
    indexes = torch.randint(0, 256, (512,), dtype=torch.uint8)
    nested, nested_map = torch.rand(2) + 0.5, torch.linspace(-1, 1, 256)
    state = layouts.nest(state, "nf4", indexes, nested, nested_map, 256, 1.75)
    scales = nested_map[indexes.long()] * nested.repeat_interleave(256) + 1.75
    w = packed.from_bitsandbytes(weight, state, dtype=torch.bfloat16)
    expected = torch.tensor(NF4)[codes] * scales.view(128, 4).repeat_interleave(64, 1)
    assert torch.equal(w.dequantize(torch.float32), expected) and w.dtype is torch.bfloat16


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_tensors_that_bitsandbytes_makes(kind, nested):
    functional = pytest.importorskip("bitsandbytes.functional")
    weight, state = functional.quantize_4bit(
        torch.randn(N, K).half(), blocksize=64, quant_type=kind, compress_statistics=nested
    )
    w = packed.from_bitsandbytes(weight, state)
    assert torch.equal(w.dequantize(), functional.dequantize_4bit(weight, state))
    saved = packed.from_bitsandbytes(weight, state.as_dict(packed=True))
    assert torch.equal(saved.dequantize(), w.dequantize())


def test_tensors_that_auto_gptq_and_autoawq_made():
    """QuantLinear.pack of auto_gptq 0.7.1 (qlinear_cuda_old) and WQLinear_GEMM.from_linear of
    autoawq 0.2.9 packed one weight (64, 128) on a CPU, with zero points in groups of 32."""
    with numpy.load(RECORDED) as file:
        tensors = {name: torch.from_numpy(file[name]) for name in file.files}
    gptq, awq = (
        [tensors[f"{name}_{suffix}"] for suffix in ("qweight", "scales", "qzeros")]
        for name in ("gptq", "awq")
    )
    for w in (packed.from_gptq(*gptq), packed.from_awq(*awq)):
        assert w.group_size == 32 and torch.equal(w.dequantize(), tensors["weight"])
        assert w.zero_points.unique().numel() > 3
    gptq[2][0, 0] ^= 1 << 4  # another zero point: the comparison sees it
    assert not torch.equal(packed.from_gptq(*gptq).dequantize(), tensors["weight"])


def test_mxfp4():
    codes = random_codes()
    exponents = torch.randint(110, 140, (N, K // 32), dtype=torch.uint8)
    exponents[0, 0], exponents[0, 1] = 255, 0  # NaN and 2**-127
    blocks = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8).view(N, K // 32, 16)
    scale = torch.ldexp(torch.ones(N, K // 32, dtype=torch.float64), exponents.double() - 127)
    scale[0, 0] = math.nan
    expected = torch.tensor(E2M1).double()[codes] * scale.repeat_interleave(32, 1)
    for scales in (exponents, exponents.view(torch.float8_e8m0fnu)):
        w = packed.from_mxfp4(blocks, scales)
        assert (w.format, w.dtype) == ("mxfp4", torch.bfloat16)
        values = w.dequantize(torch.float32)
        assert torch.equal(values.nan_to_num(9), expected.float().nan_to_num(9))
        assert values[0, :32].isnan().all()


def test_mxfp4_as_transformers_reads_it():
    integration = pytest.importorskip("transformers.integrations.mxfp4")
    blocks = torch.randint(0, 256, (2, N, K // 32, 16), dtype=torch.uint8)
    scales = torch.randint(120, 130, (2, N, K // 32), dtype=torch.uint8)
    expected = integration.convert_moe_packed_tensors(blocks, scales)  # (experts, K, N)
    for expert in range(2):
        w = packed.from_mxfp4(blocks[expert], scales[expert])
        assert torch.equal(w.dequantize(), expected[expert].t())


class Int4Tensor(torch.Tensor):
    """A tensor with the attributes of torchao's, which only a GPU library makes."""


def int4_tensor(codes, scales, zeros, size):
    weight = torch.empty(codes.shape, dtype=scales.dtype).as_subclass(Int4Tensor)
    nibbles = codes & 15
    weight.qdata = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).to(torch.uint8).view(torch.int8)
    weight.scale, weight.zero_point = scales.t().contiguous(), zeros.t().contiguous()
    weight.block_size, weight.act_pre_scale = [1, size], None
    return weight


@pytest.mark.parametrize("size", [32, 128, 256])
def test_int4_of_torchao(size):
    codes = torch.randint(-8, 8, (N, K))
    scales = random_scales(K // size, torch.bfloat16)
    zeros = torch.randn(N, K // size).bfloat16()
    w = packed.from_torchao(int4_tensor(codes, scales, zeros, size))
    spread = (tensor.float().repeat_interleave(size, 1) for tensor in (scales, zeros))
    scale, zero = spread
    assert torch.equal(w.dequantize(torch.float32), codes.float() * scale + zero)
    assert w.dtype is torch.bfloat16
    product_is_that_of(w)


def test_symmetric_int4_of_torchao_has_no_offsets():
    codes, scales = torch.randint(-8, 8, (N, K)), random_scales(2, torch.bfloat16)
    w = packed.from_torchao(int4_tensor(codes, scales, torch.zeros(N, 2).bfloat16(), 128))
    assert w.offsets is None
    expected = codes.float() * scales.float().repeat_interleave(128, 1)
    assert torch.equal(w.dequantize(torch.float32), expected)


def test_awq_whose_zero_points_are_all_8_has_none():
    codes, scales = random_codes(), random_scales(2)
    qweight, qzeros = layouts.awq(codes, torch.full((N, 2), 8))
    w = packed.from_awq(qweight, scales.t(), qzeros)
    assert w.zero_points is None
    assert torch.equal(w.codes, packed.from_awq(qweight, scales.t()).codes)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_intx_of_torchao(bits, symmetric):
    quantization = pytest.importorskip("torchao.quantization")
    if bits == 8 and not symmetric:
        pytest.skip("a PackedWeight of int8 has no zero points")
    mapping = quantization.MappingType
    config = quantization.IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"),
        granularity=quantization.PerGroup(32),
        mapping_type=mapping.SYMMETRIC if symmetric else mapping.ASYMMETRIC,
    )
    linear = torch.nn.Linear(K, N)
    quantization.quantize_(linear, config)
    w = packed.from_torchao(linear.weight)
    assert (w.format, w.zero_points is None) == (f"int{bits}", symmetric)
    assert torch.equal(w.dequantize(), linear.weight.dequantize())
    product_is_that_of(w)


def test_mx_and_nvfp4_of_torchao():
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    nv = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    w = torch.randn(32, K).bfloat16()
    tensor = mx.MXTensor.to_mx(w, torch.float4_e2m1fn_x2, 32)
    weight = packed.from_torchao(tensor)
    assert weight.format == "mxfp4" and torch.equal(weight.dequantize(), tensor.dequantize())
    whole = w.float().abs().amax() / (448 * 6)
    for scale in (None, whole):
        tensor = nv.NVFP4Tensor.to_nvfp4(w, per_tensor_scale=scale, is_swizzled_scales=False)
        weight = packed.from_torchao(tensor)
        assert weight.format == "nvfp4" and torch.equal(weight.dequantize(), tensor.dequantize())
    tensor.act_quant_kwargs = nv.QuantizeTensorToNVFP4Kwargs()
    assert error_message(lambda: packed.from_torchao(tensor), RuntimeError) == (
        "tcgemm.packed.from_torchao: weight quantises its input as well, and a PackedWeight does "
        "not; pass another."
    )


QWEIGHT, SCALES = torch.zeros(K // 8, N, dtype=torch.int32), torch.ones(2, N)
QZEROS = torch.zeros(2, N // 8, dtype=torch.int32)
BLOCKS = torch.zeros(N, 8, 16, dtype=torch.uint8)
BNB, STATE = layouts.bitsandbytes(
    torch.zeros(N, K, dtype=torch.int64), torch.ones(N * 4), torch.tensor(NF4), "nf4", 64
)
CHECKPOINT = "pass the tensor of the checkpoint."


def int4(**changes):
    weight = int4_tensor(torch.zeros(N, K).long(), torch.ones(N, 8), torch.ones(N, 8), 32)
    for name, value in changes.items():
        setattr(weight, name, value)
    return lambda: packed.from_torchao(weight)


class StateWithoutShape:
    """A QuantState of bitsandbytes whose shape is not known."""

    def as_dict(self):
        return {"absmax": torch.ones(4), "blocksize": 64, "shape": None}


def state(**changes):
    changes = {f"weight.{name}": value for name, value in changes.items()}
    values = {name: value for name, value in (STATE | changes).items() if value is not None}
    return lambda: packed.from_bitsandbytes(BNB, values)


def facts(**changes):
    """The tensors of STATE without a prefix, with other facts; None removes one."""
    own = {"shape": [N, K], "dtype": "float16", "quant_type": "nf4", "blocksize": 64} | changes
    text = json.dumps({name: value for name, value in own.items() if value is not None})
    tensors = {name.removeprefix("weight."): tensor for name, tensor in STATE.items()}
    coded = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return tensors | {"quant_state.bitsandbytes__nf4": coded}


ERRORS = {
    "no tensor": (
        lambda: packed.from_gptq(None, SCALES),
        "tcgemm.packed.from_gptq: qweight must be a torch.Tensor, but is NoneType; pass the "
        "tensor of the checkpoint.",
    ),
    "dtype": (
        lambda: packed.from_gptq(QWEIGHT.long(), SCALES),
        "tcgemm.packed.from_gptq: qweight must be torch.int32 of shape (K/8, N), but is "
        f"torch.int64 of shape (32, 16); {CHECKPOINT}",
    ),
    "scales": (
        lambda: packed.from_gptq(QWEIGHT, SCALES.t()),
        f"tcgemm.packed.from_gptq: scales must be {FLOATS} of shape (G, 16), but is "
        f"torch.float32 of shape (16, 2); {CHECKPOINT}",
    ),
    "groups": (
        lambda: packed.from_gptq(QWEIGHT, torch.ones(3, N)),
        "tcgemm.packed.from_gptq: scales has 3 groups, which do not divide the 256 inputs evenly; "
        "pass the tensors of one layer.",
    ),
    "small groups": (
        lambda: packed.from_gptq(QWEIGHT, torch.ones(16, N)),
        "tcgemm.packed.from_gptq: the groups have 16 elements, but a PackedWeight has groups of "
        "32, 64, 128, of a multiple of these, or of a whole row; multiply the dequantised weight.",
    ),
    "qzeros": (
        lambda: packed.from_gptq(QWEIGHT, SCALES, QZEROS[:1]),
        "tcgemm.packed.from_gptq: qzeros must be torch.int32 of shape (2, 2), but is torch.int32 "
        f"of shape (1, 2); {CHECKPOINT}",
    ),
    "act-order": (
        lambda: packed.from_gptq(QWEIGHT, SCALES, g_idx=torch.arange(K).flip(0) // 128),
        "tcgemm.packed.from_gptq: g_idx is not k // 128, so the inputs of a group do not follow "
        "each other ('desc_act': true), but in a PackedWeight they do; quantise the model "
        "without act-order, or multiply the dequantised weight.",
    ),
    "awq": (
        lambda: packed.from_awq(QWEIGHT[:, :2], SCALES, QZEROS.short()),
        "tcgemm.packed.from_awq: qzeros must be torch.int32 of shape (2, 2), but is torch.int16 "
        f"of shape (2, 2); {CHECKPOINT}",
    ),
    "shown dtype": (
        lambda: packed.from_awq(QWEIGHT[:, :2], SCALES, dtype=torch.int8),
        "tcgemm.packed.from_awq: dtype is torch.int8, but dequantize() has torch.float16, "
        "torch.bfloat16 or torch.float32; pass one of these, or leave it out.",
    ),
    "blocks": (
        lambda: packed.from_mxfp4(BLOCKS[None], BLOCKS[..., 0]),
        "tcgemm.packed.from_mxfp4: blocks must be torch.uint8 of shape (N, K/32, 16), but is "
        f"torch.uint8 of shape (1, 16, 8, 16); {CHECKPOINT}",
    ),
    "exponents": (
        lambda: packed.from_mxfp4(BLOCKS, BLOCKS[:, :4, 0]),
        "tcgemm.packed.from_mxfp4: scales must be torch.uint8 or torch.float8_e8m0fnu of shape "
        f"(16, 8), but is torch.uint8 of shape (16, 4); {CHECKPOINT}",
    ),
    "state": (
        lambda: packed.from_bitsandbytes(BNB, 4),
        "tcgemm.packed.from_bitsandbytes: state is int, but it must be the quant_state of a "
        "Params4bit or a dict of tensors; pass one of these.",
    ),
    "state without a shape": (
        lambda: packed.from_bitsandbytes(BNB, StateWithoutShape()),
        "tcgemm.packed.from_bitsandbytes: state is StateWithoutShape, but it must be the "
        "quant_state of a Params4bit or a dict of tensors; pass one of these.",
    ),
    "incomplete state": (
        state(absmax=None),
        "tcgemm.packed.from_bitsandbytes: state has no absmax, but only 'weight.quant_map', "
        "'weight.quant_state.bitsandbytes__nf4'; pass all tensors of the checkpoint that belong "
        "to the weight.",
    ),
    "two layers": (
        lambda: packed.from_bitsandbytes(BNB, STATE | {"other.absmax": torch.ones(64)}),
        "tcgemm.packed.from_bitsandbytes: state has 'weight.absmax' and 'other.absmax', so it has "
        "tensors of two weights; pass those of one.",
    ),
    "no blocksize": (
        lambda: packed.from_bitsandbytes(BNB, facts(blocksize=None)),
        "tcgemm.packed.from_bitsandbytes: state has no blocksize among its facts (shape, dtype, "
        "quant_type); pass all tensors of the checkpoint that belong to the weight.",
    ),
    "blocksize 0": (
        lambda: packed.from_bitsandbytes(BNB, facts(blocksize=0)),
        "tcgemm.packed.from_bitsandbytes: blocksize is 0, but it must be a positive number; pass "
        "the tensors of the checkpoint.",
    ),
    "nested_blocksize": (
        lambda: packed.from_bitsandbytes(
            BNB, facts() | {"absmax": torch.zeros(64).byte(), "nested_absmax": torch.ones(1)}
        ),
        "tcgemm.packed.from_bitsandbytes: nested_blocksize is None, but it must be a positive "
        "number; pass the tensors of the checkpoint.",
    ),
    "no facts": (
        lambda: packed.from_bitsandbytes(
            BNB, {**facts(), "quant_state.bitsandbytes__nf4": torch.zeros(3).byte()}
        ),
        "tcgemm.packed.from_bitsandbytes: quant_state.bitsandbytes__nf4 is no JSON; pass the "
        "tensor of the checkpoint.",
    ),
    "bytes": (
        lambda: packed.from_bitsandbytes(BNB[:-1], STATE),
        "tcgemm.packed.from_bitsandbytes: weight, as bytes, must be torch.uint8 of shape (2048,), "
        f"but is torch.uint8 of shape (2047,); {CHECKPOINT}",
    ),
    "weight": (
        lambda: packed.from_bitsandbytes(None, STATE),
        "tcgemm.packed.from_bitsandbytes: weight must be a torch.Tensor, but is NoneType; "
        f"{CHECKPOINT}",
    ),
    "absmax": (
        state(absmax=torch.ones(7)),
        "tcgemm.packed.from_bitsandbytes: absmax must be torch.float32 of shape (64,), but is "
        f"torch.float32 of shape (7,); {CHECKPOINT}",
    ),
    "code book of 15": (
        state(quant_map=torch.ones(15)),
        "tcgemm.packed.from_bitsandbytes: quant_map must be torch.float32 of shape (16,), but is "
        f"torch.float32 of shape (15,); {CHECKPOINT}",
    ),
    "blocks over rows": (
        lambda: packed.from_bitsandbytes(
            *layouts.bitsandbytes(
                random_codes(16, 96), torch.ones(24), torch.tensor(NF4), "nf4", 64
            )
        ),
        "tcgemm.packed.from_bitsandbytes: blocks of 64 elements do not divide rows of 96, but a "
        "group of a PackedWeight lies in one row; multiply the dequantised weight.",
    ),
    "class": (
        lambda: packed.from_torchao(torch.ones(2, 2)),
        "tcgemm.packed.from_torchao: weight is Tensor, but there are Int4Tensor, "
        "IntxUnpackedToInt8Tensor, MXTensor, NVFP4Tensor; pass one of these.",
    ),
    "rows of a block": (
        int4(block_size=[16, 32]),
        "tcgemm.packed.from_torchao: the blocks of weight have 16 rows, but a group of a "
        "PackedWeight lies in one row; quantise with a granularity along K.",
    ),
    "act_pre_scale": (
        int4(act_pre_scale=torch.ones(K)),
        "tcgemm.packed.from_torchao: weight has act_pre_scale, which multiplies the input, and a "
        "PackedWeight has none; multiply the input by it, and pass the weight without.",
    ),
}


@pytest.mark.parametrize(("call", "text"), ERRORS.values(), ids=ERRORS)
def test_a_layout_is_refused(call, text):
    assert error_message(call, (RuntimeError, TypeError)) == text
