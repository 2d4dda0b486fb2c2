# Two commands: `make accept` accepts this machine, `make test` tests this project. Both make their own environment.
# pip's own variables (PIP_FIND_LINKS, PIP_NO_INDEX, PIP_INDEX_URL, ..) are honoured; ARGS goes to pytest.
VENV ?= .venv
SOURCES := pyproject.toml $(shell find src suites -type f -not -name '*.pyc')

.PHONY: accept announce test lint clean

accept: announce $(VENV)/.accept
	@GPUREADY_ANNOUNCED=1 $(VENV)/bin/python -m pytest_gpuready.accept $(ARGS)

announce:
	@$${PYTHON:-python3} src/pytest_gpuready/accept.py --announce $(ARGS)

# The tests start some hundred Python processes: what one of them compiles the others read, also where images forbid it.
# Each worker begins with a part of its own, so that what a file's tests share is made once. Three on two cores: some wait.
test: $(VENV)/.test lint
	PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest tests -n 3 --dist worksteal $(ARGS)

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
