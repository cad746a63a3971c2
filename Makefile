# On a fresh machine: `make demo` runs the main job on real data, `make test` runs the tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two processes, a file in one of them: what its tests share is made and compiled once. In the order of tests/conftest.py:
# files of few long tests would come last, when the other process has nothing left.
TWO    := -n 2 --dist loadfile --no-loadscope-reorder

# To compile the library and rewrite the asserts of all tests takes every process ten seconds: once is enough.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-long test-slice test-pages test-leaks audit faults lint bench bench-utility peers papers docs lock gallery clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/private-mcmc demo

test: $(VENV)/.installed
	$(BIN)/pytest $(TWO) -m "not long"

test-fast: $(VENV)/.installed
	$(BIN)/pytest $(TWO) -m "not slow and not long"

test-long: $(VENV)/.installed
	$(BIN)/pytest $(TWO) -m "long and not pages"

# One of 17 parts of the long tier, another every hour; 17 and 24 have no common divisor.
SLICE ?= $(shell expr $$(date +%s) / 3600)/17

test-slice: $(VENV)/.installed
	@echo "make test-slice SLICE=$(SLICE)"
	$(BIN)/pytest $(TWO) -m "long and not pages" --slice $(SLICE) --budget 1200 --each 900

# All code of README and docs, as shown.
test-pages: $(VENV)/.installed
	$(BIN)/pytest -n 2 tests/house/test_pages_run.py

# No tracer outlives its trace, where a kernel runs and where a model is read.
test-leaks: $(VENV)/.installed
	JAX_CHECK_TRACER_LEAKS=1 $(BIN)/pytest -m "not slow and not long" tests/kernels/test_decreasing.py tests/model/test_coupling.py

audit: $(VENV)/.installed
	mkdir -p build
	$(BIN)/python -m tests.soundness.sweep > build/audit.txt

faults: $(VENV)/.installed
	$(BIN)/python -m tests.soundness.faults --attempts 20

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench peers
	$(BIN)/python benchmarks/kernels.py --out build/kernels.json

# Peers that need other versions of our dependencies; one that cannot be installed is reported, not fatal.
build/peers/%/.installed: benchmarks/peers/%.txt
	$(PYTHON) -m venv build/peers/$*
	build/peers/$*/bin/python -m pip install --quiet --requirement $<
	touch $@

peers:
	-$(MAKE) --keep-going build/peers/d3p/.installed build/peers/diffprivlib/.installed build/peers/opacus/.installed

bench-utility: $(VENV)/.bench peers
	$(BIN)/python benchmarks/utility.py --json build/utility.json --resume --html build/utility.html

# The papers' claims beside our numbers, and two pages beside the code made of them.
papers: $(VENV)/.installed
	mkdir -p build/papers
	$(BIN)/pytest $(TWO) benchmarks/papers/tests
	for paper in 000 001 002 004 beyond; do \
	  $(BIN)/python -m benchmarks.papers $$paper --html build/papers/$$paper.html --json build/papers/$$paper.json || exit 1; \
	done
	$(BIN)/python -m benchmarks.papers docs

# The environment as it is, which a release names.
lock: $(VENV)/.docs
	$(BIN)/pip freeze --exclude-editable > requirements.lock

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The notebooks of the gallery executed, and the page made of them.
gallery: $(VENV)/.docs
	$(BIN)/python -m benchmarks.gallery

clean:
	rm -rf $(VENV) build dist *.egg-info site
