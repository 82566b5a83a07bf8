"""The command `tcgemm` and `tcgemm.info`: what they claim is what the operators do."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tcgemm
from tcgemm import _library, cli, dtypes, info


def test_report_names_what_is_installed():
    text = info.report()
    for fact in (tcgemm.__version__, torch.__version__, info.build()["compiler"], "What runs here"):
        assert fact in text


@pytest.mark.parametrize("checkout", [True, False])
def test_report_says_that_no_cuda_kernel_was_built(monkeypatch, tmp_path, checkout):
    package = tmp_path / "tcgemm"
    if checkout:
        (tmp_path / "setup.py").touch()
        command = f"cd {tmp_path} && TCGEMM_CUDA=1 python setup.py build_ext --inplace"
    else:
        command = "TCGEMM_CUDA=1 pip install --force-reinstall --no-deps --no-build-isolation"
    monkeypatch.setattr(_library, "PACKAGE", package)
    facts = dict(info.build())
    monkeypatch.setattr(info, "build", lambda: facts)
    for facts["cuda"] in (None, "13.0"):
        note = f"  note: no CUDA kernel was built; this builds them: {command}"
        assert (note in info.report()) is (facts["cuda"] is None)


def test_report_gives_a_reason_for_every_no():
    for row in info.support():
        assert row.runs == (not row.why)
        if row.place == "CPU":
            assert row.runs


@pytest.mark.parametrize("row", dtypes.TABLE, ids=lambda row: row.name)
def test_supported_on_the_cpu_is_true(row):
    a = torch.ones(3, 5).to(row.torch)
    for accumulator in row.accumulators:
        out = tcgemm.mm(a, a.t(), acc_dtype=accumulator)
        assert torch.equal(out, torch.full_like(out, 5))


@pytest.mark.gpu
def test_supported_on_the_gpu_is_true():
    types = {name: dtype for dtype, name in dtypes.NAMES.items()}
    for row in info.support():
        if row.place == "CPU" or not row.kernels:
            assert row.runs or row.why
            continue
        if row.dtype not in types:  # sub-byte operands: tests/gpu/test_subbyte_kernels.py
            assert row.runs or row.why
            continue
        a = torch.ones(64, 64, device="cuda").to(types[row.dtype])
        options = {
            "acc_dtype": types[row.accumulator],
            "precision": "high" if row.dtype == "f32" else None,
            "kernel": row.kernels,
        }
        if row.runs:
            out = torch.ops.tcgemm._gemm(a, a, **options)
            assert torch.equal(out, torch.full_like(out, 64))
        else:
            with pytest.raises(RuntimeError):
                torch.ops.tcgemm._gemm(a, a, **options)


def test_f64_has_no_wgmma():
    reasons = {row.place: row.why for row in info.support() if row.dtype == "f64"}
    assert reasons["wgmma"] == "there is no such instruction"
    assert reasons["mma.sync"] != reasons["wgmma"]


def test_what_has_no_mma_sp_says_so():
    rows = [row for row in info.support() if row.place == "mma.sp"]
    reasons = {(row.dtype, row.accumulator): row.why for row in rows}
    assert reasons["f64", "f64"] == "there is no such instruction"
    assert reasons["e4m3", "f32"] == reasons["f16", "f16"] == "there is no such kernel"
    assert reasons["bf16", "f32"] not in ("there is no such kernel", "there is no such instruction")


def config(arch: str, dtype: str, sparse: bool = False) -> dict:
    """A row of build()["configs"]."""
    types = {"input": dtype, "input_b": dtype, "accumulator": "f32", "terms": 1}
    return {"index": 0, "arch": arch, "sparse": sparse, **types}


@pytest.mark.parametrize(("family", "runs"), [("mma.sync", True), ("mma.sp", False)])
def test_kernels_with_a_sparse_operand_are_no_others(monkeypatch, family, runs):
    facts = {
        "cuda": "13.0",
        "arches": ("8.0",),
        "configs": [config("sm80", "bf16", False), config("sm80", "f16", True)],
        "code": {"8.0": "8.0"},
    }
    monkeypatch.setattr(info, "build", lambda: facts)
    by_name = {row.name: row for row in dtypes.TABLE}
    assert (info._why_not(family, by_name["bf16"], "f32", (8, 0)) == "") is runs
    assert (info._why_not(family, by_name["f16"], "f32", (8, 0)) == "") is not runs


def test_the_library_and_the_catalog_agree_on_whose_code_runs():
    facts = info.build()
    if facts["cuda"] is None:
        assert facts["code"] == {}
        return
    arches = ",".join(facts["arches"])
    for capability in ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0"):
        code = info.code(int(capability.replace(".", "")), arches)
        assert facts["code"].get(capability, "none") == code


@pytest.mark.parametrize(
    ("arches", "capability", "accumulator", "words"),
    [
        (("8.0", "9.0a"), (9, 0), "f32", ""),
        (("8.0@9.0",), (9, 0), "f32", "not among the kernels of this build"),
        (
            ("9.0a",),
            (8, 0),
            "f32",
            "compute capability 8.0, which runs this",
        ),
    ],
)
def test_why_wgmma_does_not_run(monkeypatch, arches, capability, accumulator, words):
    configs = [config("sm80", "bf16")]
    if "9.0a" in arches:
        configs.append(config("sm90a", "bf16"))
    facts = {"cuda": "13.0", "arches": arches, "configs": configs, "code": {"9.0": arches[-1]}}
    monkeypatch.setattr(info, "build", lambda: facts)
    row = next(row for row in dtypes.TABLE if row.name == "bf16")
    reason = info._why_not("wgmma", row, accumulator, capability)
    assert (words in reason) if words else reason == ""


def test_every_kernel_is_linked():
    """Also on a machine without a GPU: each unit enters its kernels when the library is loaded."""
    assert info.build()["missing_kernels"] == []


def test_catalog_agrees_with_the_library():
    rows = info.catalog() + info.catalog(grouped=True)
    assert [bool(row["grouped"]) for row in rows] == sorted(bool(row["grouped"]) for row in rows)
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    assert {row["name"] for row in rows if row["built"]} == set(info.build()["kernels"])
    for config, name in zip(info.build()["configs"], info.build()["kernels"], strict=True):
        row = rows[config["index"]]
        assert row["name"] == name and row["terms"] == config["terms"]
        for field in ("arch", "input", "input_b", "accumulator"):
            assert row[field] == config[field]
        assert bool(row["sparse"]) is config["sparse"]
    shared = {device["name"]: device["shared_bytes"] for device in info.devices()}
    roomy = {"sm80": "A100", "sm89": "L40S", "sm90a": "H200"}
    for row in rows:
        assert row["shared_bytes"] <= shared[roomy[row["arch"]]]


def test_every_kernel_has_its_instruction():
    def kinds(rows):
        names = ("arch", "input", "input_b", "accumulator")
        return {tuple(row[name] for name in names) for row in rows}

    instructions = {
        (arch, *(("f64",) * 3 if accumulator == "f64" else (a, b, accumulator)))
        for arch, a, b, accumulator in kinds(info.catalog())
        if (a, accumulator) != ("f32", "f32")  # whose terms are of tf32
    }
    assert kinds(info.instructions()) == instructions
    sparse = kinds(row for row in info.instructions() if row["family"].endswith(".sp"))
    assert sparse == kinds(row for row in info.catalog() if row["sparse"])


def test_support_table_has_every_kind_of_operands():
    table = info.support_table()
    split = ("f32 as 2 f16 terms", "f32 as 3 bf16 terms", "f32 as f64")
    sparse = ("bf16 2:4 by bf16", "f32 as tf32 1:2 by f32 as tf32", "s8 2:4 by u8")
    for operands in ("bf16", "f32 as tf32", *split, *sparse, "e4m3 by e5m2", "u8 by s8", "f64"):
        assert operands in table
    for word in (
        "promoted",
        "scales of blocks",
        "TT (RS)",
        "8.9 and later",
        "mma.sp m16n8k64",
    ):
        assert word in table


def test_answers_without_tensors_are_no_fake_ones():
    with FakeTensorMode():
        assert info.known_device("NVIDIA H200", 90, 132)["name"] == "H200"
        assert info.device_rates("GPU", 80, 108, 1.4e6, 1.2e6, 5120)["rates_from"] == "driver"


@pytest.mark.parametrize("layout", ["TN", "NN", "TT", "NT"])
def test_command_line_explains(layout, capsys):
    words = ["explain", "512", "256", "128", "--layout", layout, "--device", "A100"]
    assert cli.main(words) == 0
    output = capsys.readouterr().out
    assert layout in output and "A100" in output


def test_command_line_says_what_is_wrong():
    command = [sys.executable, "-m", "tcgemm", "explain", "512", "256", "128", "--device", "H9"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode != 0
    assert process.stderr.startswith('tcgemm.explain: device is "H9"')
    assert "H200" in process.stderr
    assert "Traceback" not in process.stderr
