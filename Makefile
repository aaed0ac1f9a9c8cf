# Everything runs in one virtual environment, made on first use. Another place: make test VENV=path
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv run test slow check format agreement bench rllib torchrl minari clean distclean

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

bench: $(INSTALLED) ## measure speed and memory, about ten minutes
	$(BIN)/python -m benchmarks.speed

# Libraries that want other versions, or weigh much, have an environment each: .venv-rllib, ...
$(VENV)-%/.installed: pyproject.toml training/requirements-%.txt
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet -c constraints.txt -r training/requirements-$*.txt -e .
	@touch $@

rllib: $(VENV)-rllib/.installed ## PPO of RLlib on Ray: two nodes, one of them lost on the way
	$(VENV)-rllib/bin/python -m pytest tests/test_rllib.py
	$(VENV)-rllib/bin/python -m training.rllib --name make-rllib --fresh --system pair-1-10 \
		--environment '{"observe": ["queue", "speed"]}' --horizon 200 --iterations 60

torchrl: $(VENV)-torchrl/.installed ## TorchRL's collector on a native vector environment
	$(VENV)-torchrl/bin/python -m training.torchrl_collector

minari: $(VENV)-minari/.installed ## record a Minari dataset of PULL and read it back
	$(VENV)-minari/bin/python -m training.minari_dataset --replace

clean: ## remove what can be made again, except the virtual environment
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path './$(VENV)' -prune -o -path ./.git -prune -o \
		-name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment too
	rm -rf $(VENV) $(VENV)-rllib $(VENV)-torchrl $(VENV)-minari
