"""Families of models of transformers are quantised, saved, and loaded with the same bits."""

import pytest
import torch

from support.packed_weight_cases import bits
from support.transformer_families import FIRST, OTHERS, model_of, outputs

integration = pytest.importorskip("tcgemm.integrations.transformers")
CONFIGS = {"8 bits": {"dtype": "int8"}, "4 bits": {"format": "nf4", "group_size": 32}}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
FAMILIES = [*FIRST, *(pytest.param(family, marks=pytest.mark.nightly) for family in OTHERS)]


@pytest.mark.parametrize("family", FAMILIES)
@every_config
def test_a_family(family, config, tmp_path):
    dense = model_of(family).bfloat16()
    dense.save_pretrained(tmp_path / "dense")
    options = integration.TcgemmConfig(**config)
    model = type(dense).from_pretrained(tmp_path / "dense", quantization_config=options).eval()
    expected = outputs(model)
    assert model.hf_quantizer.report.swapped and not torch.equal(expected, outputs(dense))
    model.save_pretrained(tmp_path / "quantised")
    again = type(dense).from_pretrained(tmp_path / "quantised").eval()
    state, other = model.state_dict(), again.state_dict()
    assert state.keys() == other.keys()
    for name, tensor in state.items():
        assert torch.equal(bits(tensor), bits(other[name])), name
    assert torch.equal(outputs(again), expected)
