"""Instructions on the GPU: their kernels assemble, the layouts are PTX's, and bits are compared."""

import pytest
import torch

from tcgemm import cli, emulate
from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import sass
from tcgemm.lab.probe.rows import TARGETS
from tcgemm.numerics import device
from tcgemm.numerics.integers import RANGES
from tcgemm.numerics.low_precision import truncate_tf32
from tcgemm.numerics.machine import Machine

DENSE = [row for row in emulate.instructions("Hopper") if row.family == "mma"]


def named(name):
    return next(row for row in DENSE if row.name == name)


@pytest.mark.skipif(sass.tool("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("arch", TARGETS)
def test_the_kernels_assemble(arch):
    for mma in emulate.instructions(arch):
        if mma.family == "mma":
            cubin, _output = sass.assemble(device.kernel(mma, TARGETS[arch]), TARGETS[arch])
            assert cubin, mma.name


def elements(mma, operand):
    """[(row, column)] of each lane, in the order of the registers and of the elements in them."""
    rows, columns = device.places(mma, operand)
    pairs = torch.stack([rows, columns], dim=-1).transpose(0, 1).flatten(1, 2)
    return [[tuple(pair) for pair in lane] for lane in pairs.tolist()]


# PTX ISA 9.7.14.5: row and column of element i in lane 4 g + t.
PTX_ISA = {
    "mma.m16n8k8.f32.f16.f16": (
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
        lambda g, t, i: (2 * t + i, g),
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ),
    "mma.m16n8k16.f16.f16.f16": (
        lambda g, t, i: (
            g if i < 2 or 4 <= i < 6 else g + 8,
            2 * t + (i & 1) + (0 if i < 4 else 8),
        ),
        lambda g, t, i: (2 * t + (i & 1) + (0 if i < 2 else 8), g),
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ),
    "mma.m16n8k8.f32.tf32.tf32": (
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ),
    "mma.m16n8k32.s32.s8.u8": (
        lambda g, t, i: (
            g if i < 4 or 8 <= i < 12 else g + 8,
            4 * t + (i & 3) + (0 if i < 8 else 16),
        ),
        lambda g, t, i: (4 * t + (i & 3) + (0 if i < 4 else 16), g),
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ),
    "mma.m16n8k64.s32.s4.s4": (
        lambda g, t, i: (
            g if i < 8 or 16 <= i < 24 else g + 8,
            8 * t + (i & 7) + (0 if i < 16 else 32),
        ),
        lambda g, t, i: (8 * t + (i & 7) + (0 if i < 8 else 32), g),
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ),
    "mma.m16n8k16.f64.f64.f64": (
        lambda g, t, i: (g if i % 2 == 0 else g + 8, 4 * (i // 2) + t),
        lambda g, t, i: (t + 4 * i, g),
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ),
    "mma.m8n8k4.f64.f64.f64": (
        lambda g, t, i: (g, t),
        lambda g, t, i: (t, g),
        lambda g, t, i: (g, 2 * t + i),
    ),
}


@pytest.mark.parametrize("name", PTX_ISA)
def test_the_layouts_of_ptx(name):
    mma = named(name)
    for operand, place in zip("abd", PTX_ISA[name], strict=True):
        lanes = elements(mma, operand)
        for lane in range(32):
            expected = [place(lane // 4, lane % 4, i) for i in range(len(lanes[lane]))]
            if operand == "b":  # stored by columns
                expected = [pair[::-1] for pair in expected]
            assert lanes[lane] == expected


@pytest.mark.parametrize("mma", DENSE, ids=lambda row: row.name)
def test_every_element_has_one_place(mma):
    m, n, k = mma.shape
    for operand, shape in (("a", (m, k)), ("b", (n, k)), ("d", (m, n))):
        pairs = [pair for lane in elements(mma, operand) for pair in lane]
        assert sorted(pairs) == [(row, col) for row in range(shape[0]) for col in range(shape[1])]


def drawn(shape, name):
    if name in RANGES:
        low, high = RANGES[name]
        return torch.randint(low, high + 1, shape).to(TORCH[name])
    x = torch.randn(shape).to(TORCH[name])
    return truncate_tf32(x) if name == "tf32" else x


def unpacked(words, element_type, dtype):
    """The elements of registers, decoded by other means than pack()."""
    bits = ptx.BITS[element_type]
    if bits >= 8:
        return words.unsqueeze(-1).contiguous().view(dtype)
    fields = [(words >> shift) & ((1 << bits) - 1) for shift in range(0, 32, bits)]
    values = torch.stack(fields, dim=-1)
    return (values - 16 * (values > 7) if element_type == "s4" else values).to(dtype)


def fake_warps(mma):
    """A launch on the CPU: it reads registers as PTX lays them out, and the emulator multiplies."""

    def launch(_function, count, _lanes, tensors):
        m, n, k = mma.shape
        types = (mma.input, mma.input_b, mma.accumulator)
        matrices = []
        for words, operand, name, shape in zip(
            tensors, "abd", types, ((m, k), (n, k), (m, n)), strict=True
        ):
            dtype = TORCH[name]
            values = unpacked(words.flatten(0, -3), name, dtype)
            matrix = torch.zeros(count, *shape, dtype=torch.float64)
            matrix[:, *device.places(mma, operand)] = values.double()
            matrices.append(matrix.to(dtype))
        a, b, c = matrices
        result = emulate.mma(a, b.mT, c, instruction=mma.name)
        placed = result.view(device.WORDS[result.element_size()])
        placed = placed[:, *device.places(mma, "d")]
        tensors[2].copy_(device.pack(placed, mma.accumulator).view_as(tensors[2]))

    return launch


@pytest.mark.parametrize("mma", DENSE, ids=lambda row: row.name)
def test_tiles_go_to_the_lanes_and_back(mma, monkeypatch):
    monkeypatch.setattr(device, "DEVICE", "cpu")
    monkeypatch.setattr(device, "_loaded", lambda *_: None)
    monkeypatch.setattr("tcgemm._driver.launch", fake_warps(mma))
    k = 2 * mma.shape[2]
    a, b = drawn((2, 19, k), mma.input), drawn((2, k, 11), mma.input_b)
    c = drawn((2, 19, 11), mma.accumulator) if mma.accumulator != "s32" else None
    result = device.multiply(mma, "sm_90a", a, b, c)
    assert device.differing(result, emulate.mma(a, b, c, instruction=mma.name)) == 0


def test_what_a_test_compares_says_so():
    """The dense mma.sync of Hopper in test_instructions_of_a_gpu, the kernels in tests/gpu."""
    assert {row.evidence for row in DENSE} == {"recorded", "compared"}
    rows = {row.name: row.evidence for row in emulate.instructions("Hopper")}
    assert rows["mma.m16n8k64.s32.s4.u4"] == rows["mma.sp.m16n8k64.s32.s8.u8"] == "compared"
    assert rows["mma.sp.m16n8k32.s32.s8.u8"] == "assumed"  # no kernel has it
    assert rows["mma.sp.m16n8k128.s32.s4.s4"] == "assumed"
    older = {row.evidence for row in emulate.instructions() if row.arch != "Hopper"}
    assert older == {"published", "assumed"}


def test_differences_are_counted():
    values = torch.tensor([1.0, float("nan"), 0.0])
    assert device.differing(values, values.clone()) == 0
    assert device.differing(values, torch.tensor([1.0, float("nan"), -0.0])) == 1
    wide = torch.tensor([float("nan")], dtype=torch.float64)
    assert device.differing(wide, -wide) == 0


def test_the_command_says_what_differs(monkeypatch, capsys):
    """With a GPU whose instructions have one bit less than the emulator."""
    counts = [0, 0]

    def multiply(name, a, b, c=None):
        expected = emulate.mma(a, b, c, instruction=name, arch="Ampere")
        result = emulate.mma(a, b, c, instruction=name, arch="Hopper")
        counts[0] += result.numel()
        counts[1] += device.differing(result, expected)
        return result

    machine = device.Checked("a GPU", "Ampere", multiply, counts)
    assert isinstance(machine, Machine)
    monkeypatch.setattr("tcgemm.cli.numerics.device", lambda: machine)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert cli.main(["numerics", "tables"]) == 1
    text = capsys.readouterr().out
    assert f"a GPU: {counts[0]:,} results" in text and counts[1] > 100
    assert cli.main(["numerics", "tables", "--emulated-only"]) == 0
    assert "a GPU" not in capsys.readouterr().out


def test_no_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="torch finds no CUDA GPU"):
        device.device()


def specials(x):
    """x with zeros, infinities, NaN, subnormal and large numbers among its elements."""
    if not x.is_floating_point():
        return x
    limits = torch.finfo(x.dtype)
    values = [0.0, -0.0, limits.tiny, limits.tiny / 4, limits.max, float("nan"), float("inf")]
    picked = torch.tensor(values)[torch.randint(0, len(values), x.shape)].to(x.dtype)
    return torch.where(torch.rand(x.shape) < 0.1, picked.double(), x.double()).to(x.dtype)


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("mma", DENSE, ids=lambda row: row.name)
def test_instructions_of_a_gpu(mma):
    """Each dense mma.sync of the table has the emulator's bits, on four kinds of data."""
    gpu = device.device()
    k = 3 * mma.shape[2]
    for kind in ("normal", "wide", "subnormal", "specials"):
        a, b = drawn((6, 100, k), mma.input), drawn((6, k, 50), mma.input_b)
        c = drawn((6, 100, 50), mma.accumulator) if mma.accumulator != "s32" else None
        if a.is_floating_point() and kind != "normal":
            most = min(40, 2 ** (3 if mma.input in ("f16", "e4m3") else 5))
            if kind == "wide":
                a = (a.double() * 2.0 ** torch.randint(-most, most + 1, a.shape)).to(a.dtype)
            elif kind == "subnormal":
                a = (a.double() * torch.finfo(a.dtype).tiny).to(a.dtype)
            else:
                a, b = specials(a), specials(b)
            if mma.input == "tf32":
                a, b = truncate_tf32(a), truncate_tf32(b)
        gpu.multiply(mma.name, a, b, c)
        assert gpu.counts[1] == 0, kind
    assert gpu.counts[0] == 4 * 6 * 100 * 50
