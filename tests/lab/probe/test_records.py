"""Records, tables, checks and the command, on a GPU that tests/support/fake_gpu.py simulates."""

import copy
import re

import pytest
import torch

from tcgemm import cli
from tcgemm.lab import probe
from tcgemm.lab.model import banks
from tcgemm.lab.probe import (
    bandwidth,
    checks,
    groups,
    kernels_memory,
    kernels_wgmma,
    rows,
    sass,
    tables,
)
from tcgemm.lab.probe.measure import load, save

from support.fake_gpu import FakeGpu

needs_ptxas = pytest.mark.skipif(
    not (sass.tool("ptxas") and sass.tool("nvdisasm")), reason="needs ptxas and nvdisasm"
)
PARTS = ("ldmatrix", "shared", "global", "bandwidth")


@pytest.fixture
def gpu(monkeypatch):
    return FakeGpu("Hopper").install(monkeypatch)


@pytest.fixture(scope="module")
def measured():
    """Records of some rows of every group but the layouts."""
    patch = pytest.MonkeyPatch()
    FakeGpu("Hopper").install(patch)
    results = probe.run(PARTS)
    for group, row in (
        ("mma", "mma.m16n8k8.f16.f16.f16"),
        ("mma", "mma.m16n8k32.f32.e4m3.e4m3"),
        ("sparse", "mma.sp.m16n8k32.f32.f16.f16"),
        ("wmma", "wmma.m16n16k16.f32.f16.f16"),
        ("wgmma", "wgmma.m64nNk32.s32.s8.s8"),
    ):
        results["records"] += probe.run(group, row=row)["records"]
    patch.undo()
    results["records"].append(
        {"group": "layout", "row": "mma x", "mode": "layout", "elements": 9, "wrong": 0}
        | {"metadata_lanes": [0, 1], "metadata_wrong": 0}
    )
    return results


def find(results, **fields):
    return [
        record
        for record in results["records"]
        if all(record.get(key) == value for key, value in fields.items())
    ]


@needs_ptxas
def test_records(measured):
    records = find(measured, row="mma f16 f16 f16 m16n8k8", warps=8, ilp=2, mode="one")
    (record,) = records
    assert record["sass"] == {"HMMA.1688.F16": 1} and record["native"] and record["peak"] == 2048
    assert record["latency"] == 33.0 and record["rate"] == 8 * 2 * 1024 / 33
    assert record["cycles"] == 33 * 1024 and record["unit"] == "FMA/clk/SM"
    chains = find(measured, row="mma f16 f16 f16 m16n8k8", warps=1, ilp=1)
    assert {cell["chain"] for cell in chains} == {"c", "a0", "a1"}
    (chip,) = find(measured, row="mma f16 f16 f16 m16n8k8", mode="chip")
    assert chip["blocks"] == 4 and chip["clock_mhz"] == pytest.approx(1500)
    assert chip["tflops"] == pytest.approx(2 * chip["rate"] * 4 * 1500e6 / 1e12)
    (emulated,) = find(measured, row="mma e4m3 e4m3 f32 m16n8k32", warps=1, ilp=1, mode="one")
    assert not emulated["native"] and emulated["sass"] == {"HMMA.16816.F32": 2}
    assert emulated["instructions"] > 20
    wgmma = find(measured, base="wgmma s8 s8 s32 m64n256k32", n=256, a="RS", warps=8, ilp=16)
    assert wgmma[0]["rate"] == pytest.approx(4096)
    (wide,) = find(measured, row="ld.shared.u64", warps=8, ilp=3)
    assert wide["sass"] == {"LDS.64": 1}
    (transpose,) = find(measured, row="ldmatrix.x4.trans", warps=1, ilp=1, factor=1)
    assert transpose["sass"] == {"LDSM.16.MT88.4": 1}
    (cached,) = find(measured, row="LDG L2 64")
    assert cached["sass"] == {"LDG.E.64.STRONG.GPU": 96} and 96 <= cached["between"] <= 100
    for n in (64, 128, 256):
        records = {tuple(cell["sass"]) for cell in find(measured, group="wgmma", n=n)}
        assert records == {(f"IGMMA.64x{n}x32.S8.S8",)}


@needs_ptxas
def test_the_point_of_convergence(measured):
    part = checks.cells(measured["records"], "mma")["mma f16 f16 f16 m16n8k8"]
    four, eight = (groups.convergence(part, warps) for warps in (4, 8))
    assert (four["ilp"], eight["ilp"]) == (5, 3)
    assert groups.convergence(part, 5) is None


@needs_ptxas
def test_tables(measured):
    texts = {name: "\n".join(map(str, tables.of(measured, [name]))) for name in tables.TABLES}
    assert "HMMA.1688.F16" in texts["mma"] and "1003" in texts["mma"]
    assert "17.7" in texts["mma"]  # of an A100
    assert "EMULATED (2 HMMA.16816.F32 of" in texts["mma"]
    assert "8.06" in texts["mma"]  # an RTX 2070's CPI
    assert "2 HMMA.16816.F32" in texts["wmma"] and "RS" in texts["wgmma"]
    assert "29.3" in texts["ldmatrix"] and "swizzled" in texts["ldmatrix"]
    assert "15.9" in texts["global"] and "380" in texts["bandwidth"]
    assert "0,1" in texts["layout"]
    assert tables.of({"header": measured["header"], "records": []}, list(tables.TABLES)) == []


@needs_ptxas
def test_a_good_gpu_has_no_complaints(measured):
    assert checks.sentences(measured, checks.LIMITS) == []
    complaints = checks.sentences(measured, (checks.lone_warp, checks.parts, checks.matrices))
    assert complaints == []


def change(results, fields, **values):
    """The results with other values in the records that match."""
    copy_of_results = copy.deepcopy(results)
    records = find(copy_of_results, **fields)
    assert records
    for record in records:
        record.update(values)
    return copy_of_results


DENSE = {"row": "mma f16 f16 f16 m16n8k8", "mode": "one", "chain": "c"}
BROKEN = [
    ("consistent", DENSE | {"warps": 8, "ilp": 2}, {"rate": 700.0}, "and the work is 16384"),
    ("below_peak", DENSE | {"warps": 8, "ilp": 8}, {"rate": 2100.0}, "above the peak of 2048"),
    ("below_peak", {"row": "LDS 128"}, {"rate": 140.0}, "above 128"),
    ("whole_chip", DENSE | {"mode": "chip"}, {"clock_mhz": 1700.0}, "1700 MHz of at most 1600"),
    ("whole_chip", DENSE | {"mode": "chip"}, {"clock_mhz": 1100.0}, "1100 MHz, less than 0.7 of"),
    ("whole_chip", DENSE | {"mode": "chip"}, {"rate": 100.0}, "on all SMs and"),
    ("machine_code", {"group": "mma", "native": False}, {"sass": {"HMMA": 1}}, "has 1 tensor-core"),
    ("machine_code", {"base": "wgmma s8 s8 s32 m64n256k32"}, {"sass": {}}, "ILP 1: the loop has 0"),
    ("machine_code", {"row": "ldmatrix.x2"}, {"sass": {"LDSM": 2}}, "another number of accesses"),
    ("machine_code", {"row": "STS 64"}, {"between": 140}, "140 instructions are between the"),
    ("conflicts", {"row": "ld.shared.u32", "factor": 4}, {"measured_cycles": 5.0}, "model says 4"),
    (
        "conflicts",
        {"layout": "rows of 128 bytes, swizzled", "row": "ldmatrix.x1"},
        {"measured_cycles": 1.2},
        "swizzled: 1.20 cycles an access",
    ),
    ("store_conflicts", {"row": "st.shared.u32", "factor": 2}, {"measured_cycles": 9}, "says 2"),
    ("affine", {"row": "ld.shared.u32", "factor": 32}, {"latency": 400.0}, "not affine"),
    ("layouts", {"group": "layout"}, {"wrong": 3}, "3 of 9 elements have another place"),
    ("layouts", {"group": "layout"}, {"metadata_wrong": 2}, "2 nibbles of metadata"),
    ("lone_warp", DENSE | {"warps": 1, "ilp": 8}, {"rate": 300.0}, "more than a quarter"),
    ("parts", DENSE | {"warps": 2, "ilp": 1}, {"latency": 35.0}, "33.0 to 35.0"),
    ("parts", DENSE | {"warps": 6, "ilp": 8}, {"latency": 100.0}, "6 warps take 100.0"),
    ("wgmma_peak", {"group": "wgmma", "mode": "one"}, {"rate": 3900.0}, "3900 of 4096"),
    ("matrices", {"row": "ldmatrix.x2", "factor": 1}, {"latency": 26.0}, "26.0 clocks, LDS.32"),
    ("memories", {"row": "DRAM read"}, {"rate": 1e9}, "device memory"),
    ("copies", {"row": "DRAM copy"}, {"rate": 100.0, "torch_rate": 106.0}, "by torch 106"),
]


@needs_ptxas
@pytest.mark.parametrize(("name", "fields", "values", "words"), BROKEN)
def test_a_check_refuses_broken_records(measured, name, fields, values, words):
    check = getattr(checks, name)
    assert check in (*checks.LIMITS, *checks.PATTERNS)
    complaints = checks.sentences(change(measured, fields, **values), (check,))
    assert complaints and any(words in sentence for sentence in complaints), complaints


def test_the_rate_of_doubles():
    record = {"group": "mma", "row": "mma f64 f64 f64 m16n8k4", "mode": "one", "chain": "c"}
    record |= {"warps": 8, "ilp": 4, "peak": 128}
    results = {"header": {"arch": "Hopper"}, "records": [record | {"rate": 122.0}]}
    assert checks.sentences(results, (checks.doubles,)) == []
    results["records"] = [record | {"rate": 121.0}]
    assert "m16n8k4: 121 of 128" in checks.sentences(results, (checks.doubles,))[0]
    results["header"]["arch"] = "Ada"
    assert checks.sentences(results, (checks.doubles,)) == []


@needs_ptxas
def test_rates_of_a_stored_gpu(measured, monkeypatch):
    stored = copy.deepcopy(measured)
    monkeypatch.setattr(checks.store, "results", lambda kind: {"NVIDIA Other": stored})
    assert checks.sentences(measured, (checks.as_stored,)) == []
    slower = change(measured, DENSE, rate=100.0)
    (complaint,) = checks.sentences(slower, (checks.as_stored,))
    assert "m16n8k8: 100 FMA/clk/SM, NVIDIA Other" in complaint
    stored["header"]["capability"] = "8.0"
    assert checks.sentences(slower, (checks.as_stored,)) == []


@needs_ptxas
def test_checks_of_published_gpus(measured):
    results = copy.deepcopy(measured)
    results["header"] |= {"gpu": "NVIDIA A100-PCIE-40GB", "arch": "Ampere"}
    complaints = checks.sentences(results, (checks.documented, checks.sparse_completion))
    few = checks.sentences(results, (checks.documented,), 1)
    assert len(few) == 2 and few[1].endswith(f"and {len(complaints) - 1} more.")
    assert any("33.0 clocks, published 17.7" in sentence for sentence in complaints)
    dense = {"group": "mma", "row": "mma f16 f16 f32 m16n8k16", "mode": "one", "chain": "c"}
    results["records"].append(dense | {"warps": 1, "ilp": 1, "latency": 30.0, "rate": 1.0})
    assert checks.sentences(results, (checks.sparse_completion,)) == [
        "sparse_completion: mma.sp f16 f16 f32 m16n8k32: 33.0 clocks, the dense one 30.0."
    ]


@needs_ptxas
def test_a_file_has_every_field(measured, tmp_path):
    path = tmp_path / "probe.json"
    save(measured, path)
    records = load(path)["records"]
    assert len(records) == len(measured["records"])
    for record, stored in zip(measured["records"], records, strict=True):
        assert {k for k, v in record.items() if v is not None} <= set(stored)
        for key, value in record.items():
            assert stored.get(key) == (pytest.approx(value, abs=1e-4) if key in stored else None)
    assert path.stat().st_size < 220 * len(records)


@needs_ptxas
def test_the_command_on_a_gpu(gpu, tmp_path, capsys):
    file, folder = tmp_path / "p.json", tmp_path / "plots"
    options = ["--json", str(file), "--plot", str(folder), "--warps", "1,4,8", "--ilp", "1..3"]
    assert cli.main(["probe", "mma", "--row", "f16", *options]) == 0
    text = capsys.readouterr().out
    assert "mma.sync on a fake Hopper" in text and "HMMA.1688.F32" in text
    assert len(list(folder.glob("*.png"))) == text.count("wrote ") == 6
    assert {record["ilp"] for record in load(file)["records"]} == {1, 2, 3}
    gpu.scale = 0.5  # faster than a peak allows
    assert cli.main(["probe", "shared", "--row", "ld.shared.u128"]) == 1
    assert "These contradict the hardware" in capsys.readouterr().out
    assert cli.main(["probe", "mma", "--stored", str(file)]) == 0


def test_an_older_gpu_lacks_instructions(monkeypatch):
    FakeGpu("Ampere").install(monkeypatch)
    with pytest.raises(ValueError, match=r"Ampere has no wgmma and no wgmma\.sp"):
        probe.run("wgmma", row="f16")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (10, 0))
    with pytest.raises(ValueError, match=r"no instructions of compute capability 10\.0"):
        probe.run("mma")


def test_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("tcgemm.lab.store.results", lambda kind: {})
    assert cli.main(["probe"]) == 0
    text = capsys.readouterr().out
    assert "would measure" in text and "wgmma f16 f16 f32 m64n256k16" in text
    assert "No results are stored" in text
    cpi = {"group": "global", "row": "LDS 32", "mode": "cpi", "cpi": 1.25, "rate": 102.4}
    cpi |= {"ilp": 128, "cycles": 160, "cycles_to_data": 190, "warps": 1, "sass": {"LDS": 128}}
    stored = {"header": {"gpu": "NVIDIA X", "arch": "Hopper"}, "records": [cpi]}
    monkeypatch.setattr("tcgemm.lab.store.results", lambda kind: {"NVIDIA X": stored})
    assert cli.main(["probe", "global"]) == 0
    assert "on NVIDIA X" in capsys.readouterr().out
    with pytest.raises(ValueError, match="torch finds no CUDA GPU"):
        probe.run("mma")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory"], "group is 'memory'; expected one of mma, sparse, wgmma"),
        (["mma", "--row", "f17"], "row is 'f17', which is in no name of mma on Hopper; expected a"),
        (["mma", "--warps", "33"], "warps has 33; expected integers from 1 to 32"),
        (["mma", "--ilp", "0..3"], "ilp has 0; expected integers from 1 to 8"),
        (["mma", "--ilp", "x"], "'x' is no list of integers"),
        (["mma", "--ilp", "3..1"], "ilp is empty"),
        (["mma", "--chain", "b"], "chain is 'b'; expected one of c, a0, a1"),
        (["mma", "--resume"], "--resume needs the file"),
        (["mma", "--stored", "setup.py"], "setup.py is no result of the probe"),
        (["mma", "--stored", "none.json"], "none.json"),
    ],
)
def test_a_sentence_for(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        cli.main(["probe", *arguments])
    assert words in capsys.readouterr().err


def test_plots_need_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stored = {"header": {"gpu": "NVIDIA X", "arch": "Hopper"}, "records": []}
    monkeypatch.setattr("tcgemm.lab.store.results", lambda kind: {"NVIDIA X": stored})
    with pytest.raises(SystemExit):
        cli.main(["probe", "mma", "--plot", str(tmp_path)])
    assert "pip install matplotlib" in capsys.readouterr().err


# The words from which the chains of shared memory read their addresses.


def next_address(name, contents, addresses, base):
    """The first register of each lane after the access."""
    memory = bytearray(b"".join(int(word).to_bytes(4, "little") for word in contents))

    def word(address, size):
        return int.from_bytes(memory[address - base : address - base + size], "little")

    if name.endswith("trans"):
        at = [(addresses[2 * (lane % 4)], addresses[2 * (lane % 4) + 1]) for lane in range(32)]
        return [
            word(low + 2 * (lane // 4), 2) | word(high + 2 * (lane // 4), 2) << 16
            for lane, (low, high) in enumerate(at)
        ]
    if name.startswith("ldmatrix"):
        return [word(addresses[lane // 4] + 4 * (lane % 4), 4) for lane in range(32)]
    return [word(address, 4) for address in addresses]


@pytest.mark.parametrize("name", [x for x in kernels_memory.ACCESSES if not x.startswith("st")])
def test_a_chain_reads_its_own_addresses(name):
    access, base = kernels_memory.ACCESSES[name], 1024
    ways = [groups.strided(name, factor) for factor in groups.CONFLICTS]
    for offsets in (*ways, *groups.layouts_of(name).values()):
        if max(offsets) + 16 > 4 * kernels_memory.WORDS:
            continue
        words = groups.chain_words(name, offsets)
        table, contents, counts = words.split([256, kernels_memory.WORDS, kernels_memory.WORDS])
        contents = contents + base * counts
        addresses = (table[:32] + base).tolist()
        assert addresses[: access.lanes] == [offset + base for offset in offsets[: access.lanes]]
        assert next_address(name, contents, addresses, base) == addresses


def test_conflicts_of_the_strides():
    cycles = {
        name: [
            banks.cycles(groups.strided(name, factor), kernels_memory.ACCESSES[name].width)
            for factor in groups.CONFLICTS
        ]
        for name in kernels_memory.ACCESSES
    }
    assert cycles["ld.shared.u32"] == [1, 2, 4, 8, 16, 32]
    assert cycles["ld.shared.u64"] == [2, 4, 8, 16, 32, 32]
    assert cycles["ld.shared.u128"] == [4, 8, 16, 32, 32, 32]
    assert [cycles[f"ldmatrix.x{x}"][0] for x in (1, 2, 4)] == [1, 2, 4]


def test_names_of_published_rows():
    assert rows.published("mma f16 f16 f32 m16n8k16") == "f16 f32 m16n8k16"
    assert rows.published("mma b1 b1 s32 m16n8k256 and.popc") == "b1 s32 m16n8k256"
    assert rows.published("mma b1 b1 s32 m16n8k256 xor.popc") is None
    assert rows.published("mma s8 u8 s32 m16n8k32") is None
    assert rows.fma(rows.by_label("Hopper")["mma f16 f16 f32 m8n8k4"]) == 4 * 256
    assert checks.of_row("mma f16 f16 f32 m8n8k4") == 1024
    assert checks.of_row("mma f64 f64 f64 m8n8k4") == 256
    for arch in ("Ampere", "Ada", "Hopper"):
        for mma in rows.of_gpu(arch):
            if not mma.family.startswith("wgmma"):
                assert checks.of_row(rows.label(mma)) == rows.fma(mma)


@needs_ptxas
def test_a_gpu_without_known_peaks(gpu, monkeypatch):
    FakeGpu("Ampere").install(monkeypatch)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (8, 6))
    results = probe.run("mma", row="mma.m16n8k16.f16.f16.f16", warps=(4,), ilp=(1,))
    assert {record["peak"] for record in results["records"]} == {None}
    assert "-" in str(tables.of(results, ["mma"])[0])


@needs_ptxas
def test_an_ilp_that_does_not_fit(gpu):
    """Eight products of float64 need more registers than a thread has; the chains need few."""
    results = probe.run("mma", row="mma.m16n8k16.f64.f64.f64", warps=(1,), ilp=(8,))
    assert {record["chain"] for record in results["records"]} == {"a0", "a1"}
    assert results["records"][0]["sass"] == {"DMMA.16x8x16": 1}
    assert tables.of(results, ["mma"]) == []


@needs_ptxas
def test_machine_code_that_cannot_be_read(gpu, monkeypatch):
    """Without nvdisasm, and where its text has no such loop, the opcodes come from the table."""
    for text in (None, "no sections"):
        monkeypatch.setattr(sass, "disassemble", lambda cubin, text=text: text)
        results = probe.run("mma", row="mma.m16n8k32.f32.e4m3.e4m3", warps=(1,), ilp=(1,))
        assert results["records"][0]["sass"] == {"HMMA": 2}
        assert "EMULATED (2 HMMA)" in str(tables.of(results, ["mma"])[0])


def aligned(text):
    """The lines of vector accesses to global memory whose address a lane moves by too little."""
    steps, faults = {}, []
    for line in text.splitlines():
        if match := re.match(r"mul\.wide\.u32 %(\w+), %\w+, (\d+);", line):
            steps[match[1]] = int(match[2])
        elif match := re.match(r"add\.u64 %(\w+), %(\w+), %(\w+);", line):
            steps[match[1]] = min(steps.get(x, 16) for x in match.groups()[1:])
        elif match := re.match(r"ld\.param\.u64 %(\w+),", line):
            steps[match[1]] = 16
        elif match := re.match(r"(?:ld|st)[\w.]*global[\w.]*\.(v[24])\.([bu])(\d+) ", line):
            width = int(match[1][1]) * int(match[3]) // 8
            address = re.search(r"\[%(\w+)", line)[1]
            if steps[address] % width:
                faults.append(line)
    return faults


def test_vectors_are_aligned():
    texts = [kernels_memory.cpi_module("sm_80"), kernels_memory.shared_module("sm_80")]
    texts.append(kernels_memory.bandwidth_module("sm_80"))
    for mma in rows.select("Hopper", ("wgmma",), "wgmma.m64nNk16.f32.f16.f16"):
        texts.append(kernels_wgmma.module(mma, "sm_90a", (256,))[0])
    for text in texts:
        entries = text.split(".visible .entry")[1:]
        assert entries and not [line for entry in entries for line in aligned(entry)]
    start = "ld.param.u64 %p, [data];\nmul.wide.u32 %q, %t, 8;\nadd.u64 %p, %p, %q;\n"
    assert aligned(start + "ld.global.v4.b32 {%d0, %d1, %d2, %d3}, [%p];")


def test_traffic():
    l2, sms = 60 << 20, 132
    read, copy_ = (bandwidth.traffic(f"DRAM {kind}", l2, sms) for kind in ("read", "copy"))
    assert read.bytes >= 4 * l2 and read.chunk == read.stride == 512 * 1024
    assert read.bytes_moved == read.bytes == copy_.bytes and copy_.bytes_moved == 2 * copy_.bytes
    assert copy_.kernel == "dram_copy" and copy_.chunk == copy_.stride == 256 * 16
    assert bandwidth.traffic("L2 copy", l2, sms).chunk == 512 * 8 * 16
    small = bandwidth.traffic("L2 read, one 512 KB", l2, sms)
    assert small.bytes == small.chunk == 512 * 1024 and small.stride == 0
    half = bandwidth.traffic("L2 read", l2, sms)
    assert half.bytes <= l2 // 2 and half.blocks > sms
    assert 2 * bandwidth.traffic("L2 copy", l2, sms).bytes <= l2 // 2
    assert {row.split(",")[0].split()[1] for row in bandwidth.ROWS} == set(kernels_memory.COPIES)


@pytest.mark.gpu
@pytest.mark.alone
def test_a_gpu_agrees_with_itself(tmp_path):
    """rate x latency is the work, a lone warp has a quarter, conflicts are those computed."""
    path = tmp_path / "probe.json"
    warps, ilp = (1, 4, 8, 16), (1, 2, 4, 8)  # some of them fill the tensor cores
    results = probe.run(("mma", "sparse"), row="f16", warps=warps, ilp=ilp, path=path)
    for group, row in (
        ("shared", "ld.shared.u32"),
        ("ldmatrix", "ldmatrix.x1"),
        ("global", "LDS"),
        ("layout", "m16n8k16"),
    ):
        results["records"] += probe.run(group, row=row)["records"]
    assert load(path)["header"]["gpu"] == torch.cuda.get_device_name()
    assert checks.sentences(results, (*checks.LIMITS, checks.lone_warp)) == []
    assert str(tables.of(results, ["mma", "sparse"])[0])


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.sm90
def test_wgmma_on_a_gpu():
    results = probe.run("wgmma", row="wgmma.m64nNk16.f32.f16.f16")
    assert checks.sentences(results, checks.LIMITS) == []
    best = max(record["rate"] for record in results["records"] if record["mode"] == "one")
    assert 0.9 * 2048 < best <= 1.01 * 2048
