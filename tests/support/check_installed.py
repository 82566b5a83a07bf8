"""An installed tcgemm as its user gets it: products, sentences, tables, saved layers.

    python check_installed.py        with the Python of an environment that has a wheel of tcgemm

tests/repo/test_wheel.py runs it with the torch of the checkout, `make test-wheel TORCH=...` with
another one. It imports nothing of the checkout.
"""

import io
import sys
from pathlib import Path

import torch

import tcgemm

A, B = torch.ones(3, 4), torch.ones(4, 2)
# A call that is refused, and words of its sentence.
REFUSED = (
    (lambda: tcgemm.mm(A, A), "tcgemm.mm: ", "4"),
    (lambda: tcgemm.mm(A, B, precision="best"), "tcgemm.mm: ", "best"),
    (lambda: tcgemm.mm(A, B, out=torch.empty(1)), "tcgemm.mm: ", "out"),
    (lambda: tcgemm.linear(A, B.t().double()), "tcgemm.linear: ", "float64"),
    (lambda: tcgemm.quantize(A, torch.int16), "tcgemm.quantize: ", "int16"),
    (lambda: tcgemm.compress24(torch.ones(4, 8)), "tcgemm.compress24: ", "prune"),
    (lambda: tcgemm.explain(A, B, device="B9"), "tcgemm.explain: ", "H200"),
)


def check_sentences() -> None:
    for call, start, word in REFUSED:
        try:
            call()
        except RuntimeError as error:
            text = str(error)
            assert type(error) is RuntimeError, type(error)
            assert text.startswith(start) and word in text and "\n" not in text, text
            print(text)
        else:
            raise AssertionError(f"{start}{word}: nothing was refused")


def check_products() -> None:
    assert torch.equal(tcgemm.mm(A, B), torch.full((3, 2), 4.0))
    w = torch.randn(6, 4, requires_grad=True)
    tcgemm.linear(A, w, activation="gelu").sum().backward()
    assert w.grad.shape == w.shape
    compiled = torch.compile(tcgemm.linear, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(A, w), tcgemm.linear(A, w))
    x8, scale = tcgemm.quantize(torch.randn(5, 128), torch.float8_e4m3fn, "1x128")
    assert tcgemm.dequantize(x8, scale).shape == (5, 128)


def check_tables() -> None:
    plan = tcgemm.explain(A, B, precision="high", activation="relu", device="H200")
    assert plan.bytes > 0 and plan.kernel in plan
    assert len(tcgemm.info.catalog()) > 300 and len(tcgemm.info.devices()) > 3
    assert tcgemm.info.known_device("NVIDIA H200", 90, 132)["name"] == "H200"


def check_saved() -> None:
    for kind in (tcgemm.nn.Linear, tcgemm.nn.QuantLinear, tcgemm.nn.SparseLinear24):
        model = torch.nn.Sequential(torch.nn.Linear(32, 16))
        tcgemm.swap_linear(model, to=kind)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        model.load_state_dict(torch.load(file, weights_only=True))
        assert model(torch.ones(2, 32)).shape == (2, 16)


def main() -> int:
    torch.manual_seed(0)
    for check in (check_sentences, check_products, check_tables, check_saved):
        check()
    print(f"tcgemm {tcgemm.__version__} in {Path(tcgemm.__file__).parent}")
    print(f"torch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
