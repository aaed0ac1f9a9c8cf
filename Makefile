# Everything runs in one virtual environment, made on first use. Another place: make test VENV=path
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv run test slow check format agreement bench clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## make the virtual environment with all that is needed

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "lbgym needs Python 3.11 or newer; '$(PYTHON)' is missing or older." \
			"Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[train,report,dev]"
	@touch $@

run: $(INSTALLED) ## compare classical policies, then train a dispatcher for a moment
	$(BIN)/python -m training.quickstart

test: $(INSTALLED) ## run the tests (without the slow ones)
	$(BIN)/python -m pytest -n auto --maxprocesses $(WORKERS)

slow: $(INSTALLED) ## run the slow tests
	$(BIN)/python -m pytest -m slow -n auto --maxprocesses $(WORKERS)

check: $(INSTALLED) ## lint, format and types, as in CI
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

agreement: $(INSTALLED) ## table of theory against simulation, with z-scores
	$(BIN)/python -m baselines.agreement

bench: $(INSTALLED) ## measure the speed
	$(BIN)/python -m benchmarks.speed

clean: ## remove what can be made again, except the virtual environment
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path './$(VENV)' -prune -o -path ./.git -prune -o \
		-name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment too
	rm -rf $(VENV)
