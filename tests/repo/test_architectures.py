"""The tables of architectures agree: C++, Python, the build and the tests' own.

docs/dev/add-an-architecture.md says which of these tests fails if a step is forgotten.
"""

import re

import pytest

import setup_toolchain as toolchain
from tcgemm import info

from support import bit_problems, catalog_rows, plan_cases
from support.source_tree import ROOT

ENUM = (ROOT / "csrc/core/arch.h").read_text()
ARCHES = re.search(r"enum class Arch : \S+ \{([^}]*)\}", ENUM).group(1).replace(",", "").split()
EVERY = pytest.mark.parametrize("arch", ARCHES)


def rows(arch: str) -> list[dict]:
    return [row for row in info.catalog() if row["arch"] == arch]


def test_the_enumerators_are_named():
    assert sorted(re.findall(r'"(\w+)"', ENUM)) == sorted(ARCHES)


@EVERY
def test_the_catalog_has_kernels_of_the_architecture(arch):
    assert rows(arch)
    assert all(row["name"].startswith(f"{arch}_") for row in rows(arch))


@EVERY
def test_python_knows_the_architecture(arch):
    assert arch in info.GPUS
    assert f"| {info.GPUS[arch]} |" in info.support_table()
    instructions = {row["family"] for row in info.instructions() if row["arch"] == arch}
    assert instructions and instructions <= set(info.FAMILIES)


@EVERY
def test_check_layout_names_the_architecture(arch):
    dtype = "e4m3" if arch == "sm89" else "bf16"
    device = {"sm80": "A100", "sm89": "L40S"}.get(arch, plan_cases.H200)
    fields = plan_cases.plan(256, 256, 256, device=device, dtype=dtype, kernel=arch)
    assert fields["kernel"].startswith(f"{arch}_")
    assert f"kernel family {arch}: " in fields["check_layout"]


@EVERY
def test_the_tests_know_the_architecture(arch):
    assert arch in catalog_rows.MARKS
    assert isinstance(plan_cases.has_code(plan_cases.DEVICES[0], arch), bool)
    assert arch in bit_problems.STEPS


def test_a_folder_is_compiled_for_code_that_has_its_instructions():
    arches = tuple(toolchain.parse_arches(toolchain.DEFAULT_ARCHES))
    for path in (ROOT / "csrc/kernels").glob("sm*/instances.cu"):
        oldest = int(path.parent.name.removeprefix("sm"))
        for arch in toolchain.file_arches(str(path.relative_to(ROOT)), arches):
            assert toolchain.capability(arch) >= oldest
            # A folder of 90 or later has instructions of one architecture alone.
            assert oldest < 90 or arch == f"{oldest // 10}.{oldest % 10}a"
