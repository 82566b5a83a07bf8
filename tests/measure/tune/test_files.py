"""The files of tcgemm.tune: which are taken, which are ignored, and how they change."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm import _driver, _library
from tcgemm.ops import tuned

GPU, RELEASE = "NVIDIA H200", "570.86.15"
ROW = "sm90a_bf16_f32_64x64x64_w1_s12_tn"
PRODUCT = "bf16 (accumulator f32), TN, m 16 n 4096 k 14336"


def row(kernel=f"{ROW}@1/5", product=PRODUCT):
    return {"product": product, "kernel": kernel, "us": 20.0, "planned": "", "planned_us": 25.0}


def store(*rows, gpu=GPU):
    return tuned.store(gpu, "H200", {entry["product"]: entry for entry in rows})


def told():
    a, b = torch.empty(16, 14336, device="meta"), torch.empty(4096, 14336, device="meta")
    return tcgemm.explain(a.bfloat16(), b.bfloat16().t(), device="H200")


def change(path: Path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_file_is_taken(caplog):
    path = store(row())
    plan = told()
    assert (plan.kernel, plan.slices, plan.tuned) == (ROW, 5, True)
    assert not caplog.messages
    content = json.loads(path.read_text())
    assert content["products"] == [row()]
    header = {"format": 1, "gpu": GPU, "device": "H200", "driver": RELEASE}
    assert header.items() <= content.items()


ENDS = ("@1/1", "@8/1", "@4/64", "@1x8/1", "@2x2/3", "@2x4/1^T", "@1/1^T", "@1/8c", "@1/2c^T")
OTHER_ENDS = ("", "^T", "@1^T", "@1/1^t", "@1/1^T^T", "@1^T/1", "@3/1", "@2x1/1", "@4x4/1", "@2/2c")


def test_kernels_that_a_file_may_have():
    for end in ENDS:
        assert tuned.KERNEL.fullmatch(ROW + end), end
        assert tcgemm.ops.query.ask("_set_tuned", "H200", PRODUCT, ROW + end), end
    for end in (*OTHER_ENDS, "@2x2/1c", "@1/9c", "@1/0", "@1/100"):
        assert not tuned.KERNEL.fullmatch(ROW + end), end


def test_nothing_is_hashed_without_a_file(monkeypatch):
    monkeypatch.setattr(tuned, "library_hash", lambda: 1 / 0)
    assert not told().tuned
    tuned.load([GPU])


def test_files_are_read_when_cuda_starts(monkeypatch, caplog):
    store(row())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: GPU)
    monkeypatch.setattr(_driver, "gpu_names", list)
    assert not told().tuned
    tuned._load_at_start()
    assert told().tuned
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 / 0)
    tuned._load_at_start()  # CUDA starts even so
    assert caplog.messages == [
        "tcgemm: the files of tcgemm.tune could not be read: division by zero"
    ]


BROKEN = {
    "half of it": lambda path: path.write_text(path.read_text()[:100]),
    "empty": lambda path: path.write_text(""),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a list": lambda path: path.write_text("[]"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "another format": lambda path: change(path, format=2),
    "no driver": lambda path: change(path, driver=None),
    "no products": lambda path: change(path, products={}),
    "a row without a kernel": lambda path: change(path, products=[{"product": PRODUCT}]),
    "a row that is no name": lambda path: change(path, products=[row("sm90a; rm@1/1")]),
    "a kernel that is not there": lambda path: change(path, products=[row("sm90a_none@1/1")]),
    "clusters of two that add slices": lambda path: change(path, products=[row(f"{ROW}@2/4c")]),
    "an empty product": lambda path: change(path, products=[row(product="")]),
    "another GPU": lambda path: change(path, gpu="NVIDIA A100"),
    "another driver": lambda path: change(path, driver="535.1"),
    "another library": lambda path: change(path, library="0" * 64),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_taken_is_ignored_with_one_line(name, caplog):
    path = store(row())
    BROKEN[name](path)
    for _ in range(3):
        assert not told().tuned
        tuned.load([GPU])
    (line,) = caplog.messages
    assert line.startswith(f"tcgemm: {path} is ignored: ") and "\n" not in line
    assert line.endswith("`tcgemm tune` measures anew, and with --clear it removes such files.")


STALE = (
    (_driver, "release", f"it is for the driver {RELEASE}, but here is 580.1. "),
    (tuned, "library_hash", f"it is for another build than {_library.path()}. "),
)


@pytest.mark.parametrize(("module", "name", "reason"), STALE)
def test_a_stale_file_is_ignored_with_one_line(module, name, reason, monkeypatch, caplog):
    """After an update its name is another one as well."""
    old_path = store(row())
    monkeypatch.setattr(module, name, lambda: "580.1")
    assert not told().tuned
    assert len(caplog.messages) == 1 and reason in caplog.messages[0]
    tuned.forget()
    caplog.clear()
    new_path = store(row())
    assert new_path != old_path and told().tuned and not caplog.messages


def test_files_of_other_gpus_are_not_read(caplog):
    store(row(), gpu="NVIDIA H200 NVL").write_text("broken")
    store(row(), gpu="NVIDIA H100 80GB HBM3")
    assert not told().tuned and not caplog.messages


def test_rows_are_replaced_and_removed():
    store(row())
    store(row(f"{ROW}@1/4"), row(product="another"))
    path = tuned.store(GPU, "H200", {"another": None, "third": row(product="third")})
    products = json.loads(path.read_text())["products"]
    assert [product["product"] for product in products] == [PRODUCT, "third"]
    assert products[0]["kernel"] == f"{ROW}@1/4"
    path.write_text("broken")
    store(row(product="another"))
    assert [product["product"] for product in tuned.read(path)["products"]] == ["another"]


def test_a_write_that_fails_leaves_the_file(cache, monkeypatch):
    path = store(row())
    before = path.read_text()
    monkeypatch.setattr(os, "replace", lambda *names: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store(row(f"{ROW}@1/4"))
    assert path.read_text() == before and os.listdir(cache) == [path.name]


def test_processes_that_store_at_once_lose_nothing():
    def store_some(first):
        for index in range(first, first + 10):
            store(row(product=f"product {index}"))

    tuned.library_hash()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=store_some, args=(first,)) for first in (0, 10, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(tuned.read(tuned.path_of(GPU))["products"]) == 30


def test_the_folder(monkeypatch, cache):
    assert tuned.folder() == cache
    monkeypatch.delenv("TCGEMM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/caches")
    assert tuned.folder() == Path("/some/caches/tcgemm")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert tuned.folder() == Path("/home/someone/.cache/tcgemm")


def test_planned_kernels_are_without_choices_and_clear_removes_all():
    store(row())
    assert told().tuned
    with tuned.planned_kernels(GPU):
        assert not told().tuned
        store(row(f"{ROW}@1/4"))
    assert told().slices == 4
    store(row(), gpu="NVIDIA A100")
    assert len(tcgemm.measure.tune.clear()) == 2 and not tuned.paths()
    assert not told().tuned
