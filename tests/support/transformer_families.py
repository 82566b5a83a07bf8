"""Tiny models of the families of transformers, by their configs; nothing is downloaded."""

import torch

from support.transformer_models import transformers

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers")
_HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads")
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim")
_INNER = ("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim")
# The sizes of a config that has an option of this name.
SIZES = {
    **dict.fromkeys((*_LAYERS, "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys((*_HEADS, "decoder_attention_heads"), 4),
    **dict.fromkeys((*_WIDTHS, "embed_dim"), 32),
    **dict.fromkeys((*_INNER, "hidden_dim", "ffn_hidden_size"), 64),
    "vocab_size": 96,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "d_kv": 8,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "moe_intermediate_size": 32,
    "num_local_experts": 4,
    "num_experts": 4,
    "image_size": 16,
    "patch_size": 4,
    "num_mel_bins": 8,
    "max_source_positions": 8,
    "max_target_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_IDS = torch.arange(3, 27).reshape(2, 12)


# model_type of config.json. The first ones run in `make test`, the others in `make test-all`.
FIRST = ("distilbert", "electra", "albert", "modernbert", "deberta-v2", "whisper")
OTHERS = """
    bart beit bert bert-generation big_bird bigbird_pegasus biogpt bitnet blenderbot
    blenderbot-small bloom camembert clip_text_model clip_vision_model cohere cohere2
    convbert cwm data2vec-text data2vec-vision deit diffllama dinov2 dinov2_with_registers
    dinov3_vit ernie ernie4_5 eurobert exaone4 falcon_mamba flaubert gemma gemma2
    gemma3_text glm glm4 gpt_neox granite helium hunyuan_v1_dense ijepa lfm2 llama longt5
    m2m_100 marian mbart mamba megatron-bert mistral ministral mixtral modernbert-decoder
    mpnet mt5 mvp nemotron nomic_bert nystromformer olmo olmo2 olmo3 opt
""".split()


def _kind(config, mapping):
    kind = mapping[type(config)] if type(config) in mapping.keys() else None  # noqa: SIM118
    return kind[0] if isinstance(kind, tuple) else kind


def model_of(family):
    """A model of this type, as config.json names it, with the head of a language model if it has
    one, which may be tied."""
    make = transformers.CONFIG_MAPPING[family]
    default = make()
    names = {name for name in SIZES if hasattr(default, name)}
    config = make(**{name: SIZES[name] for name in names})
    mappings = (
        transformers.MODEL_FOR_MASKED_LM_MAPPING,
        transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        transformers.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
        transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
        transformers.MODEL_MAPPING,
    )
    kind = next(filter(None, (_kind(config, mapping) for mapping in mappings)))
    torch.manual_seed(7)
    return kind(config).eval()


def outputs(model):
    """The first result of a call with tokens, pixels or the features of speech."""
    name = model.main_input_name
    torch.manual_seed(8)
    shape = {"pixel_values": (2, 3, 16, 16), "input_features": (2, 8, 16)}.get(name)
    inputs = {name: _IDS if shape is None else torch.rand(shape).to(model.dtype)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = _IDS[:, :5]
    with torch.no_grad():
        return model(**inputs)[0]
