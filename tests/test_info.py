"""`python -m tcgemm` and `tcgemm.info`: what they claim is what the operators do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import tcgemm
from tcgemm import dtypes, info

needs_catalog = pytest.mark.skipif(info._catalog is None, reason=info.NO_CATALOG)


def command_line(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tcgemm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))


def test_report_names_what_is_installed():
    text = info.report()
    for fact in (tcgemm.__version__, torch.__version__, info.build()["compiler"], "What runs here"):
        assert fact in text
    assert ("CUDA" in text) == (info.build()["cuda"] is not None)


def test_report_gives_a_reason_for_every_no():
    for row in info.support():
        assert row.runs == (not row.why)
        if row.place == "CPU":
            assert row.runs


@pytest.mark.parametrize("row", dtypes.TABLE, ids=lambda row: row.name)
def test_supported_on_the_cpu_is_true(row):
    a = torch.ones(3, 5, dtype=row.torch)
    for accumulator in row.accumulators:
        assert torch.equal(tcgemm.mm(a, a.t(), acc_dtype=accumulator), a @ a.t())


@pytest.mark.gpu
def test_supported_on_the_gpu_is_true():
    types = {row.name: row.torch for row in dtypes.TABLE}
    for row in info.support():
        if row.place == "CPU":
            continue
        a = torch.ones(64, 64, dtype=types[row.dtype], device="cuda")
        options = {"acc_dtype": types[row.accumulator], "kernel": row.place}
        if row.runs:
            out = torch.ops.tcgemm._gemm(a, a, **options)
            assert torch.equal(out, torch.full_like(a, 64))
        else:
            with pytest.raises(RuntimeError):
                torch.ops.tcgemm._gemm(a, a, **options)


@needs_catalog
def test_catalog_agrees_with_the_library():
    rows = info.catalog()
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    assert {row["name"] for row in rows if row["built"]} == set(info.build()["kernels"])
    shared = {device["name"]: device["shared_bytes"] for device in info.devices()}
    for row in rows:
        assert row["shared_bytes"] <= shared["H200" if row["arch"] == "sm90a" else "A100"]


@needs_catalog
def test_every_kernel_has_its_instruction():
    kinds = {(row["input"], row["accumulator"], row["arch"]) for row in info.instructions()}
    assert kinds == {(row["input"], row["accumulator"], row["arch"]) for row in info.catalog()}


@needs_catalog
def test_plan_refuses_an_unknown_name():
    with pytest.raises(RuntimeError, match="no device is called 'H9'; expected one of H200"):
        info.plan("H9", "bf16", 64, 64, 64)
    with pytest.raises(RuntimeError, match="no dtype is called 'f17'"):
        info.plan("H200", "f17", 64, 64, 64)
    with pytest.raises(RuntimeError, match="no layout is called 'XX'"):
        info.plan("H200", "bf16", 64, 64, 64, layout="XX")


def test_missing_catalog_module_is_a_sentence(monkeypatch):
    monkeypatch.setattr(info, "_catalog", None)
    with pytest.raises(RuntimeError, match="build_catalog` builds it"):
        info.catalog()
    assert "catalog module is not built" in info.report()


@pytest.mark.parametrize("layout", ["TN", "NN", "TT", "NT"])
def test_command_line_explains(layout):
    done = command_line("explain", "512", "256", "128", "--layout", layout, "--device", "A100")
    assert done.returncode == 0, done.stderr
    assert layout in done.stdout
    assert "A100" in done.stdout


def test_command_line_says_what_is_wrong():
    done = command_line("explain", "512", "256", "128", "--device", "H9")
    assert done.returncode != 0
    assert done.stderr.startswith("tcgemm: ")
    assert "H200" in done.stderr
    assert "Traceback" not in done.stderr
