"""The strategies of hypothesis for products: sizes, batches, and tensors of any strides."""

import torch
from hypothesis import strategies as st

from support import cases

EXAMPLES = 150
SIZES = st.one_of(
    st.sampled_from((0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)),
    st.integers(0, 140),
)
BATCHES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
NAMES = st.sampled_from(tuple(cases.STRIDES))


def seed(draw):
    torch.manual_seed(draw(st.integers(0, 2**16)))


@st.composite
def views(draw, *shape, dtype, device, largest):
    """A tensor of this shape: named strides, or any strides and offset in a buffer of poison."""
    if len(shape) > 1 and draw(st.booleans()):
        return cases.make(draw(NAMES), *shape, dtype=dtype, device=device, largest=largest)
    # Dimensions in any order in memory, each with gaps: every stride that does not overlap.
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), 1
    for dim in order:
        step *= draw(st.sampled_from((1, 1, 1, 2, 3)))
        strides[dim] = step
        step = step * max(shape[dim], 1) + draw(st.sampled_from((0, 0, 1, 3, 8)))
    offset = draw(st.sampled_from((0, 0, 1, 3, 8)))
    whole = torch.full((offset + step + 1,), cases.poison(dtype), dtype=dtype, device=device)
    view = whole.as_strided(shape, strides, offset)
    return cases.fill(view, largest=largest)


def broadcast_shape(draw, batch, *sizes):
    """A shape that broadcasts to (*batch, *sizes)."""
    full = (*batch, *sizes)
    sizes_of_batch = full[draw(st.integers(0, len(full))) :]
    return tuple(1 if draw(st.booleans()) else size for size in sizes_of_batch)
