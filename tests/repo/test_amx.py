"""The guard against AMX that a machine advertises but forbids, with children that only act."""

import os
import subprocess

import pytest

from tcgemm.measure import amx

from support import programs

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
LIVES = ""
FAILS = "import sys; sys.exit(1)"  # for example a torch that cannot be imported
WITH_AMX = "flags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n"
WITHOUT_AMX = "flags\t\t: fpu avx512f avx512_bf16\n"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets what the CPU advertises and what the child does; returns the list of its starts."""

    def pretend(cpuinfo, child):
        starts = []
        run = subprocess.run

        def count(command, **options):
            starts.append(command)
            return run(command, **options)

        (tmp_path / "cpuinfo").write_text(cpuinfo)
        monkeypatch.setattr(amx, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(amx, "LINEAR", child)
        monkeypatch.setattr(amx.subprocess, "run", count)
        return starts

    # setenv first: monkeypatch then takes back what the guard itself sets.
    monkeypatch.setenv(amx.VARIABLE, "DEFAULT")
    monkeypatch.delenv(amx.VARIABLE)
    amx.linear_ends_with_sigill.cache_clear()
    yield pretend
    amx.linear_ends_with_sigill.cache_clear()


@pytest.mark.parametrize(
    ("flags", "value"), [("", "AVX512_CORE_BF16"), ("avx512_fp16\n", "AVX512_CORE_FP16")]
)
def test_forbidden_amx_is_avoided(machine, flags, value):
    starts = machine(WITH_AMX + flags, DIES)
    sentence = amx.avoid_forbidden_amx()
    assert "advertises AMX but forbids it" in sentence
    assert f"ONEDNN_MAX_CPU_ISA={value} is set" in sentence
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == value
    assert amx.avoid_forbidden_amx() == ""  # the variable is set now
    assert len(starts) == 1


@pytest.mark.parametrize("child", [LIVES, FAILS], ids=["lives", "fails"])
def test_a_child_without_sigill_changes_nothing(machine, child):
    starts = machine(WITH_AMX, child)
    assert amx.avoid_forbidden_amx() == ""
    assert amx.avoid_forbidden_amx() == ""
    assert amx.VARIABLE not in os.environ
    assert len(starts) == 1  # asked once a process


def test_no_child_without_amx(machine):
    starts = machine(WITHOUT_AMX, DIES)
    assert amx.avoid_forbidden_amx() == ""
    assert amx.VARIABLE not in os.environ
    assert not starts


def test_the_users_choice_stands(machine, monkeypatch):
    starts = machine(WITH_AMX, DIES)
    monkeypatch.setenv(amx.VARIABLE, "AVX2")
    assert amx.avoid_forbidden_amx() == ""
    assert os.environ[amx.VARIABLE] == "AVX2"
    assert not starts


def test_a_hanging_child_is_ended(machine, monkeypatch):
    machine(WITH_AMX, "import time; time.sleep(60)")
    monkeypatch.setattr(amx, "SECONDS", 0.1)
    assert amx.avoid_forbidden_amx() == ""


def run_without_the_variable(code, **environ):
    variables = {name: value for name, value in os.environ.items() if name != amx.VARIABLE}
    process = programs.run(code, env={**variables, **environ})
    assert process.returncode == 0, process.stderr
    return process


def test_onednn_reads_the_variable_after_torch_is_imported():
    """The guard sets it in a process that has torch already. Here it has a value that is lower than
    the guard's, so that a CPU without AMX shows it, too."""
    code = f"import torch, os; os.environ['{amx.VARIABLE}'] = 'AVX512_CORE'\n"
    process = run_without_the_variable(code + amx.LINEAR, ONEDNN_VERBOSE="all")
    isa = [line for line in process.stdout.splitlines() if "info,cpu,isa:" in line]
    if not isa:
        pytest.skip("torch's bf16 linear does not use oneDNN here")
    # With later instruction sets the text ends in "Intel DL Boost" or names AMX.
    assert isa[0].endswith("AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions"), isa


# Without VNNI oneDNN adds pairs of int8 products in 16 bits, which saturate.
INT8 = """
a = torch.full((32, 64), 127, dtype=torch.int8)
print(torch._int_mm(a, a.t()).unique().tolist())
"""
# torch calls oneDNN for them where the CPU has AVX512-FP16, whatever the variable says.
FP8 = """
one, a = torch.ones(()), torch.ones(32, 64).to(torch.float8_e4m3fn)
print(torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.float32).unique().tolist())
"""


@pytest.mark.parametrize(
    ("product", "value"), [(INT8, 64 * 127 * 127), (FP8, 64.0)], ids=["int8", "fp8"]
)
def test_products_of_torch_stay_exact_with_the_variable(product, value):
    code = f"import os; os.environ[{amx.VARIABLE!r}] = {amx.without_amx()!r}; import torch{product}"
    assert run_without_the_variable(code).stdout.split() == [f"[{value}]"]
