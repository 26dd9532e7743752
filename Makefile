# `make demo` installs lexicept into .venv; every other target installs what it needs there too.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Modules are compiled on all cores, as pip does on one; packages bring a few files for other Pythons.
PIP := $(BIN)/pip --disable-pip-version-check install --no-compile
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test check docs bench soak clean

demo: $(VENV)/.demo
	test -d demo-index || $(BIN)/lexicept build python-docs --out demo-index
	$(BIN)/lexicept search demo-index "how do I join two file paths" --top-k 5 --explain

# Two processes of one thread are faster than one of two: most tests are small.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests
	$(BIN)/lint-imports
	$(BIN)/python -m reproduction --all --dry-run

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Read it: $(BIN)/python -m http.server -d site"

bench: $(VENV)/.dev
	$(PIP) -q -e '.[bench]'
	$(BIN)/python -m benchmarks

# Hours: power cuts and I/O errors at every call, threads, damaged files.
soak: $(VENV)/.dev
	$(PIP) -q -e '.[fuzz]'
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.soak.threads
	$(BIN)/python -m tests.soak.server
	$(BIN)/python -m tests.fuzz

clean:
	rm -rf $(VENV) site demo-index demo-index.partial

# Each stamp installs the extras of a target on top of the default. torch comes first and by version:
# any other request for it may pull gigabytes of GPU libraries.
$(VENV)/.demo: pyproject.toml
	@echo "Installing lexicept into $(VENV): 0.7 GB on disk."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	$(COMPILE)
	touch $@

$(VENV)/.docs: $(VENV)/.demo
	@echo "Installing MkDocs: 0.2 GB more."
	$(PIP) -e '.[docs]'
	$(COMPILE)
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Installing torch (CPU), all extras and the test tools (Ray, mypy, ...): 3.7 GB more."
	$(PIP) torch==2.13.0
	$(PIP) -e '.[dev]'
	$(COMPILE)
	touch $@
