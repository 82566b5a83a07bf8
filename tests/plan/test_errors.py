"""Arguments that tcgemm.info.plan refuses."""

import pytest

from support import plan_errors
from support.error_asserts import assert_error_message


@pytest.mark.parametrize("call, pieces", plan_errors.TABLE)
def test_error_message(call, pieces):
    assert_error_message(call, pieces)
