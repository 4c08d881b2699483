# Tasks. `make demo` and `make test` do all set-up on a fresh machine with Rust and Python 3.8 or later.

PYTHON ?= python3
VENV := .venv
FAIRTRIAL := target/release/fairtrial

.PHONY: build demo test lint bench docs clean

build:
	cargo build --release -p fairtrial-cli

demo: build
	@$(PYTHON) examples/demo.py $(FAIRTRIAL)

$(VENV)/.done: requirements-test.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	touch $@

test: $(VENV)/.done
	bash .ci/test

lint: $(VENV)/.done
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p fairtrial-exec --no-default-features -- -D warnings
	! cargo tree -p fairtrial-launcher -e normal | grep -w tokio
	if cargo deny --version >/dev/null 2>&1; then cargo deny check; else echo "cargo-deny is not installed: deny.toml not checked"; fi
	$(VENV)/bin/ruff check python bench examples docs
	$(VENV)/bin/ruff format --check python bench examples docs

# `make bench BENCH=--full` makes the 1,000,000 calls of EX-S7; `BENCH=--quick` only shows that it works.
bench: $(VENV)/.done
	$(VENV)/bin/python bench/run.py $(BENCH)

# The commands of README.md and docs/ are run and compared; `make docs` writes what they print, and docs/cli.md.
docs: build
	$(PYTHON) docs/check.py $(FAIRTRIAL) --write

clean:
	rm -rf target $(VENV)
