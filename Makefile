# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt
# Without --no-compile, pip compiles thousands of files of which most are never imported. Those that are imported must
# then be kept compiled, whatever the environment says: tests start Python hundreds of times.
export PYTHONDONTWRITEBYTECODE =
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint $(CONSTRAINTS)

MINUTES ?= 30
# Of the tests: more than the two cores that they are made for, because many tests wait.
WORKERS ?= 4
DATA := $(or $(ZEUS_DATA),../shared/data)
OUT ?= build/reproduced

.PHONY: demo quick test peers everything lint style lint-js format hooks chaos bench reproduce docs dist clean system ready

demo: $(VENV)/.torch
	$(BIN)/zeus demo

# Laws and units alone: no torch, no Postgres, no browser.
quick: $(VENV)/.quick
	$(BIN)/python -m pytest -n 2 -q tests/unit

# Types are checked beside the tests, because that takes one core for half a minute.
test: ready style
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not peers"; tests=$$?; \
	wait $$types && cat $(VENV)/mypy.log || { cat $(VENV)/mypy.log; exit 1; }; exit $$tests

# With others: the published client and releases of the existing package, mixed environments, the lowest versions that we
# allow, frameworks and ranks in new processes (whose imports take half a minute), Ray, TRL, loggers, PyTorch's compiler.
peers: system $(VENV)/.peers
	@$(call apt, command -v g++ >/dev/null || wanted=g++)
	$(BIN)/python -m pytest -n 2 -m peers

# What runs every night (.github/workflows/tests.yml).
everything:
	$(MAKE) test
	$(MAKE) peers
	$(MAKE) chaos MINUTES=5

lint: style
	$(BIN)/mypy

style: $(VENV)/.dev lint-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# The page's script and style. Node is needed for this check and for axe-core, with which a test checks the page.
lint-js:
	@if command -v npm >/dev/null; then $(MAKE) --silent $(VENV)/.node && npm run --silent lint; \
	else echo "npm is not installed: the page's JavaScript and CSS are not checked"; fi

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@if command -v npm >/dev/null; then $(MAKE) --silent $(VENV)/.node && npm run --silent format; fi

# Every commit is checked from now on.
hooks: $(VENV)/.dev
	$(BIN)/pre-commit install

# Faults, kills and floods, drawn from a seed that is printed, for as long as is asked.
chaos: system $(VENV)/.dev
	ZEUS_CHAOS_MINUTES=$(MINUTES) $(BIN)/python -m pytest -n 2 tests/chaos

# Each in a short form. docs/results.md says how its numbers were made.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/keeper_kill.py --kills 10
	$(BIN)/python benchmarks/fit_virtual.py --check
	$(BIN)/python benchmarks/gpu_windows.py --quick
	$(BIN)/python benchmarks/jit_profiling.py --seeds 2
	$(BIN)/python benchmarks/profiling_overhead.py
	$(BIN)/python benchmarks/loader_overhead.py
	$(BIN)/python benchmarks/store.py --policy paper --check
	$(BIN)/python benchmarks/store.py --policy structured
	$(BIN)/python benchmarks/simulate.py --rounds 2
	$(BIN)/python benchmarks/robust.py --gpus v100 --recurrences 3
	$(BIN)/python benchmarks/regret.py --seeds 2 --gpus v100 --etas 0.5 --horizons 20
	$(BIN)/python benchmarks/moving.py --seeds 5
	$(BIN)/python benchmarks/cluster.py --jobs 100000 --groups 2000
	$(BIN)/python benchmarks/savings_accuracy.py --seeds 200
	$(BIN)/python benchmarks/tuners.py --only optuna --trials 5  # Ray would listen on all interfaces
	$(BIN)/python benchmarks/service.py --pairs 2000 --clients 50 --check
	$(BIN)/python benchmarks/scale.py --quick
	$(BIN)/python benchmarks/team_service.py --jobs 1000 --past 10 20 --long 200 --trainings 20 --seconds 30
	ZEUS_SCHEMA_EXAMPLES=500 $(BIN)/python -m pytest -n 2 -p schemathesis.pytest.plugin tests/journey/service/openapi_requests.py
	$(BIN)/python benchmarks/slurm.py --check  # as root, with slurm-wlm and munge

# The paper's figures from its traces (docs/reproducing.md). Data are looked for before anything is installed. Whoever has
# the packages for developing has matplotlib.
reproduce:
	@test -e '$(DATA)/nsdi23_traces/summary_power_v100.csv' || { \
	  echo "make reproduce: no paper's traces in $(DATA)/nsdi23_traces (summary_train.csv, summary_power_v100.csv). Set" \
	       "ZEUS_DATA to the folder that holds nsdi23_traces. docs/reproducing.md says where to get the data." >&2; exit 2; }
	@$(MAKE) --silent $(or $(wildcard $(VENV)/.dev),$(VENV)/.plots)
	$(BIN)/zeus reproduce --traces '$(DATA)/nsdi23_traces' --data '$(DATA)' --out '$(OUT)'

docs: $(VENV)/.dev
	$(BIN)/python docs/assets/settings_tables.py
	$(BIN)/python docs/assets/commands_page.py
	$(BIN)/python docs/assets/coverage_page.py
	$(BIN)/python docs/assets/make_tradeoffs.py
	$(BIN)/mkdocs build --strict

# What is published (RELEASING.md).
dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build

# What a shell command puts into `wanted` is installed: as root, on Debian and its kin, unless ZEUS_NO_APT is set.
apt = if [ -z "$$ZEUS_NO_APT" ] && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  wanted=; $(1); \
	  if [ -n "$$wanted" ]; then \
	    echo "Tests need programs that are missing. Installing with apt-get: $$wanted (ZEUS_NO_APT=1 skips this)"; \
	    apt-get update -qq && apt-get install -y -qq $$wanted; fi; fi

# gcc builds the test library that speaks NVML; PostgreSQL is one of the stores; chromium looks at the page; faketime
# gives processes wrong clocks; nginx stands before the service; Prometheus runs the queries of the Grafana board; Slurm
# with munge runs jobs. Elsewhere the tests that need them skip and say what to install.
system:
	@$(call apt, \
	  command -v gcc >/dev/null || wanted="$$wanted gcc libc6-dev"; \
	  command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || wanted="$$wanted postgresql"; \
	  command -v chromium >/dev/null || wanted="$$wanted chromium"; \
	  command -v faketime >/dev/null || wanted="$$wanted faketime"; \
	  command -v nginx >/dev/null || wanted="$$wanted nginx-light"; \
	  command -v prometheus >/dev/null || wanted="$$wanted prometheus"; \
	  command -v slurmctld >/dev/null && command -v munged >/dev/null || wanted="$$wanted slurm-wlm munge")

# Both take long, and neither needs the other.
ready:
	@$(MAKE) --no-print-directory -j2 system $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	touch $@

$(VENV)/.quick: $(VENV)/.core
	$(INSTALL) --editable '.[test]' ruff
	touch $@

$(VENV)/.torch: $(VENV)/.core
	$(INSTALL) --editable '.[torch]'
	touch $@

$(VENV)/.plots: $(VENV)/.core
	$(INSTALL) --editable '.[plots]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	touch $(VENV)/.core $@

$(VENV)/.peers: $(VENV)/.dev
	$(INSTALL) --editable '.[peers]'
	touch $@

# No lock file: both packages are named by their exact versions and need no others.
$(VENV)/.node: $(VENV)/bin/python package.json
	npm install --no-package-lock --no-audit --no-fund --loglevel=error
	touch $@

clean:
	rm -rf $(VENV) node_modules site dist
