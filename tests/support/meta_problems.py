"""Plans of products that words and numbers describe: tcgemm.explain of tensors without memory.

    plan("H200", "bf16", 4096, 4096, 4096, layout="TN", epilogue=["bias", "relu"])["kernel"]

dtypes have their short names, and "tf32" is float32 with precision "high". The first letter of
`layout` is about b, the second about a: T means that the operand is the transpose of a row-major
matrix. a, b and out are strides in elements (batch, row, column), and *_address are addresses in
bytes. scale_a and scale_b are "tensor", "row", "1x128" or "128x128". `epilogue` lists tensors,
"amax" and an activation; c, bias and residual have the dtype of the result, or float32 beside a
result of 8 bits. terms_b is the number of terms of a prepared b, and `sparse` is the operand
that is 2:4 sparse.
"""

import functools
import re

import torch

from tcgemm import dtypes
from tcgemm.operands.sparse import parts
from tcgemm.ops import query, tuned

DTYPES = {name: dtype for dtype, name in dtypes.NAMES.items()}
PER_BYTE = {"s4": 2, "u4": 2, "b1": 8}  # elements
RESULTS = dict.fromkeys(("e4m3", "e5m2"), "bf16") | dict.fromkeys(("s8", "u8", *PER_BYTE), "s32")


def meta(sizes, dtype, strides=None, address=0):
    """A tensor without memory whose storage offset gives its alignment."""
    if strides is None:
        return torch.empty(sizes, dtype=dtype, device="meta")
    storage = torch.empty(1 << 52, dtype=dtype, device="meta")
    return storage.as_strided(sizes, strides[-len(sizes) :], address // dtype.itemsize)


def matrix(dtype, batch, rows, cols, row_major, strides, address):
    """Operand a or b. Types of fewer than 8 bits are contiguous along K, in whole bytes."""
    per_byte = PER_BYTE.get(dtype, 1)
    if strides is None:
        lines, pitch = (rows, cols) if row_major else (cols, rows)
        pitch += -pitch % 8 if per_byte > 1 else 0
        strides = (lines * pitch, *((pitch, 1) if row_major else (1, pitch)))
    if per_byte > 1:
        strides = [max(1, stride // per_byte) for stride in strides]
        rows, cols = (rows, -(-cols // per_byte)) if row_major else (-(-rows // per_byte), cols)
    sizes = (rows, cols) if batch == 1 else (batch, rows, cols)
    return meta(sizes, torch.uint8 if per_byte > 1 else DTYPES[dtype], strides, address)


def scale(granularity, rows, k):
    blocks = -(-k // 128)
    sizes = {"tensor": (1, 1), "row": (rows, 1), "1x128": (rows, blocks)}
    return meta((sizes | {"128x128": (-(-rows // 128), blocks)})[granularity], torch.float32)


@functools.cache
def prepared_bytes(sizes, strides, terms):
    """The size of the terms of b as tcgemm.prepare stores them, out of an error sentence."""
    b = meta(sizes, torch.float32, strides)
    try:
        query.ask("explain", b.mT, b, terms_b=meta((1,), torch.uint8))
    except RuntimeError as error:
        return int(re.search(r"are (\d+) or (\d+); prepare", str(error))[terms - 1])


class Plan(dict):
    """The answer of explain, with its text as "explain". The text of check_layout is asked for when
    it is read."""

    def __init__(self, a, b, **options):
        super().__init__(query.ask("explain", a, b, **options))
        self["explain"] = self.pop("text")
        self["tile"] = tuple(self.get("tile", ()))
        self.ask = functools.partial(query.ask, "check_layout", a, b, **options)

    def __missing__(self, key):
        if key != "check_layout":
            raise KeyError(key)
        return self.ask()["text"]


def plan(
    device,
    dtype,
    m,
    n,
    k,
    *,
    batch=1,
    layout="TN",
    dtype_b=None,
    accumulator=None,
    out_dtype=None,
    a=None,
    b=None,
    out=None,
    a_address=0,
    b_address=0,
    out_address=0,
    scale_a=None,
    scale_b=None,
    epilogue=(),
    terms_b=0,
    sparse=None,
    **options,
):
    """The plan as a dict. The other options are alpha, precision and kernel, as for explain."""
    if dtype == "tf32":
        dtype, dtype_b, options["precision"] = "f32", "f32", "high"
    options |= {name: options.get(name) or None for name in ("precision", "kernel")}
    dtype_b, result = dtype_b or dtype, DTYPES[out_dtype or RESULTS.get(dtype, dtype)]
    stored = dict.fromkeys("ab", k)
    if sparse:
        stored[sparse] = parts.value_columns(k, parts.default_pattern(DTYPES[dtype]))
        sizes = (m if sparse == "a" else n, parts.metadata_columns(stored[sparse]))
        options[f"sparse_{sparse}"] = meta(sizes, torch.uint8)
    row_major = layout[1] == "N" or sparse == "a", layout[0] == "N" and sparse != "b"
    x = matrix(dtype, batch, m, stored["a"], row_major[0], a, a_address)
    y = matrix(dtype_b, batch, stored["b"], n, row_major[1], b, b_address)
    sizes = (m, n) if batch == 1 else (batch, m, n)
    options |= {
        "device": device,
        "out_dtype": result,
        "acc_dtype": accumulator and DTYPES[accumulator],
    }
    if out or out_address:
        options["out"] = meta(sizes, result, out or (m * n, n, 1), out_address)
    if dtype in PER_BYTE:
        options["types"] = f"{dtype},{dtype_b}"
    if dtype == "b1":
        options |= {"k": k, "operation": "and"}
    if scale_a:
        options["scale_a"] = scale(scale_a, m, k)
    if scale_b:
        options["scale_b"] = scale(scale_b, n, k).t()
    if terms_b:
        size = prepared_bytes(tuple(y.shape), y.stride(), terms_b)
        options["terms_b"] = meta((size,), torch.uint8)
    addend = torch.float32 if result.itemsize == 1 else result
    tensors = {
        **dict.fromkeys(("c", "residual"), (sizes, addend)),
        "bias": ((n,), addend),
        "zero_a": ((m, 1), torch.int32),
        "zero_b": ((1, n), torch.int32),
        "scale_out": ((), torch.float32),
    }
    for term in epilogue:
        if term in tensors:
            options[term] = meta(*tensors[term])
        else:
            options |= {"amax": True} if term == "amax" else {"activation": term}
    tuned.load_for_explain()
    return Plan(x, y, **options)
