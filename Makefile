# Each target sets up .venv first where it is missing or older than what it is made from.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := torch==2.13.0
# One thread a process: the tests run in as many processes as there are cores.
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1

.PHONY: help setup study data test test-slow test-cluster check format bench figures clean
help:  ## show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv and install babelcap with the tested versions

# torch is named first and by its exact version, so that no later step resolves another build of it.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "$(TORCH)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[data,eval,app,cluster,dev]"
	touch $@

study: $(READY)  ## run the whole method in small and end with the path of its report (minutes on two cores)
	$(BIN)/babelcap study run configs/study/micro.toml

WORLD := corpora/world-source
data: $(READY)  ## build a dataset of a small world through all stages and end with the path of its page (a minute)
	test -e $(WORLD) || $(BIN)/babelcap world make -o $(WORLD) --config configs/data/world-source.toml
	$(BIN)/babelcap data build configs/data/world.toml

test: $(READY)  ## run the default tests (minutes on two cores)
	$(TEST_ENV) $(BIN)/python -m pytest -n auto

test-slow: $(READY)  ## run the tests that take longer
	$(TEST_ENV) $(BIN)/python -m pytest -n auto -m slow
	$(TEST_ENV) BABELCAP_HYPOTHESIS=search $(BIN)/python -m pytest -n auto $$(grep -l "^@given" -r tests)

test-cluster: $(READY)  ## install and start Slurm on this machine and run jobs through it (root; minutes)
	bash cluster/install_slurm.sh
	$(TEST_ENV) bash cluster/with_slurm.sh $(BIN)/python -m pytest -m cluster tests/cluster

check: $(READY)  ## lint, types and the rules of the house
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(TEST_ENV) $(BIN)/python -m pytest tests/test_house.py

format: $(READY)  ## put the code into the house's format
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

BENCHMARKS := data index_tar align generate loss train laws metrics
bench: $(READY)  ## measure speed as ratios, each in one run (tens of minutes)
	for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python bench/$$name.py || exit 1; done

FIGURES := prefix content loss_conditioned content_loss
figures: $(READY)  ## draw README's figures anew from the records of results/small
	$(BIN)/babelcap report build results/small -o build/report
	mkdir -p docs/figures
	for name in $(FIGURES); do cp build/report/$$name.png docs/figures/ || exit 1; done
	cp build/report/claims.csv results/small/

clean:  ## remove the environment and the caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
