"""The roofline: its three roofs, what a tile needs of each, and the picture."""

import dataclasses

import pytest

from tcgemm import cli
from tcgemm.lab import store
from tcgemm.lab.model import gpus, plot, roofline
from tcgemm.lab.probe.measure import expand

RTX_2070 = gpus.costs("RTX 2070")


def test_shared_memory_of_turing_has_64_bytes_a_clock():
    """16 operations a byte: 1024 operations a clock and SM over the 64 bytes of table V."""
    assert roofline.ridge(RTX_2070.shared_rate, RTX_2070.tensor) == pytest.approx(16)


def test_a_warp_reads_its_own_tile_from_shared_memory():
    slow = dataclasses.replace(RTX_2070, shared_rate=1e12)
    rows = {row["block"]: row for row in roofline.rows(slow)}
    assert rows["256x256"]["warp"] == "128x64"
    assert rows["256x256"]["shared memory"] == 1e12 * 2 * 128 * 64 / (2 * (128 + 64))
    assert rows["64x64"]["shared memory"] == 1e12 * 16
    # It is slower than L2 for every block, so it is what bounds all but device memory.
    assert rows["256x256"]["of the peak"] == rows["256x256"]["shared memory"] / slow.tensor
    costs = dataclasses.replace(slow, shared_rate=None)
    row = roofline.rows(costs)[0]
    assert row["shared memory"] is None
    assert row["of the peak"] == row["memory"] / slow.tensor


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_the_roofs_of_stored_gpus(gpu):
    """The large buffer measures the rate of L2. L2 delivers at most 64 bytes a clock to an SM."""
    stored = expand(store.results("probe")[gpu])
    costs, header = gpus.of_probe(stored), stored["header"]
    rates = {record["row"]: record["rate"] for record in stored["records"] if "rate" in record}
    clocks = header["processors"] * 1e6 * header["clocks"]["sm_max_mhz"]
    assert costs.l2 == 1e9 * rates["L2 read"] < 64 * clocks
    assert rates["L2 read, one 512 KB"] * 1e9 > 64 * clocks
    assert 100 * clocks < costs.shared_rate <= 1.01 * 128 * clocks
    assert costs.memory < costs.l2 < costs.shared_rate


def test_the_command_prints_and_draws_the_roofs(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "pictures"
    assert cli.main(["model", "roofline", "--gpu", "RTX 2070", "--plot", str(folder)]) == 0
    text = capsys.readouterr().out
    path = folder / "roofline-RTX-2070.png"
    assert text.endswith(f"wrote {path}\n") and 5_000 < path.stat().st_size < 150_000
    assert "157 a byte of memory, 80 a byte of L2, 16 a byte of shared memory." in text


def test_every_known_roof_is_drawn(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    labels = []
    monkeypatch.setattr(
        figure.Figure,
        "savefig",
        lambda self, path, **_: labels.append(self.axes[0].get_legend_handles_labels()[1]),
    )
    plot.draw(RTX_2070, tmp_path)
    plot.draw(dataclasses.replace(RTX_2070, l2=None, shared_rate=None, simt=None), tmp_path)
    assert labels == [
        ["memory, 380 GB/s", "L2, 750 GB/s", "shared memory, 3731 GB/s", "float16 units"],
        ["memory, 380 GB/s"],
    ]


def test_only_the_roofline_is_drawn(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["model", "banks", "--plot", str(tmp_path)])
    assert capsys.readouterr().err.endswith(
        "error: --plot draws the roofline, and the model is banks; leave --plot, or ask for the "
        "model roofline.\n"
    )


def test_a_picture_needs_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        cli.main(["model", "roofline", "--plot", str(tmp_path)])
    assert capsys.readouterr().err.endswith(
        "error: --plot needs matplotlib: pip install matplotlib.\n"
    )
