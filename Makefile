# Everything that is done to this project is a target here; `make help` lists them.

PYTHON ?= python3
# Every Emacs to test with, as a list of commands.
EMACSEN ?= emacs
export EMACSEN
# How often the bench measures each program.
ROUNDS ?= 20

BIN := .venv/bin
SOURCES := $(shell find duet_rpc packaging -name "*.py") packaging/bundled.txt elisp/duet-rpc.el pyproject.toml

.PHONY: help run test soak chaos coverage audit fuzz conformance lint pyz info release version \
  bench screenshot clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

run: dist/duet-rpc.pyz ## set up, build dist/duet-rpc.pyz and show it at work
	@build/shiv/bin/python examples/demo.py dist/duet-rpc.pyz $(firstword $(EMACSEN))

test: .venv/ready dist/duet-rpc.pyz build/tools build/mcp/ready build/mcp1/ready build/servers/ready ## set up, then run all tests
	@$(BIN)/python -m pytest || { \
	  echo "Once more, one at a time: what failed only because the machine was busy passes."; \
	  $(BIN)/python -m pytest -n 0 -v --last-failed --last-failed-no-failures none; }

MINUTES ?= 5
soak: .venv/ready ## a daemon under load and in trouble, for MINUTES=5
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

chaos: .venv/ready ## daemons with hostile methods, files and clients, for MINUTES=5
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

SECONDS ?= 60
fuzz: .venv/ready ## let atheris look for input that breaks a decoder, for SECONDS=60
	@$(BIN)/python -c 'import atheris' 2> /dev/null || \
	  $(BIN)/python -m pip install --quiet --only-binary :all: atheris || \
	  { echo "atheris has no wheel for this Python; make test has the same checks"; exit 0; } && \
	  mkdir -p build/fuzz && \
	  $(BIN)/python -m tests.fuzz.decoders -max_total_time=$(SECONDS) -max_len=2000 \
	    -artifact_prefix=build/fuzz/ build/fuzz

conformance: .venv/ready dist/duet-rpc.pyz build/tools ## the official suite of MCP, and what of it can't apply
	$(BIN)/python -m tests.interop.conformance

lint: .venv/ready build/tools ## ruff, mypy, and for the elisp byte-compiler, checkdoc, package-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/emacs/test_elisp.py -k 'compiles or checkdoc or lint'

coverage: .venv/ready dist/duet-rpc.pyz build/tools ## which lines and branches the tests reach, daemons included
	@$(BIN)/python -m pip install --quiet 'coverage>=7.10'
	@rm -rf build/coverage; mkdir -p build/coverage
	@$(BIN)/python -m coverage run -m pytest -p no:cacheprovider $(TESTS) || true
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

audit: .venv/ready ## look for known holes in what is bundled and in what builds and tests it
	@[ -x build/audit/bin/pip-audit ] || { $(BIN)/python -m venv build/audit && \
	  build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit; }
	@$(BIN)/python -m tests.audit build/audit/bin/pip-audit

pyz: dist/duet-rpc.pyz ## build dist/duet-rpc.pyz and dist/duet-rpc.el

info: .venv/ready ## the manual for Emacs and the man page: dist/duet-rpc.info, dist/duet-rpc.1
	@$(BIN)/python packaging/manual.py dist
	@echo "made dist/duet-rpc.info (in Emacs: C-u C-h i) and dist/duet-rpc.1 (man -l dist/duet-rpc.1)"

release: lint build/release-tools/ready ## build everything that is published into dist/, and check it
	@$(BIN)/python packaging/release.py

version: .venv/ready ## make NEW=1.2.3 the version, wherever it is written
	@$(BIN)/python packaging/version.py $(NEW)

bench: .venv/ready dist/duet-rpc.pyz ## measure it beside its peers (ROUNDS=5: quick)
	$(BIN)/python -m bench --rounds $(ROUNDS)

screenshot: .venv/ready dist/duet-rpc.pyz ## take the pictures of Emacs that this README shows
	$(BIN)/python -m tests.emacs.recording elisp/command.svg
	tests/emacs/screenshot.sh elisp/duet-rpc-call.png

clean: ## remove everything that was made
	rm -rf .venv build dist tests/interop/clients/node_modules *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# What builds it is installed in seconds, and `make run` needs no more. The rest takes a minute.
dist/duet-rpc.pyz: build/shiv/ready $(SOURCES)
	@build/shiv/bin/python packaging/build.py

build/shiv/ready: pyproject.toml
	@$(call make_venv,build/shiv)
	@build/shiv/bin/python -m pip install --quiet --disable-pip-version-check \
	  $$(grep -E -o '(shiv|setuptools)==[0-9.]+' pyproject.toml)
	@touch $@

.venv/ready: pyproject.toml
	@$(call make_venv,.venv)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --config-settings editable_mode=compat --editable '.[dev]'
	@touch $@

# Debian keeps venv in a package of its own.
define make_venv
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || \
  { echo "duet-rpc needs Python 3.9 or later; name one: make PYTHON=python3.12" >&2; exit 1; }; \
rm -rf $(1); $(PYTHON) -m venv $(1) || { \
  [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
  apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(1); } || \
  { echo "$(PYTHON) -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
endef

# Clients and servers of MCP that others wrote, apart from everything that duet-rpc is made with.
# Two environments, because the versions 1.x and 2.x of the SDK have the same name.
build/mcp/ready: tests/interop/clients/requirements.txt
build/mcp1/ready: tests/interop/clients/requirements-mcp1.txt
build/mcp/ready build/mcp1/ready: | .venv/ready
	@for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11 python3.10; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || continue; \
	  rm -rf $(@D) && $$python -m venv --without-pip $(@D) && \
	    { $(BIN)/uv pip install --quiet --python $(@D)/bin/python -r $< || \
	    $(BIN)/python -m pip --python $(@D)/bin/python install --quiet \
	    --disable-pip-version-check -r $<; } && touch $@; exit; \
	done; \
	echo "NO PYTHON 3.10 OR LATER FOUND. THE TESTS WITH THE PYTHON SDK OF MCP ARE SKIPPED." >&2

# What the tests need beside Python: Emacs, Node.js for clients that others wrote, a clock that
# can be set back, sudo for TRAMP, and what makes and checks the manual.
build/tools: tests/interop/clients/package.json Makefile
	@mkdir -p build
	@need=; for e in $(EMACSEN); do command -v $$e > /dev/null || need="$$need emacs-nox"; done; \
	[ -d /usr/share/emacs/site-lisp/elpa-src ] || ! command -v apt-get > /dev/null || \
	  need="$$need elpa-package-lint"; \
	command -v npm > /dev/null || need="$$need nodejs npm"; \
	ls /usr/lib/*/faketime > /dev/null 2>&1 || ! command -v apt-get > /dev/null || \
	  need="$$need faketime"; \
	command -v mandoc > /dev/null || need="$$need mandoc"; \
	command -v sudo > /dev/null || need="$$need sudo"; \
	command -v makeinfo > /dev/null || need="$$need texinfo"; \
	if [ -n "$$need" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$need; \
	elif [ -n "$$need" ]; then \
	  echo "NOT FOUND:$$need. THE TESTS THAT NEED THEM ARE SKIPPED." >&2; fi
	@if command -v npm > /dev/null; then \
	  cd tests/interop/clients && npm install --silent --no-package-lock --no-audit --no-fund; fi
	@if [ "$$CI" = true ] || { command -v npm && command -v emacs; } > /dev/null; then touch $@; fi

build/release-tools/ready: packaging/release-tools.txt | .venv/ready
	@$(BIN)/python -m venv --clear build/release-tools
	@build/release-tools/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Servers that others wrote, to stand behind the gateway.
build/servers/ready: tests/interop/servers/requirements.txt tests/interop/servers/package.json | .venv/ready build/tools
	@mkdir -p build/servers && cp tests/interop/servers/package.json build/servers/
	@cd build/servers; all=yes; \
	[ -x venv/bin/pip ] || $(abspath $(BIN))/python -m venv --clear venv || all=; \
	venv/bin/pip install --quiet --disable-pip-version-check -r $(abspath $<) || all=; \
	npm install --silent --no-package-lock --no-audit --no-fund || all=; \
	[ -n "$$all" ] && touch ready || \
	echo "NOT ALL SERVERS COULD BE HAD. THE TESTS THAT NEED THEM ARE SKIPPED." >&2
