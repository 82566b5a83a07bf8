"""The mark of tests that need inductor, which compiles C++ that includes Python's headers."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

inductor = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None
    or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="inductor needs a C++ compiler and Python.h (g++, python3-dev)",
)
