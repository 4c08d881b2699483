# Tasks. `make demo` and `make test` do all set-up on a fresh machine with Rust and Python 3.8 or later.

PYTHON ?= python3
VENV := .venv
FAIRTRIAL := target/release/fairtrial

.PHONY: build demo test lint bench clean

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
	$(VENV)/bin/ruff check python bench examples
	$(VENV)/bin/ruff format --check python bench examples

bench: build $(VENV)/.done
	$(VENV)/bin/python bench/run.py

clean:
	rm -rf target $(VENV)
