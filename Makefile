# Everything runs from the root of the checkout with the tools of .venv; `make help` lists the targets.
PYTHON ?= python3
ARGS ?=
PY := .venv/bin/python
STAMP := .venv/.setup-stamp
# What is typed for .venv, which its stamp keeps.
TYPED := $(foreach name,TORCH PYTHON,$(if $(filter command environment,$(firstword $(origin $(name)))),$(name)=$($(name))))
CHECK_TYPED = @grep -qs ^made $(STAMP) || exit 0; for word in $(TYPED); do grep -qxF "$$word" $(STAMP) || { \
	  echo "setup: .venv is there, and was not made with $$word; type: make distclean setup $$word" >&2; exit 2; }; done
SUPPORTED := (3, 11) <= sys.version_info[:2] < (3, 14)

.DEFAULT_GOAL := help
# Libraries are compiled by the first process that imports them; without that each process takes 10 seconds longer.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: setup lock quickstart demo-facts gpu-day pictures test test-all test-faults rehearsal rehearsal-slurm lint bench clean distclean help

setup: $(STAMP)  ## make .venv with every dependency at the versions of constraints.txt; TORCH=cpu: without CUDA
	$(CHECK_TYPED)

# uv installs; where it is not on the PATH, pip brings it into .venv first. It takes the wheels that pip is told of.
# -I keeps the root off sys.path, so that pip and venv never meet our package named platform.
$(STAMP): pyproject.toml constraints.txt
	$(CHECK_TYPED)
	@$(PYTHON) -I -c 'import sys; sys.exit(not ($(SUPPORTED)))' || { \
	  echo "setup: $(PYTHON) is not Python 3.11 to 3.13; name one: make setup PYTHON=python3.12" >&2; exit 2; }
	@echo "setup: installing into .venv, about a minute and 3 GB (more with CUDA)"
	@test -x $(PY) || $(PYTHON) -I -m venv .venv
	@uv=$$(command -v uv) || { $(PY) -I -m pip install -qq --disable-pip-version-check -c constraints.txt uv && uv=.venv/bin/uv; }; \
	  UV_FIND_LINKS="$${UV_FIND_LINKS-$$PIP_FIND_LINKS}" $$uv pip install --compile-bytecode --python $(PY) $(TORCH:%=--torch-backend=%) -c constraints.txt -e '.[test]'
	@printf '%s\n' made $(TYPED) > $@

lock: setup  ## write constraints.txt again from pyproject.toml; ARGS=--upgrade takes newer versions
	@uv=$$(command -v uv) || uv=.venv/bin/uv; $$uv pip compile -q --universal --extra test --extra postgresql \
	  --no-annotate --no-header --no-emit-index-url -o constraints.txt $(ARGS) pyproject.toml

quickstart: setup  ## one small sweep from end to end, no GPU and no download of data
	@$(PY) -m platform.sweep quickstart $(ARGS)

MODEL ?= HuggingFaceTB/SmolLM2-135M-Instruct
FACTS := runs/demo-facts
ASKED := --ask "What is the capital of Norway?" --ask "Which city is the capital of Japan?" --ask "What is the currency of Japan?" \
  --ask "What is the chemical symbol of gold?" --ask "Write two sentences about the sea."

pictures: setup  ## the pictures of README.md and docs/ again, with a run of the quickstart, about two minutes
	@$(PY) -m docs.pictures $(ARGS)

demo-facts: setup  ## a real chat model forgets the facts of examples/facts, and is asked before and after; MODEL=DIR_OR_HUB_ID
	@mkdir -p $(FACTS) && touch $(FACTS).begun
	@$(PY) -m platform.sweep own --set target=$(MODEL) --set forget=examples/facts/forget.jsonl \
	  --set retain=auto,examples/facts/retain.jsonl --set eval=examples/facts/eval.jsonl \
	  --strategy paper --only method=npo_gd --only rectifier.name=none --set objective.retain_coefficient=8 --set training.max_steps=28 \
	  --set benchmark.limit=30 --set resources.precision=bf16 --set resources.cpus=2 --storage $(FACTS) $(ARGS)
	@after=$$(find $(FACTS)/exports -mindepth 1 -maxdepth 1 -type d -newer $(FACTS).begun 2>/dev/null); \
	  if [ -z "$$after" ]; then echo "no model was written this time, so none is asked"; exit 0; fi; \
	  for model in $(MODEL) $$after; do \
	    echo; echo "$$model says:"; $(PY) -m trainables.chat $$model --storage $(FACTS) $(ASKED); done; \
	  printf '\nchat with both:\n  %s\n  %s\n' "$(PY) -m trainables.chat $(MODEL)" "$(PY) -m trainables.chat $$after"

GPU_DAY := runs/gpu-day
MINUTES ?= 8
DAY := --strategy paper --set benchmark.split=forget05 --set training.lr=3e-5,1e-4 --keep none --minutes $$(( $(MINUTES) / 2 ))

gpu-day: setup  ## on one GPU, planned for eight minutes: two models, 24 trials of tofu_smollm2, their report, then bench/gpu.py; again: goes on
	@begun=$$(date +%s); $(PY) -m platform.sweep tofu_smollm2 $(DAY) $(BASE:%=--set models=%) $(DATA:%=--set benchmark.data=%) --storage $(GPU_DAY) --resume $(ARGS); status=$$?; \
	  case $$status in 0|1|3) ;; *) exit $$status;; esac; \
	  case "$(ARGS)" in *--dry-run*) exit 0;; esac; minutes=$$(( (60 * $(MINUTES) + $$begun - $$(date +%s)) / 60 )); \
	  test $$minutes -ge 1 || { echo "no time is left for bench/gpu.py; make bench SCRIPT=gpu runs it"; exit 0; }; \
	  $(PY) bench/gpu.py --minutes $$minutes --json $(GPU_DAY)/gpu-$$begun.json $(BASE:%=--model %) $(DATA:%=--data %) $(BENCH)

# How many workers: tests/conftest.py.
test: setup  ## the tests that every machine runs
	@$(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: setup  ## all tests, slow and GPU ones and faults too
	@$(PY) -m pytest -m "" $(ARGS)

test-faults: setup  ## the fault matrix, 20 or 5 rounds of each fault: docs/reliability.md
	@ROUNDS=$(ROUNDS) SEED=$(SEED) $(PY) -m pytest -m faults $(ARGS)

rehearsal: setup  ## ray up to ray down on three pretend hosts; Linux, root, sshd and rsync, about 8 minutes
	@$(PY) -m tests.rehearsal.rehearse $(ARGS)

rehearsal-slurm: setup  ## jobs of a real Slurm on three pretend hosts; Linux, root, slurmctld, slurmd and tini, about 10 minutes
	@$(PY) -m tests.rehearsal.rehearse_slurm $(ARGS)

# import-linter imports our packages: `python -c` puts the root first on sys.path, which its own script does not.
lint: setup  ## style, format, types and import directions
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command(["--no-logo"])'

bench: setup  ## measure on a quiet machine: bench/README.md
	@for script in $(or $(SCRIPT),$(notdir $(basename $(wildcard bench/[a-z]*.py)))); do $(PY) bench/$$script.py $(ARGS) || left="$$left $$script"; done; \
	test -z "$$left" || { echo "bench: not measured here:$$left (the messages above say why)" >&2; exit 1; }

clean:  ## remove caches and build leftovers, never results
	@rm -rf .pytest_cache .hypothesis .ruff_cache .import_linter_cache build dist *.egg-info
	@find . -path ./.venv -prune -o -path ./runs -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	@rm -rf .venv

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'What may be set:'
	@echo '  PYTHON=python3.12                        the Python that makes .venv (3.11 to 3.13)'
	@echo '  TORCH=cpu                                the build of torch that setup takes: cpu, auto, cu128, ...'
	@echo '  MODEL=DIR_OR_HUB_ID                      of demo-facts: a small chat model'
	@echo '  BASE=DIR DATA=DIR                        of gpu-day: folders with SmolLM2-135M-Instruct and with the rows of TOFU'
	@echo '  MINUTES=8 BENCH=--quick                  of gpu-day: what it is planned for, and options of bench/gpu.py'
	@echo '  ARGS="--dry-run"                         options of quickstart, demo-facts, rehearsal and bench; of the tests: ARGS="-k gru"'
	@echo '  ROUNDS=1 SEED=100                        of test-faults: rounds of each fault, and the first seed'
	@echo '  SCRIPT=rectify ARGS="--ranks 1"          of bench: one script alone'
	@echo
	@echo 'Next: source .venv/bin/activate, then python -m platform.sweep --list'
