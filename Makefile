# `make demo` and `make test` set up everything they need in .venv on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test check bench clean

# torch first and by version: any other request for it may pull gigabytes of GPU libraries.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -e '.[train,offline,dev]'
	touch $(STAMP)

demo: $(STAMP)
	test -d demo-index || $(BIN)/lexicept build python-docs --out demo-index
	$(BIN)/lexicept search demo-index "how do I join two file paths" --top-k 5 --explain

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lexicept reproduce --all --dry-run

bench: $(STAMP)
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo-index demo-index.partial
