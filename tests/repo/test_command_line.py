"""The command `tcgemm` in a pipe that ends, after Ctrl-C, and on a terminal that knows ASCII."""

import io
import os
import signal
import subprocess
import sys

import pytest
import torch

import tcgemm
from tcgemm import __main__ as program
from tcgemm.lab import store
from tcgemm.lab.ladder import command as ladder
from tcgemm.lab.probe import command as probe
from tcgemm.measure import run as bench
from tcgemm.measure import timing
from tcgemm.measure.command_line import Interrupted
from tcgemm.measure.compare import Comparison

SMALL = ["--dtypes", "f32", "--against", "torch", "--seconds", "0.004", "--device", "cpu"]
COMPARE = ["compare", "--shapes", "8x8x8,8x8x16,8x8x24", *SMALL]
SMOKE = ["bench", "--set", "smoke", "--dtype", "f32", "--layout", "TN", "--ms", "1"]
SMOKE += ["--device", "cpu", "--max-size", "64"]
# Each command with arguments that take no time; the demo trains, and has tests of its own.
COMMANDS = [
    [],
    ["--help"],
    ["--support-table"],
    COMPARE,
    [*SMOKE, "--dry-run"],
    ["tune", "--show"],
    ["explain", "64", "64", "64"],
    ["numerics", "formats"],
    ["model", "blocking"],
    ["probe", "mma"],
    ["probe", "instructions"],
    ["ladder", "000"],
    ["ladder", "000", "--steps"],
]


def call(monkeypatch, arguments, stdout):
    """The exit status of a command that writes into this stream."""
    monkeypatch.setattr(sys, "argv", ["tcgemm", *arguments])
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with open(os.devnull, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        try:
            return program.main()
        except SystemExit as end:
            return end.code


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_terminal_that_knows_ascii(monkeypatch, arguments):
    buffer = io.BytesIO()
    stdout = io.TextIOWrapper(buffer, encoding="ascii", write_through=True)
    assert not call(monkeypatch, arguments, stdout)
    assert buffer.getvalue().isascii() and len(buffer.getvalue()) > 30
    if arguments == COMPARE:
        assert b" +- %" in buffer.getvalue()


def test_other_characters_are_spelled():
    stream = io.TextIOWrapper(buffer := io.BytesIO(), encoding="ascii", errors="tcgemm.spelled")
    stream.write("3 ± 1, blöck")
    stream.flush()
    assert buffer.getvalue() == rb"3 +- 1, bl\xf6ck"
    error = UnicodeDecodeError("ascii", b"\xff", 0, 1, "no")
    with pytest.raises(UnicodeDecodeError):
        program.spelled(error)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_has_ended(monkeypatch, arguments):
    """As in `tcgemm ... | head -1`: no traceback, and the status of a process that SIGPIPE ends."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        assert call(monkeypatch, arguments, stdout) == 141


def interrupting(function, calls):
    """The function, which raises KeyboardInterrupt in the call after so many."""
    count = iter(range(calls))

    def call(*arguments, **options):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return call


def test_compare_prints_what_it_measured_before_an_interrupt(monkeypatch):
    monkeypatch.setattr(timing, "measure", interrupting(timing.measure, 2))
    stdout = io.StringIO()
    assert call(monkeypatch, COMPARE, stdout) == 130
    assert "8x8x16" in stdout.getvalue() and "8x8x24" not in stdout.getvalue()


def test_bench_prints_its_summary_before_an_interrupt(monkeypatch):
    monkeypatch.setattr(bench.Run, "measure", interrupting(bench.Run.measure, 1))
    stdout = io.StringIO()
    assert call(monkeypatch, SMOKE, stdout) == 130
    assert "Interrupted; --resume goes on." in stdout.getvalue()
    assert " cases done, 0 failed or wrong." in stdout.getvalue()


@pytest.mark.parametrize(
    ("command", "measures", "results", "arguments"),
    [
        (probe, (probe, "measure"), lambda: probe.expand(stored("probe")), ["mma"]),
        (ladder, (ladder.measure, "run"), lambda: stored("ladder"), ["000"]),
    ],
    ids=["probe", "ladder"],
)
def test_instruments_print_what_they_measured(monkeypatch, command, measures, results, arguments):
    def stopped(*arguments, **options):
        raise Interrupted(results())

    monkeypatch.setattr(*measures, stopped)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sys, "stdout", stdout := io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        command.run(arguments)
    assert len(stdout.getvalue().splitlines()) > 10


def stored(kind):
    """The stored results of the first GPU."""
    return next(iter(store.results(kind).values()))


def test_a_signal_in_a_process_of_its_own():
    shapes = ",".join(f"16x16x{8 * k}" for k in range(1, 400))
    command = [sys.executable, "-m", "tcgemm", "compare", "--shapes", shapes, *SMALL]
    # A shell's background jobs ignore SIGINT, and so would this process.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    first = next(line for line in process.stderr if line.startswith("3 of "))
    process.send_signal(signal.SIGINT)
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "x torch" in first
    assert text.startswith("tcgemm ") and "16x16x24" in text and "16x16x3192" not in text
    assert errors.splitlines()[-1] == "tcgemm: interrupted" and "Traceback" not in errors


def test_an_interrupted_comparison_has_its_rows(monkeypatch):
    monkeypatch.setattr(timing, "measure", interrupting(timing.measure, 1))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 16))
    with pytest.raises(KeyboardInterrupt) as caught:
        tcgemm.compare(model, torch.zeros(2, 8), seconds=0.004, progress=False)
    result = caught.value.result
    assert isinstance(result, Comparison) and len(result.rows) == 1
    assert result.facts["model"]["swapped"] == 2
