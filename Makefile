# The words of the house; `make` alone lists them. Needs Python 3.11, Java 17 or newer, make, bash.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN := .venv/bin
PACKAGES := timeline sinks ingest tideline
# More than cores: tests of servers wait for half of their time.
WORKERS ?= 3
# Tests that share a server share a worker (tests/turns.py).
SIDE_BY_SIDE = -n $(WORKERS) --dist loadscope --no-loadscope-reorder

export PYTHON
# Tests start hundreds of processes: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list these words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf "make %-13s %s\n" $(AREAS:%=test-% "quick tests of what its name says")

.PHONY: env
env: ## check the prerequisites and make .venv from requirements.lock
	@scripts/setup.sh

.PHONY: demo
demo: env ## ingest a generated log, kill the job in the middle, recover, prove that each line is there once
	@$(BIN)/tideline demo --crash

.PHONY: test
test: env ## lint, types, imports and all tests
	@$(BIN)/python -m tests.warm_up & \
	warm_up=$$!; \
	trap 'kill $$warm_up 2>/dev/null || true' EXIT; \
	$(MAKE) lint types; \
	wait $$warm_up; \
	trap - EXIT; \
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --durations 25

.PHONY: test-long
test-long: env ## all tests, and of those that draw a sample (kills, faults, random values) the whole
	@LONG=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

.PHONY: test-times
test-times: env ## all tests once, and where their time goes, into docs/test-times.md
	@WORKERS=$(WORKERS) $(BIN)/python -m tests.times

.PHONY: test-fast
test-fast: env lint types ## the same without tests that need servers, Spark or minutes
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not real and not spark and not slow"

AREAS := timeline sinks tikv sources transform look

.PHONY: $(AREAS:%=test-%)
$(AREAS:%=test-%): test-%: env
	@WORKERS=$(WORKERS) $(BIN)/python -m tests.areas $*

SEED ?=
MINUTES ?= 20

.PHONY: soak
soak: env ## a real job under random faults (SEED=, MINUTES=); the last line says how it went
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

QUICK ?=

.PHONY: bench
bench: env ## measure beside what people use instead, and write docs/benchmarks.md (LOGS= a folder of real logs; QUICK=1)
	@$(BIN)/python -m bench $(if $(QUICK),--quick)

.PHONY: lint
lint: env ## ruff (rules and format) and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo

.PHONY: types
types: env ## mypy, strict, tests included
	@$(BIN)/mypy $(PACKAGES) tests

.PHONY: services
services: env ## Kafka, S3, Spark and a TiKV-protocol cluster in the background; says what to put into a job file
	@$(BIN)/python -m tests.real.services start

.PHONY: services-stop
services-stop: env ## end them; their data and logs stay in .services/
	@$(BIN)/python -m tests.real.services stop

.PHONY: lock
lock: env ## pin the newest versions that setup.cfg allows into requirements.lock
	@$(BIN)/uv pip compile setup.cfg --extra kafka --extra s3 --extra stream --extra transform --extra look --extra tikv --extra dev --generate-hashes --python-version 3.11 \
		--no-header --upgrade --quiet --output-file requirements.lock

.PHONY: stubs
stubs: env ## make Python of sinks/tikv/tikv.proto
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. sinks/tikv/tikv.proto

.PHONY: clean
clean: ## remove what the other words made, .venv and the data of services included
	@if [ -d .services ]; then $(BIN)/python -m tests.real.services stop; rm -rf .services; fi
	@rm -rf .venv build dist *.egg-info demo spark-warehouse metastore_db derby.log
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
