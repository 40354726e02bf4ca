# `make help` lists the targets. Python 3.11 and make are all that is needed beforehand.
PYTHON ?= python3
BIN := .venv/bin
DATA := datasets/pydata
MODEL := work/model

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types format bench clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

install: .venv/installed ## .venv with everything, pinned by constraints.txt

demo: .venv/installed ## the bundled labelled set to a calibrated model, and three questions
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank dataset build pydata --out $(DATA)
	@$(BIN)/rerank calibrate $(DATA) --out $(MODEL) --max-queries 250
	@$(BIN)/rerank search $(MODEL) \
	  "median along an axis while ignoring NaNs" \
	  "how do I fill gaps in a time series with the last known value" \
	  "train a convolutional neural network on a GPU"

test: .venv/installed lint types ## lint, types and tests
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

format: .venv/installed ## put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed ## speed, as ratios measured side by side
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank dataset build pydata --out $(DATA)
	$(BIN)/python tests/bench/scoring.py --set $(DATA)
	$(BIN)/python tests/bench/first_stage.py --set $(DATA)

clean: ## remove what was built, but not .venv
	rm -rf work $(DATA)/corpus.jsonl $(DATA)/queries.jsonl $(DATA)/qrels $(DATA)/splits
