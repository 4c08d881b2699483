# Tasks. `make demo` and `make test` do all set-up on a fresh machine with Rust and Python 3.10 or later.

PYTHON ?= python3
VENV := .venv
FAIRTRIAL := target/release/fairtrial
# That of the package's library, here and in the wheel. `make test` takes the tests' own, which is built in half the time.
export PROFILE ?= release

.PHONY: build demo package test hostile torture chaos check foreign dre lint bench fairness steady docs clean

build:
	cargo build --release -p fairtrial-cli

demo: build
	@$(PYTHON) examples/demo.py $(FAIRTRIAL)
	@$(PYTHON) examples/study.py $(FAIRTRIAL)

$(VENV)/.done: requirements-test.txt python/tests/package/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	touch $@

# The Python package, importable by the virtual environment's interpreter. One build serves every Python (abi3), and
# the wheel that `make check` looks at.
package: $(VENV)/.done
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --quiet --profile $(PROFILE)

test: $(VENV)/.done
	bash .ci/test

# Programs that mean harm, in a cage, at every level of isolation: as root and as a uid that nobody logs in with.
# Needs root, for the cage. `make hostile HOSTILE="--only H5,H7 --level none"` runs a part; `--fast` is `make test`'s.
hostile:
	bash .ci/hostile $(HOSTILE)

# A study killed at 200 random points and gone on with each time. `make torture TORTURE="500 7"`: kills and seed.
torture: build
	$(PYTHON) .ci/torture.py $(FAIRTRIAL) $(TORTURE)

# A cluster under every fault of CL-76: each by a test, then agents and server killed at random moments, seed after seed.
# `make chaos CHAOS="--seeds 2 --tasks 20000"` does less of the latter.
chaos: build
	@command -v redis-server >/dev/null || { echo "chaos: no redis-server: install the package \`redis-server\`"; exit 1; }
	cargo build --workspace --bins --tests
	FAIRTRIAL_REQUIRE_REDIS=1 cargo test -p fairtrial-cluster --test all
	FAIRTRIAL_REQUIRE_REDIS=1 cargo test -p fairtrial-cluster --test blob_memory
	FAIRTRIAL_REQUIRE_REDIS=1 cargo test -p fairtrial-cluster --lib blobs
	FAIRTRIAL_REQUIRE_REDIS=1 cargo test -p fairtrial-tests --test all -- cluster_ agent_cli
	$(PYTHON) .ci/chaos.py $(FAIRTRIAL) $(CHAOS)

# Types, stubs, examples in docstrings, and the wheel.
check: package
	$(VENV)/bin/python -m mypy -p fairtrial
	$(VENV)/bin/python -m mypy python/tests/package/typed_sample.py
	MYPYPATH=python $(VENV)/bin/python -m mypy.stubtest fairtrial._engine --mypy-config-file pyproject.toml
	$(VENV)/bin/python .ci/pyright.py
	$(VENV)/bin/python -m pytest -q --doctest-modules python/fairtrial --ignore-glob='*_*.py'
	$(VENV)/bin/python .ci/wheel.py

# The tests of CPython's, loky's, pebble's and joblib's own suites, under every CPython from 3.10 to 3.13 that is found.
foreign: package
	$(VENV)/bin/python -m pytest -q python/tests/foreign

# Studies beside DRE's own package. The tests make its environment, `.venv-dre`, with the first CPython from 3.12 on.
dre: build $(VENV)/.done
	FAIRTRIAL_BIN=$(FAIRTRIAL) $(VENV)/bin/python -m pytest -q python/tests/dre

lint: $(VENV)/.done
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features fairtrial-cli/parquet -- -D warnings
	cargo clippy -p fairtrial-exec --no-default-features -- -D warnings
	! cargo tree -p fairtrial-launcher -e normal | grep -w tokio
	if cargo deny --version >/dev/null 2>&1; then cargo deny check; else echo "cargo-deny is not installed: deny.toml not checked"; fi
	$(VENV)/bin/ruff check python bench examples docs .ci crates/fairtrial-candidates/src/cases
	$(VENV)/bin/ruff format --check python bench examples docs .ci crates/fairtrial-candidates/src/cases

# `make bench BENCH=--full` makes the 1,000,000 calls of EX-S7; `BENCH=--quick` only shows that it works.
bench: package
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	$(VENV)/bin/python bench/run.py $(BENCH)

# How often verdicts on speed are wrong: 200 A/A pairs, 50 with a true change, beside a busy process. About 15 minutes.
fairness: build
	$(PYTHON) bench/fairness.py $(FAIRTRIAL) $(FAIRNESS)

# Verdicts by processor time, alone and under load: 10,000 runs. `make steady STEADY=--quick` makes 490.
steady: build
	$(PYTHON) bench/steady.py $(FAIRTRIAL) $(STEADY)

# The commands of README.md and docs/ are run and compared; `make docs` writes what they print, and docs/cli.md.
docs: build
	$(PYTHON) docs/check.py $(FAIRTRIAL) --write

clean:
	rm -rf target $(VENV) .venv-dre python/fairtrial/_engine.abi3.so
