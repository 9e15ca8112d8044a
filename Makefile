# What people run. `make demo` and `make test` set everything up on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PEER := .venv-mergekit
LITGPT := .venv-litgpt
MEGATRON := .venv-megatron
DEEPSPEED := .venv-deepspeed
ORBAX := .venv-orbax
OLMO := .venv-olmo
TITAN := .venv-torchtitan

.PHONY: demo fork-points results results-neighbours test default-tests test-all test-slow test-peers lint format types docs site pictures bench soak fuzz faults clean

demo: $(VENV)/.train  ## a whole study on the embedded model, in a few minutes
	rm -rf demo-output
	$(BIN)/trajsoup demo --output demo-output

results: $(VENV)/.dev  ## docs/results*.md: five seeds of the paper and the wsd preset, two hours on two cores; goes on where it was
	$(BIN)/trajsoup demo --preset paper --output results-output
	$(BIN)/python docs/generate_results.py results-output results.md "Results of the embedded study"
	$(BIN)/python docs/generate_wishes.py results-output
	$(BIN)/trajsoup demo --preset wsd --output results-output-wsd
	$(BIN)/python docs/generate_results.py results-output-wsd results-wsd.md "Results with a decaying learning rate"

results-neighbours: $(VENV)/.dev  ## docs/results-neighbours.md: three seeds of the neighbours and the dense preset; goes on where it was
	$(BIN)/trajsoup demo --preset neighbours --output results-output-neighbours
	$(BIN)/trajsoup demo --preset dense --output results-output-dense
	$(BIN)/python docs/generate_neighbours.py results-output-neighbours results-output-dense

fork-points: $(VENV)/.dev  ## the pretrained models in the package, anew: five times 15 minutes of one core; goes on where it was
	$(BIN)/python benchmarks/fork_points.py

test: format  ## everything but slow and peer tests; types are checked beside them
	$(MAKE) --no-print-directory --jobs 2 types default-tests

default-tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

test-peers: $(VENV)/.dev $(PEER)/.done $(LITGPT)/.done $(MEGATRON)/.done $(DEEPSPEED)/.done $(ORBAX)/.done $(OLMO)/.done $(TITAN)/.done  ## mergekit's merges, litgpt's training, checkpoints of Megatron, DeepSpeed, Orbax, OLMo-core and torchtitan, each in its own environment
	$(BIN)/python -m pytest -m peers

test-all: test test-slow test-peers

lint: format types

format: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/pyright

docs: $(VENV)/.dev  ## regenerate what is generated from the code
	$(BIN)/python docs/generate.py
	$(BIN)/python benchmarks/scale.py --write >/dev/null

site: $(VENV)/.dev  ## the docs as a site, in site/; a broken link fails
	$(BIN)/mkdocs build --strict

pictures: $(VENV)/.dev  ## docs/images from the report of a study: make pictures STUDY=folder
	$(BIN)/python docs/pictures.py $(STUDY)

bench: $(VENV)/.dev $(PEER)/.done  ## every benchmark, dated in benchmarks/results; needs about 30 GB of disk in benchmarks/.data
	$(BIN)/python benchmarks/run_all.py --peer $(PEER)/bin/mergekit-yaml

SOAK_MINUTES ?= 3
SOAK_SEED ?= 0
soak: $(VENV)/.dev  ## a study under random faults for SOAK_MINUTES; the soup must come out the same
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES) --seed $(SOAK_SEED)

MINUTES ?= 10
FUZZ_SEED ?= $(shell date +%s)
fuzz: $(VENV)/.dev  ## every parser of foreign files on damaged ones, for MINUTES each
	TRAJSOUP_FUZZ_MINUTES=$(MINUTES) TRAJSOUP_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest --timeout 0 tests/fuzz

faults: $(VENV)/.dev  ## kills, full disks and torn reads of merges, uploads and studies, for MINUTES; counts add up in benchmarks/results/faults.md
	$(BIN)/python benchmarks/faults.py --minutes $(MINUTES)

$(VENV)/.train: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[fast,train,report]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.train

$(PEER)/.done: constraints.txt
	test -x $(PEER)/bin/python || $(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check mergekit==0.1.5
	touch $@

$(LITGPT)/.done: constraints.txt
	test -x $(LITGPT)/bin/python || $(PYTHON) -m venv $(LITGPT)
	$(LITGPT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(LITGPT)/bin/python -m pip install --quiet --disable-pip-version-check litgpt==0.5.13 litdata==0.2.76 torch==$$($(LITGPT)/bin/python -c "import torch; print(torch.__version__.split('+')[0])")
	$(LITGPT)/bin/python -m pip uninstall --quiet --yes torchvision  # may not fit this torch; litgpt's pretraining needs none
	touch $@

$(MEGATRON)/.done: constraints.txt
	test -x $(MEGATRON)/bin/python || $(PYTHON) -m venv $(MEGATRON)
	$(MEGATRON)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy packaging psutil
	$(MEGATRON)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps megatron-core==0.16.1
	touch $@

$(DEEPSPEED)/.done: constraints.txt
	test -x $(DEEPSPEED)/bin/python || $(PYTHON) -m venv $(DEEPSPEED)
	$(DEEPSPEED)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy
	DS_BUILD_OPS=0 $(DEEPSPEED)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt deepspeed==0.19.8
	touch $@

$(ORBAX)/.done:
	test -x $(ORBAX)/bin/python || $(PYTHON) -m venv $(ORBAX)
	$(ORBAX)/bin/python -m pip install --quiet --disable-pip-version-check orbax-checkpoint==0.12.8 jax==0.10.2 wandb==0.31.0
	touch $@

$(OLMO)/.done: constraints.txt
	test -x $(OLMO)/bin/python || $(PYTHON) -m venv $(OLMO)
	$(OLMO)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(OLMO)/bin/python -m pip install --quiet --disable-pip-version-check ai2-olmo-core==3.0.0
	touch $@

$(TITAN)/.done: constraints.txt
	test -x $(TITAN)/bin/python || $(PYTHON) -m venv $(TITAN)
	$(TITAN)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(TITAN)/bin/python -m pip install --quiet --disable-pip-version-check torchtitan==0.3.0 triton torch==$$($(TITAN)/bin/python -c "import torch; print(torch.__version__.split('+')[0])")
	touch $@

clean:
	rm -rf $(VENV) $(PEER) $(LITGPT) $(MEGATRON) $(DEEPSPEED) $(ORBAX) $(OLMO) $(TITAN) demo-output results-output results-output-wsd site .pytest_cache .ruff_cache .hypothesis
