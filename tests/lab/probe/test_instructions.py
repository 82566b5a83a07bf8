"""The table of what ptxas makes of instructions, by architecture."""

import re

import pytest

from tcgemm import cli
from tcgemm.lab.probe import rows, tables

MADE = {row["instruction"]: row for row in tables.instructions().rows}


def test_the_command_prints_the_table_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["probe", "instructions"]) == 0
    assert capsys.readouterr().out == f"{tables.instructions()}\n"


def test_every_instruction_of_one_type_has_a_line():
    for arch in rows.TARGETS:
        for name, mma in rows.by_label(arch).items():
            if mma.input == mma.input_b and mma.input not in ("u8", "u4", "e5m2"):
                assert MADE[name][arch] != "-", (arch, name)
    assert not [name for name in MADE if " e5m2 " in name or " u8 " in name]


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        # The four products of Volta are no tensor-core instruction from Ampere on.
        (
            "mma f16 f16 f32 m8n8k4",
            ["-", *["no tensor cores, emulated"] * 3],
        ),
        ("mma f16 f16 f32 m16n8k16", ["-", "1 HMMA", "1 HMMA", "1 HMMA"]),
        ("mma e4m3 e4m3 f32 m16n8k32", ["-", "-", "1 QMMA", "2 HMMA, emulated"]),
        ("mma b1 b1 s32 m16n8k256 xor.popc", ["-", "1 BMMA", "1 BMMA", "2 BMMA, emulated"]),
        # WMMA of TF32 is made of m16n8k4, not of m16n8k8.
        ("wmma tf32 tf32 f32 m16n16k8", ["-", *["4 HMMA"] * 3]),
        ("wmma f64 f64 f64 m8n8k4", ["-", *["1 DMMA"] * 3]),
        ("wgmma f16 f16 f32 m64n256k16", ["-", "-", "-", "1 HGMMA"]),
    ],
)
def test_what_ptxas_makes(name, texts):
    assert [MADE[name][arch] for arch in rows.TARGETS] == texts


def test_the_counts_are_those_of_native_h():
    """Every opcode of the table stands in the header that the probe's SASS tests check."""
    cells = {row[arch] for row in MADE.values() for arch in rows.TARGETS}
    opcodes = {match[0] for cell in cells if (match := re.search(r"[A-Z]+MMA", cell))}
    assert opcodes == {"HMMA", "DMMA", "QMMA", "BMMA", "IMMA", "HGMMA", "QGMMA", "BGMMA", "IGMMA"}
