"""Results like the results of an H200, without one."""

from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import report, targets
from tcgemm.measure import protocol, results_file, workloads
from tcgemm.measure.cases import GROUPS
from tcgemm.measure.cases import cases as cases_of


def row(case, us, **fields):
    """A row of a case that took `us`."""
    defaults = {
        "kernel": "sm90a_bf16_f32_128x256x64_w2_s4_tn",
        "us": us,
        "tflops": round(case.flops / us / 1e6, 1) if case.graph and case.flops else None,
        "baseline": workloads.baseline_name(case) if case.baseline else None,
        "baseline_us": None,
        "ratio": None,
        "max_error_ratio": 0.9,
        "exact": True,
        "commit": "abc",
        "clock_mhz": 1500.0,
        "power_w": 690.0,
    }
    return workloads.as_row(case, "NVIDIA H200", defaults | fields)


def repeated(result, detail):
    """(row, detail) of three equal repetitions."""
    dated = [{**protocol.repetition(result, detail), "date": str(day)} for day in range(3)]
    return protocol.combined(result, detail, dated)


def synthetic():
    results = results_file.empty()
    results["header"] = {"gpu": "NVIDIA H200", "driver": "1", "torch": "2", "cuda": "13"}
    for name in ("squares", "small-m", "batch", "epilogue"):
        for index, case in enumerate(cases_of(name)):
            us = 10.0 + case.flops / 6e8
            ratio = round(4.0 if case.m % 8 else 0.9 + 0.02 * (index % 9), 3)
            result = row(case, us, baseline_us=us, ratio=ratio)
            results_file.put(results, result, {"date": "today"})
    return results


# The targets of the group `dtypes`.
TARGETS = [one for one in targets.TARGETS if one.fields["set"] in GROUPS["dtypes"]]


def measured(factor=1.0, name="dtypes", spread=0.0):
    """Results of the sets of a group, every ratio `factor` times a bit more than its target."""
    results = results_file.empty()
    results["header"] = {"gpu": "NVIDIA H200", "torch": "2"}
    for case in (case for part in GROUPS[name] for case in cases_of(part)):
        us = (10.0 + case.flops / 6e8) * (1 + spread * (case.m % 2))
        fields = asdict(case)
        aims = [p.least for p in TARGETS if not p.against and p.is_about(fields)]
        ratio = factor * 1.0625 * max(aims, default=1.0)
        ratios = {"ratio": ratio, "baseline_us": us * ratio} if case.baseline else {}
        detail = (
            {
                "self_baseline": workloads.SELF_BASELINES[case.self_baseline],
                "self_baseline_ratio": 0.99 * factor,
            }
            if case.self_baseline
            else {}
        )
        results_file.put(results, *repeated(row(case, us, **ratios), detail))
    return results


def highest(factor=1.0):
    """Results of the set `highest`, all `factor` times as fast as the targets."""
    results = results_file.empty()
    results["header"] = {"gpu": "NVIDIA H200", "torch": "2"}
    for case in cases_of("highest"):
        us = 5.0 + case.flops / (1.1e8 if case.epilogue == "spread" else 2.2e8)
        least = {512: 1.2, 1024: 2.0}.get(case.m, 2.2 if case.epilogue == "spread" else 4.0)
        detail = (
            {
                "self_baseline": workloads.SELF_BASELINES[case.self_baseline],
                "self_baseline_ratio": 1.1,
            }
            if case.self_baseline
            else {}
        )
        times = {"baseline_us": us * least * factor, "ratio": least * factor}
        results_file.put(results, *repeated(row(case, us, **times), detail))
    return results


@dataclass(frozen=True)
class ReportPages:
    """The pages that `python -m benchmarks report` writes, in a folder of their own."""

    root: Path

    @property
    def folder(self):
        """The folder of the results."""
        return self.root / "benchmarks/results"

    @property
    def readme(self):
        return self.root / report.README

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
    for page in (pages.readme, pages.page):
        page.write_text(text)
    return pages
