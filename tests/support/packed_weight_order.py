"""Packed weights element by element: the open layout and the device order, in plain Python.

Nothing here calls tcgemm. The device order follows csrc/core/packed_weight.h.
"""

import numpy as np
import torch

ROWS, DEPTH, HEADER = 128, 64, 256
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 += [-value for value in E2M1]


def ceil_div(extent, size):
    return -(-extent // size)


def code(codes, row, k):
    """The unsigned code of an element of 4 bits, from the open layout."""
    byte = int(codes[row, k // 2])
    return byte >> 4 if k % 2 else byte & 15


def groups_in_order(k, group_size):
    """G' of the device order; group_size 0: a whole row."""
    blocks = ceil_div(k, DEPTH)
    if group_size == 0:
        return min(blocks, 1)
    if group_size < DEPTH:
        return blocks * DEPTH // group_size
    return ceil_div(blocks * DEPTH, group_size)


def place_of(row, k, blocks_k, word):
    """(byte of the codes, shift in it) of an element."""
    block = row // ROWS * blocks_k + k // DEPTH
    unit, row = divmod(row % ROWS, 16)
    k %= DEPTH
    step, lane = k // 16, row // 2 * 4 + k % 8 // 2
    pair, high = row % 2 + 2 * (k % 16 // 8), k % 2
    if word in ("int8", "e4m3"):
        byte = block * ROWS * DEPTH + ((unit * 2 + step // 2) * 32 + lane) * 16
        return byte + (2 * (step % 2) + pair // 2) * 4 + pair % 2 * 2 + high, 0
    byte = block * ROWS * DEPTH // 2 + (unit * 32 + lane) * 16 + step * 4
    nibble = 4 * high + pair if word == "int4" else 2 * pair + high
    return byte + nibble // 2, nibble % 2 * 4


def device_order(codes, scales, n, k, word, group_size, second=None, table=None):
    """The bytes. codes: unsigned (n, k), of int4 with 8 added where they are symmetric. scales and
    second (zero points or offsets): float32 (n, G)."""
    blocks_n, blocks_k = ceil_div(n, ROWS), ceil_div(k, DEPTH)
    header = np.zeros(HEADER, np.uint8)
    if table is not None:
        header[:64] = np.asarray(table, np.float32).view(np.uint8)
    bits = 8 if word in ("int8", "e4m3") else 4
    body = np.zeros(blocks_n * blocks_k * ROWS * DEPTH * bits // 8, np.uint8)
    for row in range(blocks_n * ROWS):
        for column in range(blocks_k * DEPTH):
            value = codes[row][column] if row < n and column < k else 8 * (word == "int4")
            byte, shift = place_of(row, column, blocks_k, word)
            body[byte] |= int(value) << shift
    terms = [scales] if second is None else [scales, second]
    groups = groups_in_order(k, group_size)
    numbers = np.zeros((blocks_n, groups, len(terms), ROWS), np.float32)
    for index, term in enumerate(terms):
        for row in range(n):
            for group in range(min(groups, term.shape[1])):
                numbers[row // ROWS, group, index, row % ROWS] = term[row, group]
    return np.concatenate([header, body, numbers.reshape(-1).view(np.uint8)])


def dense(packed):
    """The matrix of a PackedWeight's tensors in float64, with the float32 scale rounded as one."""
    n, k = packed.shape
    size = packed.group_size or max(k, 1)
    scales = packed.scales.float()
    if packed.global_scale is not None:
        scales = scales * packed.global_scale
    out = torch.zeros(n, k, dtype=torch.float64)
    table = None if packed.table is None else packed.table.tolist()
    for row in range(n):
        for column in range(k):
            group = column // size
            if packed.codes.dtype is not torch.uint8:
                value = float(packed.codes[row, column])
            elif table is not None:
                value = table[code(packed.codes, row, column)]
            else:
                value = code(packed.codes, row, column)
                if packed.zero_points is not None:
                    value -= int(packed.zero_points[row, group])
                elif packed.offsets is not None:
                    value -= 8
                else:
                    value = value - 16 if value > 7 else value
            value *= float(scales[row, group])
            if packed.offsets is not None:
                value += float(packed.offsets[row, group])
            out[row, column] = value
    return out
