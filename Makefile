# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

MINUTES ?= 30

.PHONY: demo test chaos bench docs lint clean system

demo: $(VENV)/.torch
	$(BIN)/zeus demo

test: system $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site
	$(BIN)/python -m pytest -n 2

# Faults, kills and floods, drawn from a seed that is printed, for as long as is asked.
chaos: system $(VENV)/.dev
	ZEUS_CHAOS_MINUTES=$(MINUTES) $(BIN)/python -m pytest -n 2 tests/chaos

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/keeper_kill.py
	$(BIN)/python benchmarks/fit_virtual.py --check
	$(BIN)/python benchmarks/gpu_windows.py
	$(BIN)/python benchmarks/jit_profiling.py
	$(BIN)/python benchmarks/loader_overhead.py
	$(BIN)/python benchmarks/store.py --policy paper --check
	$(BIN)/python benchmarks/store.py --policy structured
	$(BIN)/python benchmarks/simulate.py
	$(BIN)/python benchmarks/robust.py
	$(BIN)/python benchmarks/regret.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/service.py --check
	ZEUS_SCHEMA_EXAMPLES=500 $(BIN)/python -m pytest -n 2 tests/journey/service/test_schema.py

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# gcc builds the test library that speaks NVML; PostgreSQL is one of the stores; chromium looks at the page; faketime
# gives processes wrong clocks. Elsewhere the tests that need them skip and say what to install.
system:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  wanted=; \
	  command -v gcc >/dev/null || wanted="$$wanted gcc libc6-dev"; \
	  command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || wanted="$$wanted postgresql"; \
	  command -v chromium >/dev/null || wanted="$$wanted chromium"; \
	  command -v faketime >/dev/null || wanted="$$wanted faketime"; \
	  if [ -n "$$wanted" ]; then apt-get update -qq && apt-get install -y -qq $$wanted; fi; fi

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.torch: $(VENV)/.core pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[torch]'
	touch $@

$(VENV)/.dev: $(VENV)/.core pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) site dist
