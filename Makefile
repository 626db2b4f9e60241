# `make run` executes the whole course, `make lab` opens it.
# Each target first makes .venv with the pinned packages, once. Another Python: make PYTHON=/path/to/python3.11 run
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

define FIT
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit("The course needs Python 3.11 (3.12 and 3.13 install too); this is Python %d.%d. "
             "Say which to use: make PYTHON=/path/to/python3.11 run" % sys.version_info[:2])
import importlib.util
if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
    sys.exit("This Python cannot make virtual environments: its module venv or ensurepip is missing. "
             "On Debian or Ubuntu install python%d.%d-venv, or name another: make PYTHON=... run" % sys.version_info[:2])
endef
export FIT

.PHONY: run test lab notebooks bench grade-demo setup
.DEFAULT_GOAL := run

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "There is no $(PYTHON). Install Python 3.11, or: make PYTHON=/path/to/python3.11 run" >&2; exit 1; }
	@"$(PYTHON)" -c "$$FIT"
	@echo "Setting up $(VENV) (once, a few minutes) ..."
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

run: $(READY)
	@$(BIN)/course run

# Proves the whole course, two files of tests at a time. `make JOBS=1 test` takes one after the other, and says how long each file took.
JOBS ?= 2
test: $(READY)
	@$(BIN)/python -m pytest $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadfile --durations=40)

lab: $(READY)
	@$(BIN)/course lab

notebooks: $(READY)
	@$(BIN)/course notebooks

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks

# A class of 100 that never was, graded, and its gradebook checked; the pages are in build/grade-demo/grades.
grade-demo: $(READY)
	@$(BIN)/python -m course_utils.grading.demo build/grade-demo
