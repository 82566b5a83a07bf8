"""tcgemm.tune on a GPU: its file, a later process that takes it, and results within the bound."""

import json

import pytest
import torch

import tcgemm
from tcgemm.measure import machine, name_of
from tcgemm.ops import query, tuned

from support import programs, reference

pytestmark = pytest.mark.gpu

SHAPES = [(16, 1024, 4096), (64, 512, 8192)]
# Prints {shape: [is the kernel tuned?, its name, error over its bound]}, after a product.
PROGRAM = """
import json, sys, torch, tcgemm
from tcgemm.measure import errors, name_of
results = {}
for m, n, k in json.loads(sys.argv[1]):
    torch.manual_seed(1)
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(n, k, device="cuda").bfloat16().t()
    error = errors.error_ratio(tcgemm.mm(a, b), a, b, accumulation="f32")
    plan = tcgemm.explain(a, b)
    results[m] = [plan.tuned, name_of(plan), error]
print(json.dumps(results))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TCGEMM_CACHE_DIR", str(tmp_path))
    tuned.forget()
    yield tmp_path
    tuned.forget()


def operands(m, n, k):
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
    return a, b.t()


def later(shapes=SHAPES) -> dict[str, list]:
    process = programs.run(PROGRAM, json.dumps(shapes))
    assert process.returncode == 0 and not process.stderr, process.stderr
    return json.loads(process.stdout)


def test_shapes_are_tuned_and_later_processes_take_them(cache):
    result = tcgemm.tune(SHAPES, seconds=0.05, progress=False)
    assert [row["why"] for row in result.rows] == ["", ""] and not result.rows[0]["wrong"]
    assert all(row["us"] <= row["planned_us"] for row in result.rows)
    assert all(row["candidates"] > 3 for row in result.rows)
    content = json.loads(result.path.read_text())
    assert result.path.parent == cache and content["gpu"] == machine.gpu_name("cuda")
    kernels = {row["product"]: row["kernel"] for row in content["products"]}
    assert kernels == {row["product"]: row["kernel"] for row in result.rows if row["stored"]}
    for (m, _, _), (is_tuned, kernel, error) in zip(SHAPES, later().values(), strict=True):
        row = next(row for row in result.rows if f" m {m} " in row["product"])
        assert (is_tuned, kernel) == (row["stored"], row["kernel"])
        assert error < 1


def other_kernel(a, b) -> str:
    """Another kernel than the planned one, with slices of k where the GPU has such kernels."""
    plan = tcgemm.explain(a, b)
    on_hopper = torch.cuda.get_device_capability() == (9, 0)
    kernel = "sm90a_bf16_f32_64x128x64_w1_s8_tn@1/3" if on_hopper else ""
    if not kernel:
        for row in tcgemm.info.catalog():
            is_other = row["name"] != plan.kernel and row["layout"] == "TN"
            if is_other and row["arch"] == "sm80" and row["name"].startswith("sm80_bf16_f32"):
                kernel = f"{row['name']}@1/1"
    assert kernel and kernel != name_of(plan)
    return kernel


def store(a, b, kernel: str) -> None:
    """Stores a choice as tune does."""
    gpu = torch.cuda.get_device_properties(0)
    capability = 10 * gpu.major + gpu.minor
    device = tcgemm.info.known_device(gpu.name, capability, gpu.multi_processor_count)
    product = tcgemm.explain(a, b).product
    row = {"product": product, "kernel": kernel, "us": 1.0, "planned": "", "planned_us": 2.0}
    tuned.store(gpu.name, device["name"] if device else gpu.name, {product: row})
    tuned.forget()
    tuned.load([gpu.name])


def test_products_run_the_kernel_of_the_file():
    a, b = operands(*SHAPES[0])
    kernel = other_kernel(a, b)
    expected = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device="cuda")
    none = {"bias": None, "residual": None}
    torch.ops.tcgemm.scaled_mm.out(a, b, **none, kernel_name=kernel, out=expected)
    first = tcgemm.mm(a, b)  # remembered by the plan memo
    store(a, b, kernel)
    plan = tcgemm.explain(a, b)
    assert plan.tuned and name_of(plan) == kernel
    assert torch.equal(tcgemm.mm(a, b), expected)
    column_major = torch.empty(b.shape[1], a.shape[0], dtype=a.dtype, device="cuda").t()
    assert torch.equal(tcgemm.mm(a, b, out=column_major), expected)
    with tcgemm.batch_invariant():
        assert not tcgemm.explain(a, b).tuned
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph_result = tcgemm.mm(a, b)
    graph.replay()
    assert torch.equal(graph_result, expected)
    tuned.forget()
    assert torch.equal(tcgemm.mm(a, b), first)
    _, (is_tuned, name, error) = next(iter(later(SHAPES[:1]).items()))
    assert (is_tuned, name) == (True, kernel) and error < 1


def test_epilogues_and_gradients_of_a_tuned_product():
    a, b = operands(*SHAPES[1])
    store(a, b, other_kernel(a, b))
    bias = torch.randn(b.shape[1], device="cuda").bfloat16()
    result = tcgemm.mm(a, b, bias=bias, activation="relu", out_dtype=torch.float32)
    reference.assert_close(result, a, b, None, bias, activation="relu")
    x = a.clone().requires_grad_()
    assert torch.equal(
        tcgemm.mm(x, b, activation="gelu").detach(), tcgemm.mm(a, b, activation="gelu")
    )


def test_the_operator_answers_on_a_gpu():
    assert query.ask("_set_tuned", "a GPU", "a product", "no_kernel@1/1") is False
