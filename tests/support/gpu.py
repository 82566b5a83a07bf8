"""Which tests can run here: the GPU, and the code that this build has for it."""

import functools

import torch

from tcgemm import _library
from tcgemm.ops import query


def build() -> dict:
    return query.ask("build_info")


def serves(mark: str, version: str) -> bool:
    """Does a GPU, or code, of this compute capability have the instructions of a mark?"""
    number = float(version.rstrip("a"))
    return {"gpu": True, "sm89": number >= 8.9, "sm90": number == 9.0}[mark]


@functools.cache
def missing(mark: str) -> str:
    """Why tests with this mark cannot run here; "" if they can."""
    if build()["cuda"] is None:
        return _library.no_cuda_kernel()
    if not torch.cuda.is_available():
        return "torch finds no CUDA GPU"
    version = "{}.{}".format(*torch.cuda.get_device_capability())
    return "" if serves(mark, version) else f"this GPU has compute capability {version}"


@functools.cache
def older(mark: str) -> str:
    """The code that the GPU runs of this build, where that was made without the instructions."""
    code = build()["code"].get("{}.{}".format(*torch.cuda.get_device_capability()), "0")
    return "" if serves(mark, code) and (mark != "sm90" or code == "9.0a") else code
