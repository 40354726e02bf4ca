# `make help` lists the targets. Python 3.11 or later and make are all that is needed beforehand.
PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
DATA := datasets/pydata
MODEL := work/model
DEMO := datasets/ruff_questions

# Without compiled files every process of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo readme test pytest lint types format locked audit licences docs promise torture browser bench benchmark weights small pooled clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) -e '.[train,track]'
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python $(PIP) -e '.[dev]'
	touch $@

install: .venv/tested ## .venv with everything, pinned by constraints.txt

demo: .venv/installed ## plain questions to a calibrated model of their answers, and three of them asked
	@$(BIN)/python $(PIP) ruff
	@test -f $(DEMO)/corpus.jsonl || $(BIN)/rerank data build ruff_questions --out $(DEMO)
	@$(BIN)/rerank calibrate $(DEMO) --out work/demo
	@$(BIN)/rerank evaluate work/demo $(DEMO) --examples | tee work/demo.txt

readme: .venv/tested demo ## README.md with what the demo prints
	$(BIN)/python docs/generator/pages.py work/demo.txt

$(MODEL)/manifest.json: | .venv/installed
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank data build pydata --out $(DATA)
	@$(BIN)/rerank calibrate $(DATA) --out $(MODEL) --max-queries 500

# types are checked beside the tests: in one process they would leave a core idle
test: .venv/tested lint ## lint, types and tests
	@$(MAKE) --no-print-directory --jobs=2 types pytest

pytest: .venv/tested
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/tested
	$(BIN)/mypy

format: .venv/tested ## put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# uv, pip-audit and pip-licenses have environments of their own; what they report is of ours.
work/tools: ; $(PYTHON) -m venv $@

locked: work/tools ## write requirements-container.txt: what the container installs, by hash
	@work/tools/bin/python -m pip install --quiet uv
	@{ sed -n 1p requirements-container.txt && work/tools/bin/uv pip compile --quiet --universal \
	  --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --extra serve --extra journal -c constraints.txt pyproject.toml; } > work/locked.txt
	@mv work/locked.txt requirements-container.txt

audit: work/tools ## known vulnerabilities of what is pinned; a service must be reached for it
	@work/tools/bin/python -m pip install --quiet pip-audit
	work/tools/bin/pip-audit --disable-pip --strict --require-hashes -r requirements-container.txt
	work/tools/bin/pip-audit --disable-pip --strict --no-deps -r constraints.txt

licences: work/tools ## the licences of all that is installed in .venv
	@work/tools/bin/python -m pip install --quiet pip-licenses
	work/tools/bin/pip-licenses --python $(BIN)/python --from=mixed --order=license

docs: .venv/tested ## the guide as a site in work/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "work/site/index.html; with search: $(PYTHON) -m http.server --directory work/site"

promise: .venv/tested ## worlds with known truth: does what is promised hold? (15 minutes)
	$(BIN)/python tests/promise/promise.py

torture: .venv/tested $(MODEL)/manifest.json ## mutate it, kill it, flood it, swap it: does it survive? (hours)
	$(BIN)/python tests/torture/model_folder.py $(MODEL) --count 100000
	@$(BIN)/python $(PIP) -e '.[torture]'
	$(BIN)/python tests/torture/fuzz.py --seconds 600
	$(BIN)/python tests/torture/jobs.py $(DATA) --kills 200
	$(BIN)/python tests/torture/journal.py --kills 100
	$(BIN)/python tests/torture/journal.py --kills 100 --postgres
	$(BIN)/python tests/torture/rescore.py $(MODEL) $(DATA)/queries.jsonl --kills 300
	$(BIN)/python tests/torture/soak.py $(MODEL) --seconds 600 --clients 64 --heavy
	$(BIN)/python tests/torture/attacks.py $(MODEL) --seconds 300
	$(BIN)/python tests/torture/parquet.py --seconds 600
	$(BIN)/python tests/bench/overload.py $(MODEL) --rounds 5 --seconds 60 --heavy

browser: .venv/tested $(MODEL)/manifest.json ## the pages in Chromium: what people do, screenshots in work/pages, axe
	@$(BIN)/python $(PIP) playwright axe-playwright-python
	$(BIN)/python tests/browser/pages.py $(MODEL) $(DATA)
	$(BIN)/python tests/browser/typescript.py $(MODEL)

# sentence-transformers' own ONNX and OpenVINO backends need older libraries: work/peers has them.
bench: .venv/installed $(MODEL)/manifest.json ## speed beside other libraries, to docs/performance.md (half an hour)
	@$(BIN)/python $(PIP) -e '.[bench]' \
	  || echo "the extra [bench] does not install here; peers that are missing are left out"
	@test -f work/peers/installed \
	  || { $(PYTHON) -m venv work/peers && work/peers/bin/python -m pip install --quiet \
	  --disable-pip-version-check "$$(grep ^torch== constraints.txt)" \
	  'sentence-transformers[onnx,openvino]<6' && touch work/peers/installed; } \
	  || echo "work/peers does not install here; the backends of sentence-transformers are left out"
	$(BIN)/python tests/bench/performance.py --set $(DATA) --model $(MODEL) --peers work/peers \
	  --out docs/performance.md

benchmark: .venv/installed ## who knows when it is right, to docs/benchmark.md: make benchmark SETS=folder [ONLY="set ..."]
	@test -d "$(SETS)" || { echo "give the folder of the labelled sets: make benchmark SETS=folder"; exit 2; }
	$(BIN)/python tests/bench/few_labels.py score \
	  $(or $(addprefix $(SETS)/,$(ONLY)),$(wildcard $(SETS)/*/)) --out work/few
	$(BIN)/python tests/bench/benchmark.py --out work/few --page docs/benchmark.md \
	  $(if $(ONLY),--only $(ONLY))

include models/recipes.mk  # weights, small, pooled

clean: ## remove caches and what the targets built; other models, labels, runs and .venv stay
	rm -rf $(MODEL) work/demo work/index work/scores.sqlite* work/checkpoints work/site work/pages work/peers \
	  work/documented work/documentation \
	  $(DATA)/corpus.jsonl $(DATA)/queries.jsonl $(DATA)/qrels $(DATA)/splits
