"""The fixture `device` of this folder: two processes on the CPU, or on two GPUs."""

import pytest

from support import processes


@pytest.fixture(params=processes.DEVICES)
def device(request):
    """ "cpu" and "cuda"; the latter is marked `gpu` and needs two of them."""
    return request.param
