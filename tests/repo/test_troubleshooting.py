"""Every message that docs/troubleshooting.md quotes is raised, word for word.

Three dots in a message stand for any text.
"""

import re

import pytest
import torch

import tcgemm
from tcgemm import _library

from support.source_tree import ROOT

TEXT = (ROOT / "docs/troubleshooting.md").read_text()
QUOTED = dict(re.findall(r"^### ([^\n]*)\n\n```text\n(.*?)```$", TEXT, re.MULTILINE | re.DOTALL))
X, W = torch.ones(4, 8), torch.ones(6, 8)
E4M3 = torch.float8_e4m3fn


def library_is_missing(patch):
    patch.setattr(_library, "path", lambda: ROOT / "nothing" / "libtcgemm.so")
    _library.load()


def torch_is_old(patch):
    patch.setattr(torch, "__version__", "2.10.0")
    _library.load()


def library_is_no_library(patch):
    patch.setattr(_library, "path", lambda: ROOT / "LICENSE")
    patch.setattr(_library, "_check_single", lambda file: None)
    _library.load()


def no_driver(_):
    if torch.cuda.is_available() or not torch.version.cuda:
        pytest.skip("only a CUDA build of torch on a machine without a driver has this message")
    X.cuda()


def out_of_memory(_):
    one = torch.ones(1, 1)
    tcgemm.mm(one.expand(2**21, 1), one.expand(1, 2**21))


def built_without_cuda(_):
    """No tensor of a machine without a GPU is on CUDA: the sentence is looked up in the source."""
    source = re.sub(r'"\s*"', "", (ROOT / "csrc/ops/target.cpp").read_text())
    start, sentence = re.search(
        r'"( is on )", device_name\(view\),\s*"([^"]*CUDA[^"]*)"', source
    ).groups()
    raise RuntimeError(f"tcgemm.mm: a{start}cuda:0{sentence}")


def changed_after_prepare(_):
    weight = W.clone()
    prepared = tcgemm.prepare(weight)
    weight.add_(1)
    tcgemm.linear(X, prepared)


def compiled(function):
    def call(_):
        torch._dynamo.reset()
        torch.compile(function, backend="eager", fullgraph=True)(X, W)

    return call


def tied(_):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 8)
            self.head = torch.nn.Linear(8, 10, bias=False)
            self.head.weight = self.embedding.weight

    return tcgemm.swap_linear(Tied(), to=tcgemm.nn.QuantLinear).skipped["head"]


def model():
    return torch.nn.Sequential(torch.nn.Linear(8, 8))


def undone_out_of_order(_):
    swapped = model()
    first = tcgemm.swap_linear(swapped)
    tcgemm.swap_linear(swapped, to=tcgemm.nn.QuantLinear)
    first.undo()


def loaded_before_the_swap(_):
    swapped = model()
    tcgemm.swap_linear(swapped, to=tcgemm.nn.QuantLinear)
    model().load_state_dict(swapped.state_dict())


def shared_out(_):
    out = torch.zeros(4, 6)
    tcgemm.mm(X, W.t(), residual=out, out=out)


# Heading -> the function that raises the message, or returns it. It takes pytest's monkeypatch.
RAISED = {
    "The operator library is not there": library_is_missing,
    "torch is too old": torch_is_old,
    "The library could not be loaded": library_is_no_library,
    "Two copies of tcgemm in one process": lambda _: _library.load(),
    "Found no NVIDIA driver": no_driver,
    "Out of memory": out_of_memory,
    "No CUDA kernel was built": built_without_cuda,
    "No kernel of this build": lambda _: tcgemm.explain(X, W.t(), device="A100"),
    "Both must have one dtype": lambda _: tcgemm.linear(X.bfloat16(), W),
    "A dtype that no product takes": lambda _: tcgemm.mm(X.long(), W.t().long()),
    "Tensors on two devices": lambda _: tcgemm.mm(X, W.t().to("meta")),
    "Shapes that do not fit": lambda _: tcgemm.linear(X, W.t()),
    "The scale of b has the wrong shape": lambda _: tcgemm.linear(
        X.to(E4M3), W.to(E4M3), scale_b=torch.ones(6, 1)
    ),
    "A sparse layout": lambda _: tcgemm.mm(X.to_sparse(), W.t()),
    "out shares memory": shared_out,
    "out= and a gradient": lambda _: tcgemm.mm(X, W.t().requires_grad_(), out=torch.empty(4, 6)),
    "8-bit operands have no gradient": lambda _: tcgemm.mm(
        X.to(E4M3).requires_grad_(), W.t().to(E4M3)
    ),
    "The tensor does not have the pattern": lambda _: tcgemm.compress24(X.bfloat16()),
    "An operation is not there for 2:4 tensors": lambda _: tcgemm.compress24(W, prune=True).sum(),
    "A prepared weight has changed": changed_after_prepare,
    "A refusal inside a compiled function": compiled(tcgemm.mm),
    "A call that is not made inside a compiled function": compiled(lambda x, w: tcgemm.prepare(w)),
    "A name that no layer has": lambda _: tcgemm.swap_linear(model(), "lm_head"),
    "Tied weights are skipped": tied,
    "undo() undoes nothing": undone_out_of_order,
    "Unexpected key weight_scale": loaded_before_the_swap,
}
# The process ends with this one, so that no test can raise it; tests/repo/test_amx.py acts it.
ENDS_THE_PROCESS = {"Illegal instruction"}


def pattern(quoted):
    """The message with any white space between words, and anything in place of three dots."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in quoted.split("...")]
    return re.compile(r"\s*.*?\s*".join(parts), re.DOTALL)


def test_every_quoted_message_is_raised_by_a_case():
    assert len(QUOTED) == TEXT.count("\n### ") == TEXT.count("```text")
    assert set(QUOTED) == set(RAISED) | ENDS_THE_PROCESS


@pytest.mark.parametrize("heading", RAISED)
def test_message(heading, monkeypatch):
    monkeypatch.setattr(_library, "_loaded", False)
    try:
        message = RAISED[heading](monkeypatch)
    except (RuntimeError, ImportError) as error:  # NotImplementedError is a RuntimeError
        kind = type(error)
        place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        message = f"{place}{kind.__name__}: {error}"
    assert pattern(QUOTED[heading]).fullmatch(message.strip()), message
