"""The list of faults that tests must find: each can be planted, and its tests are there."""

from tcgemm import info

from support.planted_faults import ROOT, faults

FAULTS = faults()


def test_each_fault_can_be_planted():
    for fault in FAULTS:
        text = (ROOT / fault.file).read_text()
        assert fault.edit(text) != text, fault.name


def test_fifteen_are_found_on_a_cpu_and_twenty_four_on_a_gpu():
    files = {fault.file for fault in FAULTS}
    assert len(files) == len(FAULTS) == 39
    of_kernels = {fault.file for fault in FAULTS if fault.kernels}
    assert len(of_kernels) == 24
    of_kernels -= {"csrc/ops/product/strips.cpp"}  # products of more memory than a CPU has
    assert all(name.startswith(("csrc/kernels/", "csrc/tile/", "csrc/ptx/")) for name in of_kernels)


def test_their_kernels_are_in_the_catalog():
    names = [row["name"] for row in (*info.catalog(), *info.catalog(grouped=True))]
    for fault in FAULTS:
        for kernel in fault.kernels.split(","):
            assert any(kernel in name for name in names), fault.name


def test_their_tests_are_there():
    for fault in FAULTS:
        assert fault.wrong.endswith(".")
        for test in fault.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text()
            assert not name or f"def {name}(" in text, test
