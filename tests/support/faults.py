"""Typical wrong results of a product, as functions that spoil a right one: fault(out, a, b)."""

M, N, K = 192, 128, 256


def zero_tile(out, a, b):
    """A tile that no block has written."""
    out[64:128, 64:128] = 0


def zero_block(out, a, b):
    """One matrix of an stmatrix."""
    out[72:80, 48:56] = 0


def unwritten(out, a, b):
    out[-1, -1] = float("nan")


def drop_k_step(out, a, b):
    """One instruction's worth of products in one tile."""
    lost = a[:64, 32:48].double() @ b[32:48, :64].double()
    out[:64, :64] = (out[:64, :64].double() - lost).to(out.dtype)


def repeat_k_step(out, a, b):
    twice = a[:64, -16:].double() @ b[-16:, :64].double()
    out[:64, :64] = (out[:64, :64].double() + twice).to(out.dtype)


def stale_k_block(out, a, b):
    """A pipeline stage that is read before it is loaded: the block before it again."""
    wrong = (a[:64, :64] - a[:64, 64:128]).double() @ b[64:128, :64].double()
    out[:64, :64] = (out[:64, :64].double() + wrong).to(out.dtype)


def swap_rows(out, a, b):
    out[[8, 9]] = out[[9, 8]]


def swap_columns(out, a, b):
    out[:, [63, 64]] = out[:, [64, 63]]


def shift_by_one(out, a, b):
    out[:, 1:] = out[:, :-1].clone()


def wrong_sign(out, a, b):
    out[100, 100:108] *= -1


def mixed_fragments(out, a, b):
    """Two lanes' values of one 8 x 8 block exchanged."""
    out[16, [0, 1, 2, 3]] = out[16, [2, 3, 0, 1]]


FAULTS = (
    zero_tile,
    zero_block,
    unwritten,
    drop_k_step,
    repeat_k_step,
    stale_k_block,
    swap_rows,
    swap_columns,
    shift_by_one,
    wrong_sign,
    mixed_fragments,
)
