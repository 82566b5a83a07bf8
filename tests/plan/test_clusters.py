"""How many CTAs of a cluster share their loads of b."""

import pytest

from support.plan_cases import plan

# The faster of one and two on an H200, with x torch of both. A tile of 176 or 208 columns of an
# MN-major b begins inside a line of L2, so its rows cost two lines, which a cluster reads once.
MEASURED = {
    (2304, 2304, 2304, "NN"): 2,  # 1.048 x torch instead of 0.943, in tiles of 128x176
    (2304, 2304, 2304, "NT"): 2,  # 1.014 and 0.934
    (1792, 1792, 1792, "NN"): 2,  # 1.153 and 1.03, 128x208
    (1792, 1792, 1792, "TN"): 1,  # 1.105 and 1.09
    (1536, 1536, 1536, "NT"): 2,  # 0.87 and 0.825, 128x144
    (1536, 1536, 1536, "TN"): 1,  # 1.10 and 1.06 to 1.10
    (2048, 2048, 2048, "TN"): 1,  # 1.058 and 1.037
    (512, 6144, 4096, "TN"): 2,  # 1.02 to 1.08 and 1.01 to 1.02
    (512, 4096, 4096, "TN"): 1,  # 0.97 and 0.94
}


def test_a_name_may_ask_for_a_cluster():
    """tests/gpu/test_kernels.py runs every kernel so."""
    problem = {"m": 1000, "n": 1000, "k": 1000, "layout": "TN"}
    name = "sm90a_bf16_f32_128x256x64_w2_s4_tn"
    for size, tiles in ((1, 8), (2, 4), (4, 2)):
        fields = plan(**problem, kernel=f"{name}@{size}")
        assert (fields["kernel"], fields["cluster"], fields["tiles_m"]) == (name, size, tiles)


@pytest.mark.parametrize(
    "kernel",
    ("128x256x64_w2_s4_tn@3", "128x256x64_w2_s4_tn@", "sm80@2", "64x64x64_w1_s12_tn@2/2c"),
)
def test_a_cluster_that_no_kernel_has_is_refused(kernel):
    """The CTAs of a cluster that adds slices (2c) share no operand."""
    with pytest.raises(RuntimeError, match=f"under the filter '{kernel}'"):
        plan(64, 64, 128, kernel=kernel)


@pytest.mark.parametrize("problem", MEASURED, ids=lambda problem: "x".join(map(str, problem)))
def test_the_cluster_is_the_faster_one(problem):
    *sizes, layout = problem
    fields = plan(*sizes, layout=layout)
    assert fields["cluster"] == MEASURED[problem]
