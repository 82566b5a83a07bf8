"""The page about tcgemm.compare runs as it stands."""

from support import pages


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pages.run("docs/guides/compare.md")
    output = capsys.readouterr()
    assert "x product_in_halves" in output.out
    assert "the swap to tcgemm.nn.QuantLinear" in output.out and "12 of 12: " in output.err
