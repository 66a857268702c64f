# Every target sets itself up: python3 (3.11 or newer) and make are all a fresh machine needs.

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format results clean

PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## learn the embedded stream of drawn glyphs with Hash and write a report
	@$(BIN)/hashprompt run --method hash --stream glyphs-pairs --out runs/demo --overwrite

# Two workers of one thread each: with more threads they wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadgroup

test: lint ## check style and types, run the tests
	@$(PYTEST)

test-slow: $(READY) ## run the long suites
	@$(PYTEST) -m slow

lint: $(READY) ## check style, types and layers
	@$(BIN)/ruff check -q
	@$(BIN)/ruff format -q --check
	@$(BIN)/mypy src
	@found=$$($(BIN)/lint-imports --no-logo) || { echo "$$found"; exit 1; }

format: $(READY) ## rewrite the sources in the common style
	@$(BIN)/ruff check -q --fix
	@$(BIN)/ruff format

results: $(READY) ## make the tables and figures of docs/results from the ledger
	@$(BIN)/python benchmarks/results.py

clean: ## remove the environment, the caches and the built packages (runs/ stays)
	@rm -rf .venv dist build .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "hashprompt needs Python 3.11 or newer, but $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 <target>" >&2; exit 1; }
	@echo "Setting up .venv (the first time downloads PyTorch and may take some minutes) ..."
	@set -e; uv=uv; \
	if ! uv --version >/dev/null 2>&1; then \
	  $(PYTHON) -m venv .venv; $(BIN)/python -m pip install -q uv; uv=$(BIN)/uv; \
	elif [ ! -x $(BIN)/python ]; then uv venv -q --python $(PYTHON) .venv; fi; \
	$$uv pip install -q --python $(BIN)/python -c constraints.txt -e . --group dev
	@touch $@
