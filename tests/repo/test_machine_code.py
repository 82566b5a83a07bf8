"""The table of machine code: it is complete, and the comparison finds every kind of change."""

import json
import struct

import pytest

from tcgemm import info

from support import machine_code

NO_NAMES = {"row_kernel": r"::gemm<(\d+), (\d),", "rows": [], "functions": []}
REPACK, GEMM = "_ZN6tcgemm6repackILi2EEEvi", "_ZN6tcgemm4gemmILi1ELi3EiEEvi"


def elf(parts):
    """An ELF file of (name, bytes or size) as sections; a size means a section of zeros."""
    names = b"".join(name.encode() + b"\0" for name, _ in parts) + b".shstrtab\0"
    body, headers = b"", b""
    for name, content in [*parts, (".shstrtab", names)]:
        zeros = isinstance(content, int)
        place = (0, 64 + len(body), content if zeros else len(content))
        start = names.index(name.encode() + b"\0")
        headers += struct.pack("<IIQQQQ", start, 8 if zeros else 1, 0, *place) + bytes(24)
        body += b"" if zeros else content
    head = b"\x7fELF\x02" + bytes(0x28 - 5) + struct.pack("<Q", 64 + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, len(parts) + 1, len(parts)) + body + headers


def cubin(
    function=REPACK,
    code=b"machine code",
    registers=48,
    stack=0,
    shared=32,
    constant=704,
    release="release 13.0",
):
    """The output of ptxas for one kernel, as far as the table reads it."""
    record = struct.Struct("<BBHII")
    note = b"\0".join([b"NVIDIA Corp", b"ptxas", release.encode(), b"Build 7", b"-v -arch sm_90a "])
    return elf(
        [
            (".strtab", b"\0" + function.encode() + b"\0"),
            (".symtab", bytes(24) + struct.pack("<I", 1) + bytes(20)),
            (".note.nv.tkinfo", note + b"\0"),
            # A record whose value is in its header comes first: it has no bytes to skip.
            (
                ".nv.info",
                struct.pack("<BBH", 3, 0x1B, 255)
                + record.pack(4, 0x2F, 8, 1, registers)
                + record.pack(4, 0x11, 8, 1, stack),
            ),
            (f".text.{function}", code),
            (f".nv.shared.{function}", shared),
            (f".nv.constant0.{function}", bytes(constant)),
        ]
    )


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Runs the script's command on cubins; returns its exit status."""
    (tmp_path / "names.json").write_text(json.dumps(NO_NAMES))
    monkeypatch.setattr(machine_code, "row_names", lambda _: ["row_zero", "row_one"])

    def run(command, *images, flags=()):
        monkeypatch.setattr(machine_code, "extract", lambda _: images)
        files = ["--table", str(tmp_path / "table.json"), "--names", str(tmp_path / "names.json")]
        return machine_code.main([command, *files, *flags])

    return run


def test_entries_of_a_cubin(tool, tmp_path):
    assert tool("write", cubin(), cubin(GEMM, registers=168)) == 0
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["compiler"] == ["release 13.0 Build 7"]
    assert table["flags"] == ["-v -arch sm_90a"]
    assert "-O3" in table["nvcc_flags"]
    assert list(table["kernels"]) == ["row_one rolled sm_90a", "tcgemm::repack<2> sm_90a"]
    entry = table["kernels"]["tcgemm::repack<2> sm_90a"]
    numbers = {"registers": 48, "stack": 0, "shared": 32, "constant": "0:704"}
    assert entry == {"text": entry["text"], **numbers}
    assert len(entry["text"]) == 64
    assert table["kernels"]["row_one rolled sm_90a"]["registers"] == 168


@pytest.mark.parametrize(
    "change",
    [
        {"code": b"machine c0de"},
        {"registers": 49},
        {"stack": 8},
        {"shared": 48},
        {"constant": 712},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_is_reported(tool, capsys, change):
    tool("write", cubin())
    assert tool("compare", cubin()) == 0
    assert "1 entries compared, 0 complaints" in capsys.readouterr().out
    assert tool("compare", cubin(**change)) == 1
    output = capsys.readouterr().out
    field = {"code": "text"}.get(next(iter(change)), next(iter(change)))
    assert f"tcgemm::repack<2> sm_90a differs: {field} " in output


def test_a_kernel_more_or_less_is_reported(tool, capsys):
    tool("write", cubin(), cubin(GEMM))
    assert tool("compare", cubin(GEMM)) == 1
    assert "tcgemm::repack<2> sm_90a is only in the table" in capsys.readouterr().out
    assert tool("compare", cubin(GEMM), flags=["--partial"]) == 0
    tool("write", cubin())
    assert tool("compare", cubin(), cubin(GEMM), flags=["--partial"]) == 1
    assert "row_one rolled sm_90a is not in the table" in capsys.readouterr().out


def test_another_compiler_is_not_compared(tool, capsys):
    tool("write", cubin())
    assert tool("compare", cubin(release="release 13.1", registers=50)) == 0
    assert "nothing is compared: compiler of the table" in capsys.readouterr().out


def test_names_are_mapped():
    names = {"rows": [["_blocks$", "_scaled"]], "functions": [["^a::old", "b::new"], ["T", "U"]]}
    old = {"kernels": {"k_blocks sm_80": {"text": "1"}, "a::old<T> sm_80": {"text": "2"}}}
    new = {"kernels": {"k_scaled sm_80": {"text": "1"}, "b::new<U> sm_80": {"text": "2"}}}
    assert machine_code.compare(old, new, names) == []
    assert len(machine_code.compare(old, new, NO_NAMES)) == 4
    swapped = {"kernels": dict(zip(new["kernels"], reversed(new["kernels"].values()), strict=True))}
    assert len(machine_code.compare(old, swapped, names)) == 2


def test_the_table_has_every_row_of_the_catalog():
    recorded = json.loads(machine_code.TABLE.read_text())
    names = json.loads(machine_code.NAMES.read_text())
    renamed, complaints = machine_code.rename(recorded["kernels"], names)
    assert not complaints
    rows = {key.split(" ")[0] for key in renamed if "::" not in key}
    assert rows == {row["name"] for row in (*info.catalog(), *info.catalog(grouped=True))}
    paths = {
        tuple(key.split(" ")[1:]) for key in renamed if key.startswith("sm90a_bf16_f32_128x256")
    }
    every_path = ("plain", "fused", "rolled", "columns", "slices")
    assert paths == {(path, "sm_90a") for path in every_path}
