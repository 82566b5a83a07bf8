"""Arguments that the operators of the backward refuse."""

import pytest

from support import backward_errors
from support.error_asserts import assert_error_message


@pytest.mark.parametrize("call, pieces", backward_errors.TABLE)
def test_error_message(call, pieces):
    assert_error_message(call, pieces)
