"""The functions of tcgemm that a call enters: few, and each module once."""

import itertools
import sys
from pathlib import Path

import pytest
import torch

import tcgemm

ROOT = Path(tcgemm.__file__).parent


def frames_of(call):
    """(module, function) of each call of Python code of tcgemm, in order."""
    call()  # the first call keeps what later ones use
    frames = []

    def profile(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            frames.append((str(path.relative_to(ROOT)), frame.f_code.co_name))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames


def product():
    a, b = torch.randn(4, 128).bfloat16(), torch.randn(128, 8).bfloat16()
    return lambda: tcgemm.mm(a, b)


def linear_with_a_packed_weight():
    x, weight = torch.randn(4, 128).bfloat16(), tcgemm.pack_weight(torch.randn(8, 128).bfloat16())
    return lambda: tcgemm.linear(x, weight)


@pytest.mark.parametrize(("make", "most"), [(product, 5), (linear_with_a_packed_weight, 9)])
def test_frames(make, most):
    frames = frames_of(make())
    assert 3 <= len(frames) <= most, frames
    modules = [module for module, _ in itertools.groupby(module for module, _ in frames)]
    assert len(modules) == len(set(modules)), f"a call comes back to a module: {frames}"
