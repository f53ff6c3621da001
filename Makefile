# make compare    sets up .venv, then compares the implementations of one operation (OP=matmul)
# make test       sets up .venv, then runs the tests, but those that repeat a meaning over more cases
# make thorough   sets up .venv, then runs those
# make quick      sets up .venv, then runs a sample of the tests, in under 90 seconds
# make lint       formatting, style and types
PYTHON ?= python3
OP     ?= matmul
VENV   := .venv
PY     := $(VENV)/bin/python

# With an NVIDIA GPU the CUDA builds of the frameworks are installed; without one, PyTorch's CPU build.
GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo 1)
# With one, the versions that the committed results were measured with; without, the newest that were tested together.
ifeq ($(GPU),1)
EXTRAS := gpu,dev
CONSTRAINTS := constraints-gpu.txt
else
EXTRAS := dev
CONSTRAINTS := constraints.txt
endif
TORCH_CPU       := torch==$(shell sed -n 's/^torch==//p' constraints.txt)+cpu
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP_INSTALL     := $(PY) -m pip install --quiet --disable-pip-version-check

.PHONY: compare test thorough quick lint
compare: $(VENV)/.ready
	$(PY) -m suite compare --op $(OP)

# Test files are compiled once, and not in each of their many processes, whatever the environment says.
test thorough quick: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.ready
	$(PY) -m pytest -n auto --dist worksteal

thorough: $(VENV)/.ready
	$(PY) -m pytest -n auto --dist worksteal -m thorough

quick: $(VENV)/.ready
	$(PY) -m pytest -n auto --quick

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(VENV)/.ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
ifneq ($(GPU),1)
	$(PIP_INSTALL) $(TORCH_CPU) 2>/dev/null || $(PIP_INSTALL) --extra-index-url $(TORCH_CPU_INDEX) $(TORCH_CPU)
endif
	$(PIP_INSTALL) --constraint $(CONSTRAINTS) --editable '.[$(EXTRAS)]'
	touch $@
