# `make help` lists the targets. Python 3.11 or later and make are all that is needed beforehand.
PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
DATA := datasets/pydata
MODEL := work/model

# Without compiled files every process of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types format locked audit licences docs promise torture browser bench weights small pooled clean

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

demo: .venv/installed ## the bundled labelled set to a calibrated model, and three questions
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank dataset build pydata --out $(DATA)
	@$(BIN)/rerank calibrate $(DATA) --out $(MODEL) --max-queries 250
	@$(BIN)/rerank search $(MODEL) \
	  "median along an axis while ignoring NaNs" \
	  "how do I fill gaps in a time series with the last known value" \
	  "train a convolutional neural network on a GPU"

test: .venv/tested lint types ## lint, types and tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

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

torture: .venv/tested ## mutate it, kill it, flood it, swap it: does it survive? (hours)
	@test -f $(MODEL)/manifest.json || $(MAKE) demo
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

browser: .venv/tested ## the pages in Chromium: what people do, screenshots in work/pages, axe
	@test -f $(MODEL)/manifest.json || $(MAKE) demo
	@$(BIN)/python $(PIP) playwright axe-playwright-python
	$(BIN)/python tests/browser/pages.py $(MODEL) $(DATA)

# sentence-transformers' own ONNX and OpenVINO backends need older libraries: work/peers has them.
bench: .venv/installed ## speed beside other libraries, to docs/performance.md (an hour or two)
	@test -f $(MODEL)/manifest.json || $(MAKE) demo
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank dataset build pydata --out $(DATA)
	@$(BIN)/python $(PIP) -e '.[bench]' \
	  || echo "the extra [bench] does not install here; peers that are missing are left out"
	@test -f work/peers/installed \
	  || { $(PYTHON) -m venv work/peers && work/peers/bin/python -m pip install --quiet \
	  --disable-pip-version-check "$$(grep ^torch== constraints.txt)" \
	  'sentence-transformers[onnx,openvino]<6' && touch work/peers/installed; } \
	  || echo "work/peers does not install here; the backends of sentence-transformers are left out"
	$(BIN)/python tests/bench/performance.py --set $(DATA) --model $(MODEL) --peers work/peers \
	  --passages 10000 100000 1000000 --out docs/performance.md

# The recipe of models/minilm-reranker: four runs, each from the last one's weights, and the bi-encoder that
# finds the wrong passages of the last one.
# SETS is a folder with squad2, squadshifts_newwiki, squadshifts_reddit and selqa in the BEIR layout,
# PAIRS one with the other sources, as pairs.jsonl, and HELD one with the parts of these that maps are
# pooled of. The last two runs want a GPU: seven minutes instead of half a day.
DOCUMENTED := arviz==0.23.4 astropy==8.0.2 biotite==1.6.0 control==0.10.2 geopandas==1.2.0 \
  imbalanced-learn==0.14.2 libpysal==4.14.1 librosa==0.11.0 matplotlib==3.11.2 mne==1.13.2 \
  networkx==3.6.1 nibabel==5.4.2 nilearn==0.14.1 pyarrow==26.0.1 rasterio==1.4.4 \
  scikit-bio==0.7.4 scikit-image==0.26.0 seaborn==0.13.2 shapely==2.2.0 statsmodels==0.15.0
OF_SETS := squad2:5936 squadshifts_newwiki:3857 squadshifts_reddit:4236 selqa:951
OF_PAIRS := boolq_dev:2211 conala:1703 docs_faq:4802 docs_tasks:3642 dstc11_reviews:2009 dstc9_faq:999 \
  fairytaleqa:4000 fetaqa:1500 lfrqa_forum:9145 medquad:5422 nl2bash:1500 nq_open_oracle:1248 \
  onestopqa:485 product_qa:8252 squad11_dev_other:4494 squad_train_part:12124 tatqa:1221 \
  tldr_commands:3000
MIXED = $(addprefix $(SETS)/,$(OF_SETS)) $(addprefix $(PAIRS)/,$(OF_PAIRS)) $(DATA) \
  work/documentation:5000 datasets/documentation_questions --group-by article \
  --leave-out $(wildcard $(HELD)/*/) --within-group tatqa dstc9_faq
weights: .venv/installed ## train the bundled weights anew: make weights SETS=folder PAIRS=folder HELD=folder
	@test -d "$(SETS)" -a -d "$(PAIRS)" -a -d "$(HELD)" -a -n "$(wildcard $(HELD)/*/)" \
	  || { echo "give all three: make weights SETS=folder PAIRS=folder HELD=folder"; exit 2; }
	@for set in $(foreach s,$(OF_SETS),$(SETS)/$(firstword $(subst :, ,$(s)))) \
	  $(foreach s,$(OF_PAIRS),$(PAIRS)/$(firstword $(subst :, ,$(s)))); do \
	  test -d $$set || { echo "there is no $$set"; exit 2; }; done
	@for set in $(wildcard $(HELD)/*/); do ls $$set/*.jsonl* > /dev/null 2>&1 \
	  || { echo "$$set of HELD holds no labelled set"; exit 2; }; done
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank dataset build pydata --out $(DATA)
	$(PYTHON) -m venv work/documented
	work/documented/bin/python -m pip install --quiet $(DOCUMENTED) PyStemmer regex tqdm
	for set in work/documentation datasets/documentation_questions; do \
	  test -f $$set/corpus.jsonl \
	  || work/documented/bin/python -m rerank.cli dataset build $$(basename $$set) --out $$set \
	  --libraries arviz astropy biotite control geopandas imblearn libpysal librosa matplotlib mne \
	  networkx nibabel nilearn pyarrow rasterio skbio skimage seaborn shapely statsmodels \
	  || exit 1; done
	$(BIN)/rerank finetune $(SETS)/squadshifts_newwiki:2400 $(SETS)/squadshifts_reddit:900 \
	  $(SETS)/selqa:951 $(DATA) --hard 1 --dropout 0.1 --validation 0 --out work/first
	$(BIN)/rerank finetune $(SETS)/squadshifts_newwiki:3857 $(SETS)/squadshifts_reddit:2943 \
	  $(SETS)/selqa:1500 $(DATA):3700 --base work/first --hard 2 --easy 0 --frozen-layers 2 \
	  --steps 1500 --validation 0 --out work/second
	$(BIN)/rerank finetune $(SETS)/squad2:3100 $(SETS)/squadshifts_newwiki:3857 \
	  $(SETS)/squadshifts_reddit:3500 $(SETS)/selqa:951 $(DATA):1764 work/documentation:5000 \
	  --group-by article --base work/second --hard 2 --easy 0 --frozen-layers 2 --max-length 192 \
	  --steps 2270 --validation 0 --out work/third
	$(BIN)/rerank finetune-encoder $(MIXED) --batch 256 --steps 1200 --learning-rate 6e-5 \
	  --check-every 120 --average 3 --out work/encoder
	$(BIN)/rerank finetune $(MIXED) --base work/third --encoder work/encoder --hard 4 --depth 15 \
	  --withheld 0.1 --temperature 1 --max-length 192 --batch 128 --steps 662 --dropout 0.1 --seed 11 \
	  --validation 0 --check-every 55 --average 3 --out work/reranker --pack models/minilm-reranker
	$(BIN)/python tests/bench/ranking.py $(SETS)/squad2 $(DATA) \
	  --manifest models/minilm-reranker/manifest.json

# The recipe of models/minilm-reranker-small. PAIRS is a folder with the other sources, as pairs.jsonl.
SMALL_SETS := squad2:2400 squadshifts_newwiki:710 squadshifts_reddit:410 selqa:498
SMALL_PAIRS := boolq_dev:1800 conala:243 docs_faq:2600 docs_tasks:2200 dstc11_reviews:300 \
  dstc9_faq:400 fairytaleqa:700 fetaqa:400 lfrqa_forum:1200 medquad:1600 molweni_test:200 \
  nl2bash:300 nq_open_oracle:1240 onestopqa:485 product_qa:2000 python_functions:493 qmsum:300 \
  rqe_medical:240 squad11_dev_other:1200 squad_sentences:500 squad_train_part:2000 tatqa:400 \
  tldr_commands:300
small: .venv/installed ## train minilm-reranker-small anew: make small SETS=folder PAIRS=folder
	@test -d "$(SETS)" -a -d "$(PAIRS)" || { echo "give both: make small SETS=folder PAIRS=folder"; exit 2; }
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank dataset build pydata --out $(DATA)
	$(BIN)/rerank finetune $(addprefix $(SETS)/,$(SMALL_SETS)) $(addprefix $(PAIRS)/,$(SMALL_PAIRS)) \
	  $(DATA):495 --base minilm-reranker --teacher minilm-reranker --distil 1 --layers 3 --hard 3 \
	  --easy 1 --temperature 1 --max-length 192 --steps 2000 --learning-rate 2e-4 --validation 0 \
	  --check-every 100 --seed 7 --within-group tatqa dstc9_faq --out work/small \
	  --pack models/minilm-reranker-small

RERANKER := minilm-reranker
LONG := beginning
pooled: .venv/installed ## maps to start from before the first label: make pooled SETS=folder [RERANKER=name] [LONG=excerpt]
	@test -d "$(SETS)" || { echo "give the folder of the labelled sets: make pooled SETS=folder"; exit 2; }
	$(BIN)/rerank pool $(wildcard $(SETS)/*/) --reranker $(RERANKER) --long-passages $(LONG) \
	  --out models/$(RERANKER)/pooled$(patsubst %,-%,$(filter-out beginning,$(LONG))).json

clean: ## remove caches and what the targets built; other models, labels, runs and .venv stay
	rm -rf $(MODEL) work/index work/scores.sqlite* work/checkpoints work/site work/pages work/peers \
	  work/documented work/documentation \
	  $(DATA)/corpus.jsonl $(DATA)/queries.jsonl $(DATA)/qrels $(DATA)/splits
