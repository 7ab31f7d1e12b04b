# Front door: every target wraps `reprise` or a script; bare `make` lists them.
# Targets that take variables read them from the environment, as "$$NAME": a value never becomes
# text of a recipe, neither for make (hence `value`) nor for the shell.

# Each variable of the command line becomes a plain value before anything else happens: otherwise
# make expands it wherever it is used, at the latest in the environment of a recipe.
override .SHELLFLAGS := -c
override SHELL := /bin/sh
override .name :=
override GIVEN := $(foreach .name,$(.VARIABLES),$(if $(filter command,$(origin $(.name))),$(.name)))
override GIVEN := $(filter-out MAKEFLAGS MAKEOVERRIDES,$(GIVEN))
$(foreach .name,$(GIVEN),$(if $(findstring $$,$(.name)),$(error `$(.name)` is not a name of a variable)))
$(foreach .name,$(GIVEN),$(eval override export $(.name) := $$(value $(.name))))
# The environment has the values already; from make's own list they would be expanded again.
override MAKEOVERRIDES :=
OWN := READS GOALS READ UNREAD ENVIRONMENT SWITCHES VARIABLES MAKECMDGOALS REPRISE OPERATOR DEV REHEARSAL
$(foreach .name,$(GIVEN),$(if $(filter $(.name),OWN $(OWN)),$(error $(.name) is the Makefile's own, not a variable of a target)))

.DEFAULT_GOAL := help
# A misspelt variable, or one that the target does not read, would be ignored silently.
# Variables that the programs below read from the environment are also valid on the command line.
ENVIRONMENT := REPRISE_% HF_% HUGGINGFACE_% MODELSCOPE_% RAY_% WANDB_% SWANLAB_% MLFLOW_% PIP_% UV_% \
	CUDA_% NCCL_% VERL_% VLLM_% DOCKER_% GIT_% %_DIR %_FILES %_proxy %_PROXY SITE GPU_PYTHON APT_SOURCES JOBS_%
override GIVEN := $(filter-out $(ENVIRONMENT),$(GIVEN))
# A switch that 1 turns on is off with 0.
SWITCHES := EXPLAIN CONTAINER KEEP DRY_RUN WATCH FOLLOW LAST_FAILED
$(foreach name,$(SWITCHES),$(if $(filter 0 no false,$(value $(name))),$(eval override $(name) :=)))
ifneq ($(GIVEN),)
READS := $(shell awk -f scripts/variables.awk Makefile)
# What only the image is built with.
READS := $(if $(value CONTAINER),$(READS),$(filter-out reproduce:BASE,$(READS)))
GOALS := $(or $(MAKECMDGOALS),help)
ifeq ($(filter-out $(READS),$(GOALS:%=%:)),)
READ := $(sort $(foreach goal,$(GOALS),$(patsubst $(goal):%,%,$(filter $(goal):%,$(READS)))))
UNREAD := $(filter-out $(READ),$(GIVEN))
ifneq ($(UNREAD),)
$(error `make $(GOALS)` does not read $(UNREAD); it reads $(or $(READ),no variable)$(if $(and $(filter BASE,$(UNREAD)),$(filter CONTAINER,$(READ))), and BASE with CONTAINER=1) (variables of the environment go before the command))
endif
endif
endif

VARIABLES := BENCH PYTHON PLATFORM ENGINE ROLLOUT LAYOUT MODEL HOSTFILE SEED STEPS RUN ALGO EXPLAIN ARCH RANKS SEEDS SCRIPT CONTAINER MIRROR BUNDLE MACHINE PART_SIZE FOLDER FROM BASE FILE KEEP RESUME DRY_RUN ADDRESS WATCH FOLLOW FORCE ATTEMPT MARGIN OUT WORLD_SIZE ROOMS LAST_FAILED
$(foreach name,$(VARIABLES),$(eval override export $(name) := $$(value $(name))))

REPRISE := .venv/bin/reprise
OPERATOR := scripts/venv.sh operator
DEV := scripts/venv.sh dev
REHEARSAL := scripts/venv.sh rehearsal

##@ Set-up (the targets below run it as needed)
.PHONY: env env-rehearsal
env: ## Create or repair the operator's environment (.venv)
	@$(OPERATOR)

env-rehearsal: ## Create or repair the rehearsal's environment (.venv-rehearsal: torch, vLLM, verl, Ray)
	@$(REHEARSAL)

.PHONY: setup bundle lock-check lock-verify image-lock
setup: ## Install the locked trees and environments [MACHINE=h20] [MIRROR=url] [BUNDLE=file]
	@$(OPERATOR)
	@$(REPRISE) setup $${MACHINE:+--machine "$$MACHINE"} $${MIRROR:+--mirror "$$MIRROR"} $${BUNDLE:+--bundle "$$BUNDLE"}

bundle: ## Write a bundle for a machine without network: BUNDLE=file [MACHINE=h20] [PART_SIZE=60M]
	@$(OPERATOR)
	@$(REPRISE) bundle create $${MACHINE:+--machine "$$MACHINE"} $${PART_SIZE:+--part-size "$$PART_SIZE"} -- "$${BUNDLE:?name the file: BUNDLE=...}"

lock-check: ## Check versions.lock itself
	@$(OPERATOR)
	@$(REPRISE) lock check

lock-verify: ## Compare this machine with versions.lock [MACHINE=...] [PYTHON=interpreter of the packages]
	@$(OPERATOR)
	@$(REPRISE) lock verify $${MACHINE:+--machine "$$MACHINE"} $${PYTHON:+--python "$$PYTHON"}

image-lock: ## Resolve the images' tags to digests and write those not locked yet
	@$(OPERATOR)
	@$(REPRISE) lock image --write

##@ Recipes
.PHONY: check show plan
check: ## Check a recipe or SCRIPT=run.sh before anything is reserved [MODEL=hy3] [ALGO=rloo] [EXPLAIN=1]
	@$(OPERATOR)
	@if [ -n "$$SCRIPT" ]; then \
		$(REPRISE) recipe check $${EXPLAIN:+--explain} --script "$$SCRIPT" $${MODEL:+--model "$$MODEL"} $${ALGO:+--algo "$$ALGO"}; \
	else \
		$(REPRISE) recipe check $${EXPLAIN:+--explain} $${ALGO:+--algo "$$ALGO"} -- "$${MODEL:-hy3}"; \
	fi

show: ## Show what a recipe sets beyond verl's defaults, and its command [MODEL=hy3] [ALGO=rloo]
	@$(OPERATOR)
	@$(REPRISE) recipe show $${ALGO:+--algo "$$ALGO"} -- "$${MODEL:-hy3}"

plan: ## Estimate memory, disk and time of a recipe [MODEL=hy3] [ALGO=rloo]
	@$(OPERATOR)
	@$(REPRISE) recipe plan $${ALGO:+--algo "$$ALGO"} -- "$${MODEL:-hy3}"

##@ Data and models
.PHONY: data data-check model model-check
data: ## Fetch the locked data files into DATA_DIR and check them [MIRROR=url] [FROM=file or folder]
	@$(OPERATOR)
	@$(REPRISE) data fetch $${MIRROR:+--mirror "$$MIRROR"} $${FROM:+--from "$$FROM"}

data-check: ## Check a recipe's data files against its sizes and limits [MODEL=hy3]
	@$(OPERATOR)
	@$(REPRISE) data check --model "$${MODEL:-hy3}"

model: ## Fetch a locked model's weights and check each file: MODEL=hy3 FOLDER=dir [MIRROR=url] [FROM=dir]
	@$(OPERATOR)
	@$(REPRISE) model fetch $${MIRROR:+--mirror "$$MIRROR"} $${FROM:+--from "$$FROM"} -- "$${MODEL:-hy3}" "$${FOLDER:?name the folder: FOLDER=...}"

model-check: ## Check the index, every shard's header and the config of weights: FOLDER=dir [MODEL=hy3] [HOSTFILE=file]
	@$(OPERATOR)
	@$(REPRISE) model check $${MODEL:+--lock "$$MODEL"} $${HOSTFILE:+--hostfile "$$HOSTFILE"} -- "$${FOLDER:?name the folder: FOLDER=...}"

##@ Cluster
.PHONY: hosts doctor cluster-up cluster-status cluster-down
hosts: ## Read a hostfile and print its hosts: HOSTFILE=file
	@$(OPERATOR)
	@$(REPRISE) hosts -- "$${HOSTFILE:?name the file: HOSTFILE=...}"

doctor: ## Check that hosts are ready for training [HOSTFILE=file; else this machine] [MACHINE=...]
	@$(OPERATOR)
	@$(REPRISE) doctor $${MACHINE:+--machine "$$MACHINE"} $${HOSTFILE:+-- "$$HOSTFILE"}

cluster-up: ## Start Ray on every host of HOSTFILE=file, or restart missing nodes [MACHINE=...]
	@$(OPERATOR)
	@$(REPRISE) cluster up $${MACHINE:+--machine "$$MACHINE"} -- "$${HOSTFILE:?name the file: HOSTFILE=...}"

cluster-status: ## Show the nodes and GPUs of the cluster: HOSTFILE=file
	@$(OPERATOR)
	@$(REPRISE) cluster status -- "$${HOSTFILE:?name the file: HOSTFILE=...}"

cluster-down: ## Stop this cluster, and nothing else: HOSTFILE=file
	@$(OPERATOR)
	@$(REPRISE) cluster down -- "$${HOSTFILE:?name the file: HOSTFILE=...}"

##@ Images
.PHONY: images image-cpu image-verify image-save image-load demo-cluster
images: ## Build the image of a cluster's hosts on the locked base [MACHINE=h20|s5000] [BASE=name@sha256:..]
	@$(OPERATOR)
	@$(REPRISE) image build $${BASE:+--base "$$BASE"} -- "$${MACHINE:-h20}"

image-cpu: ## Build the rehearsal's image [BASE=debian@sha256:..; else a Debian built here]
	@$(OPERATOR)
	@$(REPRISE) image build $${BASE:+--base "$$BASE"} -- cpu

image-verify: ## Check that the images of hosts are built from this lock [MACHINE=h20|s5000|cpu] [HOSTFILE=file]
	@$(OPERATOR)
	@$(REPRISE) image verify $${HOSTFILE:+--hostfile "$$HOSTFILE"} -- "$${MACHINE:-h20}"

image-save: ## Write an image to a file: FILE=h20.tar [MACHINE=h20|s5000|cpu]
	@$(OPERATOR)
	@$(REPRISE) image save --machine "$${MACHINE:-h20}" -- "$${FILE:?name the file: FILE=...}"

image-load: ## Check an image file and load it into this machine's engine: FILE=h20.tar
	@$(OPERATOR)
	@$(REPRISE) image load -- "$${FILE:?name the file: FILE=...}"

demo-cluster: ## Run four containers as a cluster: doctor, Ray, a job on all, stop [BASE=..] [KEEP=1]
	@$(OPERATOR)
	@mkdir -p .cache; name=.cache/demo-image.$$$$; trap 'rm -f "$$name"' EXIT; \
		$(REPRISE) image build $${BASE:+--base "$$BASE"} --name-file "$$name" -- cpu && \
		scripts/demo_cluster.sh "$$(cat "$$name")" $${KEEP:+--keep}

##@ Run
.PHONY: train reproduce baseline
train: ## Check, submit and watch [MODEL=rehearsal] [HOSTFILE=file | ADDRESS=url] [DRY_RUN=1] [SEED=n] [SEEDS=n] [ALGO=..] [FORCE=rule] | RESUME=run
	@$(OPERATOR)
	@if [ -z "$$HOSTFILE$$ADDRESS$$RAY_ADDRESS$$RESUME" ] && [ "$${MODEL:-rehearsal}" = rehearsal ]; then $(REHEARSAL); fi
	@if [ -z "$$RESUME$$MODEL" ]; then MODEL=rehearsal; fi; \
	$(REPRISE) train $${RESUME:+--resume "$$RESUME"} $${DRY_RUN:+--dry-run} $${ADDRESS:+--address "$$ADDRESS"} $${SEED:+--seed "$$SEED"} $${SEEDS:+--seeds "$$SEEDS"} $${ALGO:+--algo "$$ALGO"} $${FORCE:+--force "$$FORCE"} -- $${MODEL:+"$$MODEL"} $${HOSTFILE:+"$$HOSTFILE"}

reproduce: ## Train and judge the curve [MODEL=rehearsal] [SEED=1] [STEPS=n] [RANKS=2] [ARCH=..] [ALGO=..] [PLATFORM=gpu ENGINE=megatron ROLLOUT=sglang] [LAYOUT=pp2] [CONTAINER=1] | RUN=folder or file [MARGIN=x] [OUT=folder]
	@$(OPERATOR)
	@if [ -z "$$RUN$$CONTAINER" ] && [ "$${MODEL:-rehearsal}" = rehearsal ]; then \
		case "$${PLATFORM:-cpu}" in cpu) $(REHEARSAL) ;; gpu) scripts/gpu/env.py $${ENGINE:+--engine "$$ENGINE"} $${ROLLOUT:+--rollout "$$ROLLOUT"} ;; esac; \
	fi
	@$(REPRISE) $${CONTAINER:+image run $${BASE:+--base "$$BASE"} --} reproduce $${SEED:+--seed "$$SEED"} $${STEPS:+--steps "$$STEPS"} $${RANKS:+--ranks "$$RANKS"} $${ARCH:+--arch "$$ARCH"} $${ALGO:+--algo "$$ALGO"} $${PLATFORM:+--platform "$$PLATFORM"} $${ENGINE:+--engine "$$ENGINE"} $${ROLLOUT:+--rollout "$$ROLLOUT"} $${LAYOUT:+--layout "$$LAYOUT"} $${RUN:+--run "$$RUN"} $${MARGIN:+--margin "$$MARGIN"} $${OUT:+--out "$$OUT"} -- "$${MODEL:-rehearsal}"

baseline: ## Record the rehearsal's reference runs; continues where it stopped [SEEDS=8] [PLATFORM=gpu ENGINE=megatron ROLLOUT=sglang ARCH=qwen3]
	@$(OPERATOR)
	@case "$${PLATFORM:-cpu}" in cpu) $(REHEARSAL) ;; gpu) scripts/gpu/env.py $${ENGINE:+--engine "$$ENGINE"} $${ROLLOUT:+--rollout "$$ROLLOUT"} ;; esac
	@$(REPRISE) baseline $${SEEDS:+--seeds "$$SEEDS"} $${ARCH:+--arch "$$ARCH"} $${PLATFORM:+--platform "$$PLATFORM"} $${ENGINE:+--engine "$$ENGINE"} $${ROLLOUT:+--rollout "$$ROLLOUT"}

##@ Runs
.PHONY: runs status logs triage stop checkpoint-check
runs: ## List the newest runs [MODEL=hy3]
	@$(OPERATOR)
	@$(REPRISE) runs $${MODEL:+-- "$$MODEL"}

status: ## Show the state of a run and its alarms [RUN=id; else the newest] [WATCH=1]
	@$(OPERATOR)
	@$(REPRISE) status $${WATCH:+--watch} $${RUN:+-- "$$RUN"}

logs: ## Print the log of a run's job [RUN=id; else the newest] [FOLLOW=1] [ATTEMPT=n]
	@$(OPERATOR)
	@$(REPRISE) logs $${FOLLOW:+--follow} $${ATTEMPT:+--attempt "$$ATTEMPT"} $${RUN:+-- "$$RUN"}

triage: ## The first root cause of a failure: RUN=id (other logs: reprise triage PATH...)
	@$(OPERATOR)
	@$(REPRISE) triage -- "$${RUN:?name the run: RUN=...}"

stop: ## Stop a run (its job only): RUN=id
	@$(OPERATOR)
	@$(REPRISE) stop -- "$${RUN:?name the run: RUN=...}"

checkpoint-check: ## Check that checkpoints are complete and a job can resume from them: FOLDER=dir [WORLD_SIZE=128]
	@$(OPERATOR)
	@$(REPRISE) checkpoint check $${WORLD_SIZE:+--world-size "$$WORLD_SIZE"} -- "$${FOLDER:?name the folder: FOLDER=...}"

##@ Work on the project
.PHONY: test test-fast test-full lint bench docs docs-site lock-requirements
# Side by side: tests/conftest.py has the number of workers and the groups that stay together. Without
# compiled files every worker would compile all tests again: half of the time of collecting them.
test test-fast test-full: export PYTHONDONTWRITEBYTECODE :=
test: ## Run all tests of CI: fast ones, then the real three-step run
	@scripts/system.sh
	@$(DEV)
	@$(REHEARSAL)
	@.venv/bin/python -m pytest -n auto --durations=30 --durations-min=5 -m 'not full and not regression'

test-fast: ## Run the tests that need no rehearsal environment
	@$(DEV)
	@.venv/bin/python -m pytest -n auto

test-full: ## Run all tests, also those too long for CI; resumes, writes docs/testing.md [ROOMS="lock run"] [LAST_FAILED=1]
	@scripts/system.sh
	@$(DEV)
	@$(REHEARSAL)
	@.venv/bin/python scripts/test_full.py $${LAST_FAILED:+--last-failed} --rooms "$$ROOMS"

lint: ## Run ruff, mypy, shellcheck, hadolint
	@$(DEV)
	@scripts/lint.sh

bench: ## Run a benchmark on an idle machine: BENCH=data/files; else list them
	@$(DEV)
	@if [ -n "$$BENCH" ] && [ -f "benchmarks/$$BENCH.py" ]; then \
		.venv/bin/python "benchmarks/$$BENCH.py"; \
	else \
		for file in benchmarks/*/*.py; do printf '%-24s %s\n' "$$(echo "$$file" | cut -d/ -f2- | cut -d. -f1)" "$$(head -1 "$$file" | tr -d '"')"; done; \
		[ -z "$$BENCH" ] || { printf 'error BENCH=%s: unknown benchmark; the list is above\n' "$$BENCH" >&2; exit 1; }; \
	fi

docs: ## Write docs/cli.md (commands' help), docs/rules.md (registry), docs/schemas (models)
	@$(DEV)
	@.venv/bin/python scripts/cli_reference.py
	@.venv/bin/python scripts/rules_reference.py
	@.venv/bin/python scripts/json_schemas.py
	@.venv/bin/python scripts/triage_table.py

docs-site: docs ## Build docs/ as a site, without a network
	@.venv/bin/mkdocs build --quiet --strict
	@printf 'file://%s/.cache/site/tutorial.html\n' "$$(pwd)"

lock-requirements: ## Rewrite requirements/*.txt from *.in (needs an index)
	@$(DEV)
	@.venv/bin/python scripts/lock_requirements.py
	@$(REPRISE) lock update environment.operator
	@$(REPRISE) lock update environment.rehearsal
	@$(REPRISE) lock update environment.gpu
	@$(REPRISE) lock update environment.gpu-sglang

##@ Help
.PHONY: help
help: ## Show this list
	@awk -f scripts/help.awk $(MAKEFILE_LIST)
