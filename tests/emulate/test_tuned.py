"""The emulator computes the bits of the kernel that tcgemm.tune has chosen."""

import torch

import tcgemm
from tcgemm.ops import query, tuned

ROW = "sm90a_bf16_f32_64x64x64_w1_s12_nn@1/2"


def test_the_tuned_slices_are_added():
    a, b = torch.randn(4, 1024).bfloat16(), torch.randn(1024, 8).bfloat16()
    options = {"out_dtype": torch.float32, "device": "H200"}
    result = tcgemm.emulate.mm(a, b, **options)
    expected = tcgemm.emulate.mm(a, b, **options, kernel=ROW)
    assert not torch.equal(result, expected)
    product = tcgemm.explain(a, b, device="H200").product
    try:
        assert query.ask("_set_tuned", "H200", product, ROW)
        assert torch.equal(tcgemm.emulate.mm(a, b, **options), expected)
        with tcgemm.batch_invariant():
            single = tcgemm.emulate.mm(a, b, **options)
    finally:
        tuned.forget()
    assert torch.equal(single, tcgemm.emulate.mm(a, b, **options, kernel=ROW.replace("/2", "/1")))
