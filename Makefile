# On a fresh machine: `make demo` runs the main job on real data, `make test` runs the tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-long audit faults lint bench bench-utility peers docs clean

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
	$(BIN)/pytest -n 2 -m "not long"

test-long: $(VENV)/.installed
	$(BIN)/pytest -m long

audit: $(VENV)/.installed
	mkdir -p build
	$(BIN)/python -m tests.soundness.sweep --html build/audit.html

faults: $(VENV)/.installed
	$(BIN)/python -m tests.soundness.faults --attempts 20

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench peers
	$(BIN)/python benchmarks/demo_utility.py
	$(BIN)/python benchmarks/tightness.py
	$(BIN)/python benchmarks/randomness.py
	$(BIN)/python benchmarks/zoo_verdicts.py
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

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist *.egg-info site
