"""from_pretrained with a TcgemmConfig: quantise while loading, save, load again, bit for bit."""

import gc
import json
import logging
import weakref

import pytest
import torch

import tcgemm

from support import programs, transformer_models
from support.error_asserts import error_message
from support.source_tree import ROOT
from support.transformer_models import (
    every_model,
    gpt2,
    layers,
    llama,
    logits,
    mixtral,
    tied_llama,
    transformers,
)

integration = pytest.importorskip("tcgemm.integrations.transformers")
TcgemmConfig = integration.TcgemmConfig
CONFIGS = {
    "e4m3": {},
    "int8": {"dtype": torch.int8, "granularity": "tensor"},
    "e5m2": {"dtype": "float8_e5m2"},
    "blocks": {"granularity": "128x128"},
    "sparse": {"layer": "SparseLinear24"},
}
every_config = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture
def saved(tmp_path):
    """(the folder of a dense model, its class, the inputs of a call) for a maker."""

    def save(make):
        return tmp_path / "dense", *transformer_models.saved(make, tmp_path / "dense")

    return save


def test_a_model_without_such_layers_is_refused(saved):
    folder, kind, _ = saved(gpt2)  # its layers are Conv1D, its head shares a weight
    with pytest.raises(ValueError, match="GPT2LMHeadModel has no layer that can become a Sparse"):
        kind.from_pretrained(folder, quantization_config=TcgemmConfig(layer="SparseLinear24"))


@pytest.mark.parametrize(
    ("make", "count", "share"),
    [
        (mixtral, 8, "reaches 10 % of 58.6 k weights in matrices; not reached: 2 MixtralExperts"),
        (tied_llama, 14, "reaches 100 % of 18.4 k weights in matrices"),
    ],
    ids=["experts", "tied head"],
)
def test_from_pretrained_says_what_it_reached(make, count, share, saved, tmp_path):
    folder, kind, _ = saved(make)
    logger, lines = logging.getLogger("transformers.tcgemm"), []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    try:
        model = kind.from_pretrained(folder, quantization_config=TcgemmConfig(dtype="int8"))
        model.save_pretrained(tmp_path / "quantised")
        kind.from_pretrained(tmp_path / "quantised")
    finally:
        logger.removeHandler(handler)
    start = f"tcgemm: {count} layers of {kind.__name__} are tcgemm's; from_pretrained {share}"
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith(start), lines
    assert ("not reached" in lines[0]) is (make is mixtral)
    assert model.hf_quantizer.report.coverage() in lines[0]


@every_model
@every_config
def test_a_model_is_saved_and_loaded_with_the_same_bits(make, name, saved, tmp_path):
    if (make, name) == (gpt2, "sparse"):
        pytest.skip("GPT-2 has no layer that can be sparse")
    folder, kind, inputs = saved(make)
    model = kind.from_pretrained(folder, quantization_config=TcgemmConfig(**CONFIGS[name]))
    expected = logits(model, inputs)
    dense = logits(kind.from_pretrained(folder), inputs)
    assert layers(model) and not torch.equal(expected, dense)
    if name != "sparse":  # pruning changes a random model beyond recognition
        assert (expected - dense).abs().max() < 0.2 * dense.abs().max()
    model.save_pretrained(tmp_path / "quantised")
    reloaded = kind.from_pretrained(tmp_path / "quantised")
    assert layers(reloaded) == layers(model)
    assert torch.equal(logits(reloaded, inputs), expected)
    reloaded.save_pretrained(tmp_path / "once more")  # what was read is saved in the same way
    third = kind.from_pretrained(tmp_path / "once more")
    assert torch.equal(logits(third, inputs), expected)


@every_model
def test_what_is_not_converted(make, saved):
    folder, kind, _ = saved(make)
    model = kind.from_pretrained(folder, quantization_config=TcgemmConfig(dtype="int8"))
    assert not any(name.endswith("lm_head") for name in layers(model))
    report = model.hf_quantizer.report
    assert sorted(report.swapped) == sorted(layers(model))


@pytest.mark.parametrize("name", ["int8", "sparse"])
def test_the_dense_weights_are_freed(name, saved, monkeypatch):
    dense = []

    def swap(model, **options):
        layers = [item for item in model.modules() if isinstance(item, torch.nn.Linear)]
        dense.extend(weakref.ref(item.weight) for item in layers)
        return tcgemm.swap_linear(model, **options)

    monkeypatch.setattr(integration, "swap_linear", swap)
    folder, kind, _ = saved(llama)
    config = TcgemmConfig(**CONFIGS[name])
    model = kind.from_pretrained(folder, quantization_config=config)
    gc.collect()
    alive = [id(item()) for item in dense if item() is not None]
    assert len(dense) == 15 and alive == [id(model.lm_head.weight)]
    assert error_message(lambda: model.hf_quantizer.report.undo()) == (
        "tcgemm.SwapReport.undo: from_pretrained does not keep the weights of before the swap; "
        "load the model without TcgemmConfig, or call "
        "tcgemm.swap_linear(model, to=torch.nn.Linear), which dequantises."
    )


def test_names_and_patterns(saved):
    folder, kind, _ = saved(llama)
    config = TcgemmConfig(modules_to_not_convert=["lm_head", "down_proj", "model.layers.1.*"])
    names = layers(kind.from_pretrained(folder, quantization_config=config))
    assert names and all("layers.0." in name and "down_proj" not in name for name in names)
    config = TcgemmConfig(modules_to_not_convert=["no_such_layer"])
    with pytest.raises(RuntimeError, match="no_such_layer"):
        kind.from_pretrained(folder, quantization_config=config)


@pytest.mark.parametrize("name", ["e4m3", "sparse"])
@pytest.mark.parametrize(
    "options",
    [{"device_map": "cpu"}, {"device_map": "auto"}, {"dtype": torch.bfloat16}],
    ids=["cpu", "auto", "bfloat16"],
)
def test_options_of_from_pretrained(name, options, saved, tmp_path):
    folder, kind, inputs = saved(llama)
    config = TcgemmConfig(**CONFIGS[name])
    model = kind.from_pretrained(folder, quantization_config=config, **options)
    model.save_pretrained(tmp_path / "quantised")
    reloaded = kind.from_pretrained(tmp_path / "quantised", **options)
    assert torch.equal(logits(reloaded, inputs), logits(model, inputs))


def test_an_older_transformers_does_not_read_parts(saved, tmp_path, monkeypatch):
    """transformers 5.17 ignored the parts of a sparse weight, and made up its values."""
    folder, kind, _ = saved(llama)
    model = kind.from_pretrained(folder, quantization_config=TcgemmConfig(**CONFIGS["sparse"]))
    model.save_pretrained(tmp_path / "sparse")
    monkeypatch.delattr(integration.HfQuantizer, "serialized_names")
    monkeypatch.setattr(transformers, "__version__", "5.17.0")
    assert error_message(lambda: kind.from_pretrained(tmp_path / "sparse"), ImportError) == (
        "TcgemmConfig: transformers 5.17.0 reads no weights that are saved in parts, as "
        "SparseLinear24 and other methods save them; expected 5.21 or later: pip install -U "
        "transformers."
    )


def test_a_model_of_swap_linear_is_loaded_with_its_config(saved, tmp_path):
    """Its config may be set before it is saved, so that it can be loaded."""
    folder, kind, inputs = saved(llama)
    model = kind.from_pretrained(folder)
    config = TcgemmConfig(dtype="int8")
    tcgemm.swap_linear(model, skip="lm_head", **config.options())
    model.config.quantization_config = config
    model.save_pretrained(tmp_path / "by_hand")
    reloaded = kind.from_pretrained(tmp_path / "by_hand")
    assert torch.equal(logits(reloaded, inputs), logits(model, inputs))


def test_the_saved_config(saved, tmp_path):
    folder, kind, _ = saved(llama)
    config = TcgemmConfig(dtype=torch.float8_e5m2, granularity="tensor")
    kind.from_pretrained(folder, quantization_config=config).save_pretrained(tmp_path / "q")
    facts = json.loads((tmp_path / "q" / "config.json").read_text())["quantization_config"]
    assert facts == {
        "quant_method": "tcgemm",
        "layer": "QuantLinear",
        "dtype": "float8_e5m2",
        "granularity": "tensor",
        "modules_to_not_convert": ["lm_head"],
        "checkpoint": "tcgemm",
    }


def test_without_the_import_transformers_names_the_method(saved, tmp_path):
    folder, kind, _ = saved(llama)
    config = TcgemmConfig(dtype="int8")
    kind.from_pretrained(folder, quantization_config=config).save_pretrained(tmp_path / "q")
    script = (
        "from transformers import LlamaForCausalLM\n"
        f"LlamaForCausalLM.from_pretrained({str(tmp_path / 'q')!r})"
    )
    run = programs.run(script, cwd=ROOT)
    assert "Unknown quantization type, got tcgemm" in run.stderr


def test_generate_is_the_same_after_loading(saved, tmp_path):
    folder, kind, inputs = saved(llama)
    model = kind.from_pretrained(folder, quantization_config=TcgemmConfig(dtype="int8"))
    model.save_pretrained(tmp_path / "q")
    reloaded = kind.from_pretrained(tmp_path / "q")
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    tokens = [network.eval().generate(**inputs, **options) for network in (model, reloaded)]
    assert torch.equal(*tokens)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "float4"}, "dtype is 'float4'; expected one of float8_e4m3fn"),
        ({"dtype": torch.float16}, "dtype is 'float16'"),
        ({"granularity": "column"}, "granularity is 'column'; expected one of"),
        (
            {"layer": "Linear"},
            "layer is 'Linear'; expected one of QuantLinear, PackedLinear, SparseLinear24",
        ),
        (
            {"layer": "SparseLinear24", "method": "random"},
            "method is 'random'; expected one of magnitude, transposable",
        ),
        (
            {"dtype": "int8", "layer": "PackedLinear"},
            "dtype is 'int8', but a PackedLinear has no dtype; its options are format, group_size, "
            "zero_points, method. Pass layer='QuantLinear', or leave dtype out.",
        ),
        ({"dtype": "int8", "format": "nf4"}, "dtype is 'int8', but a PackedLinear has no dtype"),
        ({"layer": "QuantLinear", "format": "nf4"}, "format is 'nf4', but a QuantLinear has no"),
        ({"layer": "QuantLinear", "group_size": None}, "group_size is None, but a QuantLinear"),
        ({"method": "mse"}, "Pass layer='PackedLinear' or 'SparseLinear24', or leave method out."),
        ({"quant_method": "fp8"}, "quant_method is 'fp8'; expected one of tcgemm"),
        ({"dtype": "int8", "layers": []}, "layers says which modules .* dtype came as well"),
        ({"layers": [{"layer": "QuantLinear"}]}, "modules in layers is None; expected a list"),
        ({"layers": [{"layer": "Linear", "modules": ["x"]}]}, "layer in layers is 'Linear'"),
    ],
)
def test_a_sentence_for(options, words):
    with pytest.raises(ValueError, match=words):
        TcgemmConfig(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"bits": 4},
            "there is no option 'bits'; the nearest is 'format' (format=\"int4\" or \"nf4\" has 4 "
            'bits, format="int8" has 8), and the options are layer, dtype, ',
        ),
        ({"granulrity": "row"}, "no option 'granulrity'; the nearest is 'granularity', and the"),
        ({"load_in_4bit": True}, "the nearest is 'format' ("),
        ({"skip": ["head"]}, "the nearest is 'modules_to_not_convert', and"),
        (
            {"layers": [{"layer": "PackedLinear", "modules": ["x"], "dtpe": "int8"}]},
            "there is no option 'dtpe' of a PackedLinear in layers; the nearest is 'scale_dtype'",
        ),
    ],
)
def test_an_unknown_option_names_the_nearest(options, words):
    assert words in error_message(lambda: TcgemmConfig(**options), TypeError)


@pytest.mark.parametrize(
    "options", [{"format": "nf4"}, {"group_size": None}, {"zero_points": True}]
)
def test_an_option_of_packed_weights_means_packed_linear(options):
    config = TcgemmConfig(**options)
    assert config.layer == "PackedLinear"
    assert all(getattr(config, name) == value for name, value in options.items())
    again = TcgemmConfig.from_dict(json.loads(config.to_json_string()))
    assert again.to_dict() == config.to_dict()


def test_transformers_knows_the_method():
    from_dict = transformers.quantizers.AutoQuantizationConfig.from_dict
    config = from_dict({"quant_method": "tcgemm", "dtype": "int8"})
    assert isinstance(config, TcgemmConfig) and config.dtype == "int8"


@pytest.mark.parametrize("options", [{}, {"format": "nf4"}], ids=["8 bits", "4 bits"])
def test_a_tied_head_of_another_name_is_saved_and_loaded(options, tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    config = transformers.BertConfig(vocab_size=128, num_attention_heads=2, **sizes)
    kind = transformers.BertForMaskedLM
    kind(config).bfloat16().save_pretrained(tmp_path / "dense")
    config = TcgemmConfig(**options)
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=config).eval()
    model.save_pretrained(tmp_path / "quantised")
    reloaded = kind.from_pretrained(tmp_path / "quantised").eval()
    tokens = torch.arange(16)[None]
    assert layers(reloaded) == layers(model)
    assert torch.equal(reloaded(tokens).logits, model(tokens).logits)
