# Every target prepares what it needs by itself; `make setup` alone does only that.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PY := .venv/bin/python
# The tests share two cores: one BLAS thread each, and one test worker per core.
JOBS ?= 2
export OMP_NUM_THREADS ?= 1
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH)
# The launchers in node_modules/.bin answer 0 whatever forge has answered: the binary itself. Looked up
# when it is used, because `setup` installs it.
FORGE = $(shell $(PY) -c 'from settlement.chain.anvil import native_binary as n; print(n("forge"))')
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadfile

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: setup
setup: ## Install everything (idempotent)
	@tools/setup.sh

.PHONY: devnet
devnet: setup ## Run a chain, contracts and nodes on this machine; ARGS="..." goes to `verdraft devnet`
	.venv/bin/verdraft devnet $(ARGS)

# pytest runs last and both always run, so one report shows all failures.
.PHONY: test
test: setup ## Everything: forge and the whole of pytest
	@status=0; $(FORGE) test || status=$$?; $(PYTEST) $(ARGS) || status=$$?; exit $$status

.PHONY: test-fast
test-fast: setup ## What fits in two minutes
	@$(PYTEST) -m "not slow" $(ARGS)

.PHONY: lint
lint: setup ## ruff, mypy, forge fmt, forge lint, solhint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(FORGE) fmt --check
	$(FORGE) lint
	node_modules/.bin/solhint --max-warnings 0 'contracts/**/*.sol'

# Long runs of the same properties that `make test` samples.
.PHONY: prove
prove: setup ## Properties at length: fuzz, invariants, Python against Solidity, α's power, planted faults
	FOUNDRY_PROFILE=deep $(FORGE) test
	FOUNDRY_PROFILE=million $(FORGE) test --match-contract SystemInvariants
	$(PY) scripts/remove_guards.py
	@if command -v halmos > /dev/null; then PATH="$(dir $(FORGE)):$$PATH" halmos --forge-build-out build/forge \
	  --match-contract ^Symbolic --loop 40 --solver-timeout-assertion 300s; else echo "halmos is not installed: pip install -e '.[prove]'"; fi
	HYPOTHESIS_PROFILE=deep $(PYTEST) tests/unit tests/contracts $(ARGS)
	$(PY) scripts/alpha_power.py
	$(PY) scripts/mutants.py

.PHONY: bench
bench: setup ## Every scripts/bench_*.py, one after the other
	@set -e; for script in scripts/bench_*.py; do [ -e "$$script" ] || continue; \
	  echo "== $$script"; $(PY) $$script $(ARGS); done

.PHONY: clean
clean: ## Remove what was built (keeps .venv and node_modules)
	rm -rf out cache build .cache devnet .pytest_cache .mypy_cache .ruff_cache .hypothesis
