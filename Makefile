# Two commands do everything on a fresh machine with Python 3.11 or later: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run test quick lint clean

# Compares four methods on the embedded data set; leaves a table, a figure and one folder a run in runs/first.
run: $(VENV)/.installed
	rm -rf runs/first
	$(BIN)/ccfed compare --out runs/first
	@echo "table: runs/first/table.md, figure: runs/first/accuracy.png"

# All tests, the slow ones too.
test: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

# The quick tests: under two minutes.
quick: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not slow"

# Style and types.
lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) --version), but ccfed needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and pinned: its CPU build is small, an unpinned one can bring gigabytes.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e .
	touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	$(PIP) install -c constraints.txt -e '.[test,flower,ray,tensorboard,datasets]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
