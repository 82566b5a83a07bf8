# `make demo` and `make test` do everything on a fresh machine: each makes .venv with torch and a CUDA
# compiler from PyPI, builds the library and runs. `make help` lists the targets.
#
#   make test TORCH=2.15.0      another torch in .venv
#   make test PYTHON=python3    that interpreter's packages and the library that is there;
#                               installs nothing (a GPU machine without network)
#   make build DEBUG=1          a debug build in its own folder; `make build` brings back the release
TORCH ?= 2.11.0
PYTHON ?=
PYTEST_FLAGS ?=

ifeq ($(PYTHON),)
python := .venv/bin/python
demo_ready := .venv/demo-$(TORCH)
ready := .venv/all-$(TORCH)
library := build
else
python := $(PYTHON)
demo_ready :=
ready :=
library := existing
endif
ifeq ($(DEBUG),1)
build: export TCGEMM_BUILD_TYPE := debug
endif

CXX_FILES = $(filter %.h %.cuh %.cpp %.cu, $(shell git ls-files -co --exclude-standard csrc))
clang_format = $(dir $(shell command -v $(python)))clang-format

.PHONY: help demo test test-all smoke build existing info lint format typecheck test-gpu sanitize \
  sanitize-host coverage bench docs wheel test-wheel clean tools

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: existing ## a few products and trained networks, each checked
	$(python) -m tcgemm demo

test: $(library) ## the tests on all cores; GPU tests are left out where there is no GPU
	$(python) -m pytest $(PYTEST_FLAGS)

test-all: $(library) ## also the nightly ones: third parties, whole notebooks, full squares
	$(python) -m pytest --all $(PYTEST_FLAGS)

# A sample of every part. Only the files that changed are compiled.
SMOKE_TESTS ?= tests/plan tests/operands/integers tests/autograd \
  $(addprefix tests/ops/test_,dense.py epilogue.py errors.py out.py strides.py direct.py precision.py) \
  $(addprefix tests/operands/sparse/test_,mm.py linear.py errors.py) tests/operands/quant/test_linear.py \
  $(addprefix tests/operands/packed/test_,products.py layer.py) $(addprefix tests/nn/test_,selection.py undo.py) \
  tests/emulate/test_gemv.py tests/cpu/test_dense.py $(addprefix tests/repo/test_,layers.py style.py)
smoke: $(library) ## builds what changed, and runs a sample of the tests: 3 minutes on 2 cores
	$(python) -m pytest -q -n auto --dist worksteal -k "not compile" $(SMOKE_TESTS)

# Everything, whatever GPU is there, unless the user has a list. Where there is no GPU, the tests
# build a sample of the kernels: all take 25 to 80 minutes of two cores, and no test could run one.
build test test-all test-gpu smoke wheel: export TORCH_CUDA_ARCH_LIST ?= all
test smoke: export TCGEMM_SAMPLE ?= auto
build: $(ready) ## tcgemm/libtcgemm.so, compile_commands.json; DEBUG=1: symbols, assertions
	$(python) setup.py -q build_ext --inplace

# The library that is there is good for every Python and torch. The default of a new one is what this
# machine can run.
existing: $(demo_ready)
	@test -f tcgemm/libtcgemm.so || $(python) setup.py -q build_ext --inplace

info: existing ## versions, GPUs, and the code that they run
	$(python) -m tcgemm

lint: $(ready) ## ruff, clang-format, bash -n, warnings of words; they change nothing
	$(python) -m ruff check
	$(python) -m ruff format --check
	@$(clang_format) --dry-run --Werror $(CXX_FILES)
	bash -n .ci/run
	@$(python) tests/support/vocabulary.py

format: $(ready) ## ruff and clang-format, which change the files
	$(python) -m ruff check --fix
	$(python) -m ruff format
	$(clang_format) -i $(CXX_FILES)

typecheck: $(ready) existing ## pyright: the public types are complete, and a strict program can use them
	$(python) -m pytest -q tests/repo/test_types.py

test-gpu: $(library) ## the GPU tests, in at most 8 processes; a missing GPU fails
	TCGEMM_REQUIRE_GPU=1 $(python) -m pytest -m "(gpu or sm89 or sm90) and not alone" $(PYTEST_FLAGS)
	TCGEMM_REQUIRE_GPU=1 $(python) -m pytest -m alone -n 0 $(PYTEST_FLAGS)

# FAMILIES= takes every kernel family.
FAMILIES ?= prepare quantize passes24 sums e4m3 s8 columns_bf16
sanitize: $(library) ## compute-sanitizer on a GPU, memcheck and racecheck; FAMILIES="e4m3 s8"
	$(python) tests/support/compute_sanitizer.py $(FAMILIES)

# The operators of the CPU build, planner and CPU kernels. The tests leave out what starts compilers
# and other libraries. CASES counts the random calls of each kind.
CASES ?= 200
SEED ?= 0
SANITIZE_TESTS ?= tests/plan \
  $(addprefix tests/cpu/test_,dense.py integers.py numbers.py quantize.py scales.py) \
  $(addprefix tests/ops/test_,dense.py epilogue.py errors.py out.py strides.py storage.py) \
  $(addprefix tests/ops/test_,prepared.py baddbmm.py) \
  $(addprefix tests/emulate/test_,recordings.py exact.py published.py) \
  $(addprefix tests/operands/sparse/test_,format.py mm.py operands.py views.py errors.py)
sanitize-host: $(ready) ## AddressSanitizer and UndefinedBehaviorSanitizer; CASES=20000 SEED=7
	CXX=g++ TCGEMM_CUDA=0 TCGEMM_SANITIZE=address,undefined \
	  $(python) setup.py -q build_ext --build-lib build/asan
	$(python) tests/support/sanitize_host.py --cases $(CASES) --seed $(SEED) $(SANITIZE_TESTS)

COVERAGE_TESTS ?= tests
coverage: $(ready) ## lines of Python and C++ that the tests run; COVERAGE_TESTS=tests/plan
	CXX=g++ TCGEMM_CUDA=0 TCGEMM_BUILD_TYPE=coverage \
	  $(python) setup.py -q build_ext --build-lib build/coverage/lib
	$(python) tests/support/measure_coverage.py $(COVERAGE_TESTS)

SET ?= dense
bench: $(library) ## measure beside torch; SET=llm, or BENCH_FLAGS=--dry-run without a GPU
	$(python) -m benchmarks run --set $(SET) $(BENCH_FLAGS)

# Nothing is downloaded. API pages import the package.
docs: $(ready) existing ## the site of docs/, into build/site
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

# auditwheel checks what the library needs and names the tag for it.
wheel: $(ready) ## dist/tcgemm-*.whl, which PyPI takes
	rm -rf build/wheel
	$(python) -m pip wheel --no-build-isolation --no-deps -w build/wheel .
	$(python) setup.py -q manylinux_wheel --wheel build/wheel/tcgemm-*.whl --dist-dir dist

# Gigabytes are downloaded. docs/dev/releasing.md says when.
test-wheel: ## that wheel in an environment of its own, with the torch of TORCH=
	@ls dist/tcgemm-*.whl
	rm -rf build/test-wheel
	python3 -m venv build/test-wheel
	build/test-wheel/bin/python -m pip install torch==$(TORCH) dist/tcgemm-*.whl
	cd build/test-wheel && bin/python ../../tests/support/check_installed.py

clean: ## removes what was built, but not .venv
	rm -rf build dist *.egg-info tcgemm/*.so compile_commands.json

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

# Installs what pyproject.toml asks for: to build, and the extras that $(1) names, a Python expression
# of `extras`. uv takes a third of pip's time, but does not read pip.conf: where it finds no index, pip
# installs.
define install
	.venv/bin/python -c 'import tomllib; \
	  project = tomllib.load(open("pyproject.toml", "rb")); \
	  extras = project["project"]["optional-dependencies"]; \
	  print("torch==$(TORCH)", *project["build-system"]["requires"], sep="\n"); \
	  [print(*extras[name], sep="\n") for name in $(1)]' > .venv/requirements.txt
	.venv/bin/python -m pip install --quiet uv
	.venv/bin/uv pip install --python .venv/bin/python -r .venv/requirements.txt || \
	  .venv/bin/python -m pip install -r .venv/requirements.txt
endef

# The packages of the demo come first, so that no two targets write to .venv at the same time.
.venv/demo-$(TORCH): pyproject.toml | tools
	test -x .venv/bin/python || python3 -m venv .venv
	rm -f .venv/demo-* .venv/all-*
	$(call install,["demo"])
	touch $@

.venv/all-$(TORCH): .venv/demo-$(TORCH)
	$(call install,extras)
	touch $@
