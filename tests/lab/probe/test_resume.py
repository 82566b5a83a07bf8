"""A run goes on where another one of the same GPU and options ended, and refuses other files."""

import json
import re

import pytest

from tcgemm import cli
from tcgemm.lab import probe
from tcgemm.lab.probe import groups, sass
from tcgemm.lab.probe.measure import load, save

from support.fake_gpu import FakeGpu

pytestmark = pytest.mark.skipif(
    not (sass.tool("ptxas") and sass.tool("nvdisasm")), reason="needs ptxas and nvdisasm"
)


@pytest.fixture
def gpu(monkeypatch):
    return FakeGpu("Hopper").install(monkeypatch)


def test_a_run_resumes(gpu, tmp_path):
    path = tmp_path / "probe.json"
    first = probe.run("global", row="LDS", path=path)
    assert len(first["records"]) == 3
    launches = gpu.launches
    resumed = probe.run("global", row="LDS", path=path, resume=True)
    assert gpu.launches == launches and resumed == load(path)
    rest = probe.run("global", path=path, resume=True)
    assert len(rest["records"]) == 12 and rest["records"][:3] == resumed["records"]
    content = json.loads(path.read_text())
    content["header"]["gpu"] = "another"
    save(content, path)
    with pytest.raises(ValueError, match="has records of another, and this GPU is a fake Hopper"):
        probe.run("global", path=path, resume=True)


def test_an_interrupted_run_keeps_its_rows(gpu, tmp_path, monkeypatch):
    path = tmp_path / "probe.json"
    measure = groups.GROUPS["global"].measure

    def interrupted(session, row, options):
        if row == "LDS 128":
            raise KeyboardInterrupt
        return measure(session, row, options)

    patched = groups.GROUPS["global"]._replace(measure=interrupted)
    monkeypatch.setitem(groups.GROUPS, "global", patched)
    with pytest.raises(KeyboardInterrupt):
        probe.run("global", row="LDS", path=path)
    assert [record["row"] for record in load(path)["records"]] == ["LDS 32", "LDS 64"]


OTHERS = [
    ({"warps": (1, 4)}, "warps is 1,4, but {} was measured with 1,8; resume with these, or name "),
    ({"ilp": (3,)}, "ilp is 3, but {} was measured with 1,2; resume with these, or name "),
    ({"chain": ("c", "a0")}, "chain is a0,c, but {} was measured with c; resume with these, or "),
]


@pytest.mark.parametrize(("changes", "sentence"), OTHERS)
def test_a_file_of_other_options_is_refused(gpu, tmp_path, changes, sentence):
    path = tmp_path / "probe.json"
    own = {"warps": (1, 8), "ilp": (1, 2), "chain": ("c",)}
    row = "mma.m16n8k8.f16.f16.f16"
    first = probe.run("mma", row=row, path=path, **own)
    before = path.read_text()
    with pytest.raises(ValueError, match=re.escape(sentence.format(path))):
        probe.run("mma", row=row, path=path, resume=True, **own | changes)
    assert path.read_text() == before
    resumed = probe.run("mma", row=row, path=path, resume=True, **own)
    assert len(resumed["records"]) == len(first["records"])


def test_the_command_refuses_a_file_of_other_options(gpu, tmp_path, capsys):
    path = tmp_path / "probe.json"
    options = ["probe", "global", "--row", "LDS 32", "--json", str(path)]
    assert cli.main([*options, "--warps", "1,2"]) == 0
    with pytest.raises(SystemExit):
        cli.main([*options, "--resume"])
    assert capsys.readouterr().err.endswith(
        f"error: warps is 1,2,4,6,8,12,16,32, but {path} was measured with 1,2; resume with these, "
        "or name another file.\n"
    )
