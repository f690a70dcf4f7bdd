# Everything from a fresh checkout: `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types layers unit docs services bench lowest dist sbom audit format clean help

help:
	@echo "make demo      set up, then run the main job on embedded data and draw a picture"
	@echo "make test      set up, then lint, types, import layers and tests"
	@echo "make docs      build the documentation: build/docs/index.html"
	@echo "make services  install mosquitto and chromium (root, Debian); without them some tests are skipped"
	@echo "make bench     time everything against its rivals; writes docs/benchmarks/performance.md and its plots"
	@echo "make lowest    run a part of the tests with the lowest versions of everything that is needed"
	@echo "make dist      build wheel and sdist, check them, and run the demo from the wheel"
	@echo "make sbom      list what an installation consists of: dist/baryflow.cdx.json (CycloneDX)"
	@echo "make audit     look for known vulnerabilities in workflows and pinned versions; needs the internet"
	@echo "make format    let ruff rewrite what it can"
	@echo "make clean     remove the virtual environment and caches"

demo: $(VENV)/.demo
	$(BIN)/baryflow demo --figure baryflow-demo.png

test: lint types layers unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/validate-pyproject pyproject.toml

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

# One BLAS thread in each of the two workers: more only get in each other's way.
# Compiled modules are written: workers and the processes that tests start read them again and again.
unit: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

# Warnings are errors. Nothing is fetched once the environment is there.
docs: $(VENV)/.docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -n -W --keep-going -q -d build/doctrees docs build/docs
	$(BIN)/python scripts/check_site.py build/docs

# A real broker and a real browser for the tests; changes the system, so nothing else calls it but .ci/run.
services:
	scripts/install-services

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

lowest:
	scripts/lowest-versions "$(PYTHON)"

dist: $(VENV)/.release
	scripts/dist "$(BIN)"

sbom: $(VENV)/.release
	scripts/sbom "$(BIN)"

audit: $(VENV)/.release
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/pip-audit --requirement constraints.txt --disable-pip --no-deps

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist docs/gallery docs/reference/api .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Tested versions are pinned in constraints.txt; the environment follows when it or pyproject.toml changes.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plot]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . --group dev
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plot,parquet,serve,client,dask]' --group docs
	touch $@

$(VENV)/.release: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group release
	touch $@

$(BIN)/python:
	scripts/make-venv "$(PYTHON)" "$(VENV)"
