"""The examples of docs/guides/use.md run as they stand, one after another."""

from support import pages


def test_examples_run(capsys):
    pages.run("docs/guides/use.md")
    output = capsys.readouterr().out
    assert "5 products taken (100.0% of the FLOPs), 0 left to torch" in output
    assert "{'torch.float32 is not among dtypes': 2}" in output
    assert "torch is faster at the nearest size of the table, 32 x 10 x 128" in output
