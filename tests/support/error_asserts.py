"""Shared by the tests of refusals: small operands, and the rules of an error sentence."""

import re

import pytest
import torch


def t(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def quantised(*shape):
    return torch.quantize_per_tensor(t(*shape), 0.1, 0, torch.qint8)


def error_message(call, kind=RuntimeError):
    """The text with which a call is refused by an error of this type, or of one of these."""
    with pytest.raises(kind) as excinfo:
        call()
    return str(excinfo.value)


def refusal(call):
    """The text of a ValueError or a RuntimeError."""
    return error_message(call, (ValueError, RuntimeError))


def rows_of(tables):
    """{"table": {"row": (call, pieces)}} -> the parameters of a test, one for each row."""
    return [
        pytest.param(*row, id=f"{table}: {name}")
        for table, rows in tables.items()
        for name, row in rows.items()
    ]


def assert_error_message(call, pieces):
    """The call is refused in one sentence that has the pieces in their order, and a way out."""
    text = error_message(call)
    at = 0
    for piece in pieces:
        assert piece in text[at:], f"no {piece!r} (in this order) in: {text}"
        at = text.index(piece, at) + len(piece)
    assert text.startswith("tcgemm")
    assert re.search(r"\.\)?$", text), f"no sentence: {text}"
    assert "; " in text, f"nothing says how to mend it: {text}"
    assert "\n" not in text and len(text) < 400
