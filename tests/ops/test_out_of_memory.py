"""Refused memory raises torch's error with torch's message, and nothing is printed.

Handlers such as accelerate's find_executable_batch_size look for the type and the words.
"""

import ctypes
import warnings
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm.ops import memory
from tcgemm.ops._torch_private import destroy_library

from support import programs
from support.cases import BF16, F32

OPS = torch.ops.tcgemm
LARGE = 2**40  # rows: no machine has the memory of a result
EDGE = 2**21  # of a square result
WORDS = "DefaultCPUAllocator: can't allocate memory"


def wide(*shape, dtype=F32):
    """A tensor of any shape in the memory of one element."""
    return torch.ones((1,) * len(shape), dtype=dtype).expand(shape)


def packed():
    return tcgemm.pack_weight(torch.ones(64, 64, dtype=BF16), "int4", group_size=64)


def sparse():
    return tcgemm.compress24(torch.ones(64, 64, dtype=BF16), prune=True)


def learning(*shape):
    return torch.ones(shape, requires_grad=True)


REFUSED = {
    "mm": lambda: tcgemm.mm(wide(EDGE, 1), wide(1, EDGE)),
    "mm gelu": lambda: tcgemm.mm(wide(EDGE, 1), wide(1, EDGE), activation="gelu"),
    "mm amax": lambda: tcgemm.mm(wide(EDGE, 1), wide(1, EDGE), amax=True),
    "mm with a gradient": lambda: tcgemm.mm(wide(LARGE, 1), learning(1, 8)),
    "mm with a gradient and z": lambda: tcgemm.mm(
        wide(LARGE, 1), learning(1, 8), activation="silu"
    ),
    "bmm": lambda: tcgemm.bmm(wide(2, EDGE, 1), wide(2, 1, EDGE)),
    "matmul": lambda: tcgemm.matmul(wide(3, 1, EDGE, 1), wide(2, 1, EDGE)),
    "addmm": lambda: tcgemm.addmm(wide(1), wide(EDGE, 1), wide(1, EDGE)),
    "baddbmm": lambda: tcgemm.baddbmm(wide(1), wide(2, EDGE, 1), wide(2, 1, EDGE)),
    "linear": lambda: tcgemm.linear(wide(LARGE, 8), wide(8, 8), wide(8)),
    "quantize": lambda: tcgemm.quantize(wide(LARGE, 8), torch.int8),
    "quantize with a scale": lambda: tcgemm.quantize(wide(LARGE, 8), torch.int8, scale=wide()),
    "dequantize": lambda: tcgemm.dequantize(wide(LARGE, 8, dtype=torch.int8), torch.ones(())),
    "quantized_linear": lambda: tcgemm.quantized_linear(wide(LARGE, 8), wide(8, 8)),
    "pack_weight": lambda: tcgemm.pack_weight(wide(EDGE, EDGE, dtype=BF16), "int4"),
    "compress24": lambda: tcgemm.compress24(wide(EDGE, EDGE, dtype=BF16), prune=True),
    "prune24": lambda: tcgemm.prune24(wide(EDGE, EDGE, dtype=BF16)),
    "a packed weight": lambda: tcgemm.linear(wide(LARGE, 64, dtype=BF16), packed()),
    "a sparse weight": lambda: tcgemm.linear(wide(LARGE, 64, dtype=BF16), sparse()),
    "a sparse a": lambda: tcgemm.mm(sparse(), wide(64, LARGE, dtype=BF16)),
    "nn.Linear": lambda: tcgemm.nn.Linear(8, 8)(wide(LARGE, 8)),
    "nn.QuantLinear": lambda: tcgemm.nn.QuantLinear(16, 16)(wide(LARGE, 16)),
    "nn.Float8Linear": lambda: tcgemm.nn.Float8Linear(16, 16)(wide(LARGE, 16)),
    "nn.SparseLinear24": lambda: tcgemm.nn.SparseLinear24(64, 64)(wide(LARGE, 64)),
    "the operator": lambda: OPS.mm(wide(EDGE, 1), wide(1, EDGE)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_torchs_message_and_nothing_on_stderr(call, capfd):
    with pytest.raises(RuntimeError, match=WORDS) as caught:
        call()
    assert type(caught.value) is RuntimeError and "frame #" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_torch_use(capfd):
    with tcgemm.use(), pytest.raises(RuntimeError, match=WORDS):
        torch.mm(wide(EDGE, 1), wide(1, EDGE))
    assert capfd.readouterr().err == ""


BACKWARD = f"""
import re, resource
from pathlib import Path
import torch, tcgemm
w = torch.ones(1, requires_grad=True)
out = tcgemm.mm(w.expand(8192, 8192), torch.ones(8192, 1))
used = int(re.search(r"VmSize:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27,) * 2)
try:
    out.backward(torch.ones(8192, 1))
except RuntimeError as error:
    assert type(error) is RuntimeError and {WORDS!r} in str(error), error
    print("refused")
"""


def test_backward():
    process = programs.run(BACKWARD, cwd=Path(tcgemm.__file__).parents[1])
    assert (process.returncode, process.stderr, process.stdout) == (0, "", "refused\n")


OTHERS = f"""
import ctypes
from pathlib import Path
import torch, tcgemm
library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
sizes, strides = (ctypes.c_int64 * 1)({LARGE}), (ctypes.c_int64 * 1)(1)
library.aoti_torch_empty_strided(
    ctypes.c_int64(1), sizes, strides, library.aoti_torch_dtype_float32(),
    library.aoti_torch_device_type_cpu(), 0, ctypes.byref(ctypes.c_void_p()),
)
"""


def test_other_programs_still_print():
    """What the shim prints outside of tcgemm's operators stands on stderr as before."""
    torchs = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    if hasattr(torchs, "torch_exception_get_what"):
        pytest.skip("this torch keeps the message and prints nothing")
    process = programs.run(OTHERS, cwd=Path(tcgemm.__file__).parents[1])
    assert process.returncode == 0 and WORDS in process.stderr


CUDA = "CUDA out of memory. Tried to allocate 20.00 GiB. (tcgemm: the allocation of x failed.)"


@pytest.fixture
def refused_by():
    """Makes the kernels of these operators raise what the library raises for CUDA tensors."""
    library = torch.library.Library("tcgemm", "IMPL")
    calls = []

    def refuse(*names):
        for name in names:

            def kernel(*_args, name=name, **_options):
                calls.append(name)
                raise RuntimeError(CUDA)

            with warnings.catch_warnings(action="ignore"):
                library.impl(name, kernel, "CPU", allow_override=True)
        return calls

    yield refuse
    destroy_library(library)


FORWARD = {
    "mm": (lambda: tcgemm.mm(wide(4, 4), wide(4, 4)), ["mm"]),
    "mm with options": (lambda: tcgemm.mm(wide(4, 4), wide(4, 4), activation="relu"), ["mm"]),
    "mm into out": (
        lambda: tcgemm.mm(wide(4, 4), wide(4, 4), out=torch.empty(4, 4)),
        ["mm.out"],
    ),
    "mm with a gradient": (lambda: tcgemm.mm(learning(4, 4), wide(4, 4)), ["mm"]),
    "with z": (lambda: tcgemm.mm(learning(4, 4), wide(4, 4), activation="gelu"), ["mm.with_z"]),
    "amax": (lambda: tcgemm.mm(wide(4, 4), wide(4, 4), amax=True), ["scaled_mm_amax"]),
    "bmm": (lambda: tcgemm.bmm(wide(2, 4, 4), wide(2, 4, 4)), ["bmm"]),
    "matmul": (lambda: tcgemm.matmul(wide(2, 4, 4), wide(4, 4)), ["matmul"]),
    "addmm": (lambda: tcgemm.addmm(wide(4), wide(4, 4), wide(4, 4)), ["addmm"]),
    "baddbmm": (lambda: tcgemm.baddbmm(wide(4), wide(2, 4, 4), wide(2, 4, 4)), ["baddbmm"]),
    "linear": (lambda: tcgemm.linear(wide(4, 4), wide(4, 4), wide(4)), ["linear"]),
    "vmap": (lambda: torch.vmap(tcgemm.mm)(wide(2, 4, 4), wide(2, 4, 4)), ["bmm", "matmul"]),
    "quantize": (lambda: tcgemm.quantize(wide(4, 4), torch.int8), ["quantize"]),
    "with a scale": (
        lambda: tcgemm.quantize(wide(4, 4), torch.int8, scale=wide()),
        ["quantize.scaled"],
    ),
    "quantized_linear": (lambda: tcgemm.quantized_linear(wide(4, 16), wide(16, 16)), ["quantize"]),
    "its product": (lambda: tcgemm.quantized_linear(wide(4, 16), wide(16, 16)), ["scaled_mm"]),
    "prepare": (lambda: tcgemm.prepare(torch.ones(4, 4)), ["prepare"]),
    "pack_weight": (packed, ["_pack_weight"]),
    "compress24": (sparse, ["compress24"]),
    "prune24": (lambda: tcgemm.prune24(wide(64, 64)), ["prune24"]),
    "nn.Float8Linear": (lambda: tcgemm.nn.Float8Linear(16, 16)(wide(4, 16)), ["scaled_mm"]),
    "its values": (lambda: tcgemm.nn.Float8Linear(16, 16)(wide(4, 16)), ["quantize"]),
    "binary_mm": (lambda: tcgemm.binary_mm(bits(), bits().mT), ["_binary_mm"]),
    "Int4Tensor": (lambda: tcgemm.linear(int4(), int4()), ["_int4_mm"]),
}


def bits():
    return tcgemm.BinaryTensor.from_bool(torch.ones(128, 128, dtype=torch.bool))


def int4():
    return tcgemm.Int4Tensor.from_int8(torch.ones(64, 64, dtype=torch.int8))


@pytest.mark.parametrize("call, names", FORWARD.values(), ids=FORWARD)
def test_the_type_of_refused_cuda_memory(call, names, refused_by):
    calls = refused_by(*names)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        call()
    assert str(caught.value) == CUDA and len(calls) == 1


LATER = {
    "a product of the backward": (lambda: tcgemm.bmm(learning(1, 4, 4), wide(1, 4, 4)), "matmul"),
    "all products of the backward": (
        lambda: tcgemm.mm(learning(4, 4), wide(4, 4)),
        "_product_backward",
    ),
    "the pass of an activation": (
        lambda: tcgemm.mm(learning(4, 4), wide(4, 4), activation="gelu"),
        "_activation_backward",
    ),
    "the sum of a bias": (lambda: tcgemm.linear(wide(4, 4), wide(4, 4), learning(4)), "_sum_rows"),
    "nn.Float8Linear": (lambda: tcgemm.nn.Float8Linear(16, 16)(wide(4, 16)), "quantize"),
}


@pytest.mark.parametrize("call, name", LATER.values(), ids=LATER)
def test_the_type_in_the_backward(call, name, refused_by):
    out = call()
    calls = refused_by(name)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        out.backward(torch.ones_like(out))
    assert str(caught.value) == CUDA and len(calls) == 1


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda w: tcgemm.linear(wide(4, 64, dtype=BF16), w[0]), "packed_mm"),
        (lambda w: tcgemm.linear(wide(4, 64, dtype=BF16), w[1]), "_linear24"),
        (lambda w: tcgemm.mm(w[1], wide(64, 4, dtype=BF16)), "scaled_mm"),
        (lambda w: w[1].to_dense(), "decompress24"),
        (lambda w: w[1].mask(torch.ones(64, 64, dtype=BF16)), "gather24"),
    ],
    ids=["packed_mm", "_linear24", "scaled_mm", "decompress24", "gather24"],
)
def test_the_type_of_kept_weights(call, name, refused_by):
    weights = packed(), sparse()
    calls = refused_by(name)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        call(weights)
    assert str(caught.value) == CUDA and len(calls) == 1


def test_tcgemm_use_does_not_choose_torch_for_it(refused_by):
    refused_by("mm", "scaled_mm")
    with tcgemm.use(), pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))


def test_other_errors_keep_their_type():
    assert memory.refused(RuntimeError("tcgemm.mm: CUDA out of memory.")) is None
    assert memory.refused(TypeError(WORDS)) is None
    same = torch.OutOfMemoryError("CUDA out of memory.")
    assert memory.refused(same) is same


@pytest.mark.nightly
def test_a_smaller_batch_is_found():
    accelerate = pytest.importorskip("accelerate")
    sizes = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=LARGE)
    def train(batch_size):
        sizes.append(batch_size)
        return tcgemm.linear(wide(batch_size, 2), wide(2, 2)) if batch_size > LARGE // 4 else None

    assert train() is None and len(sizes) > 1
