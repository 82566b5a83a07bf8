"""One valid call of every operator that takes several tensors, with all of its tensors."""

import torch

from tcgemm.ops.operators import PLAIN

OPS = torch.ops.tcgemm
M, N, K = 4, 8, 16


def f32(*shape, device="cpu"):
    return torch.ones(shape, device=device)


def f16(*shape, device="cpu"):
    return torch.ones(shape, dtype=torch.float16, device=device)


def s8(*shape, device="cpu"):
    return torch.ones(shape, dtype=torch.int8, device=device)


def u8(*shape, device="cpu"):
    return torch.zeros(shape, dtype=torch.uint8, device=device)


def u8_columns(*shape, device="cpu"):
    """Contiguous along the columns."""
    return torch.zeros(shape[::-1], dtype=torch.uint8, device=device).t()


def s32(*shape, device="cpu"):
    return torch.zeros(shape, dtype=torch.int32, device=device)


EPILOGUE = {"bias": (f32, N), "residual": (f32, M, N)}
ADDENDS = {"c": (f32, M, N), **EPILOGUE}
PRODUCT = {"a": (f32, M, K), "b": (f32, K, N), **EPILOGUE}
BATCHED = {"a": (f32, 2, M, K), "b": (f32, 2, K, N), **EPILOGUE}
GROUPED = {
    "a": (f32, M, K),
    "b": (f32, 2, K, N),
    "offs": (s32, 2),
    "bias": (f32, 2, N),
    "residual": (f32, M, N),
}
SCALED = {
    "a": (s8, M, K),
    "b": (s8, K, N),
    "scale_a": (f32, M, 1),
    "scale_b": (f32, 1, N),
    **ADDENDS,
    "zero_a": (s32, M, 1),
    "zero_b": (s32, 1, N),
    "scale_out": (f32,),
}
INT4 = SCALED | {"a": (u8, M, K // 2), "b": (u8_columns, K // 2, N)}
BINARY = {"a": (u8, M, K // 8), "b": (u8_columns, K // 8, N)}
QUANTIZED = {"x": (f32, M, K), "weight": (s8, N, K), "weight_scale": (f32, N, 1), **EPILOGUE}
SPARSE = {"a": (f32, M, K), "b": (f32, K // 2, N), "sparse_b": (u8, N, K // 8)}
# One block of codes of 4 bits behind the header, and the scales of its 128 rows.
PACKED = {"a": (f16, M, K), "packed_b": (u8, 256 + 4096 + 512), **ADDENDS, "scale_out": (f32,)}
PACKED_OPTIONS = {"n": N, "weight_format": "int4", "group_size": 0, "out_dtype": torch.float32}
LINEAR24 = {
    "weight": (f16, N, K // 2),
    "metadata": (u8, N, K // 8),
    "x": (f16, M, K),
    "bias": (f16, N),
}
# operator -> (its tensors by name: the function that makes each, and its shape; its options)
CALLS = {
    "mm": (PRODUCT, {}),
    "bmm": (BATCHED, {}),
    "baddbmm": ({"c": (f32, 2, M, N), **BATCHED}, {}),
    "matmul": (PRODUCT, {}),
    "addmm": ({"c": (f32, M, N), **PRODUCT}, {}),
    "linear": ({"x": (f32, M, K), "weight": (f32, N, K), **EPILOGUE}, {}),
    "grouped_mm": (GROUPED, {}),
    "_gemm": ({**PRODUCT, "c": (f32, M, N)}, {}),
    "scaled_mm": (SCALED, {"out_dtype": torch.float32}),
    "scaled_mm_amax": (SCALED, {"out_dtype": torch.float32}),
    "scaled_mm sparse_b": (SPARSE, {"precision": "high"}),
    "scaled_mm terms_b": (
        {"a": (f32, M, K), "b": (f32, K, N), "terms_b": (u8, 0)},
        {},
    ),
    "packed_mm": (PACKED, PACKED_OPTIONS),
    "packed_mm_amax": (PACKED, PACKED_OPTIONS),
    "_int4_mm": (INT4, {"out_dtype": torch.float32, "types": "s4,u4"}),
    "_int4_mm_amax": (INT4, {"out_dtype": torch.float32, "types": "s4,u4"}),
    "_binary_mm": (BINARY, {"k": K, "operation": "xor"}),
    "_linear24": (LINEAR24, {}),
    "quantized_linear": (QUANTIZED, {"dtype": torch.int8, "granularity": "row"}),
    "decompress24": (
        {"values": (f32, N, K // 2), "metadata": (u8, N, K // 8)},
        {"k": K, "pattern": "1:2"},
    ),
    "gather24": ({"w": (f32, N, K), "metadata": (u8, N, K // 8)}, {"pattern": "1:2"}),
}
_OUT = (*(op.name for op in PLAIN), "grouped_mm", "_gemm", "scaled_mm", "packed_mm")
WITH_OUT = tuple(call for call in CALLS if call in _OUT)
ROWS = [(call, name) for call, (tensors, _) in CALLS.items() for name in tensors]
IDS = [f"{call}-{name}" for call, name in ROWS]


def operator_call(call, odd=None, device="cpu", other="meta"):
    """(the operator, its tensors, its options); all tensors but `odd` are on `device`."""
    tensors, options = CALLS[call]
    return (
        getattr(OPS, call.split()[0]),
        {
            name: make(*shape, device=other if name == odd else device)
            for name, (make, *shape) in tensors.items()
        },
        options,
    )


def result(call, device="cpu"):
    """A tensor for `out` of this call."""
    batched = any(shape == [2, M, K] for _, *shape in CALLS[call][0].values())
    return f32(*((2, M, N) if batched else (M, N)), device=device)
