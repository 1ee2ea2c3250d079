# Every target sets up what it needs in .venv; a machine with Python >= 3.11 and make is enough.

VENV := .venv
BIN := $(VENV)/bin
# Touched when it is installed: what the demo needs, and what development needs besides.
DEMO_READY := $(VENV)/.demo
READY := $(VENV)/.ready
# Touched when numba's loops are compiled: once, and not by each process of the tests.
COMPILED := $(VENV)/.compiled
KERNELS := $(wildcard policies/kernels/*.py scheduler/engine/*/kernels.py \
  scheduler/engine/rounds/value_kernels.py)
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Where `make demo` writes.
DEMO_OUT ?= out/demo
# What `make bench` runs: make bench BENCH=benchmarks/gavel.py ARGS="--only sat_single"
BENCH ?= $(wildcard benchmarks/*.py)
# Suites with real processes and databases, apart from the unit tests.
LIVE := tests/live tests/chaos tests/world tests/fuzz
# Names the tests that are to be shortened, or marked as long.
SLOWEST := --durations=30 --durations-min=10
# Four at a time on two cores, since they mostly wait; a module stays on one, for its fixtures.
AT_ONCE := -n 4 --dist loadscope $(SLOWEST)
# How the unit tests run, and how their coverage is measured.
UNIT := -n auto --dist loadscope $(SLOWEST) -m "not long"
COVERAGE := --cov --cov-branch --cov-report=
# Attacks within the process of the tests: their coverage counts with that of the live suites.
ATTACKED := tests/redteam/test_webhooks.py tests/redteam/test_exec.py
# Attacks on a real service: a hostile job, agent or person.
REDTEAM := tests/redteam
# Runs suites with real processes; the gate gives .ci/second-try.
PYTEST ?= $(BIN)/pytest
# More options for pytest or a benchmark: make test ARGS="-k guard -x"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-live test-redteam test-browser screenshots test-torch test-chaos test-world test-world-faults test-fuzz test-chart test-kubernetes test-cluster test-explore test-newest test-oldest test-long test-coverage test-wheel compiled check format lock release written change-table house prose client-forms notebook docs bench setup clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(DEMO_READY)  ## Replay the bundled trace, then run a real daemon, three agents and a dozen jobs
	$(BIN)/leasehold compare bundled:small --throughputs bundled --cluster bundled:cluster \
	  --policies max_min_fairness,finish_time_fairness,max_throughput+packed --seed 0 --out $(DEMO_OUT)
	$(BIN)/python examples/live_demo/demo.py

test: $(COMPILED)  ## Run the unit tests
	$(BIN)/pytest $(UNIT) $(if $(filter tests/%,$(ARGS)),,tests/unit) $(ARGS)

test-live: $(COMPILED)  ## Run the tests with real processes and databases
	$(PYTEST) $(AT_ONCE) -m "not long" $(LIVE) $(ARGS)

test-coverage: $(COMPILED)  ## Run unit and live tests with branch coverage, and check its floors
	$(BIN)/coverage erase
	$(BIN)/pytest $(UNIT) tests/unit $(COVERAGE)
	.ci/coverage-floors $(BIN)/coverage 95 scheduler/domain scheduler/engine policies
	.ci/coverage-floors $(BIN)/coverage 90 planner leasehold/config
	$(BIN)/coverage erase
	$(PYTEST) $(AT_ONCE) -m "not long" $(LIVE) $(ATTACKED) $(COVERAGE)
	.ci/coverage-floors $(BIN)/coverage 90 scheduler/control scheduler/protocol scheduler/store scheduler/runtime scheduler/views scheduler/logs scheduler/webhooks leasehold/client leasehold/daemon leasehold/cli/service leasehold/cli/session api agent

test-redteam: $(COMPILED)  ## Attack a real service as a hostile job, agent or person would
	$(PYTEST) -n auto --dist loadscope $(SLOWEST) $(REDTEAM) $(ARGS)

test-browser: $(COMPILED)  ## Look at the page in Chromium; needs Chromium, and npm for some of the tests
	.ci/test-browser $(ARGS)

screenshots: $(COMPILED)  ## Take the pictures of the page in docs/images; needs what test-browser installs
	PYTHONPATH=tests/support $(BIN)/python tests/browser/screenshots.py $(ARGS)

test-torch:  ## Train with PyTorch and Hugging Face under an agent, in an environment of its own (4 GB)
	.ci/test-torch

test-fuzz: $(COMPILED)  ## Send a million messages of agents and jobs, whole and broken ones; ARGS="--messages 20000 --seed 7"
	$(BIN)/python tests/fuzz/fuzz.py $(ARGS)

test-wheel: $(READY)  ## Install the wheels as people do, and try them: modules, commands, the SDK alone, the example plugins
	.ci/wheel smoke

test-chart: $(READY)  ## Lint, render and validate the helm chart; builds helm with Go the first time
	$(BIN)/pytest -n auto tests/chart $(ARGS)

test-kubernetes: $(COMPILED)  ## Run the agent against a real API server; builds it with Go the first time (7 minutes)
	.ci/test-kubernetes $(ARGS)

test-cluster: $(READY)  ## Install the chart on a real cluster of two nodes on this machine; needs root and Go
	.ci/test-cluster $(ARGS)

test-chaos: $(COMPILED)  ## Kill, cut and restart everything while 30 jobs run; ARGS="--jobs 200 --agents 8" for the full soak
	$(BIN)/python tests/chaos/soak.py $(ARGS)

test-world: $(COMPILED)  ## Run whole clusters under virtual time, each from a seed; ARGS="--seeds 1-50" or "--seconds 120"
	$(BIN)/python tests/world/run.py $(ARGS)

test-world-faults: $(READY)  ## Plant 62 faults, one at a time, and see which worlds find in two minutes; ARGS="--only w03"
	$(BIN)/python tests/world/planted/plant.py $(ARGS)

test-explore: $(COMPILED)  ## Let hypothesis try new examples; ROUNDS=10 for more, a failure says how to repeat it
	.ci/test-explore $(ARGS)

test-newest: $(READY)  ## Run unit tests and a demo on the newest release of each dependency, on each Python here (minutes each)
	.ci/test-dependencies newest

test-oldest: $(READY)  ## Run them on the oldest that pyproject.toml allows
	.ci/test-dependencies oldest

test-long: $(COMPILED)  ## Run the tests that take longer than ten seconds
	$(BIN)/pytest -n auto --dist worksteal -m long tests/unit $(ARGS)
	$(PYTEST) -n auto --dist worksteal -m long $(LIVE) $(ARGS)

check: $(READY)  ## Lint, formatting, types, direction of imports, and whether the locks hold what is asked for
	$(BIN)/python .ci/locks check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY)  ## Let ruff fix and format the sources
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: $(READY)  ## Write locks/: versions and hashes of what images and CI install; ARGS=--upgrade for the newest
	$(BIN)/python .ci/locks write $(ARGS)

release: $(READY)  ## Build the wheels, the same bytes each time, and the list of what its images hold (CycloneDX), into dist/
	.ci/release dist

written: client-forms  ## Write what follows from the sources: the client's types, tables of the reference
	PYTHONPATH=tests/support $(BIN)/python -m leasehold_testing.written

change-table: $(READY)  ## Make seven changes in copies of the tree, prove each, and count what they touch (2 minutes)
	PYTHONPATH=tests/support $(BIN)/python -m leasehold_testing.changes $(ARGS)

house: $(READY)  ## Print circles of imports, sizes of folders and files, and classes per noun
	@$(BIN)/python .ci/house $(ARGS)

prose: $(READY)  ## Print turns of docstrings and comments that are hard to read; ARGS=FOLDER for other folders
	@PYTHONPATH=tests/support $(BIN)/python -m leasehold_testing.plain_english $(ARGS)

client-forms: $(READY)  ## Write the client's types from the OpenAPI document
	PYTHONPATH=tests/support $(BIN)/python -m leasehold_testing.client_forms > $(VENV)/forms.py
	$(BIN)/ruff format -q $(VENV)/forms.py --config pyproject.toml --no-cache
	mv $(VENV)/forms.py leasehold/client/forms.py

notebook: $(READY)  ## Run the example notebook and write its outputs into it
	PYTHONPATH=tests/support $(BIN)/python -m leasehold_testing.notebook examples/notebook/study_policies.ipynb

# Not --quiet: it drops the warnings that --strict makes errors.
docs: $(READY)  ## Build the documentation as a site, into build/site; a dead link, or a page that no index names, is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)  ## Run the benchmarks of benchmarks/README.md
	@set -e; for script in $(BENCH); do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

compiled: $(COMPILED)  ## Compile numba's loops, once for all processes of the tests

setup: $(READY)  ## Create .venv with everything for development

clean:  ## Remove .venv and what the tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov dist build out

$(DEMO_READY): pyproject.toml sdk/pyproject.toml leasehold/__init__.py locks/uv.txt locks/image.txt locks/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: $(PYTHON) is older than Python 3.11; name another one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "Installing what the demo needs into $(VENV); a minute the first time"
	@PYTHON=$(PYTHON) .ci/install $(VENV) locks/image.txt locks/build.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation --editable ./sdk --editable .
	@touch $@

$(READY): $(DEMO_READY) locks/ci.txt
	@echo "Installing what development needs into $(VENV); a minute the first time"
	@.ci/install $(VENV) locks/ci.txt
	@touch $@

$(COMPILED): $(READY) $(KERNELS) docker/precompile.py
	@echo "Compiling numerical loops; a minute the first time"
	@$(BIN)/python docker/precompile.py
	@touch $@
