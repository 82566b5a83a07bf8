"""Refused CUDA memory raises torch.OutOfMemoryError with torch's message, and nothing is printed.

Each case runs in a process of its own, which may use little of the GPU's memory.
"""

from pathlib import Path

import pytest

import tcgemm

from support import programs

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch, tcgemm
BF16, MIB = torch.bfloat16, 2**20
def t(*shape, dtype=BF16, **options):
    return torch.ones(shape, dtype=dtype, device="cuda", **options)
def wide(*shape, dtype=BF16):
    return t(*[1] * len(shape), dtype=dtype).expand(shape)
def tall(dtype=BF16):  # as many rows as a power of two may be
    return wide(2**30, 512, dtype=dtype)
def leave(mib):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_reserved() + mib * MIB
    torch.cuda.set_per_process_memory_fraction(min(1.0, used / total))
def refused(call):
    try:
        call()
    except torch.cuda.OutOfMemoryError as error:
        assert type(error) is torch.OutOfMemoryError, type(error)
        assert str(error).startswith("CUDA out of memory."), error
        assert "frame #" not in str(error), error
    else:
        raise AssertionError("the memory was not refused")
"""

FORWARD = {
    "mm": "tcgemm.mm(wide(2**20, 8), wide(8, 2**20))",
    "mm gelu": 'tcgemm.mm(wide(2**20, 8), wide(8, 2**20), activation="gelu")',
    "amax": "tcgemm.mm(wide(2**20, 8), wide(8, 2**20), amax=True)",
    "bmm": "tcgemm.bmm(wide(2, 2**20, 8), wide(2, 8, 2**20))",
    "matmul": "tcgemm.matmul(wide(2, 2**20, 8), wide(8, 2**20))",
    "addmm": "tcgemm.addmm(wide(1), wide(2**20, 8), wide(8, 2**20))",
    "baddbmm": "tcgemm.baddbmm(wide(1), wide(2, 2**20, 8), wide(2, 8, 2**20))",
    "linear": "tcgemm.linear(tall(), wide(512, 512), wide(512))",
    "a gradient": "tcgemm.linear(tall(), t(512, 512, requires_grad=True))",
    "quantize": "tcgemm.quantize(tall(), torch.int8)",
    "dequantize": "tcgemm.dequantize(tall(torch.int8), t(1, dtype=torch.float32))",
    "quantized_linear": "tcgemm.quantized_linear(tall(), wide(512, 512))",
    "pack_weight": 'tcgemm.pack_weight(wide(2**20, 2**20), "int4")',
    "compress24": "tcgemm.compress24(wide(2**20, 2**20), prune=True)",
    "prune24": "tcgemm.prune24(wide(2**20, 2**20))",
    "packed weight": 'tcgemm.linear(tall(), tcgemm.pack_weight(t(512, 512), "int4"))',
    "sparse weight": "tcgemm.linear(tall(), tcgemm.compress24(t(512, 512), prune=True))",
    "nn.Linear": 'tcgemm.nn.Linear(512, 512, device="cuda", dtype=BF16)(tall())',
    "nn.QuantLinear": "tcgemm.nn.QuantLinear(512, 512).cuda()(tall())",
    "nn.SparseLinear24": 'tcgemm.nn.SparseLinear24(512, 512, device="cuda", dtype=BF16)(tall())',
    "under use": "use_and_multiply()",
}

USE = """
def use_and_multiply():
    with tcgemm.use():
        torch.mm(wide(2**20, 64), wide(64, 2**20))
"""

# A small result, but a workspace, a copy or a gradient that does not fit. `leave` sets the memory
# that is left, in MiB.
PARTS = {
    "the gradient of a": """
a, b = t(1, requires_grad=True), t(16384, 8)
out = tcgemm.mm(a.expand(16384, 16384), b)
leave(64)
refused(lambda: out.backward(t(16384, 8)))
""",
    "the gradient before the activation": """
w = t(64, 64, requires_grad=True)
out = tcgemm.linear(t(2**20, 64), w, activation="gelu")
g = torch.ones_like(out)
leave(16)
refused(lambda: out.backward(g))
""",
    "the values of an activation in 8 bits": """
layer = tcgemm.nn.QuantLinear(64, 64).cuda()
x = t(2**21, 64)
leave(16)
refused(lambda: layer(x))
""",
}

SM90_PARTS = {
    "partial sums": """
a, b, out = t(512, 2**18), t(2**18, 512), t(512, 512)
assert tcgemm.explain(a, b).workspace > 4 * MIB, tcgemm.explain(a, b)
leave(0)
refused(lambda: tcgemm.mm(a, b, out=out))
""",
    "the terms of a weight": """
w = t(16384, 16384, dtype=torch.float32)
leave(64)
refused(lambda: tcgemm.prepare(w))
""",
    "the terms of an operand": """
a, b = t(16384, 16384, dtype=torch.float32), t(16384, 256, dtype=torch.float32)
out = t(16384, 256, dtype=torch.float32)
leave(0)
refused(lambda: tcgemm.mm(a, b, precision="highest", out=out))
""",
    "a repacked copy": """
a, b = t(256, 16384)[:, :16383], t(16384, 16385)[:16383, :16384]
leave(64)
refused(lambda: tcgemm.mm(a, b, activation="gelu"))
""",
}


def check(body):
    path = Path(tcgemm.__file__).resolve().parents[1]
    process = programs.run(PROGRAM + body, cwd=path)
    assert (process.returncode, process.stderr) == (0, ""), process.stderr


def test_results():
    """In one process: the results are larger than any GPU."""
    check(USE + "".join(f"refused(lambda: {call})\n" for call in FORWARD.values()))


@pytest.mark.parametrize("body", PARTS.values(), ids=PARTS)
def test_parts_of_a_call(body):
    check(body)


@pytest.mark.sm90
@pytest.mark.parametrize("body", SM90_PARTS.values(), ids=SM90_PARTS)
def test_workspaces(body):
    check(body)


def test_small_results_are_refused_as_well():
    """No size is printed: the memory fills up in steps of 4 MiB."""
    check("""
a, b, kept = t(1024, 64), t(64, 2048), []
leave(64)
def fill():
    while True:
        kept.append(tcgemm.mm(a, b))
refused(fill)
""")


def test_the_next_call_works():
    check("""
refused(lambda: tcgemm.mm(wide(2**20, 8), wide(8, 2**20)))
assert tcgemm.mm(t(64, 64), t(64, 64)).sum().item() == 64**3
""")


def test_the_operators_keep_a_runtime_error():
    check("""
try:
    torch.ops.tcgemm.mm(wide(2**20, 8), wide(8, 2**20))
except RuntimeError as error:
    assert type(error) is RuntimeError and str(error).startswith("CUDA out of memory."), error
""")


def test_accelerate_finds_a_batch_size():
    pytest.importorskip("accelerate")
    check("""
from accelerate.utils import find_executable_batch_size
sizes = []
@find_executable_batch_size(starting_batch_size=2**30)
def train(batch_size):
    sizes.append(batch_size)
    w = t(64, 64, requires_grad=True)
    tcgemm.linear(wide(batch_size, 64), w, activation="gelu").sum().backward()
    return batch_size
leave(2048)
assert train() == sizes[-1] < sizes[0] == 2**30
""")
