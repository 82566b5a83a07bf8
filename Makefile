# Two commands do everything on a fresh machine: `make demo` and `make test`. Each makes .venv with
# torch and a CUDA compiler from pip, builds the library and runs.
#
#   make test TORCH=2.15.0      another torch in .venv
#   make test PYTHON=python3    that interpreter's packages and the library that is there;
#                               installs nothing (a GPU machine without network)
TORCH ?= 2.11.0
PYTHON ?=
PYTEST_FLAGS ?=

ifeq ($(PYTHON),)
python := .venv/bin/python
ready := .venv/tcgemm-$(TORCH)
library := build
else
python := $(PYTHON)
ready :=
library := existing
endif

CXX_FILES = $(filter %.h %.cuh %.cpp %.cu, $(shell git ls-files -co --exclude-standard csrc))

.PHONY: demo test build existing info format docs wheel test-wheel asan clean tools

demo: $(library)
	$(python) -m tcgemm demo

test: $(library)
	$(python) -m pytest $(PYTEST_FLAGS)

build: $(ready)
	$(python) setup.py -q build_ext --inplace

# The library that is there is good for every Python and torch.
existing:
	@test -f tcgemm/libtcgemm.so || $(python) setup.py -q build_ext --inplace

info: $(library)
	$(python) -m tcgemm

format: $(ready)
	$(python) -m ruff check --fix
	$(python) -m ruff format
	$(dir $(python))clang-format -i $(CXX_FILES)

# The site of docs/, into build/site. Nothing is downloaded. API pages import the package.
docs: $(library)
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

# A wheel that PyPI takes: auditwheel checks what the library needs and names the tag for it.
wheel: $(ready)
	rm -rf build/wheel
	$(python) -m pip wheel --no-build-isolation --no-deps -w build/wheel .
	$(python) setup.py -q manylinux_wheel --wheel build/wheel/tcgemm-*.whl --dist-dir dist

# The wheel of `make wheel` in an environment of its own with the torch that is named: gigabytes are
# downloaded. docs/dev/releasing.md says when.
test-wheel:
	@ls dist/tcgemm-*.whl
	rm -rf build/test-wheel
	python3 -m venv build/test-wheel
	build/test-wheel/bin/python -m pip install torch==$(TORCH) dist/tcgemm-*.whl
	cd build/test-wheel && bin/python ../../tests/support/check_installed.py

# The CPU operators with AddressSanitizer and UndefinedBehaviorSanitizer under random calls. The real
# __cxa_throw has to be loaded before the sanitizer asks for it.
CASES ?= 2000
SEED ?= 0
asan: $(ready)
	TCGEMM_CUDA=0 TCGEMM_SANITIZE=address,undefined $(python) setup.py -q build_ext --build-lib build/asan
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	  TCGEMM_LIBRARY=$(CURDIR)/build/asan/tcgemm/libtcgemm.so \
	  $(python) tests/support/fuzz.py --cases $(CASES) --seed $(SEED)

clean:
	rm -rf build dist *.egg-info tcgemm/*.so

tools:
	@missing=""; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	python3 -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	command -v $${CXX:-g++} >/dev/null || missing="$$missing g++"; \
	if [ -n "$$missing" ]; then \
	  echo "tcgemm: this machine lacks$$missing; install with: sudo apt-get install -y$$missing"; \
	  exit 1; \
	fi; \
	if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "tcgemm: $$(python3 --version) is too old; put Python 3.11 or later first on PATH"; \
	  exit 1; \
	fi

# What pyproject.toml asks for, to build and to test, with the torch that was named.
.venv/tcgemm-$(TORCH): pyproject.toml | tools
	test -x .venv/bin/python || python3 -m venv .venv
	.venv/bin/python -c 'import tomllib; \
	  project = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*project["build-system"]["requires"], sep="\n"); \
	  [print(*names, sep="\n") for names in project["project"]["optional-dependencies"].values()]' \
	  > .venv/requirements.txt
	.venv/bin/python -m pip install --quiet --upgrade pip
	.venv/bin/python -m pip install torch==$(TORCH) -r .venv/requirements.txt
	rm -f .venv/tcgemm-*
	touch $@
