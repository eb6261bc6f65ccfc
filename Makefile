# `make plan` and `make test` need only Python 3.11+ and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Measured cases that `make accuracy` compares with: files or folders (all *.json in them).
CASES ?= tests/cases
EXAMPLE := examples/grpo-qwen3-30b-a3b-4x8-h100.yaml

.PHONY: plan test check wheel-check test-launchers test-browser docs bench accuracy format clean

# Installs once for every change of pyproject.toml.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

plan: $(VENV)/.installed
	$(BIN)/rlmplan plan $(EXAMPLE)

test: $(VENV)/.installed
	$(BIN)/python -m pytest

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -ll -r planner tools

# The built wheel brings its data and plans from another folder.
wheel-check: $(VENV)/.installed
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m zipfile -e build/wheel/*.whl build/wheel/unpacked
	cd build/wheel/unpacked && PYTHONPATH=. $(abspath $(BIN))/python -m planner.cli.main plan \
		$(CURDIR)/examples/grpo-qwen2.5-7b-1x8-h100.yaml --details 0

# Exported files against the launchers' own parsers and checks, in an environment of its own.
# NEMO_RL_CHECKOUT, PRIME_RL_CHECKOUT and ROLL_CHECKOUT add those that no package index has; slime is
# held against its flags.
test-launchers: $(VENV)/.installed
	PYTHON=$(PYTHON) tools/launcher_env.sh .launcher-venv
	RLMPLAN_LAUNCHER_PYTHON=$(CURDIR)/.launcher-venv/bin/python \
		$(BIN)/python -m pytest -o addopts="" -q -m launcher

# The HTML report in headless Chromium: the one at hand (CHROMIUM=...), or Debian's, if it installs.
test-browser: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.40,<2'
	command -v chromium >/dev/null || test -n "$$CHROMIUM" || { apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || true
	$(BIN)/python -m pytest -o addopts="" -q -rs -m browser

# The pages without a warning, and every command that README and docs show.
docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site
	$(BIN)/python -m pytest -o addopts="" -q tests/docs/test_shown_commands.py

bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[distil]'
	for file in benchmarks/*.py benchmarks/guidelines; do $(BIN)/python $$file || exit 1; done

# Figures of docs/accuracy.md; some minutes, as constants are refitted with groups left out.
accuracy: $(VENV)/.installed
	$(BIN)/python tools/accuracy.py $(CASES)

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .launcher-venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
