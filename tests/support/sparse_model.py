"""The format of 2:4 sparsity in NumPy, from the words of csrc/core/sparse.h and not from its code.

Elements are integers here: their bits. A matrix is looked at as rows of groups:

    w (rows, k)  ->  groups (rows, n, 4 or 2), filled up with zeros
"""

import itertools

import numpy as np
import torch

GROUP = {"2:4": 4, "1:2": 2}
WORDS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}
NO_GROUPS = 0x44444444


def bits(tensor):
    """The elements of a tensor as unsigned integers of its width."""
    return tensor.cpu().contiguous().view(WORDS[tensor.element_size()]).numpy()


def tensor(words, dtype):
    return torch.from_numpy(np.ascontiguousarray(words)).view(dtype)


def magnitudes(w):
    """Integers in the order of the magnitudes."""
    words = bits(w).astype(np.int64)
    if w.dtype is torch.uint8:
        return words
    if w.dtype is torch.int8:
        return np.abs(w.cpu().numpy().astype(np.int64))
    return words & (1 << (8 * w.element_size() - 1)) - 1


def groups(matrix, pattern):
    size = GROUP[pattern]
    rows, k = matrix.shape
    filled = np.pad(matrix, ((0, 0), (0, -k % size)))
    return filled.reshape(rows, filled.shape[1] // size, size)


def first_of(order, pattern):
    """The positions that stand first in an order, rising."""
    return np.sort(order[..., : GROUP[pattern] // 2], axis=-1)


def largest(w, pattern):
    """Positions of the largest of each group, the first of equal ones."""
    order = np.argsort(-groups(magnitudes(w), pattern), axis=-1, kind="stable")
    return first_of(order, pattern)


def not_zero(w, pattern):
    """Positions of those that are not zero, then of the first of the others."""
    order = np.argsort(groups(magnitudes(w), pattern) == 0, axis=-1, kind="stable")
    return first_of(order, pattern)


def pack(positions):
    """(rows, values) of two bits each, four in a byte, the first in the lowest bits."""
    rows, columns = positions.shape
    four = np.pad(positions, ((0, 0), (0, -columns % 4))).reshape(rows, -(-columns // 4), 4)
    return (four << np.array([0, 2, 4, 6])).sum(-1).astype(np.uint8)


def unpack(metadata, columns):
    positions = metadata[..., None] >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3
    return positions.reshape(metadata.shape[0], 4 * metadata.shape[1])[:, :columns]


def compress(w, pattern, prune=False):
    """(values, metadata, excess) as tensors."""
    rows, k = w.shape
    positions = largest(w, pattern) if prune else not_zero(w, pattern)
    values = np.take_along_axis(groups(bits(w), pattern), positions, axis=-1)
    columns = positions.shape[1] * positions.shape[2]
    metadata = pack(positions.reshape(rows, columns))
    count = (groups(magnitudes(w), pattern) != 0).sum(-1)
    many = np.argwhere(count > GROUP[pattern] // 2)
    excess = [0, -1]
    if not prune and len(many):
        excess = [len(many), many[0, 0] * k + many[0, 1] * GROUP[pattern]]
    values = tensor(values.reshape(rows, columns), w.dtype)
    return values, torch.from_numpy(metadata), torch.tensor(excess)


def decompress(values, metadata, k, pattern):
    rows, columns = values.shape
    size = GROUP[pattern]
    shape = (rows, 2 * columns // size, size // 2)
    positions = unpack(metadata.cpu().contiguous().numpy(), columns).reshape(shape)
    out = np.zeros((*shape[:2], size), bits(values).dtype)
    np.put_along_axis(out, positions.astype(np.int64), bits(values).reshape(shape), axis=-1)
    return tensor(out.reshape(rows, 2 * columns)[:, :k], values.dtype)


def gather(w, metadata, pattern):
    size, words = GROUP[pattern], groups(bits(w), pattern)
    shape = (*words.shape[:2], size // 2)
    columns = shape[1] * shape[2]
    positions = unpack(metadata.cpu().contiguous().numpy(), columns).reshape(shape)
    values = np.take_along_axis(words, positions.astype(np.int64), axis=-1)
    return tensor(values.reshape(w.shape[0], columns), w.dtype)


def prune(w, pattern):
    words = groups(bits(w), pattern)
    keep = np.zeros(words.shape, bool)
    np.put_along_axis(keep, largest(w, pattern), True, axis=-1)
    rows, columns = w.shape
    values = np.where(keep, words, 0).reshape(rows, words.shape[1] * words.shape[2])
    return tensor(values[:, :columns], w.dtype)


PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def choices():
    """The 90 choices in their order: for each row the pair that it keeps."""
    for rows in itertools.product(PAIRS, repeat=4):
        if all(sum(column in pair for pair in rows) == 2 for column in range(4)):
            yield rows


CHOICES = tuple(choices())
MOST = np.float32(2.0**124)


def f32_magnitudes(w):
    size = w.cpu().float().abs().numpy()
    return np.where(size <= MOST, size, MOST)  # NaN is not


def blocks(matrix):
    """(rows of blocks, columns of blocks, 4, 4), filled up with zeros."""
    rows, columns = matrix.shape
    filled = np.pad(matrix, ((0, -rows % 4), (0, -columns % 4)))
    down, across = (extent // 4 for extent in filled.shape)
    return filled.reshape(down, 4, across, 4).swapaxes(1, 2)


def prune_transposable(w):
    size, words = blocks(f32_magnitudes(w)), blocks(bits(w))
    sums = np.empty((len(CHOICES), *size.shape[:2]), np.float32)
    for c, rows in enumerate(CHOICES):
        s = [size[:, :, i, first] + size[:, :, i, second] for i, (first, second) in enumerate(rows)]
        sums[c] = (s[0] + s[1]) + (s[2] + s[3])
    keep = np.zeros((len(CHOICES), 4, 4), bool)
    for c, rows in enumerate(CHOICES):
        for i, pair in enumerate(rows):
            keep[c, i, list(pair)] = True
    values = np.where(keep[sums.argmax(0)], words, 0)  # argmax: the first of equal ones
    rows, columns = w.shape
    values = values.swapaxes(1, 2).reshape(4 * values.shape[0], 4 * values.shape[1])
    return tensor(values[:rows, :columns], w.dtype)


def tiles(metadata, k, pattern, width):
    """The words that tensor cores take, of elements of so many bits, as a tensor of bytes.

    Written group by group: where in the tiles the four bits of each go.
    """
    rows = metadata.shape[0]
    size = GROUP[pattern]
    n = -(-k // size)
    positions = unpack(metadata.cpu().contiguous().numpy(), n * size // 2).astype(np.uint32)
    if pattern == "2:4":
        first, second = positions[:, 0::2], positions[:, 1::2]
    else:
        first, second = 2 * positions, 2 * positions + 1
    codes = first | second << 2

    words = 2 if width == 8 else 1
    block = 1024 // width // size  # groups of a row in a k block
    blocks_m, blocks_k = -(-rows // 64), -(-n // block)
    out = np.full((blocks_k, blocks_m, 4, 32, words), NO_GROUPS, np.uint32)
    row, group = np.meshgrid(np.arange(rows), np.arange(n), indexing="ij")
    g, other = row % 16 // 2, row % 2
    if width == 8:
        step, half, nibble = group % block // 16, group % 16 // 8, group % 8
        word, lane, shift = step, 4 * g + 2 * half + other, 4 * nibble
    else:
        step, half, nibble = group % block // 8, group % 8 // 4, group % 4
        word, lane, shift = 0 * row, 4 * g + 2 * step + half, 16 * other + 4 * nibble
    place = (group // block, row // 64, row % 64 // 16, lane, word)
    mask = (np.uint32(15) << shift.astype(np.uint32)).astype(np.uint32)
    np.bitwise_and.at(out, place, ~mask)
    np.bitwise_or.at(out, place, (codes << shift.astype(np.uint32)).astype(np.uint32))
    slack = np.full(8 * 128 * words, NO_GROUPS, np.uint32)
    return torch.from_numpy(np.concatenate([out.reshape(-1), slack]).view(np.uint8))
