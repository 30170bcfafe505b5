VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: run test lint bench bench-peers clean

run: $(VENV)/.installed
	$(BIN)/epifed run --out out

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "epifed needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev,federation]'
	touch $@

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/round.py
	$(BIN)/python benchmarks/read_rki.py

bench-peers: $(VENV)/.installed
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) .venv-peers out .mypy_cache .ruff_cache .pytest_cache
