"""Refusals of sub-byte tensors and their products: the whole sentence of each."""

import pytest
import torch

import tcgemm
from tcgemm import BinaryTensor, Int4Tensor

from support import subbyte
from support.error_asserts import error_message
from support.subbyte_errors import TABLE


@pytest.mark.parametrize(("call", "sentence"), TABLE)
def test_what_is_refused_says_why_and_how_to_mend_it(call, sentence):
    assert error_message(call) == sentence


def test_what_is_no_tensor_is_a_type_error():
    with pytest.raises(TypeError, match=r"^tcgemm\.Int4Tensor\.from_int8: x must be a torch\.Tens"):
        Int4Tensor.from_int8([1, 2])
    with pytest.raises(TypeError, match=r"^tcgemm\.Int4Tensor: signed is 2, but it must be True "):
        Int4Tensor(subbyte.int4(4, 6).bytes, signed=2)
    with pytest.raises(IndexError, match=r"dimension 2 is out of range; pass one from -2 to 1\."):
        subbyte.int4(4, 6).transpose(0, 2)
    with pytest.raises(TypeError, match=r"^tcgemm\.BinaryTensor\.from_bool: x must be a torch"):
        BinaryTensor.from_bool([True])
    with pytest.raises(TypeError, match=r"^tcgemm\.binary_mm: b must be a torch\.Tensor, but is"):
        tcgemm.binary_mm(subbyte.bits(4, 8), None)
    with pytest.raises(TypeError, match=r"^tcgemm\.binary_mm: out must be a torch\.Tensor, but is"):
        tcgemm.binary_mm(subbyte.bits(4, 8), subbyte.bits(4, 8).t(), out=1)


def test_another_device_is_named():
    with pytest.raises(RuntimeError, match=r"b is on meta, but a is on cpu"):
        tcgemm.mm(
            subbyte.int4(4, 6), Int4Tensor(torch.empty(5, 3, dtype=torch.uint8, device="meta")).t()
        )
