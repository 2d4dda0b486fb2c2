# Two commands: `make accept` accepts this machine, `make test` tests this project. Both make their own environment.
# pip's own variables (PIP_FIND_LINKS, PIP_NO_INDEX, PIP_INDEX_URL, ..) are honoured; ARGS goes to pytest.
VENV ?= .venv
SOURCES := pyproject.toml $(shell find src suites -type f -not -name '*.pyc')

.PHONY: accept announce test lint clean

accept: announce $(VENV)/.accept
	@GPUREADY_ANNOUNCED=1 $(VENV)/bin/python -m pytest_gpuready.accept $(ARGS)

announce:
	@$${PYTHON:-python3} src/pytest_gpuready/accept.py --announce

test: $(VENV)/.test lint
	$(VENV)/bin/python -m pytest tests -n 2 $(ARGS)

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(VENV)/bin/pip:
	@sh scripts/venv.sh $(VENV)

$(VENV)/.accept: $(SOURCES) | announce $(VENV)/bin/pip
	@echo "installing pytest-gpuready into $(VENV)"
	@$(VENV)/bin/pip install -q --disable-pip-version-check ".$$(sh scripts/cuda-extra.sh)"
	@rm -f $(VENV)/.test && touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/pip install -q --disable-pip-version-check -e '.[test,lint]'
	@rm -f $(VENV)/.accept && touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
