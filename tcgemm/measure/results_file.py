"""A file of results, <gpu>.json: the latest row of each case.

    {"header": {gpu, driver, torch, ...}        of the run that wrote last
     "rows":   [{op, dtype, ..., power_w}]      one row per case; its keys are KEYS and no others
     "details": {key: {...}}}                   spread, samples, date, repetitions (protocol.py);
                                                the error of a case that failed

In a row, `baseline`, `baseline_us` and `ratio` are the baseline's name, its time, and that time
divided by tcgemm's. In the details, `self_baseline`, `self_baseline_us` and `self_baseline_ratio`
are the same for the second baseline, another GEMM of tcgemm. The fields that begin with `dense`
belong to torch's dense GEMM, which is timed beside a sparse one.

A benchmark runs in several calls, on machines that keep nothing. So each row is written as soon as
it is measured, and two files are merged by the key of the case.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from tcgemm.version import __version__

Row = dict[str, Any]  # the fields KEYS


class Results(TypedDict):
    """The contents of a file of results, as the head of this module shows them."""

    header: dict[str, Any]
    rows: list[Row]
    details: dict[str, dict[str, Any]]


CHECKOUT = Path(__file__).resolve().parents[2]
CASE = (
    *("op", "dtype", "layout", "m", "n", "k", "batch"),
    *("accumulation", "epilogue", "graph", "set", "gpu"),
)
KEYS = (
    *("op", "dtype", "layout", "m", "n", "k", "batch", "kernel", "accumulation", "epilogue"),
    *("graph", "set", "us", "tflops", "baseline", "baseline_us", "ratio", "max_error_ratio"),
    *("exact", "gpu", "commit", "clock_mhz", "power_w"),
)


def key(row: Row) -> str:
    """The identity of a row's case: 'mm/bf16/TN/4096/4096/4096/1/f32/...'."""
    return "/".join(str(row[name]) for name in CASE)


def set_of(row: Row) -> str:
    """The set of a row without the seed that drew it: 'drawn-mm@1' -> 'drawn-mm'."""
    return row["set"].split("@")[0]


def file_name(gpu: str) -> str:
    """The name of the file for a GPU: 'NVIDIA H200' -> 'h200.json'."""
    words = [word for word in gpu.lower().split() if word != "nvidia"]
    return "-".join(words) + ".json"


def empty() -> Results:
    """Results without rows."""
    return {"header": {}, "rows": [], "details": {}}


def load(path: Path | str) -> Results:
    """The results of a file, or empty results if there is no such file.

    Raises ValueError if a row has other fields than KEYS.
    """
    path = Path(path)
    if not path.exists():
        return empty()
    results = json.loads(path.read_text())
    for row in results["rows"]:
        if tuple(row) != KEYS:
            raise ValueError(
                f"{path}: the row {row} does not have the keys of a result ({', '.join(KEYS)}); "
                "measure it again with python -m tcgemm bench."
            )
    return results


def put(results: Results, row: Row, detail: dict[str, Any]) -> None:
    """Adds a row, or replaces the row of the same case."""
    assert tuple(row) == KEYS, f"keys of a row: {tuple(row)}"
    name = key(row)
    rows = {key(stored_row): stored_row for stored_row in results["rows"]}
    rows[name] = row
    results["rows"] = list(rows.values())
    results["details"][name] = detail


def _order(row: Row) -> tuple[str, str, str, str, int, str]:
    size = row["batch"] * row["m"] * row["n"] * row["k"]
    return row["set"], row["op"], row["dtype"], row["layout"], size, key(row)


def save(results: Results, path: Path | str) -> None:
    """Writes a file with one row per line, so that git shows the rows that changed."""
    path = Path(path)
    rows = sorted(results["rows"], key=_order)
    names = [key(row) for row in rows]
    details = {name: results["details"].get(name, {}) for name in names}
    write(path, {"header": results["header"], "rows": rows, "details": details})


def encoded(content: Mapping[str, Any], *, allow_nan: bool = True) -> str:
    """The JSON of an object: each row of a list or dict of rows has a line, others are indented.

    So git shows the rows that changed.
    """
    dumps = functools.partial(json.dumps, allow_nan=allow_nan)
    fields = []
    for name, value in content.items():
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            text = "[\n" + ",\n".join(map(dumps, value)) + "\n]"
        elif isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()):
            lines = [dumps({key: row})[1:-1] for key, row in value.items()]
            text = "{\n" + ",\n".join(lines) + "\n}"
        else:
            text = dumps(value, indent=1 if isinstance(value, dict) else None)
        fields.append(f"{dumps(name)}: {text}")
    return "{" + ",\n".join(fields) + "}\n"


def write(path: Path, content: Mapping[str, Any], *, allow_nan: bool = True) -> None:
    """Writes the whole object or nothing. If the run is killed meanwhile, the old file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(encoded(content, allow_nan=allow_nan))
    os.replace(partial, path)


def to_resume(
    path: Path | str | None, resume: bool, gpu: str, load: Callable[[Path], dict[str, Any]]
) -> dict[str, Any] | None:
    """The records of the file that a run resumes, or None. ValueError: they are another GPU's."""
    if not resume or path is None or not Path(path).is_file():
        return None
    old = load(Path(path))
    if old["header"]["gpu"] != gpu:
        raise ValueError(
            f"{path} has records of {old['header']['gpu']}, and this GPU is {gpu}; "
            "name another file."
        )
    return old


def commit() -> str:
    """The last commit that changed the measured code, with a '+' if files differ from it.

    In an installed package this is the version, and in a copy of the sources without git it is
    'unknown'. Commits of results or of documentation do not count, so a run can resume after them.
    """
    if not (CHECKOUT / "csrc").is_dir():
        return __version__
    code = ("--", "csrc", "tcgemm", "setup.py", "setup_toolchain.py")
    try:
        last = _git("log", "-1", "--abbrev=10", "--format=%h", *code)
        changes = _git("status", "--porcelain", "--untracked-files=no", *code)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{last}{'+' if changes else ''}" if last else "unknown"


def _git(*arguments: str) -> str:
    process = subprocess.run(
        ["git", *arguments], check=True, cwd=CHECKOUT, capture_output=True, text=True, timeout=20
    )
    return process.stdout.strip()
