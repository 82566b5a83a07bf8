"""Which GPUs the planner knows, what it takes for others, and where its rates come from.

No GPU is needed: names, capabilities and numbers of multiprocessors are those that drivers report.
"""

import pytest

import tcgemm
from tcgemm import info

from support import meta_problems

# Driver's name, compute capability, multiprocessors -> the GPU of the table.
REPORTED = (
    ("NVIDIA H200", 90, 132, "H200"),
    ("NVIDIA H200 NVL", 90, 132, "H200"),
    ("NVIDIA H200 MIG 1g.18gb", 90, 16, None),
    ("NVIDIA GH200 480GB", 90, 132, None),
    ("NVIDIA GH200 144G HBM3e", 90, 132, None),
    ("NVIDIA H100 80GB HBM3", 90, 132, "H100"),
    ("NVIDIA H100 PCIe", 90, 114, None),
    ("NVIDIA H100 NVL", 90, 132, None),
    ("NVIDIA H800", 90, 132, None),
    ("NVIDIA A100-SXM4-40GB", 80, 108, "A100"),
    ("NVIDIA A100-SXM4-80GB", 80, 108, "A100"),
    ("NVIDIA A100 80GB PCIe", 80, 108, "A100"),
    ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 80, 42, None),
    ("NVIDIA A10", 86, 72, "A10"),
    ("NVIDIA A10G", 86, 80, None),
    ("NVIDIA A100X", 80, 108, None),
    ("NVIDIA RTX A1000", 86, 16, None),
    ("NVIDIA GeForce RTX 4090", 89, 128, "RTX 4090"),
    ("NVIDIA GeForce RTX 4090 D", 89, 114, None),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 89, 76, None),
    ("NVIDIA L40S", 89, 142, "L40S"),
    ("NVIDIA L40", 89, 142, None),
    ("NVIDIA B200", 100, 148, None),
    ("", 90, 132, None),
)


@pytest.mark.parametrize(
    ("name", "capability", "count", "expected"), REPORTED, ids=lambda x: str(x)
)
def test_gpus_are_known_by_words_capability_and_multiprocessors(name, capability, count, expected):
    row = info.known_device(name, capability, count)
    assert (row and row["name"]) == expected


@pytest.mark.parametrize("device", info.devices(), ids=lambda d: d["name"])
def test_all_three_properties_must_agree(device):
    rows = [row for row in REPORTED if row[3] == device["name"]]
    assert rows
    for name, capability, count, word in rows:
        assert (capability, count) == (device["compute_capability"], device["multiprocessors"])
        assert info.known_device(name, capability, count)["name"] == word
        assert info.known_device(name, capability + 1, count) is None
        assert info.known_device(name, capability, count - 1) is None
        assert info.known_device(name.replace(word, word + "X"), capability, count) is None


# The clocks (kHz) and the memory bus (bits) that the drivers of both measured GPUs report.
CLOCKS = {"H200": (1980e3, 3201e3, 6144), "H100": (1980e3, 2619e3, 5120)}
RATES = ("memory_rate", "tensor_rate", "f64_rate", "clock_mhz", "f64_clock_mhz")


@pytest.mark.parametrize("device", CLOCKS)
def test_a_known_gpu_has_the_rates_of_the_table(device):
    name = next(row[0] for row in REPORTED if row[3] == device)
    table = next(row for row in info.devices() if row["name"] == device)
    rates = info.device_rates(name, 90, 132, 1.0, 1.0, 1)
    assert {rate: rates[rate] for rate in RATES} == {rate: table[rate] for rate in RATES}
    assert rates["l2_bytes_per_clock"] == table["l2_bytes_per_clock"]
    assert rates["rates_from"] == table["rates_from"] == "measured"


@pytest.mark.parametrize("device", CLOCKS)
def test_estimates_come_close_to_what_was_measured(device):
    table = next(row for row in info.devices() if row["name"] == device)
    rates = info.device_rates("an unknown GPU", 90, 132, *CLOCKS[device])
    assert rates["rates_from"] == "driver"
    for rate in RATES:
        assert rates[rate] == pytest.approx(table[rate], rel=0.12), rate
    assert rates["l2_bytes_per_clock"] == pytest.approx(table["l2_bytes_per_clock"], rel=0.15)
    assert rates["clusters_of_three"] == table["clusters_of_three"] == 39
    assert rates["clusters_of_four"] == table["clusters_of_four"] == 30


def test_estimates_follow_what_the_driver_reports():
    one = info.device_rates("NVIDIA H100 PCIe", 90, 114, 1755e3, 1593e3, 5120)
    two = info.device_rates("NVIDIA H100 PCIe", 90, 57, 2 * 1755e3, 2 * 1593e3, 2 * 5120)
    assert two["memory_rate"] == pytest.approx(4 * one["memory_rate"])
    assert two["tensor_rate"] == pytest.approx(one["tensor_rate"])
    assert two["clock_mhz"] == pytest.approx(2 * one["clock_mhz"])
    older = info.device_rates("NVIDIA RTX A1000", 86, 16, 1140e3, 5501e3, 128)
    assert older["tensor_rate"] < one["tensor_rate"] / 20
    assert older["clock_mhz"] == 0  # no model of its kernels counts clocks


@pytest.mark.parametrize("device", info.devices(), ids=lambda d: d["name"])
def test_explain_says_where_rates_come_from(device):
    text = meta_problems.plan(device["name"], "bf16", 512, 512, 512)["explain"]
    words = {"measured": "measured on this GPU model", "datasheet": "from the GPU's datasheet"}
    assert f"\n  rates         {words[device['rates_from']]}\n" in text


class Gpu:
    """The facts that torch reports of a GPU."""

    def __init__(self, name, capability, count):
        self.name, self.multi_processor_count = name, count
        self.major, self.minor = divmod(capability, 10)
        self.total_memory = 80 << 30


@pytest.mark.parametrize(
    ("gpu", "words"),
    (
        (Gpu("NVIDIA H200", 90, 132), "planned with rates measured on an H200"),
        (Gpu("NVIDIA A10", 86, 72), "planned with the rates of the A10's datasheet"),
        (Gpu("NVIDIA GH200 480GB", 90, 132), "planned from what the driver reports"),
    ),
    ids=lambda x: getattr(x, "name", ""),
)
def test_the_report_says_what_a_gpu_is_planned_with(monkeypatch, gpu, words):
    cuda = tcgemm.info.torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "get_device_properties", lambda index: gpu)
    lines = info._gpu_lines()
    assert gpu.name in lines[0]
    assert words in lines[1]
