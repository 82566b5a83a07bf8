"""The demo: what it trains, what it accepts, what it prints."""

import re
import sys

import pytest
import torch

import tcgemm
from tcgemm.measure import operands
from tcgemm.measure.demo import main as demo
from tcgemm.measure.demo import products as demo_products

pytest.importorskip("sklearn", reason="the demo's data ships inside scikit-learn")


def test_the_two_networks_start_equal():
    networks = []
    for fused in (True, False):
        torch.manual_seed(7)
        networks.append(demo.Digits(fused))
    state, torch_state = (network.state_dict() for network in networks)
    assert list(state) == list(torch_state)
    assert all(torch.equal(state[name], torch_state[name]) for name in state)
    pixels = torch.randn(5, 64)
    torch.testing.assert_close(networks[0](pixels), networks[1](pixels))


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ({"tcgemm": 97.0, "baseline": 97.5, "int8": 96.7}, None),
        ({"tcgemm": 94.9, "baseline": 95.2}, "The network of tcgemm recognises 94.90 %"),
        ({"tcgemm": 96.0, "baseline": 95.0}, "The network of baseline recognises 95.00 %"),
        ({"tcgemm": 98.5, "baseline": 98.4, "int8": 97.4}, "of int8 and tcgemm differ by 1.10"),
        ({"tcgemm": float("nan"), "baseline": 97.0}, "of tcgemm recognises nan %"),
    ],
)
def test_judge(accuracies, words):
    sentence = demo.judge(accuracies)
    assert (sentence is None) if words is None else (words in sentence)


def test_a_swap_leaves_the_network():
    torch.manual_seed(0)
    network = demo.Digits(True)
    before = {name: values.clone() for name, values in network.state_dict().items()}
    accuracies = demo.swapped(network, demo.load_data("cpu"), "cpu")
    assert list(accuracies) == list(demo.SWAPS)
    assert all(torch.equal(before[name], values) for name, values in network.state_dict().items())


def test_a_sparse_network_learns_on_and_shrinks(monkeypatch):
    torch.manual_seed(0)
    network, data = demo.Digits(True), demo.load_data("cpu")
    trained = []
    train = demo.train
    monkeypatch.setattr(
        demo, "train", lambda networks, *rest: trained.append(networks[0]) or train(networks, *rest)
    )
    with demo.one_thread():
        demo.train([network], data, 5, 0, "cpu")
        before = [parameter.clone() for parameter in network.parameters()]
        accuracies, words = demo.sparse(network, data, 5, 0, "cpu")
    assert [name.split(", ")[1] for name in accuracies] == ["pruned", "trained on", "compressed"]
    pruned, learnt, compressed = accuracies.values()
    assert learnt > pruned and learnt == compressed > 90
    assert all(torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True))
    weights = 64 * 256 + 256 * 256 + 256 * 10
    biases = 2 * (256 + 256 + 10)
    dense, small = 2 * weights + biases, 9 * weights // 8 + biases + 3 * 24
    assert words.endswith(f"5 epochs more: {dense} bytes dense, {small} compressed")
    layers = [*trained[1].children()][:3]
    assert all(isinstance(layer, tcgemm.nn.SparseLinear24) for layer in layers)
    assert not any(layer.learns for layer in layers)


def test_a_sparse_network_under_autocast(monkeypatch):
    monkeypatch.setattr(demo, "precision", lambda _: torch.autocast("cpu", torch.bfloat16))
    torch.manual_seed(0)
    network, data = demo.Digits(True), demo.load_data("cpu")
    with demo.one_thread():
        demo.train([network], data, 3, 0, "cpu")
        accuracies, _ = demo.sparse(network, data, 3, 0, "cpu")
    pruned, learnt, compressed = accuracies.values()
    assert learnt > pruned and learnt == compressed > 80


def test_demo_on_the_cpu(capsys):
    assert demo.main(["--device", "cpu", "--epochs", "15"]) == 0
    out = capsys.readouterr().out
    names = ("tcgemm.nn.Linear", "torch.nn.Linear", "QuantLinear, int8", "QuantLinear, fp8")
    names += ("PackedLinear, int4",)
    sparse = [f"SparseLinear24, {word}" for word in ("pruned", "trained on", "compressed")]
    for name in (*names, *sparse):
        assert re.search(rf"{name} +9\d\.\d\d % of the test digits", out)
    rows = [line.split() for line in out.splitlines()]
    products = {(row[2], row[3]) for row in rows if row[1:2] == ["mm"]}
    for (dtype, epilogue), shapes in demo_products.KINDS.items():
        layouts = {name for layouts, *_ in shapes["cpu"] for name in layouts}
        assert {(dtype, layout) for layout in layouts} <= products, (dtype, epilogue)
    assert "511x511x511" in out and "500x33x777" in out and "packed-int4-128" in out
    assert "The networks agree" in out


def test_a_network_that_has_not_learnt_fails_the_demo(capsys, monkeypatch):
    monkeypatch.setattr(demo, "products", lambda device: None)
    assert demo.main(["--device", "cpu", "--epochs", "1"]) == 1
    assert "more than 95 % was expected" in capsys.readouterr().err


def test_a_wrong_product_fails_the_demo(capsys, monkeypatch):
    monkeypatch.setattr(demo, "digits", lambda device, epochs, seed: None)
    kinds = {("f32", "none"): {"cpu": ((("TN",), 16, 16, 16),)}}
    monkeypatch.setattr(demo_products, "KINDS", kinds)
    monkeypatch.setattr(tcgemm, "mm", lambda a, b, out, **options: out.zero_())
    assert demo.main(["--device", "cpu"]) == 1
    sentence = capsys.readouterr().err
    assert "outside their error bound: f32 TN 16x16x16" in sentence


def test_without_tqdm_a_line_is_printed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with demo.progress.bar(3, "training", "step") as bar:
        assert bar is None
    assert "pip install tqdm" in capsys.readouterr().out


@pytest.mark.gpu
def test_demo_on_a_gpu(capsys):
    assert demo.main([]) == 0
    out = capsys.readouterr().out
    assert "bf16 autocast" in out
    for dtype, accumulator in (("bf16", "f32"), ("e4m3", "f32"), ("s8", "s32"), ("f64", "f64")):
        if demo.why_no_kernel("cuda", operands.DTYPES[dtype]):  # in a build for older GPUs
            assert dtype != "bf16" and f"{dtype} none: this GPU has no kernel for it" in out
        else:
            assert f"_{dtype}_{accumulator}_" in out
    lacks = demo.why_no_kernel("cuda", torch.bfloat16, "sparse")
    assert ("_sparse " in out and "SparseLinear24, compressed" in out) is not bool(lacks)


def test_what_the_gpu_lacks_is_left_out(capsys, monkeypatch):
    def refuse(a, b, **options):
        if a.dtype is torch.float8_e4m3fn or isinstance(b, tcgemm.SparseTensor24):
            raise RuntimeError("tcgemm: no kernel")

    monkeypatch.setattr(tcgemm, "check_layout", refuse)
    shapes = {"cpu": ((("TN",), 8, 8, 16),)}
    kinds = (("e4m3", "none"), ("s8", "none"), ("s8", "sparse"))
    monkeypatch.setattr(demo_products, "KINDS", dict.fromkeys(kinds, shapes))
    assert demo.main(["--device", "cpu", "--epochs", "15"]) == 0
    out = capsys.readouterr().out
    assert "QuantLinear, int8" in out and "QuantLinear, fp8" not in out
    assert "SparseLinear24, " not in out and "SparseLinear24 is left out: this GPU has no" in out
    for name in ("e4m3 none", "s8 sparse"):
        assert f"{name}: this GPU has no kernel for it" in out
    assert " s8 " in out
