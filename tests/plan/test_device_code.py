"""Whose code of a build a GPU runs, and which kernels that leaves it."""

import pytest

from tcgemm import info

from support.plan_cases import DEVICES, plan


@pytest.mark.parametrize(
    ("arches", "runs"),
    [
        # The newest machine code of the same major version, else the newest PTX.
        ("8.0,8.0+PTX,8.9,9.0a", {80: "8.0", 86: "8.0", 89: "8.9", 90: "9.0a", 120: "8.0"}),
        ("8.0,9.0a", {75: "none", 80: "8.0", 89: "8.0", 90: "9.0a", 100: "none"}),
        ("8.6,8.9", {80: "none", 86: "8.6", 87: "8.6", 89: "8.9", 90: "none"}),
        ("8.0+PTX", {80: "8.0", 89: "8.0", 90: "8.0", 121: "8.0"}),
        ("8.0+PTX,8.9+PTX,9.0a+PTX", {86: "8.0", 89: "8.9", 90: "9.0a", 100: "8.9"}),
        # Older instructions as machine code for 9.0, and 9.0a's beside them.
        ("8.0@9.0", {80: "none", 89: "none", 90: "8.0", 100: "none"}),
        ("8.9@9.0", {89: "none", 90: "8.9"}),
        ("8.0@9.0,9.0a", {90: "9.0a"}),
        ("10.0,12.0", {90: "none", 100: "10.0", 103: "10.0", 110: "none", 121: "12.0"}),
    ],
)
def test_code_is_what_the_loader_picks(arches, runs):
    for capability, code in runs.items():
        assert info.code(capability, arches) == code, capability


def test_devices_know_their_code():
    code = {device["name"]: device["code"] for device in DEVICES}
    assert code["H200"] == code["H100"] == "9.0a"
    assert code["L40S"] == code["RTX 4090"] == "8.9"
    assert code["A100"] == code["A10"] == "8.0"
    with pytest.raises(RuntimeError, match=r"on A10, which runs this build's code for 8\.0"):
        plan(64, 64, 64, device="A10", dtype="e4m3")


def test_other_gpus_get_mma_sync():
    for device in DEVICES:
        fields = plan(4096, 4096, 4096, device=device["name"])
        arch = "sm90a" if device["compute_capability"] == 90 else "sm80"
        assert fields["kernel"].startswith(arch)
        # Their kernels read any alignment: a pass is worth it only against element-wise loads.
        assert fields["repack_a"] is fields["repack_b"] is None


def test_names_of_gpus_in_any_case():
    assert plan(64, 64, 64, device="rtx 4090") == plan(64, 64, 64, device="RTX 4090")
