"""Measures training steps and decode of Llama-like models, for the set `models` of `run`.

    --set models                            all models, tasks and variants
    --set models --models 8B --tasks train  one model, one task
    --set models --models smoke --device cpu    a tiny model, in seconds
    --set models --variants Linear,use      these variants beside torch
    --set models --resume                   the cases that this commit lacks
    --set models --dry-run                  what would be measured, and the stored results

cases.py has the models and tasks, variants.py the variants. A case is written as soon as it is
measured. A variant that fails has the reason in its rows, and the others are measured. Without a
GPU nothing is measured but the model `smoke`. `python -m benchmarks report` and `pictures` show the
file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import benchmarks
from benchmarks.models import cases, record, variants
from benchmarks.models.measure import WARM_UP, Conditions, measure
from tcgemm.measure import command_line, machine, results_file, telemetry
from tcgemm.measure.run import comma, gpu_is_lost

SET = "models"
METHOD = (
    "random weights; training: a step from Python that is waited for, bf16 weights, fused AdamW, "
    f"after {WARM_UP + 1} steps that do not count; decode: the step of one token, the earlier ones "
    "in a static cache; graph: a CUDA graph of such steps, eager: called from Python and waited "
    "for; variants in alternating slices of one process, medians and quartiles"
)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line."""
    parser = command_line.parser("benchmarks run", __doc__)
    tasks = (variants.TRAIN, variants.DECODE)
    parser.add_argument("--set", type=comma, required=True, help="models")
    parser.add_argument(
        "--models", type=comma, default=cases.DEFAULT, help=f"of {', '.join(cases.MODELS)}"
    )
    parser.add_argument("--tasks", type=comma, default=tasks, help=f"of {', '.join(tasks)}")
    names = f"beside torch: of {', '.join(variants.BY_NAME)}"
    parser.add_argument("--variants", type=comma, default=(), help=names)
    parser.add_argument("--layers", type=int, help=f"decoder blocks ({cases.LAYERS})")
    parser.add_argument("--steps", type=int, default=20, help="of a training (%(default)s)")
    parser.add_argument("--ms", type=float, default=400.0, help="of a variant in decode (400)")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (8)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (0)")
    parser.add_argument("--resume", action="store_true", help="skip cases of this commit")
    parser.add_argument("--out", type=Path, help="file, or folder for models/<gpu>.json")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--dry-run", action="store_true", help="measure nothing")
    parser.add_argument("--commit", help="the measured commit, where there is no git")
    options = parser.parse_args(argv)
    if options.set != (SET,):
        sets = ", ".join(name for name in options.set if name != SET)
        parser.error(f"--set {SET} runs alone, since it has options of its own; leave out {sets}.")
    for choices, words, option in (
        (options.models, cases.MODELS, "--models"),
        (options.tasks, tasks, "--tasks"),
        (options.variants, variants.BY_NAME, "--variants"),
    ):
        for name in choices:
            if name not in words:
                parser.error(f"{option} {name}: there are {', '.join(words)}.")
    for name, value, least in (
        ("--layers", options.layers, 1),
        ("--steps", options.steps, 1),
        ("--ms", options.ms, 1),
    ):
        if value is not None and value < least:
            parser.error(f"{name} {value:g}: expected at least {least}.")
    options.device = options.device or command_line.default_device()
    kind = options.device.partition(":")[0]
    if kind not in ("cuda", "cpu"):
        parser.error(f"--device {options.device}: expected cuda, cuda:1 or so, or cpu.")
    if kind == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU; leave it out, or take --device cpu.")
    return options


def announce(selection: Sequence[cases.Case], options: argparse.Namespace) -> None:
    """Prints what would be measured."""
    for case in selection:
        names = [variant.name for variant in variants.select(case.task, options.variants)]
        size = f"{case.weights / 1e9:.2f} billion weights"
        print(f"{case.name}, {size}: {', '.join(names)}")


def line(row: record.Row) -> str:
    """One row as text."""
    text = f"  {row['variant']:24} {row['mode']:6}"
    if row["us"] is None:
        return f"{text} {row['failure']}"
    half = 50 * (row["high_us"] - row["low_us"]) / row["us"]
    text += f" {row['us'] / 1e3:9.3f} ms +-{half:.1f} %  {row['tokens_per_second']:9.0f} tokens/s"
    text += f"  {row['ratio']:.3f} x torch" if row["ratio"] else ""
    text += f"  {row['peak_bytes'] / 1e9:.2f} GB" if row["peak_bytes"] else ""
    if row["loss"] is not None:
        text += f"  loss {row['loss']:.4f} after {row['steps']} steps"
    return text + ("" if row["error"] is None else f"  error {row['error']:g}")


def print_stored(folder: Path) -> None:
    """Prints the stored results of every GPU."""
    for path in sorted((folder / record.FOLDER).glob("*.json")):
        results = record.load(path)
        print(f"\nstored: {results['header'].get('gpu')}, {path}")
        before = None
        for row in results["rows"]:
            place = f"{row['model']}, {row['blocks']} blocks: "
            place += f"{row['task']} {row['batch']} x {row['tokens']}"
            if place != before:
                print(place)
            before = place
            print(line(row))


def path_of(options: argparse.Namespace, gpu: str) -> Path | None:
    """The file of results. Those of `smoke` are stored only where --out says so."""
    if options.out is not None:
        path: Path = options.out
        return path if path.suffix == ".json" else record.path_of(gpu, path)
    return None if cases.SMOKE in options.models else record.path_of(gpu, benchmarks.RESULTS)


def is_done(case: cases.Case, rows: list[record.Row], options: argparse.Namespace) -> bool:
    """Have all variants and modes of the case rows with times?"""
    expected = {
        (mode, variant.name)
        for mode in case.modes(torch.device(options.device))
        for variant in variants.select(case.task, options.variants)
    }
    place = (case.model, case.sizes.blocks, case.task, case.batch, case.tokens)
    rows_done = {
        (row["mode"], row["variant"])
        for row in rows
        if tuple(row[name] for name in record.CASE[1:6]) == place
        and row["commit"] == options.commit
        and row["us"] is not None
    }
    return expected <= rows_done


def main(argv: Sequence[str] | None = None) -> int:
    """Measures the cases of a command line; returns 1 if a variant failed, else 0."""
    options = parse(argv)
    selection = cases.cases(options.models, options.tasks, options.layers)
    device = torch.device(options.device)
    without_gpu = device.type != "cuda" and any(name != cases.SMOKE for name in options.models)
    if options.dry_run or without_gpu:
        if without_gpu and not options.dry_run:
            print("These models need a GPU (on the CPU: --models smoke). On one, this measures:")
        announce(selection, options)
        print_stored(benchmarks.RESULTS)
        return 0
    options.commit = options.commit or results_file.commit()
    gpu = machine.gpu_name(device)
    path = path_of(options, gpu)
    try:
        results = record.load(path) if path else record.empty()
    except ValueError as error:
        print(error)
        return 2
    if options.resume:
        selection = [case for case in selection if not is_done(case, results["rows"], options)]
    results["header"] = machine.facts(device) | {"method": METHOD, "seed": options.seed}
    print(f"{gpu}, torch {torch.__version__}, commit {options.commit} -> {path or 'not stored'}")
    conditions = Conditions(
        device,
        options.commit,
        options.steps,
        options.ms,
        options.seed,
        reader=telemetry.open_reader(device),
    )
    stop, failures, count = time.monotonic() + 60 * options.minutes, 0, 0
    for case in selection:
        if time.monotonic() > stop:
            print(f"{options.minutes:g} minutes are over; --resume goes on.")
            break
        print(f"{case.name}, {case.weights / 1e9:.2f} billion weights", flush=True)
        rows = measure(case, variants.select(case.task, options.variants), conditions)
        results["models"][case.model] = asdict(case.sizes)
        for row in rows:
            record.put(results, row)
            print(line(row), flush=True)
        if path:
            record.save(results, path)
        failures += sum(row["us"] is None for row in rows)
        count += 1
        if gpu_is_lost(device.type):
            print("The GPU no longer answers (see the errors above): nothing more can be measured.")
            break
    print(f"{count} of {len(selection)} cases done, {failures} rows failed.")
    return 1 if failures else 0
