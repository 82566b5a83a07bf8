"""What grouped_mm refuses, and how it says so."""

import numpy
import pytest
import torch

import tcgemm

from support import grouped_errors
from support.cases import BF16, gpu
from support.error_asserts import assert_error_message, error_message, t
from support.grouped_errors import ENDS, ROWS, K, N, T, ends


@pytest.mark.parametrize("call, pieces", grouped_errors.TABLE)
def test_error_message(call, pieces):
    assert_error_message(call, pieces)


def test_meta_offs_have_no_values_to_check():
    a, b = (x.to("meta") for x in ROWS)
    assert tcgemm.grouped_mm(a, b, offs=ends(9, 3).to("meta")).shape == (T, N)


@pytest.mark.parametrize("name", ["a", "b", "offs", "bias", "residual", "out"])
def test_what_is_no_tensor(name):
    tensors = {"a": ROWS[0], "b": ROWS[1], "offs": ENDS, name: [1, 2]}
    text = error_message(lambda: tcgemm.grouped_mm(**tensors), TypeError)
    assert text.startswith(f"tcgemm.grouped_mm: {name} must be a torch.Tensor, but is list;")


def test_a_packed_weight():
    packed = tcgemm.pack_weight(torch.ones(64, 128), "int4")
    text = error_message(lambda: tcgemm.grouped_mm(ROWS[0], packed, offs=ENDS), TypeError)
    assert "tcgemm.grouped_mm: b is a PackedWeight" in text


def test_options_of_a_wrong_type():
    def message(**options):
        return error_message(
            lambda: tcgemm.grouped_mm(*ROWS, offs=ENDS, **options), (TypeError, RuntimeError)
        )

    assert "accumulate is 2, but it must be True or False" in message(accumulate=2)
    assert "batch_invariant is None, but it must be" in message(batch_invariant=None)
    assert "alpha is '1', but it must be a number" in message(alpha="1")
    assert "activation is relu, but it must be one of the words" in message(activation=torch.relu)
    assert "out_dtype is torch.complex64, but results" in message(out_dtype=torch.complex64)
    assert "precision is 1, but it must be a str" in message(precision=1)
    assert tcgemm.grouped_mm(*ROWS, offs=ENDS, batch_invariant=numpy.True_).shape == (T, N)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_out_and_a_gradient(name, accumulate):
    tensors = {"a": t(T, K), "b": t(2, K, N), "out": t(T, N)}
    tensors[name].requires_grad_()
    call = lambda: tcgemm.grouped_mm(**tensors, offs=ENDS, accumulate=accumulate)  # noqa: E731
    assert_error_message(
        call, [f"tcgemm.grouped_mm: out= cannot be differentiated, but {name} needs a gradient"]
    )
    with torch.no_grad():
        call()


def test_a_nested_tensor():
    nested = torch.nested.nested_tensor([t(2, K), t(4, K)], device="cpu")
    text = error_message(lambda: tcgemm.grouped_mm(nested, ROWS[1], offs=ENDS))
    assert "a is a nested tensor" in text


def test_autocast_leaves_a_product_into_out_alone():
    with torch.autocast("cpu", BF16):
        text = error_message(
            lambda: tcgemm.grouped_mm(ROWS[0].to(BF16), ROWS[1], offs=ENDS, out=t(T, N))
        )
    assert "b is torch.float32, but a is torch.bfloat16" in text


@pytest.mark.parametrize("device", [gpu("cuda")])
def test_a_gpu_checks_the_values_where_the_environment_asks_for_it(device, monkeypatch):
    a, b = (x.to(device) for x in ROWS)
    monkeypatch.setenv("TCGEMM_CHECK", "1")
    for offs in (ends(2, 7), ends(2, 7, dtype=torch.int64), ends(2, 0, 7)[::2]):
        text = error_message(lambda o=offs: tcgemm.grouped_mm(a, b, offs=o.to(device)))
        assert "offs[1] is 7, but there are 6 rows of a" in text
    monkeypatch.setenv("TCGEMM_CHECK", "0")
    tcgemm.grouped_mm(a, b, offs=ends(2, 7).to(device))
