"""The kernels that tcgemm.tune has chosen: a JSON file for each GPU, driver and library.

    {"format": 1, "gpu": "NVIDIA H200", "device": "H200", "driver": "570.86.15", "library": SHA-256,
     "products": [{"product": "bf16 (accumulator f32), TN, m 16 n 4096 k 4096",
                   "kernel": "sm90a_bf16_f32_64x32x64_w1_s18_tn_shares_a@1/2",
                   "us": 11.2, "planned": "...", "planned_us": 12.9, "date": "..."}]}

`product` is the name that explain gives to the product, and `kernel` is a row of the catalog, its
cluster and its slices of k, and "^T" where a and b are swapped: "...@2x2/1^T". `device` is the name
by which the planner knows the GPU. The files are read when CUDA starts, or when explain is asked
before; the planner then takes their kernels. A file that cannot be taken is left out, and the log
says why in one line.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tcgemm import _driver, _library
from tcgemm.ops import query
from tcgemm.ops._torch_private import at_start_of_cuda

FORMAT = 1
# "c": a cluster adds the slices; "^T": a and b are swapped.
KERNEL = re.compile(r"\w+@(([1248]|[124]x2|[12]x4|1x8)/([1-9]\d?|streamk)|1/[2-8]c)(\^T)?")
Row = dict[str, Any]
_log = logging.getLogger("tcgemm")
_looked: set[str] = set()  # the GPUs whose files were looked for
_asked = False  # which GPUs there are, for explain


class Unusable(Exception):
    """A file that cannot be taken; the text says why."""


def folder() -> Path:
    """The folder of the files: TCGEMM_CACHE_DIR, or tcgemm in the user's folder of caches."""
    if path := os.environ.get("TCGEMM_CACHE_DIR"):
        return Path(path)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tcgemm"


@functools.cache
def library_hash() -> str:
    """The SHA-256 of the operator library."""
    with _library.path().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stem(gpu: str) -> str:
    return "tuned-" + re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-")


def path_of(gpu: str) -> Path:
    """The file for a GPU, by the driver's name of it, with this driver and this library."""
    key = hashlib.sha256("\n".join((gpu, _driver.release(), library_hash())).encode())
    return folder() / f"{_stem(gpu)}-{key.hexdigest()[:16]}.json"


def paths_of(gpu: str) -> list[Path]:
    """The files for a GPU, with any driver and any library."""
    return sorted(folder().glob(f"{_stem(gpu)}-{'[0-9a-f]' * 16}.json"))


def paths() -> list[Path]:
    """The files for every GPU."""
    return sorted(folder().glob("tuned-*.json"))


def read(path: Path) -> dict[str, Any]:
    """The content of a file, whichever GPU, driver and library it is for."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Unusable(f"it is no JSON file: {error}".replace("\n", " ")) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Unusable(f"its format is not {FORMAT}")
    for name in ("gpu", "device", "driver", "library"):
        if not isinstance(content.get(name), str) or not content[name]:
            raise Unusable(f"it has no {name}")
    rows = content.get("products")
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise Unusable("its products are not those that tcgemm.tune writes")
    return content


def _is_row(row: Any) -> bool:
    texts = isinstance(row, dict) and all(
        isinstance(row.get(name), str) for name in ("product", "kernel")
    )
    return texts and bool(row["product"]) and KERNEL.fullmatch(row["kernel"]) is not None


def read_for(path: Path, gpu: str) -> dict[str, Any]:
    """The content of a file that has to be for this GPU, this driver and this library."""
    content = read(path)
    for name, here in (("GPU", gpu), ("driver", _driver.release())):
        if content[name.lower()] != here:
            raise Unusable(
                f"it is for the {name} {content[name.lower()]}, but here is {here or None}"
            )
    if content["library"] != library_hash():
        raise Unusable(f"it is for another build than {_library.path()}")
    return content


def _taken_from(gpu: str) -> Path | None:
    """Gives the choices for a GPU to the planner. Returns their file, if there is one."""
    files = paths_of(gpu)
    if not files:
        return None
    path = path_of(gpu)
    # Without a file for this driver and this library, one for others says what has changed.
    path = path if path in files else files[-1]
    try:
        content = read_for(path, gpu)
        for row in content["products"]:
            if not query.ask("_set_tuned", content["device"], row["product"], row["kernel"]):
                raise Unusable(f"the library has no kernel {row['kernel']}")
    except Unusable as error:
        _log.warning(
            "tcgemm: %s is ignored: %s. `tcgemm tune` measures anew, and with --clear "
            "it removes such files.",
            *(path, error),
        )
        return None
    return path


def load(gpus: Iterable[str]) -> None:
    """Gives the choices for these GPUs to the planner, once for each GPU."""
    for gpu in gpus:
        if gpu not in _looked:
            _looked.add(gpu)
            _taken_from(gpu)


def load_for_explain() -> None:
    """Gives the choices for this machine's GPUs to the planner; CUDA need not have started."""
    global _asked
    if _asked:
        return
    _asked = True
    with contextlib.suppress(OSError):
        if paths():
            load(_driver.gpu_names())


def _load_at_start() -> None:
    try:
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        load(dict.fromkeys(names))
    except Exception as error:  # CUDA must start in any case
        _log.warning("tcgemm: the files of tcgemm.tune could not be read: %s", error)


def load_when_cuda_starts() -> None:
    """Gives the choices to the planner once torch starts CUDA, or now if it has."""
    at_start_of_cuda(_load_at_start)


def forget() -> None:
    """Takes all choices from the planner. The next load reads the files again."""
    global _asked
    query.ask("_set_tuned", "", "", "")
    _looked.clear()
    _asked = False


@contextlib.contextmanager
def planned_kernels(gpu: str) -> Iterator[None]:
    """Inside, the planner has no choices. Afterwards the files are read again, also a new file of
    `gpu`."""
    _looked.add(gpu)
    query.ask("_set_tuned", "", "", "")
    try:
        yield
    finally:
        gpus = list(_looked)
        forget()
        load(gpus)


def store(gpu: str, device: str, rows: Mapping[str, Row | None]) -> Path:
    """Adds rows to the file of a GPU, by their products; None removes one. Returns its path.

    The file is replaced as a whole, so that no process reads a part of it. Processes that store at
    the same time wait for one another.
    """
    path = path_of(gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        stored: dict[str, Row] = {}
        with contextlib.suppress(Unusable):
            stored = {row["product"]: row for row in read_for(path, gpu)["products"]}
        for product, row in rows.items():
            stored.pop(product, None)
            if row is not None:
                stored[product] = row
        header = {"format": FORMAT, "gpu": gpu, "device": device}
        header |= {"driver": _driver.release(), "library": library_hash()}
        _replace(path, json.dumps({**header, "products": list(stored.values())}, indent=1) + "\n")
    return path


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    handle = os.open(place, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tuned-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def clear() -> list[Path]:
    """Removes every file, and takes all choices from the planner. Returns what was removed."""
    removed = paths()
    for path in removed:
        path.unlink(missing_ok=True)
    forget()
    return removed
