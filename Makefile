# Two commands on a fresh machine with Python 3.11 and git: `make demo` and `make test`. Both reuse the environment.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= notebooks,speech,summarization,mt,export,gpu,dev
BIN := $(VENV)/bin
# where a machine keeps wheels of its own, if it does: uv does not read pip's settings
LINKS := $${UV_FIND_LINKS:-$${PIP_FIND_LINKS:-}}
INSTALL = UV_FIND_LINKS="$(LINKS)" UV_COMPILE_BYTECODE=1 $(BIN)/uv pip install -q --python $(BIN)/python

.PHONY: help setup demo test slurm oldest newest lint check notebooks site docs gpu paper lock clean

help:
	@echo "make demo    LAVO, softmax attention and no mixing on ListOps (two minutes on two cores): a verdict and a picture"
	@echo "make test    the fast tests; make test MARK=slow for the long ones, make slurm for those with a SLURM"
	@echo "make lint    ruff            make check   do the committed tables follow from the records?"
	@echo "make site    documentation and results as one site, below outputs/site; it opens from a file;"
	@echo "             REPORT='paths.records=mine' for records of another folder"
	@echo "make notebooks  runs the notebooks (minutes); make site then shows their outputs"
	@echo "make gpu     does Longhaul work on this GPU, and how fast? Ten minutes at most; MINUTES=5 for less"
	@echo "make paper   the cheapest unfinished cells at the papers' budgets, MINUTES=10 of them; it resumes"
	@echo "make lock    constraints.txt and requirements.lock from this environment"
	@echo "make oldest  some tests with the oldest allowed libraries; make newest with the newest ones, on Python 3.13"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt requirements.lock requirements-cpu.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
	  || { echo "error: $(PYTHON) is not Python 3.11, 3.12 or 3.13: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q "$$(grep '^uv==' constraints.txt)"
	links="$(LINKS)"; tag=$$($(BIN)/python -c 'import sys; print("cp%d%d" % sys.version_info[:2])'); \
	if [ -n "$$links" ] && find $$links -name "torch-*+cpu-$$tag-*.whl" | grep -q .; then \
	  $(INSTALL) --require-hashes --no-deps -r requirements-cpu.lock; fi
	$(INSTALL) --require-hashes --no-deps -r requirements.lock
	$(INSTALL) -e ".[$(EXTRAS)]" -c constraints.txt  # and what another system needs besides, such as CUDA's libraries
	@touch $@

DEMO := paths.records=outputs/demo/records paths.tables=outputs/demo/tables paths.figures=outputs/demo/figures
demo: setup
	$(BIN)/python run.py table=demo budget=reduced n_jobs=2 $(DEMO)
	$(BIN)/python run.py model=lavo task=lra/listops budget=smoke $(DEMO)
	$(BIN)/python run.py do=report table=demo $(DEMO)

# bytecode is kept: a hundred processes would compile the tests and the project anew
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup --durations 15
MARK ?= not slow and not slurm and not gpu
test: setup
	$(PYTEST) -m "$(MARK)"

slurm: setup
	$(PYTEST) -m slurm

# the oldest versions that pyproject.toml allows, but for torch, whose older builds bring gigabytes of CUDA
SOME := tests/harness/test_train.py tests/harness/test_report.py tests/harness/test_report_verb.py \
  tests/harness/test_predictions.py tests/tasks/test_task_contract.py
oldest: setup
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(VENV)/oldest
	UV_FIND_LINKS="$(LINKS)" $(BIN)/uv pip install -q --python $(VENV)/oldest/bin/python --resolution lowest-direct \
	  ".[$(EXTRAS)]" "$$(grep '^torch==' constraints.txt)"
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(VENV)/oldest/bin/python -m pytest -n auto --dist loadgroup $(SOME)

# the newest ones, on the newest Python: that of the path, or pyenv's
NEWEST ?= $(shell python3.13 -c 'import sys; print(sys.executable)' 2> /dev/null || \
  ls -d $$HOME/.pyenv/versions/3.13.*/bin/python 2> /dev/null | tail -n 1)
newest: setup
ifeq ($(NEWEST),)
	@echo "no Python 3.13 here: not tested with the newest (NEWEST=<its path> names one)"
else
	$(BIN)/uv venv -q --clear --python $(NEWEST) $(VENV)/newest
	UV_FIND_LINKS="$(LINKS)" $(BIN)/uv pip install -q --python $(VENV)/newest/bin/python ".[$(EXTRAS)]"
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(VENV)/newest/bin/python -m pytest -n auto --dist loadgroup $(SOME)
endif

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: setup
	$(BIN)/python run.py do=report table=all check=true

# in an environment of its own, without the project: pages are made from the source and from what do=report writes
REPORT ?=
LIST_DOCS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")
# with their outputs, which are not committed; the site shows those that were run
notebooks: setup
	mkdir -p outputs/notebooks
	$(BIN)/jupyter execute notebooks/*.ipynb --timeout=900 --output='../outputs/notebooks/{notebook_name}'

docs: site
	SITE=outputs/site $(BIN)/python -m pytest -m '' tests/test_built_site.py tests/test_docs_site.py
site: setup
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(VENV)/docs
	$(BIN)/python -c '$(LIST_DOCS)' | \
	  UV_FIND_LINKS="$(LINKS)" $(BIN)/uv pip install -q --python $(VENV)/docs/bin/python -c constraints.txt -r -
	$(BIN)/python run.py do=report table=all 'format=[html]' $(REPORT) > $(VENV)/report.log
	LONGHAUL_PAGES="$$(dirname "$$(tail -n 1 $(VENV)/report.log)")" NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/python -m mkdocs build --strict --clean

# the cheapest unfinished cells of the papers' tables; the data of forecasts: do=prepare table=lavo/t8
TABLES ?= lavo/t8 lavo/t11
paper: setup
	$(BIN)/python -m benchmarks.paper $(TABLES) --minutes $(MINUTES)

MINUTES ?= 10
gpu: setup
	$(BIN)/python -m benchmarks.gpu --minutes $(MINUTES)

lock: setup
	UV_FIND_LINKS="$(LINKS)" $(BIN)/python -m tests.lock

clean:
	rm -rf $(VENV) outputs .pytest_cache .ruff_cache
