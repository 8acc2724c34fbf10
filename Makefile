# Everything a newcomer needs. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first Python on PATH that is new enough; override with `make PYTHON=/path/to/python3.12 …`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
BIN := .venv/bin
STAMP := .venv/.installed
# The contract suite's peers that others wrote, from npm.
PEERS := tests/contract/peers
PEERS_STAMP := $(PEERS)/node_modules/.installed
# Whole files to one worker, so that what a module starts once is started once, in the order in which they are
# collected: the longest first.
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PYTEST_SELECTION ?=
DEMO_ARGS ?=
OUTAGE_ARGS ?=
BENCH_PAGES_ARGS ?=

.PHONY: help demo demo-reset test lint format bench bench-pages outage screenshots docs matrix peers clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "Recourse needs Python 3.11 or newer on PATH; none was found. Name one: make PYTHON=/path/to/python3.11" >&2; \
		exit 1; fi
	@echo "Making .venv with $(PYTHON) and installing the locked requirements (about 30 s) …"
	@"$(PYTHON)" -m venv .venv || { \
		echo "$(PYTHON) could not make a virtual environment (on Debian: apt-get install python3-venv)." >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

.venv: $(STAMP) ## the virtual environment with the hash-locked requirements

demo: $(STAMP) ## everything running on this machine, with real cases; Ctrl-C stops it, data is kept
	@exec $(BIN)/python manage.py demo --die-with-parent $(DEMO_ARGS)

demo-reset: $(STAMP) ## the demo from an empty database
	@exec $(BIN)/python manage.py demo --reset --die-with-parent $(DEMO_ARGS)

# Where there is no Node the tests that need the peers skip and say so; in CI they fail.
$(PEERS_STAMP): $(PEERS)/package.json $(PEERS)/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "Installing the contract suite's peers (a few seconds) …"; \
		npm ci --prefix $(PEERS) --ignore-scripts --no-audit --no-fund --silent && touch $@ || { \
			echo "The contract suite's peers could not be installed." >&2; [ -z "$$CI" ]; }; \
	else \
		echo "Node isn't installed, so nothing is tested against the peers from npm." >&2; [ -z "$$CI" ]; fi

peers: $(PEERS_STAMP) ## other people's stand-ins for providers, which the contract suite runs against

test: $(STAMP) $(PEERS_STAMP) ## the whole suite, embedded servers and browser included
	@$(BIN)/python -m pytest $(PYTEST_ARGS) $(if $(PYTEST_SELECTION),-m "$(PYTEST_SELECTION)")

lint: $(STAMP) ## style, types, import law
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## what an effect costs, beside a plain psycopg loop; writes build/bench.json
	@exec $(BIN)/python -m tests.benchmark

bench-pages: $(STAMP) ## what pages cost at 1,000,000 operations beside 10,000; writes build/bench-pages.json
	@exec $(BIN)/python -m tests.benchmark.pages $(BENCH_PAGES_ARGS)

outage: $(STAMP) ## 10,000 unknown outcomes after an outage, counted at the provider; writes build/outage.json
	@mkdir -p build
	@$(BIN)/python manage.py outage_drill $(OUTAGE_ARGS) > build/outage.json; \
		status=$$?; cat build/outage.json; exit $$status

screenshots: $(STAMP) ## pictures of the console for the README
	@exec $(BIN)/python -m tests.browser.screenshots

docs: $(STAMP) ## the pages that are made from what runs: providers, policy, API
	@$(BIN)/python manage.py api_reference
	@$(BIN)/python manage.py provider_docs
	@$(BIN)/python manage.py policy_table

matrix: $(STAMP) $(PEERS_STAMP) ## run the contract suite and write what came of it into docs/providers/matrix.md
	@$(BIN)/python -m pytest -q tests/contract --ignore=tests/contract/test_matrix_page.py
	@$(BIN)/python -m tests.contract.matrix_page

clean: ## caches and build results; keeps .venv and the demo's data
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
