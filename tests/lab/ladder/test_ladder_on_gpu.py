"""The kernels of the ladders on a GPU: exact results, and the bits of their instructions."""

import pytest
import torch

from tcgemm import emulate
from tcgemm.lab import ladder
from tcgemm.lab.ladder import call, measure, problem
from tcgemm.lab.ladder.steps import DOCUMENTS

pytestmark = pytest.mark.gpu
PAIRS = list(problem.every(DOCUMENTS))
NAMES = [f"{step.name} {variant.label}".strip() for step, variant in PAIRS]
GUARD = 1 << 12  # elements before and after a result


def named(name):
    return PAIRS[NAMES.index(name)]


def product(name, mnk, integers=0):
    """(a, b, what a step computes)."""
    step, variant = named(name)
    data = problem.build(step, mnk, integers, sets=1)
    out = data.out[0].fill_(float("nan"))
    call.launch(step, variant, data.a[0], data.b[0], out)
    return data.a[0], data.b[0], out


@pytest.mark.parametrize("name", NAMES)
def test_whole_numbers_are_exact(name):
    step, variant = named(name)
    try:
        assert problem.is_exact(step, variant)
    except ValueError as error:
        assert "bytes of shared memory, but a block has" in str(error)
        assert name.startswith("001_6_shared_ab 128x128")


def test_a_wrong_kernel_is_found(monkeypatch):
    step, variant = named("004_2_0")
    real = call.launch

    def wrong(step, variant, a, b, c, cycles=None):
        result = real(step, variant, a, b, c, cycles)
        c[-1, -1] += 1
        return result

    assert problem.is_exact(step, variant)
    monkeypatch.setattr(call, "launch", wrong)
    assert not problem.is_exact(step, variant)


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("003_both", "mma.m16n8k16.f32.bf16.bf16"),
        ("004_1_1", "mma.m16n8k16.f32.f16.f16"),
        ("004_2_1", "mma.m16n8k16.f32.f16.f16"),
        ("004_3_1 4 stages, warps of 64x64", "mma.m16n8k16.f32.f16.f16"),
    ],
)
def test_bits_are_those_of_the_instruction(name, instruction):
    arch = "Hopper" if torch.cuda.get_device_capability()[0] == 9 else "Ampere"
    a, b, out = product(name, (256, 256, 192))
    expected = emulate.mma(a.cpu(), b.cpu(), instruction=instruction, arch=arch)
    assert torch.equal(out.cpu(), expected)


def test_every_tile_of_000_has_the_bits_of_the_instruction():
    """All of them add 8 products of k after the other."""
    names = [name for name in NAMES if name.startswith("000_hgemm")]
    data = problem.build(named(names[0])[0], (256, 256, 192), sets=1)
    arch = "Hopper" if torch.cuda.get_device_capability()[0] == 9 else "Ampere"
    a, b = data.a[0], data.b[0]
    expected = emulate.mma(a.cpu(), b.cpu(), instruction="mma.m16n8k8.f16.f16.f16", arch=arch)
    assert len(names) == 11
    for name in names:
        out = data.out[0].fill_(float("nan"))
        call.launch(*named(name), a, b, out)
        assert torch.equal(out.cpu(), expected), name


def test_sums_outside():
    """Partial sums of 32 products by the instruction, added in float32."""
    arch = "Hopper" if torch.cuda.get_device_capability()[0] == 9 else "Ampere"
    for bits in (32, 16):
        a, b, out = product(f"004_3_2_outside f{bits} inside", (128, 256, 224))
        expected = torch.zeros(128, 256)
        for i in range(0, 224, 32):
            part = (a[:, i : i + 32].cpu(), b[i : i + 32].cpu())
            name = f"mma.m16n8k16.f{bits}.f16.f16"
            expected += emulate.mma(*part, instruction=name, arch=arch).float()
        assert torch.equal(out.cpu(), expected)


def test_003_has_one_order():
    step, _ = named("003_baseline")
    data = problem.build(step, (128, 192, 320), sets=1)
    results = []
    for name in ("baseline", "pipeline", "permuted", "both"):
        cycles = torch.zeros(6, dtype=torch.int64, device="cuda")
        call.launch(*named(f"003_{name}"), data.a[0], data.b[0], data.out[0], cycles)
        assert bool((cycles > 0).all())
        results.append(data.out[0].clone())
    assert all(torch.equal(result, results[0]) for result in results[1:])


@pytest.mark.parametrize("k", [1, 8, 40, 63])
def test_zero_fill(k):
    """002_6 takes any size, and reads and writes nothing beside its matrices."""
    step, variant = named("002_6_edges")
    for m, n in ((1, 1), (16, 16), (17, 64), (64, 8), (70, 45), (129, 104)):
        tensors = []
        for rows, columns, dtype in ((m, k, torch.half), (k, n, torch.half), (m, n, torch.float)):
            memory = torch.full((rows * columns + 2 * GUARD,), float("nan"), dtype=dtype)
            tensors.append(memory.cuda())
        a, b, c = (memory[GUARD:-GUARD] for memory in tensors)
        a, b, c = a.view(m, k), b.view(k, n), c.view(m, n)
        a.random_(-2, 3), b.random_(-2, 3)
        call.launch(step, variant, a, b, c)
        assert torch.equal(c.double(), a.double() @ b.double()), (m, n, k)
        assert tensors[2][:GUARD].isnan().all() and tensors[2][-GUARD:].isnan().all()


def test_a_run_stores_and_resumes(tmp_path, monkeypatch):
    path = tmp_path / "ladder.json"
    results = ladder.run(("003", "002"), 256, path=path, min_ms=1.0)
    assert [row["step"] for row in results["records"]] == [
        step.name for step, _ in problem.every(("002", "003"))
    ]
    for row in results["records"]:
        assert row["exact"] and 0 < row["error"] < 1 and row["us"] > 0 and row["x_cublas"] > 0
        for name in ("us", "x_cublas"):
            low, high = row[f"{name}_range"]
            assert low <= row[name] <= high
        assert row["local_bytes"] == 0 and row["registers"] > 10
    assert measure.load(path)["header"]["gpu"] == torch.cuda.get_device_name()
    monkeypatch.setattr(measure, "_measure", None)
    resumed = ladder.run(("003", "002"), 256, path=path, resume=True)
    assert len(resumed["records"]) == len(results["records"])


def test_sizes_that_a_step_does_not_take_are_named():
    records = ladder.run("004", 4096 + 32, min_ms=1.0)["records"]
    refusals = {record["step"]: record["refused"] for record in records}
    assert refusals["004_1_0"] is None
    assert "N is 4128, but 004_3_1 takes multiples of 128" in refusals["004_3_1"]


def test_a_kernel_runs_on_the_current_stream():
    step, variant = named("004_3_0 3 stages")
    data = problem.build(step, (64, 128, 96), 2, sets=1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        data.a[0].add_(1)
        call.launch(step, variant, data.a[0], data.b[0], data.out[0])
    stream.synchronize()
    assert torch.equal(data.out[0].double(), data.a[0].double() @ data.b[0].double())
