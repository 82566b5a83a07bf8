"""The steps of the ladders, their calls without a launch, and the tables of their records."""

import ctypes
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from tcgemm import _library
from tcgemm.cli import main
from tcgemm.emulate import lab_library
from tcgemm.lab import ladder, store
from tcgemm.lab.ladder import call, checks, measure, plot, problem, tables
from tcgemm.lab.ladder.steps import DOCUMENTS, SIZES, STEPS, Variant
from tcgemm.measure.timing import Timing

needs_kernels = pytest.mark.skipif(
    not (lab_library.path().is_file() and lab_library.has("ladder")),
    reason=_library.no_cuda_kernel(),
)
PAIRS = list(problem.every(DOCUMENTS))
NAMES = [f"{step.name} {variant.label}".strip() for step, variant in PAIRS]


def named(name):
    return PAIRS[NAMES.index(name)]


def record(name, us, **fields):
    """A record of a step as `run` makes it."""
    step, variant = named(name)
    size = SIZES[step.document]
    result = problem.record(step, variant, (size, size, size))
    flops = 2.0 * size**3 * result.pop("repeats")
    conflicts = {0: 4, 2: 2, 4: 1, 6: 2}
    ways = {"LDS a": conflicts[variant.parameters[1]]} if step.name == "001_5_shared_a" else {}
    return (
        result
        | {"refused": None, "exact": True, "error": 0.3, "same_bits": True, "conflicts": ways}
        | {"registers": 40, "shared_bytes": 8192, "threads": 128, "blocks": 64, "local_bytes": 0}
        | {"us": us, "iqr_us": 0.1, "tflops": flops / us / 1e6, "percent": None}
        | {"cublas_us": 100.0, "x_cublas": 100.0 / us}
        | fields
    )


def results(*records, gpu="NVIDIA H200"):
    return {"header": {"gpu": gpu}, "records": list(records)}


def test_a_name_is_that_of_one_variant():
    assert len(set(NAMES)) == len(NAMES) > 90
    assert {step.document for step in STEPS} == set(DOCUMENTS)
    for document in DOCUMENTS:
        names = [step.name for step in ladder.steps(document)]
        assert names == sorted(names, key=names.index) and all(ladder.steps(document))
    with pytest.raises(ValueError, match=r"ladder is '005'; expected one of 000 \(Yan"):
        ladder.steps("005")


@needs_kernels
def test_the_library_has_these_steps():
    function = ctypes.CDLL(str(lab_library.path())).tcgemm_lab_ladder_step
    function.restype = ctypes.c_char_p
    names = []
    while (name := function(len(names))) is not None:
        names.append(name.decode())
    assert sorted(names) == sorted({step.name for step in STEPS})


@needs_kernels
@pytest.mark.parametrize("name", NAMES)
def test_a_step_takes_multiples_and_names_others(name):
    step, variant = named(name)
    multiples, largest = call.sizes(step, variant)
    m, n, k = problem.small(step, variant)
    assert call.check(step, variant, m, n, k) == ""
    assert len({m, n, k}) == 3 or any(largest)
    for i, letter in enumerate("MNK"):
        if multiples[i] > 1:
            size = [m, n, k]
            size[i] += 1
            expected = f"{letter} is {size[i]}, but {step.name} takes "
            limit = f"at most {largest[i]}." if largest[i] else f"multiples of {multiples[i]}."
            assert call.check(step, variant, *size) == expected + limit
    assert call.check(step, variant, 0, n, k).startswith("M is 0, but ")
    if not any(largest):
        sizes = (multiples[0] << 13, multiples[1] << 19, multiples[2])
        if sizes[0] * sizes[1] >= 1 << 31:
            assert "2^31 elements" in call.check(step, variant, *sizes)


@needs_kernels
def test_variants_that_no_kernel_has():
    step, _ = named("004_3_0 3 stages")
    assert "no variant with the parameters 9 0 0 0" in call.check(
        step, Variant("", (9,)), 64, 64, 32
    )
    step, _ = named("001_5_shared_a 32x32x4, pad 2")
    assert "no variant" in call.check(step, Variant("", (32, 3)), 32, 32, 4)
    assert "there is no step 9" in call.check(step._replace(name="9"), Variant(""), 32, 32, 4)


def test_a_library_without_cuda(monkeypatch):
    monkeypatch.setattr(lab_library, "has", lambda name: False)
    with pytest.raises(ImportError, match="no CUDA kernel was built"):
        call.check(*PAIRS[0], 256, 256, 32)


def test_groups_share_operands():
    for document in DOCUMENTS:
        groups = problem.groups(ladder.steps(document))
        assert [pair for group in groups for pair in group] or document
        assert sum(map(len, groups)) == sum(len(step.variants) for step in ladder.steps(document))
        for group in groups:
            assert len({(step.operands, step.sums, step.layout) for step, _ in group}) == 1


def test_published_figures():
    records = {name: problem.record(*named(name), (64, 64, 64)) for name in NAMES}
    assert records["001_5_shared_a 64x64x4, pad 4"]["published"] == 10.0
    assert records["001_6_shared_ab 64x64x32"]["published"] == 14.5
    assert records["001_6_shared_ab 32x32x96"]["published"] is None
    assert records["002_3_thread2d"]["published"] == pytest.approx(2.15)
    assert records["002_0_naive columns in x"]["published"] is None
    assert records["003_permuted"]["published"] == 303227
    assert records["003_permuted"]["published_unit"] == "clocks"
    assert records["004_3_1 3 stages, warps of 64x32"]["published"] == 153.6
    assert records["004_3_0 2 stages"]["published"] is None


def test_speeds_over_steps_before():
    records = [
        record("004_1_0", 900.0),
        record("004_1_1", 500.0),
        record("004_3_0 2 stages", 300.0),
        record("004_3_0 3 stages", 250.0),
        record("004_3_1 3 stages, warps of 64x32", 200.0),
    ]
    measure._compare(records)
    assert [row["x_before"] for row in records] == [None, 1.8, 500 / 300, 2.0, 1.25]
    assert [round(row["x_first"], 2) for row in records] == [1, 1.8, 3, 3.6, 4.5]


def test_tables():
    records = [
        record("004_1_0", 900.0, x_first=1.0),
        record("004_3_0 3 stages", 250.0, x_before=2.0, stalls={"wait": 1.0, "barrier": 3.5}),
        record("004_1_1", 1.0)
        | {"us": None, "refused": "N is 9, but 004_1_1 takes multiples of 64."},
    ]
    (table,) = tables.of(results(*records), ["004"])
    text = str(table)
    assert "Ladder 004: spatters mma-matmul, 4096x4096x4096 on NVIDIA H200" in text
    assert "barrier 3.5" in text and "004_1_1: N is 9, but" in text
    assert [line["step"] for line in table.rows] == ["004_1_0", "004_3_0 3 stages"]
    assert table.rows[1]["published x first"] == pytest.approx(137.4 / 29.4)
    assert tables.of(results(*records), ["002"]) == []
    only = results(record("002_1_block", 1.0) | {"us": None, "refused": "M is 5."})
    assert "none was measured" in str(tables.of(only, ["002"])[0])


def test_tables_of_grids():
    names = (
        "001_5_shared_a 32x32x4, pad 0",
        "001_6_shared_ab 64x64x32",
        "001_6_shared_ab 64x64x64",
    )
    records = [record(name, us) for name, us in zip(names, (9000.0, 3000.0, 2000.0), strict=True)]
    records.append(
        record("001_6_shared_ab 128x128x128", 1.0)
        | {"us": None, "tflops": None, "refused": "it needs 270336 bytes."}
    )
    records += [record(f"001_peak m8n8k4, {count} times", 10.0 * count) for count in (1, 64)]
    table, fives, sixes, plateau = tables.of(results(*records), ["001"])
    assert [line["step"] for line in table.rows] == [
        "001_5_shared_a 32x32x4, pad 0",
        "001_6_shared_ab 64x64x64",
    ]
    assert fives.rows[0]["ways 0"] == 4 and fives.rows[0]["A100 4"] == 9.2
    assert sixes.rows[1]["k 64"] > sixes.rows[1]["k 32"] and sixes.rows[1]["k 96"] is None
    assert "128x128x128: it needs 270336 bytes." in str(sixes)
    assert [line["times"] for line in plateau.rows] == [1, 64]


BAD = {
    "exact": [record("004_1_0", 9.0, exact=False)],
    "error": [record("004_1_0", 9.0, error=float("nan"))],
    "bits": [record("003_baseline", 9.0), record("003_both", 8.0, same_bits=False)],
    "bits of a tile": [
        record("000_hgemm 256x256x32 128x64", 10.0),
        record("000_hgemm 256x256x32 128x64, ldmatrix", 9.0, same_bits=False),
    ],
    "faster": [record("004_1_0", 9.0), record("004_1_1", 9.5)],
    "paddings": [
        record("001_5_shared_a 32x32x4, pad 0", 9.0),
        record("001_5_shared_a 32x32x4, pad 2", 9.5),
    ],
    "paddings behind the fastest": [  # with 4, 2 and 1 ways
        record("001_5_shared_a 32x32x4, pad 0", 8.0),
        record("001_5_shared_a 32x32x4, pad 2", 8.5),
        record("001_5_shared_a 32x32x4, pad 4", 7.0),
    ],
    "near": [
        record("001_peak m8n8k4, 64 times", 10.0),
        record("001_6_shared_ab 64x64x64", 9000.0),
    ],
    "both": [record("003_permuted", 8.0), record("003_both", 9.0)],
    "baseline": [record("003_baseline", 8.0), record("003_pipeline", 9.0)],
    "cuBLAS": [record("004_3_1 3 stages, warps of 64x32", 300.0)],
    "padding": [
        record("000_hgemm 256x256x32 128x64", 10.0),
        record("000_hgemm 256x256x32 128x64, no padding", 12.0),
    ],
}
GOOD = [
    *(record(f"003_{name}", us) for name, us in (("baseline", 9.0), ("pipeline", 8.0))),
    *(record(f"003_{name}", us) for name, us in (("permuted", 7.0), ("both", 6.0))),
    *(record(f"002_{name}", us) for name, us in (("1_block", 9.0), ("2_thread", 8.0))),
    record("004_3_1 3 stages, warps of 64x32", 120.0),
    record("000_hgemm 256x256x32 128x64", 10.0),
    record("000_hgemm 256x256x32 128x64, no padding", 20.0),
    record("001_5_shared_a 32x32x4, pad 0", 9.0),
    record("001_5_shared_a 32x32x4, pad 2", 8.0),
    record("001_5_shared_a 32x32x4, pad 4", 8.1),
    record("001_5_shared_a 32x32x4, pad 6", 8.3),
    # Its sums leave the tensor core: bits of its own.
    record("004_3_2_outside f32 inside", 130.0, same_bits=False),
]


@pytest.fixture
def sentences_of(monkeypatch):
    """The complaints about some records, where no others are stored."""
    monkeypatch.setattr(store, "results", lambda kind: {})
    return lambda records: checks.sentences(results(*records), (*checks.LIMITS, *checks.PATTERNS))


@pytest.mark.parametrize("name", BAD)
def test_checks_find(name, sentences_of):
    sentences = sentences_of(BAD[name])
    assert len(sentences) == 1, sentences


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bits", "003_both has other bits than 003_baseline."),
        (
            "bits of a tile",
            "000_hgemm 256x256x32 128x64, ldmatrix has other bits than 000_hgemm 256x256x32 "
            "128x64.",
        ),
        (
            "paddings behind the fastest",
            "001_5 32x32x4, pad 2 has 2 ways, but 32x32x4, pad 0, which has 4, is 1.062 times as "
            "fast.",
        ),
    ],
)
def test_a_check_names_both_variants(name, sentence, sentences_of):
    assert sentences_of(BAD[name]) == [sentence]


def test_checks_accept(sentences_of):
    assert sentences_of(GOOD) == []


def test_the_plateau_is_the_rate_of_the_probe(monkeypatch):
    row = {"row": "wmma f64 f64 f64 m8n8k4", "tflops": 30.0}
    monkeypatch.setattr(store, "results", lambda kind: {"NVIDIA H200": {"records": [row]}})
    peak = record("001_peak m8n8k4, 4096 times", 1e4)
    assert "and the probe measured 30" in checks.sentences(results(peak), (checks.plateau,))[0]
    near = peak | {"tflops": 29.5}
    assert checks.sentences(results(near), (checks.plateau,)) == []


def test_files_of_records(tmp_path):
    path = tmp_path / "h200.json"
    measure.save(results(record("003_both", 1 / 3)), path)
    assert measure.load(path)["records"][0]["us"] == 0.33333
    path.write_text(json.dumps({"header": {"gpu": "x"}, "records": []}))
    with pytest.raises(ValueError, match="has no ladders: tcgemm ladder --json"):
        measure.load(path)


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    paths = plot.draw(results(*GOOD, *BAD["near"]), DOCUMENTS, tmp_path)
    assert [path.name for path in paths] == [
        *("ladder-000-NVIDIA-H200.png", "ladder-001-NVIDIA-H200.png", "001_peak-NVIDIA-H200.png"),
        *("ladder-002-NVIDIA-H200.png", "ladder-003-NVIDIA-H200.png", "ladder-004-NVIDIA-H200.png"),
    ]
    assert all(2000 < path.stat().st_size < 150_000 for path in paths)


def test_pictures_need_matplotlib(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.json"
    measure.save(results(*GOOD), path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["ladder", "003", "--stored", str(path), "--plot", str(tmp_path)])
    assert capsys.readouterr().err.endswith(
        "error: --plot needs matplotlib: pip install matplotlib.\n"
    )


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_the_command_without_a_gpu(no_gpu, monkeypatch, capsys):
    monkeypatch.setattr(store, "results", lambda kind: {})
    assert main(["ladder", "003"]) == 0
    text = capsys.readouterr().out
    assert "torch finds no CUDA GPU" in text and "003_permuted" in text and "004" not in text
    assert "No results are stored" in text
    stored = {"NVIDIA H200": results(*GOOD)}
    monkeypatch.setattr(store, "results", lambda kind: stored if kind == "ladder" else {})
    assert main(["ladder", "003", "004"]) == 0
    assert "Ladder 004: spatters mma-matmul" in capsys.readouterr().out


def test_the_command_shows_steps_and_files(no_gpu, tmp_path, capsys):
    assert main(["ladder", "004", "--steps"]) == 0
    text = capsys.readouterr().out
    names = [step.name for step in ladder.steps("004")]
    assert "multiply_004_1_0" in text and all(f"{name}.cu" in text for name in names)
    path = tmp_path / "x.json"
    measure.save(results(*GOOD), path)
    assert main(["ladder", "003", "--stored", str(path)]) == 0
    assert "003_both" in capsys.readouterr().out
    measure.save(results(*BAD["bits"]), path)
    assert main(["ladder", "--stored", str(path)]) == 1
    assert "003_both has other bits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["005"], "ladder is '005'; expected one of 000 (Yan"),
        (["004", "--size", "0"], "size is 0; expected a positive integer"),
        (["--resume"], "--resume needs the file"),
        (["--stored", "none.json"], "No such file"),
    ],
)
def test_the_command_refuses(no_gpu, arguments, expected, capsys):
    with pytest.raises(SystemExit) as error:
        main(["ladder", *arguments])
    assert error.value.code == 2 and expected in capsys.readouterr().err


def test_run_needs_a_gpu(no_gpu):
    with pytest.raises(ValueError, match="torch finds no CUDA GPU"):
        ladder.run("004")
    with pytest.raises(ValueError, match="size is"):
        ladder.run("004", (64, 64, -1))


def test_rungs_are_read_in_order():
    for document in DOCUMENTS:
        names = [step.name for step in ladder.steps(document) if step.is_rung]
        for before, after in pairwise(dict.fromkeys(names)):
            assert ladder.difference(before, after).startswith("---")


def test_a_time_is_the_median_of_repetitions_beside_their_range():
    step, variant = named("004_3_1 3 stages, warps of 64x32")
    made = problem.record(step, variant, (4096, 4096, 4096))
    data = SimpleNamespace(mnk=(4096, 4096, 4096))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.get_device_name", lambda: "no GPU of the probe")
        measure._time(made, [Timing(us, iqr) for us, iqr in ((460, 9), (450, 2), (480, 5))], data)
    assert (made["us"], made["us_range"], made["iqr_us"]) == (460, [450, 480], 5)
    assert made["tflops"] == pytest.approx(2 * 4096**3 / 460e6)


def test_ranges_and_counters_stand_in_the_table():
    counted = {"stalls": {"wait": 3.4}, "tensor_percent": 70.39}
    ranges = {"us_range": [450.0, 480.0], "x_cublas_range": [0.44, 0.4701]}
    row = record("004_3_1 3 stages, warps of 64x32", 460.0, **counted, **ranges)
    text = str(tables.of(results(row), ["004"])[0])
    assert "450 to 480" in text and "0.44 to 0.47" in text and " 70.4 " in text
    assert "The document has 47.3 % for 004_3_1, at 93 %" in text
    plain = str(tables.of(results(record("004_3_1 3 stages, warps of 64x32", 460.0)), ["004"])[0])
    assert "range" not in plain and "tensor pipe" not in plain


def test_repetitions_are_checked():
    with pytest.raises(ValueError, match="repetitions is 0; expected a positive integer"):
        ladder.run("004", repetitions=0)


def test_a_tile_of_c_is_drawn_where_its_operands_meet():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    parts = [
        plot.Tile("a", 32, 8, 16, 4, "C0", "shared"),
        plot.Tile("b", 8, 16, 4, 8, "C0", "shared"),
        plot.Tile("c", 32, 16, 16, 8, "C1", "sums"),
    ]
    plot.tiles(axes, "a block", (64, 48, 24), parts)
    a, b, c = axes.patches[3:]  # after the three matrices
    assert a.get_y() == c.get_y() and a.get_height() == c.get_height()
    assert b.get_x() == c.get_x() and b.get_width() == c.get_width()
    assert a.get_x() + a.get_width() < c.get_x() and b.get_y() + b.get_height() < c.get_y()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["shared", "sums"]
    pyplot.close(figure)
