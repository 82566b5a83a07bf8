"""Every command of README.md and docs/ is run, or stands in NOT_RUN with a reason.

A command of tcgemm and of benchmarks that is not run is still parsed by its own parser, and a
target of the Makefile is run dry.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from benchmarks import __main__ as benchmarks_command
from tcgemm import cli

from support import pages
from support.source_tree import ROOT

FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = {
    re.sub(r"^python -m tcgemm\b", "tcgemm", command): str(path.relative_to(ROOT))
    for path in FILES
    for command in pages.commands(str(path.relative_to(ROOT)))
    if "..." not in command  # a form of a command, and not one that a reader copies
}
RUN = (
    r"tcgemm|tcgemm --help|tcgemm explain .*|tcgemm model .*|tcgemm tune --(show|clear)|"
    r"tcgemm notebooks .*|git grep .*"
)
NOT_RUN = {
    r"sudo .*": "needs root",
    r"(\S+=\S+ )*pip .*": "changes the environment; tests/repo/test_wheel.py installs a wheel",
    r"(\S+=\S+ )*python setup\.py .*": "builds for minutes; the tests run on what it built",
    r"(\S+=\S+ )*python -m pytest .*": "the tests themselves",
    r"(\S+=\S+ )*python program\.py": "stands for the reader's program",
    r"torchrun .*": "tests/distributed runs the blocks of these pages in several processes",
    r"git (tag|diff) .*": "changes or shows the checkout of whoever makes a release",
    r"python -m twine .*": "publishes",
    r"python tests/support/\S+\.py .*": "compares or damages a whole build; tests/support has them",
    r"(\S+=\S+ )*make .*": "run dry",
    r"tcgemm 0\.1\.0": "the first line of an output",
    r"tcgemm (model|ladder|probe|bench)": "the name of a command; its page has examples",
    r"tcgemm (probe|ladder) .*": "needs a GPU; tests/lab runs them with a recorded one",
    r"tcgemm (compare|bench|tune) .*": "takes minutes on a CPU; tests/measure has small sizes",
    r"tcgemm (demo|numerics all)": "takes long; the nightly test below runs it",
    r"tcgemm model blocking --gpu h200\.json": "reads the file of a probe",
    r"tcgemm numerics .*": "tests/numerics runs each experiment",
    r"python -m benchmarks( .*)?": "measures, or writes files of the checkout; tests/measure/bench",
}


class Parsed(Exception):
    """The arguments were accepted."""


def has_reason(command: str) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in NOT_RUN)


def is_run(command: str) -> bool:
    return bool(re.fullmatch(RUN, command)) and not has_reason(command)


def test_commands_are_found():
    names = {"tcgemm", "tcgemm explain --help", "make demo", "make test", "pip install ."}
    assert names <= {*COMMANDS} and len(COMMANDS) > 100


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_runs_or_has_a_reason(command):
    assert is_run(command) or has_reason(command), COMMANDS[command]


def test_every_reason_is_needed():
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command) for command in COMMANDS), pattern


@pytest.mark.parametrize("command", sorted(filter(is_run, COMMANDS)))
def test_a_command_runs(command, tmp_path, monkeypatch, capsys):
    program, *arguments = shlex.split(command)
    if program == "git":
        if not (ROOT / ".git").exists() or not shutil.which("git"):
            pytest.skip("no checkout of git")
        assert subprocess.run([program, *arguments], cwd=ROOT, capture_output=True).stdout
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCGEMM_CACHE_DIR", str(tmp_path))
    try:
        assert cli.main(arguments) == 0
    except SystemExit as end:  # of --help
        assert end.code == 0
    assert capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["tcgemm demo", "tcgemm numerics all"])
def test_a_long_command_runs(command):
    assert command in COMMANDS
    words = [sys.executable, "-m", *shlex.split(command)]
    process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert process.returncode == 0 and process.stdout, process.stdout + process.stderr


def parsed(command: str) -> bool:
    if command.startswith("python -m benchmarks ") or re.fullmatch(r"tcgemm \w+ .*", command):
        return not is_run(command)
    return False


@pytest.mark.parametrize("command", sorted(filter(parsed, COMMANDS)))
def test_the_options_of_a_command_exist(command, monkeypatch):
    whole = argparse.ArgumentParser.parse_args

    def parse(self, *arguments, **options):
        whole(self, *arguments, **options)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    arguments = shlex.split(command)
    main = cli.main if arguments[0] == "tcgemm" else benchmarks_command.main
    with pytest.raises(Parsed):
        main(arguments[1 if arguments[0] == "tcgemm" else 3 :])


MAKE = sorted(command for command in COMMANDS if re.search(r"\bmake \w", command))


@pytest.mark.parametrize("command", [command for command in MAKE if command[0] != "s"])
def test_a_target_is_made_of_commands(command):
    dry = command.replace("make ", "make -n ")
    process = subprocess.run(dry, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0 and process.stdout, process.stderr
