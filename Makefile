# Dovetail. `make run` needs Python >= 3.11 only; `make test` also uses Go for the upstream oracle and Kubernetes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# A test that would skip for a missing real part fails instead when REQUIRE_REAL=1.
export REQUIRE_REAL
# The tests start a thousand Python processes, and each would compile the same modules again (twice the time to start).
unexport PYTHONDONTWRITEBYTECODE
PYTEST_WORKERS ?= 2
# Tests with real parts wait for these much of the time: one process more than cores.
REAL_WORKERS ?= 3
# `make test AFTER_CHECK=1` leaves out the fast tests, for a caller that has just seen `make check` pass.
AFTER_CHECK ?=
# Of `make bench-openb`: a seed or a range; 42 to 51 are the published ones.
SEEDS ?= 42-51

.PHONY: run test test-skew test-long check dashboard bench bench-openb bench-scale bench-mig bench-philly fuzz sbom chaos system-deps oracle kube format lock clean help
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The install also generates the messages of the kubelet's gRPC interfaces.
$(VENV)/run.stamp: requirements/run.lock pyproject.toml hatch_build.py $(wildcard src/dovetail/node/kubelet/wire/*.proto)
	@echo "creating the environment in $(VENV)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.lock
	@echo "adding the tools of the checks and tests" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

run: $(VENV)/run.stamp ## show the sample GPU fleet (the main job)
	@$(BIN)/dovetail up

check: $(VENV)/dev.stamp ## the fast gate: format, lint, types, import contracts, room sizes, generated files, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py
	$(BIN)/python tools/architecture.py --check
	$(BIN)/python tools/monitoring.py --check
	$(BIN)/pytest -m "not slow and not skew" -n $(PYTEST_WORKERS) --durations=20

system-deps: ## install what the tests need from Debian (nothing if it is all there)
	@sh tools/system-deps.sh

oracle: $(VENV)/dev.stamp ## build the upstream oracle into the user cache
	@$(BIN)/python tools/oracle/build.py

kube: $(VENV)/dev.stamp ## build the pinned Kubernetes versions into the user cache
	@$(BIN)/python tools/kube/build.py

test: $(VENV)/dev.stamp system-deps ## every test, with the real parts and the newest pinned Kubernetes
	@$(BIN)/python -m tools.test --workers $(PYTEST_WORKERS) --real-workers $(REAL_WORKERS) $(if $(AFTER_CHECK),--after-check)

test-skew: $(VENV)/dev.stamp system-deps ## the tests that run on the older pinned Kubernetes
	@$(BIN)/python -m tools.test --skew --real-workers $(REAL_WORKERS)

test-long: export DOVETAIL_TEST_LENGTH = full
test-long: test test-skew ## every test on both versions, with the campaigns at full length

# The built files are versioned, so that nothing but Python runs the dashboard; Node builds them again after a change.
dashboard/node_modules/.stamp: dashboard/package-lock.json
	@command -v npm >/dev/null || { echo "make dashboard: npm is not there; it comes with Node >= 20" >&2; exit 1; }
	@cd dashboard && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

dashboard: dashboard/node_modules/.stamp ## build the dashboard's pages into src/dovetail/web/static (needs Node >= 20)
	@cd dashboard && npm run --silent check && npm run --silent test && npm run --silent build

bench: $(VENV)/dev.stamp ## measure beside the Go original; results under bench/results/
	$(BIN)/python -m bench

bench-openb: $(VENV)/dev.stamp ## measure placement policies on the openb trace; results in bench/results/openb.json
	$(BIN)/python -m bench openb --policies fgd,dovetail --seeds $(SEEDS)

bench-scale: $(VENV)/dev.stamp ## measure the engine as clusters grow to 100,000 GPUs; results in bench/results/scale.json
	$(BIN)/python -m bench scale

bench-mig: $(VENV)/dev.stamp ## measure placement rules for MIG slices that come and go; results in bench/results/mig.json
	$(BIN)/python -m bench mig

bench-philly: $(VENV)/dev.stamp ## measure queue policies on the Philly trace; results in bench/results/philly.json
	$(BIN)/python -m bench philly

fuzz: $(VENV)/dev.stamp ## differential fuzzing against the oracle, and hostile objects, until interrupted
	$(BIN)/python -m tests.fuzz

chaos: $(VENV)/dev.stamp ## break things around the live scheduler, and attack it as a tenant, until it does harm
	$(BIN)/python -m tests.faults

sbom: $(VENV)/run.stamp ## list the packages of the runtime lock as a CycloneDX document, dist/sbom.json
	@mkdir -p dist
	@$(BIN)/python tools/sbom.py --output dist/sbom.json

format: $(VENV)/dev.stamp ## rewrite the files in house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/dev.stamp ## write the dependency locks again
	$(BIN)/uv pip compile -q pyproject.toml --group build --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/run.lock
	$(BIN)/uv pip compile -q pyproject.toml --group dev --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/dev.lock
	$(BIN)/uv pip compile -q pyproject.toml --group build --extra tracing -c requirements/run.lock --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/tracing.lock
	$(BIN)/uv pip compile -q pyproject.toml --group build --extra postgres -c requirements/run.lock --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/postgres.lock

clean: ## remove the environment and caches of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis
