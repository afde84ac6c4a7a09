# Two commands that always work on a fresh machine with Python 3.11, pip and apt: `make demo`, `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(addprefix src/,compiled.txt $(shell cat src/compiled.txt)) $(shell find src -name '_*.c')

.PHONY: demo test check bench reproduce reference docs dist lock clean help

help:
	@echo "make demo                     crawl a small web that headway serves itself, under a bound, with deadlines"
	@echo "make test                     every check and every test"
	@echo "make check                    formatting, lints, types, the dependency rule"
	@echo "make bench                    every comparison with the peers, into benchmarks/RESULTS.md; QUICK=1: some minutes"
	@echo "make bench NAME=allocation    one benchmark: $(notdir $(patsubst %/__main__.py,%,$(wildcard benchmarks/*/__main__.py)))"
	@echo "make reproduce PAPER=zhu2020  a paper's figures: $(notdir $(patsubst %/__main__.py,%,$(wildcard experiments/*/__main__.py)))"
	@echo "make reference                what of docs/reference is made from the code, and the man pages"
	@echo "make docs                     the documentation as a web site, in build/site"
	@echo "make dist                     wheel and source archive, in dist"
	@echo "make lock                     pin all dependencies with hashes, in requirements/*.lock; ARGS=--upgrade: newer ones"

# What headway needs to run. Not byte-compiled: Python does that to what the demo imports, and pip to all of SciPy.
$(VENV)/.runtime: requirements/runtime.lock scripts/make-venv
	scripts/make-venv $(PYTHON) $(VENV) --no-compile --requirement requirements/runtime.lock
	@touch $@

$(VENV)/.packages: $(VENV)/.runtime requirements/dev.lock
	scripts/make-venv $(PYTHON) $(VENV) --requirement requirements/runtime.lock --requirement requirements/dev.lock
	@touch $@

# Again whenever one of the compiled modules has changed: Python takes the compiled one, however old it is.
$(INSTALLED): $(VENV)/.packages pyproject.toml hatch_build.py $(COMPILED)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# From the sources as they are, without waiting for a compiler. Compiled modules older than their sources go.
demo: $(VENV)/.runtime
	@$(MAKE) --question $(INSTALLED) >/dev/null 2>&1 || { find src -name '*.so' -delete; rm -f $(INSTALLED); }
	PYTHONPATH=src $(BIN)/python -m headway demo

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache | tail -n 4

test: check
	scripts/install-test-tools $(VENV)
	HEADWAY_PYWB_PYTHON=$(CURDIR)/.venv-pywb/bin/python $(BIN)/pytest -q -n 2 --dist loadfile

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.$(or $(NAME),whole $(if $(QUICK),--quick)) $(ARGS)

reproduce: $(INSTALLED)
	$(BIN)/python -m experiments.$(PAPER) $(ARGS)

reference: $(INSTALLED)
	$(BIN)/python scripts/make_reference.py

docs: reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: reference
	rm -rf dist && $(BIN)/python -m build --outdir dist .

lock: $(INSTALLED)
	$(BIN)/python scripts/lock $(ARGS)

clean:
	rm -rf $(VENV) .venv-pywb .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
