"""The models have the figures of the published tables, and count conflicts as the hardware does."""

import dataclasses
import itertools
import json
import re

import pytest

from tcgemm import cli, published
from tcgemm.lab.model import banks, blocking, gpus, roofline

RTX_2070, T4 = gpus.costs("RTX 2070"), gpus.costs("t4")


@pytest.mark.parametrize("tile", blocking.TILES)
def test_table_six_to_the_digit(tile):
    m, n, k, wm, wn, wk = tile
    row = published.table("000", "VI")[f"{m}x{n}x{k} {wm}x{wn}x{wk}"]
    cycles = row["tensor"], row["memory"]
    bound = blocking.bound(tile, RTX_2070)
    assert (int(bound.tensor), int(bound.memory)) == cycles
    assert bound.bound_by == ("memory" if cycles[1] > cycles[0] else "tensor cores")


def test_tables_six_and_seven_have_these_resources():
    bound = blocking.bound(blocking.Tile(256, 256, 32, 128, 64, 8), T4)
    assert (bound.shared_bytes, bound.blocks, bound.tile.warps) == (36 * 1024, 1, 8)
    cublas = blocking.bound(blocking.CUBLAS, T4, padding=0)
    assert cublas.shared_bytes == 32 * 1024 and cublas.blocks == 2


def test_other_costs_have_other_cycles():
    slower = dataclasses.replace(RTX_2070, load_shared=2 * RTX_2070.load_shared)
    tile = blocking.TILES[0]
    first, second = blocking.bound(tile, RTX_2070), blocking.bound(tile, slower)
    assert second.memory - first.memory == pytest.approx(256 * 2.11)


def test_stores_lie_five_products_apart():
    assert blocking.store_distance(RTX_2070) == 5
    assert blocking.store_distance(dataclasses.replace(RTX_2070, store_shared=8.06)) == 4
    assert blocking.prefetch_cycles(blocking.TILES[-1], RTX_2070) == (64 + 32) * 8.06
    theory = dataclasses.replace(RTX_2070, mma=8.0)
    assert blocking.prefetch_cycles(blocking.TILES[-1], theory) == 768  # of the paper


def test_bytes_a_clock_of_table_five(capsys):
    assert cli.main(["model", "costs", "--gpu", "RTX 2070"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    cells = {line[0]: line[1:] for line in lines if line and line[0].startswith(("LDS", "STS"))}
    assert len(cells) == 6
    for name, values in cells.items():
        number = published.table("000", "V")[name[:3]][name[4:]]
        assert float(values[-1]) == pytest.approx(number, rel=0.005)
        assert float(values[-2]) == pytest.approx(number, rel=0.005)  # computed from table IV


def test_the_command_shows_the_tile_of_cublas(capsys):
    assert cli.main(["model", "blocking", "--gpu", "RTX 2070"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("cuBLAS 10.1"))
    own = published.table("000", "VII")["cuBLAS 10.1"]
    cells = line.split()
    assert int(cells[-5]) == own["shared KB"]
    assert (int(cells[-3]), int(cells[-2])) == (own["CTAs an SM"], own["warps"])


def test_the_ridges_of_the_roofline():
    assert round(roofline.ridge(RTX_2070.memory, RTX_2070.tensor)) == 157
    assert round(roofline.ridge(RTX_2070.l2, RTX_2070.tensor)) == 80
    assert round(roofline.ridge(T4.memory, T4.tensor)) == 273
    assert round(roofline.ridge(T4.l2, T4.tensor)) == 71
    rows = {row["block"]: row for row in roofline.rows(RTX_2070)}
    assert rows["256x256"]["operations a byte"] == 128
    # 128x128 is enough for the float16 units, and too small for the tensor cores.
    assert rows["128x128"]["memory"] > RTX_2070.simt and rows["128x128"]["of the peak"] < 0.5
    assert rows["256x256"]["L2"] == RTX_2070.tensor


def counted(addresses, width):
    """The ways of an access, counted word by word in another manner."""
    lanes = 128 // width
    worst = 0
    for first in range(0, len(addresses), lanes):
        words = [[] for _ in range(32)]
        for address in addresses[first : first + lanes]:
            for byte in range(address, address + width, 4):
                word = byte // 4
                if word not in words[word % 32]:
                    words[word % 32].append(word)
        worst = max(worst, *map(len, words))
    return worst


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 8, 16, 32, 33])
def test_ways_of_strides(width, stride):
    addresses = [lane * stride * width for lane in range(32)]
    ways = banks.ways(addresses, width)
    assert ways == counted(addresses, width)
    if width == 4:
        assert ways == {1: 1, 2: 2, 3: 1, 4: 4, 8: 8, 16: 16, 32: 32, 33: 1}[stride]


def test_lanes_that_read_one_word_do_not_collide():
    assert banks.ways([0] * 32, 4) == 1
    assert banks.ways([4096 * (lane % 2) for lane in range(32)], 4) == 2


def test_the_layouts():
    assert banks.fragment(banks.row_major(64)) == banks.ldmatrix(banks.row_major(64)) == 4
    assert banks.ldmatrix(banks.row_major(128)) == 8
    padded = banks.padded_pairs(64, 16)
    assert banks.fragment(padded) == banks.ldmatrix(padded) == banks.store_rows(padded, 64) == 1
    # The formula as it is printed in the paper maps two elements to one place.
    elements_at = {}
    for row, column in itertools.product(range(8), range(32)):
        elements_at.setdefault(row * 32 + row % 2 * 8 + column, []).append((row, column))
    assert [(1, 24), (2, 0)] in elements_at.values()
    for row, byte in itertools.product((0, 8, 56), range(0, 128, 16)):
        assert banks.ldmatrix(banks.swizzled128, row, byte) == 1
        if byte < 64:
            assert banks.ldmatrix(banks.swizzled64, row, byte) == 1


@pytest.mark.parametrize(
    ("layout", "length"), [(banks.swizzled128, 128), (banks.swizzled64, 64)], ids=["128", "64"]
)
def test_a_swizzle_keeps_every_byte(layout, length):
    places = [layout(row, byte) for row in range(16) for byte in range(length)]
    assert sorted(places) == list(range(16 * length))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: banks.ways([0], 2), "4, 8 or 16 bytes"),
        (lambda: banks.ways([2], 4), "address 2 is no multiple of 4"),
        (lambda: blocking.check(blocking.Tile(128, 128, 32, 96, 64, 8)), "does not divide"),
        (lambda: blocking.bound(blocking.TILES[0], gpus.costs("a100")), "no measured cycles"),
        (lambda: blocking.store_distance(gpus.costs("a100")), "no measured cycles"),
        (lambda: roofline.intensity(0, 8), "no elements"),
        (
            lambda: gpus.costs("gpu.json"),
            "is no GPU and no file; expected a JSON file, or one of R",
        ),
    ],
)
def test_a_sentence_for(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_file_of_costs(tmp_path, capsys):
    assert cli.main(["model", "example"]) == 0
    content = json.loads(capsys.readouterr().out) | {"name": "mine", "mma": 4.0}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    assert gpus.costs(str(path)).mma == 4.0
    assert cli.main(["model", "blocking", "--gpu", str(path)]) == 0
    assert "on mine" in capsys.readouterr().out
    path.write_text(json.dumps({key: content[key] for key in ("name", "mma")}))
    with pytest.raises(ValueError, match="wrong or missing: l2, load_global"):
        gpus.costs(str(path))


def probed(**left_out):
    """A made-up result of the probe."""
    chip = {"mode": "chip", "clock_mhz": 1500.0}
    rows = {
        "mma f16 f16 f16 m16n8k8": chip | {"mode": "one", "rate": 1024.0, "tflops": 500.0},
        "wgmma f16 f16 f32 m64n256k16": chip | {"rate": 2000.0, "tflops": 800.0},
        "wgmma.sp f16 f16 f32 m64n256k32": chip | {"rate": 4000.0, "tflops": 1600.0},
        "LDG L2 128": {"cpi": 9.0},
        "st.shared.u128": {"group": "shared", "factor": 1, "rate": 102.4},
        "ld.shared.u32": {"group": "shared", "factor": 1, "rate": 128.0},
        "ld.shared.u128": {"group": "shared", "factor": 1, "rate": 125.0},
        "DRAM read": {"rate": 4000.0},
        "L2 read": {"rate": 6000.0},
        "L2 read, one 512 KB": {"rate": 7000.0},
    }
    records = [{"row": row} | rows[row] for row in rows if row not in left_out.get("rows", ())]
    header = {"gpu": "NVIDIA A100-SXM4", "shared_bytes": 160 * 1024, "date": "2026-11-23T00:00"}
    header["processors"] = 108
    return {"header": header, "records": records}


def test_the_costs_of_a_probe(tmp_path, capsys):
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(probed()))
    costs = gpus.costs(str(path))
    assert (costs.name, costs.source) == ("A100-SXM4", "tcgemm probe, 2026-11-23")
    cycles = (costs.mma, costs.load_global, costs.store_shared, costs.load_shared)
    assert cycles == (4.0, 9.0, 5.0, 1.0)
    # The rate of 2:4 is not the peak of a dense product, and one 512 KB is not read from L2 alone.
    assert (costs.memory, costs.l2, costs.tensor) == (4e12, 6e12, 800e12)
    assert costs.shared_rate == 125 * 108 * 1.5e9
    assert cli.main(["model", "blocking", "--gpu", str(path)]) == 0
    assert "on A100-SXM4 (tcgemm probe" in capsys.readouterr().out
    path.write_text(json.dumps(probed(rows=["st.shared.u128"])))
    with pytest.raises(ValueError, match=r"has no record 'st\.shared\.u128'; measure all of it"):
        gpus.costs(str(path))
    path.write_text(json.dumps(probed(rows=[row["row"] for row in probed()["records"][1:3]])))
    assert gpus.costs(str(path)).tensor == 500e12


def test_stored_results_of_a_probe(monkeypatch):
    stored = {"NVIDIA A100 80GB": probed()}
    monkeypatch.setattr("tcgemm.lab.store.results", lambda kind: stored)
    assert gpus.costs("a100").mma == 4.0 and gpus.costs("a10").mma is None


@pytest.fixture
def stored_gpu(monkeypatch):
    """This machine has a GPU whose probe is stored."""
    monkeypatch.setattr("tcgemm.lab.store.results", lambda kind: {"NVIDIA A100-SXM4": probed()})
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda *_: "NVIDIA A100-SXM4")


MODELS = ["blocking", "roofline", "interleave"]


@pytest.mark.parametrize("model", MODELS)
def test_this_gpu_is_the_default_if_its_probe_is_stored(model, stored_gpu, capsys):
    assert cli.main(["model", model]) == 0
    assert " on A100-SXM4" in capsys.readouterr().out.splitlines()[0]
    assert cli.main(["model", model, "--gpu", "RTX 2070"]) == 0
    assert " on RTX 2070" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("model", MODELS)
def test_another_gpu_and_none_have_the_costs_of_an_rtx_2070(model, stored_gpu, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda *_: "NVIDIA A10")
    assert cli.main(["model", model]) == 0
    assert " on RTX 2070" in capsys.readouterr().out.splitlines()[0]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["model", model]) == 0
    assert " on RTX 2070" in capsys.readouterr().out.splitlines()[0]


EXAMPLE = "`tcgemm model example` prints a file of costs."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mma": 0}, f"has mma = 0; expected a positive number or null. {EXAMPLE}"),
        ({"tensor": None}, f"has tensor = null; expected a positive number. {EXAMPLE}"),
        ({"memory": "fast"}, f'has memory = "fast"; expected a positive number. {EXAMPLE}'),
        ({"shared": -1}, f"has shared = -1; expected a positive number. {EXAMPLE}"),
        ({"l2": True}, f"has l2 = true; expected a positive number or null. {EXAMPLE}"),
        ({"name": 7}, f"has name = 7; expected a text. {EXAMPLE}"),
    ],
)
def test_a_wrong_cost_is_named(change, sentence, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(json.loads(gpus.example()) | change))
    with pytest.raises(ValueError, match=re.escape(f"{path} {sentence}") + "$"):
        gpus.costs(str(path))


def test_a_file_without_optional_costs_is_read(tmp_path, capsys):
    content = json.loads(gpus.example()) | {"l2": None}
    del content["shared_rate"]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    for model in MODELS:
        assert cli.main(["model", model, "--gpu", str(path)]) == 0
    assert gpus.costs(str(path)).shared_rate is None


def test_a_file_that_is_no_json_is_named(tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text("{")
    with pytest.raises(SystemExit):
        cli.main(["model", "blocking", "--gpu", str(path)])
    text = " ".join(capsys.readouterr().err.split())
    assert text.endswith(
        f"error: {path} is no JSON file: Expecting property name enclosed in double quotes: line 1 "
        f"column 2 (char 1). {EXAMPLE}"
    )


@pytest.mark.parametrize(
    ("row", "value", "reason"),
    [
        ("DRAM read", None, "TypeError"),
        ("st.shared.u128", 0, "ZeroDivisionError('division by zero')"),
    ],
)
def test_a_probe_with_a_wrong_rate_is_named(row, value, reason, tmp_path):
    content = probed()
    next(record for record in content["records"] if record["row"] == row)["rate"] = value
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(content))
    sentence = f"{path} has a header and records, but not the probe's ({reason}"
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        gpus.costs(str(path))
    assert str(error.value).endswith("); measure them again: tcgemm probe all --json FILE.")


def test_a_probe_without_bandwidth_is_no_roof(tmp_path):
    content = probed()
    next(record for record in content["records"] if record["row"] == "L2 read")["rate"] = 0
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"has l2 = 0\.0; expected a positive number or null"):
        gpus.costs(str(path))


@pytest.mark.parametrize("model", ["blocking", "roofline", "interleave", "banks"])
def test_the_command(model, capsys):
    assert cli.main(["model", model, "--gpu", "T4"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 4
    if model in ("blocking", "interleave"):
        with pytest.raises(SystemExit):
            cli.main(["model", model, "--gpu", "A100"])
        assert "A100 has no measured cycles" in capsys.readouterr().err
