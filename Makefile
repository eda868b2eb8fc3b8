.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
READY := $(VENV)/.ready
CACHE := $(CURDIR)/$(VENV)/.cache
BIN := $(VENV)/bin
UV ?= uv
# More than the two cores it is made for: many tests wait for processes and browsers.
JOBS ?= 4
# Fails when the tests leave a process. Snapshots are only compared; `.venv/bin/pytest --inline-snapshot=fix` in one process
# updates them.
PYTEST := $(BIN)/python -m tests.leftovers $(BIN)/python -m pytest -q --no-header --inline-snapshot=disable

# The first Python that is new enough and complete. `make PYTHON=...` overrules it.
USABLE := import ensurepip, sqlite3, ssl, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	"$$python" -c '$(USABLE)' >/dev/null 2>&1 && { echo "$$python"; break; }; done)

# Nothing asks, nothing but pip's cache is written outside this folder, and a home may be missing or read-only.
unexport PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PYRIGHT_PYTHON_CACHE_DIR := $(CACHE)/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
ifeq ($(HOME),)
export HOME := $(CACHE)/home
endif
ifneq ($(shell test -w "$(HOME)" && echo yes),yes)
export PIP_CACHE_DIR := $(CACHE)/pip
endif

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## Repair a failing project, with a question and a crash: offline, in seconds
	@$(BIN)/interlock demo

.PHONY: demo-cluster
demo-cluster: $(READY) ## Kill a worker of a cluster of servers and workers on Postgres: offline, in a minute
	@$(BIN)/python -m scripts.demo_cluster

# Two at a time: the types alone take longer than all other checks together, and do not use both cores. So what the tests
# need is installed beside the other checks, and the tests begin beside the types.
IN_ORDER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: test
test: $(READY) ## Check everything but the types, and run the tests
	@$(MAKE) -j2 $(IN_ORDER) install-tests $(filter-out check-types,$(CHECKS))
	@$(MAKE) run-tests

.PHONY: install-tests run-tests
install-tests: $(READY)
	@$(BIN)/python -m tests.install

# A `make` that a test starts is none of ours.
run-tests: $(READY)
	@echo "tests"
	@env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS $(PYTEST) -n $(JOBS) --dist worksteal --durations 5 --durations-min 1
	@echo "tests with logs in Postgres"
	@$(PYTEST) -n $(JOBS) --dist worksteal -p tests.postgres.replacing $(addprefix tests/,$(POSTGRES_FIRST))

# Tests of runs and of the server's core, with their logs in Postgres. `run-tests` runs those of parents and children, and of
# recovery and answers, which depend most on the log.
POSTGRES_TESTS := runs $(addprefix server/core/test_,background_tasks.py budgets.py deciding.py edited_by.py fleet.py \
	guard.py service.py starting.py stopping.py troubles.py worker_interleaved.py worker_stop.py)
POSTGRES_FIRST := $(addprefix runs/test_,children.py recovery.py inbox.py left_behind.py) server/core/test_deciding.py

.PHONY: test-postgres
test-postgres: $(READY) ## Run the tests of runs and servers with their logs in Postgres
	@$(PYTEST) -n $(JOBS) --dist worksteal -p tests.postgres.replacing $(addprefix tests/,$(POSTGRES_TESTS))

# No browser, node, sandbox or process that is killed, and no file that needs many seconds for large inputs. `tests/policy`
# takes about as long as half of this, so it is run on its own.
FAST := agent domain history pipeline redaction registry rendering runtime scheduler storage/artifacts telemetry testing
NOT_FAST := redaction/test_redaction_limits.py redaction/test_stream.py \
	pipeline/approval/test_display_attacks.py pipeline/approval_e2e/test_deciders.py pipeline/effects/test_processes.py

.PHONY: test-fast
test-fast: $(READY) ## Run the tests of the core, in less than a minute
	@$(PYTEST) -n $(JOBS) --dist worksteal $(addprefix --ignore=tests/,$(NOT_FAST)) $(addprefix tests/,$(FAST))

.PHONY: test-user
test-user: $(READY) ## As root: run the tests of files, processes and sandboxes as an ordinary user
	@TEST_AS_USER=1 $(PYTEST) -n $(JOBS) --dist worksteal -k "ordinary_user"

.PHONY: test-adapters
test-adapters: $(READY) ## Test the adapters of all frameworks, each with its own packages
	@for file in requirements/adapters/*.txt; do \
		name=$$(basename $$file .txt); echo "$$name"; $(BIN)/python -m tests.adapters.environment $$name || exit 1; \
	done

TEMPLATES := src/interlock/server/console/templates

CHECKS := check-types check-format check-lint check-pages check-imports check-words check-docs

.PHONY: check
check: $(READY) ## Check format, lint, types, pages, layers, words and generated docs
	@$(MAKE) -j2 $(IN_ORDER) $(CHECKS)

.PHONY: $(CHECKS)
check-format: $(READY)
	@echo "format"
	@$(BIN)/ruff format --check --quiet . || { echo "error: run 'make format'" >&2; exit 1; }

check-lint: $(READY)
	@echo "lint"
	@$(BIN)/ruff check --quiet .

check-types: $(READY)
	@echo "types"
	@NODE_OPTIONS=--max-semi-space-size=128 $(BIN)/pyright --warnings

check-pages: $(READY)
	@echo "pages"
	@$(BIN)/djangofmt --check --quiet $(TEMPLATES) || { echo "error: run 'make format'" >&2; exit 1; }
	@$(BIN)/python -m tests.node.pages --check

check-imports: $(READY)
	@echo "imports"
	@$(BIN)/lint-imports --no-logo

check-words: $(READY)
	@echo "words"
	@$(BIN)/python -m scripts.words

check-docs: $(READY)
	@echo "docs"
	@$(BIN)/python -m scripts.docs --check

.PHONY: format
format: $(READY) ## Format code and pages, and fix what ruff can fix
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .
	@$(BIN)/djangofmt --quiet $(TEMPLATES) && $(BIN)/python -m tests.node.pages

.PHONY: docs
docs: $(READY) ## Write the generated parts of the docs, and build the site in build/site
	@$(BIN)/python -m scripts.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.PHONY: shape
shape: $(READY) ## Show the largest modules and functions
	@$(BIN)/python scripts/shape.py

.PHONY: cover
cover: install-tests ## Run the tests and show the branches they miss
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q --no-header --inline-snapshot=disable -n $(JOBS) --dist worksteal
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report

.PHONY: bench
bench: $(READY) ## Measure every figure that must be reached
	@$(BIN)/python -m bench

.PHONY: bench-peers
bench-peers: $(READY) ## Measure with other runtimes in the same rounds, and refresh the tables of the docs
	@$(BIN)/python -m bench peers --write
	@$(BIN)/python -m scripts.docs

# Seconds for each long test: a sixtieth of the whole. With the default all of them end within 20 minutes. First every
# property is tried with other examples than those of `make test`, and more of them.
SOAK_SECONDS ?= $(if $(HOURS),$(shell echo $$((60 * $(HOURS)))),20)
.PHONY: soak
soak: $(READY) ## Run the long tests, within 20 minutes; with HOURS=n, within n hours
	@$(PYTEST) -n $(JOBS) --dist worksteal -m 'hypothesis and not soak' --hypothesis-profile random
	@SOAK_SECONDS=$(SOAK_SECONDS) $(PYTEST) -m soak --timeout $$(($(SOAK_SECONDS) + 400)) \
		--session-timeout $$((54 * $(SOAK_SECONDS)))

# How long mutants are tried, after one run of the tests without any.
MINUTES ?= 10
.PHONY: mutation
mutation: $(READY) ## Change the core in small steps, and show what no test notices (MINUTES=10)
	@$(BIN)/python -m scripts.mutation --minutes $(MINUTES) $(MODULES)

.PHONY: dist
dist: $(READY) ## Build sdist, wheel and SBOM, and try the wheel in a clean environment
	@rm -rf dist && $(BIN)/hatchling build
	@$(BIN)/python -m scripts.sbom
	@$(BIN)/python -m scripts.check_dist

.PHONY: lock
lock: ## Choose new dependency versions, none younger than a week (needs uv)
	@$(UV) pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --exclude-newer '7 days' \
		--upgrade --quiet --output-file requirements/dev.txt
	@$(BIN)/python -m scripts.lock_adapters

.PHONY: clean
clean: ## Remove the environment and everything generated
	@rm -rf $(VENV) build dist .coverage .coverage.* .hypothesis .import_linter_cache .inline-snapshot \
		.pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is imported is compiled then. To compile all of it takes about 20 seconds, and most of it is never imported.
$(READY): pyproject.toml requirements/dev.txt
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		python="$(PYTHON)"; "$${python:-false}" -c '$(USABLE)' || \
			{ echo "error: no complete Python >= 3.11 found; install one or set PYTHON" >&2; exit 1; }; \
		echo "making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV) || exit 1; \
	fi; \
	mkdir -p $(CACHE)/home; \
	echo "installing requirements/dev.txt"; \
	{ $(BIN)/python -m pip install --no-compile --no-deps --require-hashes -r requirements/dev.txt && \
		$(BIN)/python -m pip install --no-compile --no-deps --no-build-isolation --editable . ; \
	} >$(VENV)/install.log 2>&1 || \
		{ tail -n 20 $(VENV)/install.log >&2; echo "error: see $(VENV)/install.log" >&2; exit 1; }
	@touch $@
