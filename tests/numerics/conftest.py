"""A build without the lab (TCGEMM_BUILD_LAB=0) has no emulator for these tests."""

from tcgemm.emulate import lab_library

collect_ignore_glob = [] if lab_library.path().is_file() else ["test_*.py"]
