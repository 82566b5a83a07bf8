"""The sentences of the operators of 2:4 sparsity, and similar calls that are right."""

import pytest

from support.cases import BF16, F32, U8
from support.error_asserts import assert_error_message, t
from support.sparse_errors import METADATA, OPS, TABLE, VALUES, compressed, decompress, tile


@pytest.mark.parametrize("call, pieces", TABLE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_error_message(call, pieces):
    assert_error_message(call, pieces)


@pytest.mark.parametrize(
    "call",
    [
        lambda: OPS.compress24(t(3, 4, dtype=F32), "1:2"),
        lambda: OPS.compress24(t(3, 4, dtype=F32), "2:4"),
        lambda: OPS.prune24(t(3, 4, dtype=U8), "2:4", True),
        lambda: decompress(VALUES, METADATA, 9),
        lambda: decompress(VALUES, METADATA, 12),
        lambda: tile(METADATA, 16),
        lambda: tile(METADATA, dtype=BF16),
        lambda: tile(compressed(3, 4, F32, "1:2")[1], 4, "1:2", F32),
    ],
)
def test_accepted(call):
    call()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call, pieces",
    [
        (
            lambda x: decompress(x(VALUES), METADATA),
            ["metadata is on cpu, but values is on cuda:0"],
        ),
        (
            lambda x: decompress(VALUES, x(METADATA)),
            ["metadata is on cuda:0, but values is on cpu"],
        ),
        (lambda x: tile(x(METADATA), dtype=F32), ["cannot be multiplied as tf32"]),
        (lambda x: OPS.prune24(x(t(2, 3, 4)), "2:4"), ["w must be a matrix (M, K)"]),
    ],
)
def test_error_message_on_a_gpu(call, pieces):
    assert_error_message(lambda: call(lambda tensor: tensor.cuda()), pieces)
