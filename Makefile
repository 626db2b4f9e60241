# Two commands matter: `make run` executes the whole course, `make test` proves it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test lab notebooks bench setup

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0] + ". Say which to use: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)

run: $(READY)
	$(BIN)/course run

test: $(READY)
	$(BIN)/python -m pytest

lab: $(READY)
	$(BIN)/course lab

notebooks: $(READY)
	$(BIN)/course notebooks

bench: $(READY)
	$(BIN)/python -m tests.benchmarks
