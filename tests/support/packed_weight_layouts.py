"""The layouts of other libraries, written element by element from their documentation.

Each function takes the parts of a weight as they mean it, and returns the tensors that the library
would store. Nothing here calls tcgemm.
"""

import json

import torch

AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)


def int32(value):
    """An unsigned number of 32 bits as a signed one."""
    return value - 2**32 if value >= 2**31 else value


def pack_rows(codes):
    """(R, C) -> int32 (R/8, C): eight rows in a word, the first one in the low bits."""
    return pack_columns(list(zip(*codes, strict=True))).t().contiguous()


def pack_columns(codes, order=tuple(range(8))):
    """(R, C) -> int32 (R, C/8): four bits i of a word have the column order[i] of its eight."""
    words = [
        [
            int32(sum(int(row[8 * word + order[i]]) << 4 * i for i in range(8)))
            for word in range(len(row) // 8)
        ]
        for row in codes
    ]
    return torch.tensor(words, dtype=torch.int32)


def gptq(codes, zeros, version):
    """(qweight, qzeros) of codes (N, K) and zero points (N, G)."""
    stored = zeros.t() - (2 - version)
    return pack_rows(codes.t().tolist()), pack_columns(stored.tolist())


def awq(codes, zeros):
    """(qweight, qzeros) of codes (N, K) and zero points (N, G)."""
    return tuple(pack_columns(matrix.t().tolist(), AWQ_COLUMNS) for matrix in (codes, zeros))


def grouped(codes, zeros, scales):
    """(code - zero) * scale in float64; zeros and scales (N, G)."""
    size = codes.shape[1] // scales.shape[1]
    spread = (matrix.double().repeat_interleave(size, 1) for matrix in (zeros, scales))
    zero, scale = spread
    return (codes.double() - zero) * scale


def bitsandbytes(codes, absmax, table, kind, blocksize, dtype="float16"):
    """(weight, state) of codes (N, K) and the absmax of each block."""
    flat = codes.flatten().tolist()
    packed = [high << 4 | low for high, low in zip(flat[::2], flat[1::2], strict=True)]
    facts = {"quant_type": kind, "blocksize": blocksize, "dtype": dtype}
    facts["shape"] = list(codes.shape)
    state = {
        "weight.absmax": absmax,
        "weight.quant_map": table,
        f"weight.quant_state.bitsandbytes__{kind}": torch.tensor(
            list(json.dumps(facts).encode()), dtype=torch.uint8
        ),
    }
    return torch.tensor(packed, dtype=torch.uint8).unsqueeze(1), state


def nest(state, kind, indexes, nested, nested_map, nested_blocksize, offset):
    """The state with absmax as indexes of nested_map."""
    name = f"weight.quant_state.bitsandbytes__{kind}"
    facts = json.loads(bytes(state[name].tolist()))
    facts |= {"nested_blocksize": nested_blocksize, "nested_dtype": "float32"}
    facts["nested_offset"] = offset
    return state | {
        "weight.absmax": indexes,
        "weight.nested_absmax": nested,
        "weight.nested_quant_map": nested_map,
        name: torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8),
    }
