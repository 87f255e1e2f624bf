.DEFAULT_GOAL := help
SHELL := bash

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)$$/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  %-16s %s\n' "$$target" "$$text"; done

.PHONY: setup
setup: ## Make .venv as the lock says; does nothing when it already is
	@dev/setup.sh
