# Policy Gradients, Interactively. `make` alone lists the commands.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# The Python that makes .venv: `make book PYTHON=python3.12`.
PYTHON ?= python3

# The exact versions; `make book CONSTRAINTS=` takes the newest that the ranges allow.
CONSTRAINTS ?= -c constraints.txt

# `make book VENV=DIR` uses an environment of yours as it is and installs nothing.
ifeq ($(origin VENV),command line)
READY :=
TEST_READY :=
else
VENV := .venv
READY := $(VENV)/.installed
TEST_READY := $(VENV)/.installed-tests
endif
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
export PYTHONPATH := $(CURDIR)

SITE := _build/html/index.html
SOURCES := _config.yml _toc.yml constraints.txt $(wildcard \
    book/*.ipynb book/*.md book/*.bib book/_static/* book/_tools/*.py utils/*.py utils/*.js utils/*.css)

# What `make test` runs: `make test TESTS=tests/test_estimators.py` for a part of it.
TESTS := tests $(wildcard book/*.ipynb)

# Another Python, when it is asked for by name, means a new environment.
version = $(shell $(1) -c 'import sys; print(sys.version_info[:2])' 2> /dev/null)
ifneq ($(origin PYTHON),file)
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
$(READY): another-python
CLEAR := --clear
endif
endif

.PHONY: help book test lab bench outputs address clean another-python
help:  ## list these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

book: _build/.built  ## build the website
	@echo
	@echo "The book is at $(CURDIR)/$(SITE)"
	@echo "Open that file in a browser; no server is needed. From here:"
	@echo "    $(BIN)/python -m webbrowser -t file://$(CURDIR)/$(SITE)"

# A build that failed or was interrupted leaves pages whose warnings Sphinx would not repeat: they are read
# again. The stamp's time is that of the start, so that a file saved during a build is not missed.
_build/.built: $(SOURCES) $(READY)
	@test -e $@ || rm -rf _build/.doctrees
	@rm -f $@; mkdir -p _build; touch _build/.started
	@$(BIN)/python -m book._tools.execute
	@echo "Building the website"
	@$(BIN)/jupyter-book build -W -n --keep-going -q . > /dev/null \
	    || { echo "The website has warnings, see above" >&2; exit 1; }
	@mv _build/.started $@

test: _build/.built $(TEST_READY)  ## run all tests and all notebooks
	EXPLORE=check $(BIN)/python -m pytest --nbval-lax --timeout 600 -n 2 --dist loadfile $(TESTS)

lab: $(READY)  ## open the notebooks in JupyterLab
	@$(BIN)/python -m jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/book

bench: _build/.built $(TEST_READY)  ## print sizes and times
	@for file in tests/bench*.py; do echo "== $$file"; $(BIN)/python $$file; done

outputs: $(READY)  ## store the notebooks as they are committed
	@$(BIN)/python -m book._tools.outputs

address: $(READY)  ## write set-up cells and badges; URL=https://github.com/OWNER/REPO sets the address
	@$(BIN)/python -m book._tools.template "$(URL)"

clean:  ## remove what was built (and .venv, with: rm -r .venv)
	rm -rf _build .pytest_cache .hypothesis
	find book utils tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.installed: requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else \
	    "Python 3.11 to 3.13 is needed, this is %d.%d: name another one, as in make book PYTHON=python3.13" % v)'
	@echo "Installing into $(VENV) (some minutes the first time)"
	@$(PYTHON) -m venv $(CLEAR) $(VENV)
	@$(INSTALL) -r requirements.txt $(CONSTRAINTS)
	@touch $@

$(VENV)/.installed-tests: tests/requirements.txt $(VENV)/.installed
	@$(INSTALL) -r tests/requirements.txt $(CONSTRAINTS)
	@touch $@
