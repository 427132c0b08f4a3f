# Everything runs from .venv, which is made on demand from the locks in requirements/.
# All paths are relative, so the repository may lie in a folder with spaces in its name.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
MCP_SERVERS := .venv-mcp-servers
# The vulnerable servers of mcp-guardbench need Python 3.12. Their tests are skipped where there is none. A version
# manager may have one beside the version that is chosen now.
MCP_PYTHONS := python3.13 python3.12 $(wildcard $(HOME)/.pyenv/versions/3.1[23].*/bin/python3)
MCP_PYTHON = $(firstword $(foreach each,$(MCP_PYTHONS),$(shell $(each) -c 'print("$(each)")' 2>/dev/null)) $(PYTHON))
AGUI := .venv-agui
LOCKING := .venv-locking

# make test JOBS=4 ARGS="-k fence"
# One more than there are cores: many tests wait for processes, disks and servers.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 1) + 1)
ARGS ?=

# The first that runs, is new enough and can make an environment. A version manager's stand-in may be found and not run.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$python; break; }; done)

PIP := -m pip --disable-pip-version-check --no-input --quiet
# The extras that `make check` needs. Each adapter of INTEGRATIONS has an environment of its own.
EXTRAS := discord mcp models otel postgres serve slack telegram
INTEGRATIONS := adk agent-framework claude langchain openai-agents pydantic-ai
# Each has a module in bench/framework.
BENCHED := adk agent-framework langchain openai-agents pydantic-ai
LOCKS := $(patsubst %,requirements/%.lock,build runtime serve test)
written = @test -e $(1) || { echo '$(1) is not written yet' >&2; exit 1; }
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

# An environment knows where it was made: in a copied or moved folder it would import the old one's sources.
# One whose Python has gone is of no use either.
ifeq ($(shell [ "$$(cat $(VENV)/.place 2>/dev/null)" = "$$(pwd -P)" ] && $(BIN)/python -c '' 2>/dev/null && echo usable),)
$(VENV)/.made: unusable
endif

.PHONY: help demo install run test test-agui test-integrations test-long test-mcp test-peers test-postgres check fmt lint types bench bench-integrations bench-peers simulate fuzz mutate lock clean unusable

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1: /p' Makefile | while IFS=: read -r name text; do printf '%-12s%s\n' "$$name" "$$text"; done

demo: $(VENV)/.runtime  ## the story in one minute; installs only what runs it
	@$(BIN)/holdfast demo $(ARGS)

install: $(VENV)/.serve  ## the command and its page, in .venv/bin/holdfast

run: $(VENV)/.serve  ## the gateway; prints its address
	@$(BIN)/holdfast serve $(ARGS)

test: $(VENV)/.test  ## the tests, without the long ones
	@$(PYTEST) -m 'not long and not beyond_share' $(ARGS)

test-postgres: $(VENV)/.test  ## PostgreSQL beyond the share of `make test`: with it, each suite has run whole
	@$(PYTEST) -m 'beyond_share and not long' $(ARGS)

test-long: $(VENV)/.long $(VENV)/.fuzz  ## all tests, with more examples
	@$(PYTEST) --hypothesis-profile=long --timeout=3600 --cold $(ARGS)

test-integrations: $(INTEGRATIONS:%=.venv-%/.made)  ## adapters with their real frameworks; INTEGRATIONS=langchain for one
	@for name in $(INTEGRATIONS); do \
		.venv-$$name/bin/python -m pytest -n $(JOBS) -p no:asyncio --timeout=600 --confcutdir=tests/integrations \
			tests/integrations/$$(echo $$name | tr - _) $(ARGS) || exit 1; done

test-mcp: $(VENV)/.test $(MCP_SERVERS)/.made  ## our MCP client and our proxy with servers that people use, and the official conformance suite
	@$(PYTEST) tests/adapters/mcp $(ARGS)

test-agui: $(VENV)/.test $(AGUI)/.made  ## the AG-UI routes with the real client of npm
	@$(PYTEST) tests/acceptance/gateway/agui $(ARGS)

test-peers: $(INTEGRATIONS:%=.venv-%/.made)  ## the frameworks' own suites over our adapters, with their numbers
	@.venv-langchain/bin/python -m pytest -s --confcutdir=tests/integrations tests/integrations/langchain/test_peers.py $(ARGS)
	@.venv-openai-agents/bin/python -m pytest -s -p no:asyncio --confcutdir=tests/integrations tests/integrations/openai_agents/peers.py $(ARGS)
	@.venv-adk/bin/python -m pytest -s -p no:asyncio --confcutdir=tests/integrations tests/integrations/adk/peers.py $(ARGS)
	@.venv-claude/bin/python -m pytest -s --confcutdir=tests/integrations tests/integrations/claude/test_peers.py $(ARGS)

.PHONY: frameworks-alone
frameworks-alone: $(VENV)/.test $(patsubst %,.venv-%/.made,$(filter-out claude,$(INTEGRATIONS)))  ## what frameworks do without Holdfast in the same crash
	@$(BIN)/python -m proof.frameworks_alone

check: lint types test  ## everything that must hold before a change lands; ends with pytest's closing line

fmt: $(VENV)/.test  ## format, and mend what can be mended
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lint: $(VENV)/.test  ## format, style, direction of imports, sizes, names, sentences
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python -m proof.conventions

types: $(VENV)/.test  ## mypy on the sources and the benchmarks; the public API as two type checkers see it
	@$(BIN)/mypy src proof bench $(wildcard tests/typing)
	@test ! -d tests/typing || $(BIN)/basedpyright

bench: $(VENV)/.test  ## our numbers against the disk's, as ratios of one run
	$(call written,bench/__main__.py)
	@$(BIN)/python -m bench $(ARGS)

bench-peers: $(VENV)/.test $(PEERS)/.made  ## the same work done by what people use instead
	$(call written,bench/peers.py)
	@$(BIN)/python -m bench.peers --python $(PEERS)/bin/python $(ARGS)

bench-integrations: $(INTEGRATIONS:%=.venv-%/.made)  ## an allowed call under each framework against the framework alone
	@for name in $(BENCHED); do .venv-$$name/bin/python -m bench.framework $$name || exit 1; done
	@.venv-langchain/bin/python -m bench.framework.saver

simulate: $(VENV)/.test  ## seeded faults without end; ARGS="--seed N" repeats one
	$(call written,proof/simulation/__main__.py)
	@$(BIN)/python -m proof.simulation $(ARGS)

fuzz: $(VENV)/.fuzz  ## every parser, guided by coverage, a minute each; ARGS="http --seconds 3600" for one of them, longer
	@$(BIN)/python -m proof.fuzz $(ARGS)

mutate: $(VENV)/.test  ## mutants of what must not be wrong, and which of them no test notices; ARGS="--count 300"
	@$(BIN)/python -m proof.mutation $(ARGS)

clean:  ## remove what the other targets made
	@rm -rf $(VENV) $(PEERS) $(MCP_SERVERS) $(LOCKING) $(INTEGRATIONS:%=.venv-%) .fuzz build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find src tests bench proof -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@rm -rf src/*.egg-info

# --- environments -------------------------------------------------------------------------------------------------
# A changed lock makes the environment anew, so that nothing stays that no lock names.

$(VENV)/.made: $(LOCKS)
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer with venv is needed (on Debian: python3-venv); name it with PYTHON=...' >&2; exit 1; }
	@echo 'making $(VENV) with $(PYTHON)'
	@$(PYTHON) -m venv --clear $(VENV)
	@pwd -P >$(VENV)/.place
	@touch $@

$(VENV)/.runtime: $(VENV)/.made pyproject.toml
	@echo 'installing requirements/runtime.lock'
	@$(BIN)/python $(PIP) install --no-deps --require-hashes -r requirements/build.lock -r requirements/runtime.lock
	@$(BIN)/python $(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src  # else every command compiles everything anew where PYTHONDONTWRITEBYTECODE is set
	@touch $@

$(VENV)/.serve: $(VENV)/.runtime
	@echo 'installing requirements/serve.lock'
	@$(BIN)/python $(PIP) install --no-deps --require-hashes -r requirements/serve.lock
	@touch $@

$(VENV)/.test: $(VENV)/.runtime
	@echo 'installing requirements/test.lock'
	@$(BIN)/python $(PIP) install --no-deps --require-hashes -r requirements/test.lock
	@touch $@

$(VENV)/.long: $(VENV)/.test requirements/long.lock
	@echo 'installing requirements/long.lock'
	@$(BIN)/python $(PIP) install --no-deps --require-hashes -r requirements/long.lock
	@touch $@

$(VENV)/.fuzz: $(VENV)/.test requirements/fuzz.lock
	@echo 'installing requirements/fuzz.lock'
	@$(BIN)/python $(PIP) install --no-deps --require-hashes -r requirements/fuzz.lock
	@touch $@

.venv-%/.made: requirements/integrations-%.lock requirements/build.lock pyproject.toml
	@echo 'installing $<'
	@$(PYTHON) -m venv --clear .venv-$*
	@.venv-$*/bin/python $(PIP) install --require-hashes -r requirements/build.lock -r $<
	@.venv-$*/bin/python $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(PEERS)/.made: requirements/peers.lock
	@echo 'installing requirements/peers.lock'
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python $(PIP) install --no-deps --require-hashes -r $<
	@touch $@

# Servers from two registries, by name, version and digest; no script of a package of npm runs. The everything server
# of the MCP library comes with its source distribution alone.
$(MCP_SERVERS)/.made: requirements/mcp-servers.lock requirements/mcp-npm/package.json requirements/mcp-npm/package-lock.json
	@echo 'installing requirements/mcp-servers.lock and requirements/mcp-npm'
	@$(MCP_PYTHON) -m venv --clear $(MCP_SERVERS)
	@$(MCP_SERVERS)/bin/python $(PIP) install --require-hashes -r $<
	@sed -n '/^mcp==/,/[^\\]$$/p' $< >$(MCP_SERVERS)/mcp.lock
	@$(MCP_SERVERS)/bin/python $(PIP) download --require-hashes --no-deps --no-binary mcp --no-build-isolation \
		-d $(MCP_SERVERS) -r $(MCP_SERVERS)/mcp.lock
	@tar -xzf $(MCP_SERVERS)/mcp-*.tar.gz -C $(MCP_SERVERS) --wildcards --strip-components=3 'mcp-*/examples/servers/everything-server'
	@cp requirements/mcp-npm/package.json requirements/mcp-npm/package-lock.json $(MCP_SERVERS)
	@npm ci --prefix $(MCP_SERVERS) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# By name, version and digest; no script of a package runs.
$(AGUI)/.made: requirements/agui-npm/package.json requirements/agui-npm/package-lock.json
	@echo 'installing requirements/agui-npm'
	@rm -rf $(AGUI) && mkdir $(AGUI)
	@cp requirements/agui-npm/package.json requirements/agui-npm/package-lock.json $(AGUI)
	@npm ci --prefix $(AGUI) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# --- locks --------------------------------------------------------------------------------------------------------
# Names, versions and hashes for every platform; no addresses. UPGRADE=--upgrade takes the newest of everything.

UPGRADE ?=
COMPILE = $(LOCKING)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(UPGRADE)

$(LOCKING)/.made: requirements/locking.lock
	@$(PYTHON) -m venv --clear $(LOCKING)
	@$(LOCKING)/bin/python $(PIP) install --no-deps --require-hashes -r $<
	@touch $@

lock: $(LOCKING)/.made  ## write the locks anew from pyproject.toml and requirements/*.in
	@$(COMPILE) pyproject.toml -o requirements/runtime.lock
	@$(COMPILE) pyproject.toml --extra models -c requirements/runtime.lock -o requirements/models.lock
	@$(COMPILE) pyproject.toml --extra serve -c requirements/runtime.lock -o requirements/serve.lock
	@$(COMPILE) pyproject.toml --extra postgres -c requirements/runtime.lock -o requirements/postgres.lock
	@$(COMPILE) pyproject.toml --extra mcp -c requirements/runtime.lock -o requirements/mcp.lock
	@$(COMPILE) pyproject.toml --extra otel -c requirements/runtime.lock -o requirements/otel.lock
	@for name in discord slack telegram; do $(COMPILE) pyproject.toml --extra $$name \
		-c requirements/runtime.lock -o requirements/$$name.lock || exit 1; done
	@$(COMPILE) requirements/build.in -o requirements/build.lock
	@$(COMPILE) pyproject.toml $(EXTRAS:%=--extra %) requirements/test.in -c requirements/runtime.lock -c requirements/build.lock \
		-o requirements/test.lock
	@$(COMPILE) --no-deps requirements/long.in -o requirements/long.lock
	@$(COMPILE) --no-deps requirements/fuzz.in -o requirements/fuzz.lock
	@for name in $(INTEGRATIONS); do $(COMPILE) pyproject.toml --extra $$name requirements/integrations.in \
		$$(ls requirements/integrations-$$name.in 2>/dev/null) \
		-c requirements/runtime.lock -o requirements/integrations-$$name.lock || exit 1; done
	@$(COMPILE) requirements/peers.in -o requirements/peers.lock
	@$(COMPILE) requirements/mcp-servers.in -o requirements/mcp-servers.lock
	@$(COMPILE) requirements/locking.in -o requirements/locking.lock
	@! grep -nE '://|^ *--(index|extra-index|find-links)' requirements/*.lock
