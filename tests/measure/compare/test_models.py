"""tcgemm.compare of a model: a row for each distinct linear, and a model that stays as it was."""

import pytest
import torch

import tcgemm
from tcgemm.measure import timing
from tcgemm.measure.compare import models
from tcgemm.nn import Float8Linear, PackedLinear, QuantLinear, SparseLinear24

QUICK = {"seconds": 0.004, "progress": False}


class Block(torch.nn.Module):
    """Linears of three shapes, one of them called twice; dropout and statistics of batches."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)
        self.gate = torch.nn.Linear(64, 128)
        self.norm = torch.nn.BatchNorm1d(64)
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(64, 16, bias=False)
        self.unused = torch.nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.fails_after = None

    def forward(self, x, scale=1.0):
        self.calls += 1
        if self.fails_after is not None and self.calls > self.fails_after:
            raise self.error
        hidden = self.down(torch.relu(self.up(x)) * self.gate(x) * scale)
        hidden = self.down(self.up(self.drop(self.norm(hidden))))
        return {"out": self.head(hidden), "hidden": [hidden]}


def state(model):
    """Everything of a model that a comparison could change, with the identity of its tensors."""
    return [
        (name, type(module), module.training, dict(module._forward_pre_hooks), {*vars(module)})
        for name, module in model.named_modules()
    ], {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}


def assert_unchanged(model, before):
    after = state(model)
    assert after[0] == before[0]
    assert after[1].keys() == before[1].keys()
    for name, (tensor, values) in after[1].items():
        assert tensor is before[1][name][0], name
        assert torch.equal(values, before[1][name][1]), name


def test_a_row_for_each_distinct_linear():
    model, lines = Block(), []
    x = torch.randn(24, 64)
    before, random = state(model), torch.get_rng_state()
    result = tcgemm.compare(model, (x,), seconds=0.004, progress=lines.append)
    assert_unchanged(model, before)
    assert torch.equal(torch.get_rng_state(), random)
    layers = {
        (r["m"], r["n"], r["k"], r["epilogue"]): (r["count"], r["layers"]) for r in result.rows
    }
    assert layers == {
        (24, 128, 64, "bias"): (3, ["up", "gate"]),
        (24, 64, 128, "bias"): (2, ["down"]),
        (24, 16, 64, ""): (1, ["head"]),
    }
    for row in result.rows:
        assert row["function"] == "linear" and (row["dtype"], row["layout"]) == ("f32", "TN")
        assert row["us"] > 0 and row["ratios"].keys() == {"torch"}
        assert 0 < row["max_error_ratio"] <= 1
    facts = result.facts["model"]
    assert facts["name"] == "Block" and facts["to"] == "tcgemm.nn.Linear"
    assert facts["before_us"] > 0 and facts["after_us"] > 0 and facts["swapped"] == 5
    assert facts["speedup"] == pytest.approx(facts["before_us"] / facts["after_us"], rel=1e-3)
    assert facts["difference"] < 1e-5 and not facts["skipped"]
    assert "row 1: layers up, gate" in str(result) and "Block: forward " in str(result)
    assert "Block" in lines[0] and len(lines) == 4


@pytest.mark.parametrize("form", ["positional", "keywords", "tensor"])
def test_example_inputs(form):
    x = torch.randn(5, 64)
    example = {"positional": (x, 2.0), "keywords": {"x": x, "scale": 2.0}, "tensor": x}[form]
    assert len(tcgemm.compare(Block(), example, **QUICK).rows) == 3


@pytest.mark.parametrize(
    ("options", "largest"),
    [
        ({"to": QuantLinear, "dtype": torch.int8}, 0.1),
        ({"to": SparseLinear24}, 2.0),
    ],
    ids=["quantised", "sparse"],
)
def test_other_layers(options, largest):
    model = Block().to(torch.bfloat16)
    del model.unused  # 3 columns are no pattern of 2:4
    before = state(model)
    result = tcgemm.compare(model, torch.randn(24, 64).bfloat16(), **options, **QUICK)
    assert_unchanged(model, before)
    assert {row["dtype"] for row in result.rows} == {"bf16"} and len(result.rows) == 3
    assert {row["function"] for row in result.rows} == {options["to"].__name__}  # of no product
    assert all(row["us"] > 0 and row["ratios"]["torch"] > 0 for row in result.rows)
    assert all(row["max_error_ratio"] is None and row["exact"] is None for row in result.rows)
    assert 1e-4 < result.facts["model"]["difference"] < largest


def test_layers_that_stay_have_the_reason():
    result = tcgemm.compare(
        Block(), torch.randn(8, 64), filter_fn=lambda module, name: name != "head", **QUICK
    )
    row = result.rows[-1]
    assert row["layers"] == ["head"] and row["us"] is None
    assert row["why"] == "not swapped: filter_fn is false for it"
    assert result.facts["model"]["skipped"] == {"head": "filter_fn is false for it"}
    assert all(row["us"] for row in result.rows[:-1])


def test_projections_of_attention_have_rows():
    encoder = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    before = state(encoder)
    result = tcgemm.compare(encoder, torch.randn(2, 5, 32), **QUICK)
    assert_unchanged(encoder, before)
    layers = {(row["n"], row["k"]): row["layers"] for row in result.rows}
    assert layers == {
        (96, 32): ["self_attn.in_proj"],
        (32, 32): ["self_attn.out_proj"],
        (48, 32): ["linear1"],
        (32, 48): ["linear2"],
    }


def test_conv1d_of_transformers_has_rows():
    conv = pytest.importorskip("transformers.pytorch_utils").Conv1D(48, 32)
    for to, layout in ((tcgemm.nn.Linear, "NN"), (QuantLinear, "TN")):  # 8-bit weights lie by rows
        result = tcgemm.compare(torch.nn.Sequential(conv), torch.randn(5, 32), to=to, **QUICK)
        shapes = [(row["layout"], row["m"], row["n"], row["k"]) for row in result.rows]
        assert shapes == [(layout, 5, 48, 32)] and result.rows[0]["us"] > 0


def test_options_of_swap_linear_reach_it():
    embedding, head = torch.nn.Embedding(50, 64), torch.nn.Linear(64, 50, bias=False)
    head.weight = embedding.weight
    model = torch.nn.Sequential(embedding, torch.nn.Linear(64, 64), head)
    tokens = torch.arange(8)
    options = {"to": QuantLinear, "dtype": torch.int8, "granularity": "tensor"}
    result = tcgemm.compare(model, tokens, **options, **QUICK)
    assert "shares its weight" in result.rows[-1]["why"] and result.rows[0]["us"] > 0
    result = tcgemm.compare(model, tokens, shared=True, skip="1", **options, **QUICK)
    assert [row["layers"] for row in result.rows if row["us"]] == [["2"]]
    assert "the swap reaches " in str(result)


@pytest.mark.parametrize(
    ("options", "weight"),
    [
        ({}, ""),
        ({"to": PackedLinear, "format": "nf4", "group_size": 32}, "nf4"),
        ({"to": Float8Linear, "precision": "fast"}, "e4m3"),
        ({"to": QuantLinear, "dtype": torch.int8}, "s8"),
        ({"to": SparseLinear24}, "2:4"),
    ],
    ids=str,
)
def test_options_that_compare_of_shapes_has_too(options, weight):
    """group_size and precision are options of layers, and the bars name the form of the weight."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)).bfloat16()
    result = tcgemm.compare(model, torch.randn(8, 64).bfloat16(), **options, **QUICK)
    (row,) = result.rows
    assert row["us"] > 0 and row["facts"].get("weight", "") == weight, row["why"]
    assert ("weight" in str(result).splitlines()[1]) is bool(weight)


def test_options_of_another_layer_are_refused():
    with pytest.raises(RuntimeError, match=r"group_size .* no option of tcgemm\.nn\.Quant"):
        tcgemm.compare(MODEL, torch.zeros(1, 4), to=QuantLinear, group_size=32, **QUICK)


def test_a_model_that_is_swapped_already():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    tcgemm.swap_linear(model)
    before = state(model)
    with pytest.raises(RuntimeError, match=r"2 layers .* tcgemm's already \(0 is a tcgemm.nn.Lin"):
        tcgemm.compare(model, torch.zeros(8, 64), **QUICK)
    assert_unchanged(model, before)
    text = str(tcgemm.compare(model, torch.zeros(8, 64), to=QuantLinear, **QUICK))
    assert "2 layers were tcgemm's before the swap" in text


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("to", [tcgemm.nn.Linear, QuantLinear])
def test_the_model_stays_after_an_exception(error, calls, to):
    model = Block()
    before = state(model)
    model.fails_after, model.error = calls, error
    with pytest.raises(type(error)):
        tcgemm.compare(model, torch.randn(8, 64), to=to, **QUICK)
    del model.error
    model.fails_after = None
    assert_unchanged(model, before)


def test_an_interrupt_between_swap_and_undo_leaves_the_model(monkeypatch):
    model = Block()
    before, slices = state(model), []

    def interrupted(*arguments):
        slices.append(type(model.up))
        if len(slices) == 4:
            raise KeyboardInterrupt
        return [timing.Sample(1.0)]

    monkeypatch.setattr(models, "_forward_slice", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tcgemm.compare(model, torch.randn(8, 64), **QUICK)
    assert [layer is tcgemm.nn.Linear for layer in slices] == [False, True, True, False]
    assert_unchanged(model, before)


def test_the_layers_have_the_dtype_of_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        result = tcgemm.compare(Block(), torch.randn(8, 64), **QUICK)
    assert {row["dtype"] for row in result.rows} == {"bf16"}


def test_a_compiled_model_is_timed_compiled():
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 64))
    compiled = torch.compile(model, backend="aot_eager")
    before = state(model)
    result = tcgemm.compare(compiled, torch.randn(8, 64), **QUICK)
    assert_unchanged(model, before)
    assert [row["count"] for row in result.rows] == [1, 1]
    assert "layers _orig_mod.*" in str(result)
    assert result.facts["model"]["before_us"] > 0


def test_bad_models_end_in_a_sentence():
    for model, example, words in (
        (torch.nn.ReLU(), torch.zeros(3), "has no weights"),
        (torch.nn.Linear(4, 4, device="meta"), torch.zeros(3, 4, device="meta"), "is on meta"),
    ):
        with pytest.raises(RuntimeError, match=rf"^tcgemm.compare: .*{words}.*\.$"):
            tcgemm.compare(model, example, **QUICK)
    with pytest.raises(RuntimeError, match=r"tcgemm\.swap_linear: to is"):
        tcgemm.compare(MODEL, torch.zeros(1, 4), to=torch.nn.ReLU, **QUICK)
    with pytest.raises(RuntimeError, match=r"to is torch\.nn\.Linear, .*; pass tcgemm\.nn"):
        tcgemm.compare(MODEL, torch.zeros(1, 4), to=torch.nn.Linear, **QUICK)
    with pytest.raises(RuntimeError, match="against has 'cublas'"):
        tcgemm.compare(MODEL, torch.zeros(1, 4), against="cublas", **QUICK)
    empty = tcgemm.compare(torch.nn.Conv1d(3, 3, 1), torch.zeros(1, 3, 4), **QUICK)
    assert not empty.rows and "Conv1d: forward " in str(empty)


MODEL = torch.nn.Linear(4, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("to", [tcgemm.nn.Linear, QuantLinear, SparseLinear24])
def test_a_model_on_a_gpu(to):
    layers = [torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)]
    model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    before = state(model)
    x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
    result = tcgemm.compare(model, x, to=to, seconds=0.1, progress=False)
    print(result)
    assert_unchanged(model, before)
    assert [(row["m"], row["count"]) for row in result.rows] == [(512, 1), (512, 1)]
    assert all(row["us"] and row["ratios"]["torch"] for row in result.rows), result.rows
    assert result.facts["model"]["before_us"] > result.rows[0]["us"]
