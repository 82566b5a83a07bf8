"""Results like the results of an H200, without one."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks import __main__ as command
from benchmarks import current, report, targets
from tcgemm.measure import results
from tcgemm.measure.cases import GROUPS
from tcgemm.measure.cases import cases as cases_of
from tcgemm.measure.results import Results
from tcgemm.measure.work import TORCH, baseline_name, case_fields
from tcgemm.measure.workloads import SELF_BASELINES

HEADER = {"gpu": "NVIDIA H200", "driver": "1", "torch": "2", "cuda": "13.0"}


def row(case, us, ratios=None, **fields):
    """A row of a case that took `us`, by the kernel that the planner takes."""
    ratios = ratios or {}
    rate = round(case.flops / us / 1e6, 1) if case.graph and case.flops else None
    names = {TORCH: baseline_name(case)}
    baselines = {
        name: {"name": names.get(name, name), "us": us * ratio, "iqr_us": 0.1}
        for name, ratio in ratios.items()
    }
    measured = {
        "kernel": current.planned(case, "H200")[1],
        "us": us,
        "iqr_us": 0.1,
        "tflops": rate,
        "ratios": ratios,
        "baselines": baselines,
        "max_error_ratio": 0.9,
        "exact": True,
        "commit": "abc",
        "clock_mhz": 1500.0,
        "power_w": 690.0,
        "date": "today",
    }
    return case_fields(case, "cuda") | results.EMPTY | measured | fields


def row_of_model(of_set, variant, us, **fields):
    """A row of a variant of the model 8B in the set `models` or `swap`."""
    task = {"models": "decode", "swap": "forward"}[of_set]
    case = {"set": of_set, "function": variant, "graph": True, "task": task, "model": "8B"}
    case |= {"blocks": 4, "batch": 1, "tokens": 1024}
    return case | results.EMPTY | {"us": us, "commit": "abc"} | fields


def run_on_cpu(path, *arguments):
    """(status, rows) of `python -m benchmarks run` on the CPU, which stores in a file."""
    usual = ("--device", "cpu", "--ms", "1", "--commit", "abc", "--out", str(path))
    status = command.main(["run", *usual, *arguments])
    return status, Results.load(path).rows


def with_fault(work, fault):
    """The same workload; `fault` changes each result of tcgemm."""
    original = work.call_tcgemm

    def call_tcgemm(index):
        result = original(index)
        fault(result)
        return result

    work.call_tcgemm = call_tcgemm
    return work


def repeated(result):
    """The row of three equal repetitions."""
    (part,) = results.repetitions(result)
    return results.combined(result, [part | {"date": str(day)} for day in range(3)])


def change(result, name, ratios):
    """Gives the repetitions of a row these ratios to a baseline."""
    for part, ratio in zip(result["repetitions"], ratios, strict=True):
        part["ratios"] = part["ratios"] | {name: ratio}
    result["ratios"] = result["ratios"] | {name: sorted(ratios)[len(ratios) // 2]}


def synthetic():
    rows = []
    for name in ("squares", "small-m", "batch", "epilogue"):
        for index, case in enumerate(cases_of(name)):
            us = 10.0 + case.flops / 6e8
            ratio = round(4.0 if case.m % 8 else 0.9 + 0.02 * (index % 9), 3)
            rows.append(row(case, us, {TORCH: ratio}))
    return Results.of(rows, HEADER)


# The targets of the group `dtypes`.
TARGETS = [one for one in targets.TARGETS if one.fields["set"] in GROUPS["dtypes"]]


def measured(factor=1.0, name="dtypes", spread=0.0):
    """Results of the sets of a group, every ratio `factor` times a bit more than its target."""
    rows = []
    for case in (case for part in GROUPS[name] for case in cases_of(part)):
        us = (10.0 + case.flops / 6e8) * (1 + spread * (case.m % 2))
        fields = case_fields(case, "cuda")
        aims = [p.least for p in TARGETS if p.against == TORCH and p.is_about(fields)]
        ratios = {TORCH: factor * 1.0625 * max(aims, default=1.0)} if case.baseline else {}
        if case.self_baseline:
            ratios[SELF_BASELINES[case.self_baseline]] = 0.99 * factor
        rows.append(repeated(row(case, us, ratios)))
    return Results.of(rows, HEADER)


def highest(factor=1.0):
    """Results of the set `highest`, all `factor` times as fast as the targets."""
    rows = []
    for case in cases_of("highest"):
        us = 5.0 + case.flops / (1.1e8 if case.epilogue == "spread" else 2.2e8)
        least = {512: 1.2, 1024: 2.0}.get(case.m, 2.2 if case.epilogue == "spread" else 4.0)
        ratios = {TORCH: least * factor}
        if case.self_baseline:
            ratios[SELF_BASELINES[case.self_baseline]] = 1.1
        rows.append(repeated(row(case, us, ratios)))
    return Results.of(rows, HEADER)


@dataclass(frozen=True)
class ReportPages:
    """The pages that `python -m benchmarks report` writes, in a folder of their own."""

    root: Path

    @property
    def folder(self):
        """The folder of the results."""
        return self.root / "benchmarks/results"

    @property
    def first_pages(self):
        return [self.root / name for name in report.FIRST_PAGES]

    @property
    def page(self):
        return self.root / report.PAGE

    def write(self, *arguments):
        folders = ["--results", str(self.folder), "--root", str(self.root), "--no-plot"]
        assert report.main([*arguments, *folders]) == 0


def report_pages(folder, text=report.BEGIN + report.END):
    pages = ReportPages(folder)
    pages.folder.mkdir(parents=True)
    pages.page.parent.mkdir()
    for page in (*pages.first_pages, pages.page):
        page.write_text(text)
    return pages
