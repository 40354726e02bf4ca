# How the weights and maps in this folder are made; the Makefile above includes it.

# The recipe of models/minilm-reranker: five runs, each from the last one's weights, and the bi-encoder that
# finds the wrong passages of the fourth one.
# SETS is a folder with squad2, squadshifts_newwiki, squadshifts_reddit and selqa in the BEIR layout,
# PAIRS one with the other sources, as pairs.jsonl, and HELD one with the parts of these that maps are
# pooled of. The fourth run and its bi-encoder want a GPU: seven minutes instead of half a day.
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
NEAR_SETS := squad2:6000 squadshifts_newwiki:2600 squadshifts_reddit:2400 selqa:800
NEAR_PAIRS := boolq_dev:1000 conala:600 docs_faq:2800 docs_tasks:1800 dstc11_reviews:700 dstc9_faq:500 \
  fairytaleqa:1200 fetaqa:700 lfrqa_forum:3200 medquad:1800 molweni_test:430 nl2bash:400 \
  nq_open_oracle:1200 onestopqa:450 product_qa:2600 squad11_dev_other:3000 squad_train_part:6000 \
  tatqa:500 tldr_commands:800
NEAR = $(addprefix $(SETS)/,$(NEAR_SETS)) $(addprefix $(PAIRS)/,$(NEAR_PAIRS)) $(DATA):590 \
  --group-by article --leave-out $(wildcard $(HELD)/*/) --within-group tatqa dstc9_faq molweni_test
weights: .venv/installed ## train the bundled weights anew: make weights SETS=folder PAIRS=folder HELD=folder
	@test -d "$(SETS)" -a -d "$(PAIRS)" -a -d "$(HELD)" -a -n "$(wildcard $(HELD)/*/)" \
	  || { echo "give all three: make weights SETS=folder PAIRS=folder HELD=folder"; exit 2; }
	@for set in $(foreach s,$(OF_SETS),$(SETS)/$(firstword $(subst :, ,$(s)))) \
	  $(foreach s,$(OF_PAIRS) $(NEAR_PAIRS),$(PAIRS)/$(firstword $(subst :, ,$(s)))); do \
	  test -d $$set || { echo "there is no $$set"; exit 2; }; done
	@for set in $(wildcard $(HELD)/*/); do ls $$set/*.jsonl* > /dev/null 2>&1 \
	  || { echo "$$set of HELD holds no labelled set"; exit 2; }; done
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank data build pydata --out $(DATA)
	$(PYTHON) -m venv work/documented
	work/documented/bin/python -m pip install --quiet $(DOCUMENTED) PyStemmer regex tqdm
	for set in work/documentation datasets/documentation_questions; do \
	  test -f $$set/corpus.jsonl \
	  || work/documented/bin/python -m rerank.cli data build $$(basename $$set) --out $$set \
	  --libraries arviz astropy biotite control geopandas imblearn libpysal librosa matplotlib mne \
	  networkx nibabel nilearn pyarrow rasterio skbio skimage seaborn shapely statsmodels \
	  || exit 1; done
	$(BIN)/rerank train cross-encoder $(SETS)/squadshifts_newwiki:2400 $(SETS)/squadshifts_reddit:900 \
	  $(SETS)/selqa:951 $(DATA) --hard 1 --dropout 0.1 --validation 0 --out work/first
	$(BIN)/rerank train cross-encoder $(SETS)/squadshifts_newwiki:3857 $(SETS)/squadshifts_reddit:2943 \
	  $(SETS)/selqa:1500 $(DATA):3700 --base work/first --hard 2 --easy 0 --frozen-layers 2 \
	  --steps 1500 --validation 0 --out work/second
	$(BIN)/rerank train cross-encoder $(SETS)/squad2:3100 $(SETS)/squadshifts_newwiki:3857 \
	  $(SETS)/squadshifts_reddit:3500 $(SETS)/selqa:951 $(DATA):1764 work/documentation:5000 \
	  --group-by article --base work/second --hard 2 --easy 0 --frozen-layers 2 --max-length 192 \
	  --steps 2270 --validation 0 --out work/third
	$(BIN)/rerank train bi-encoder $(MIXED) --batch 256 --steps 1200 --learning-rate 6e-5 \
	  --check-every 120 --average 3 --out work/encoder
	$(BIN)/rerank train cross-encoder $(MIXED) --base work/third --encoder work/encoder --hard 4 --depth 15 \
	  --withheld 0.1 --temperature 1 --max-length 192 --batch 128 --steps 662 --dropout 0.1 --seed 11 \
	  --validation 0 --check-every 55 --average 3 --out work/reranker
	$(BIN)/rerank train cross-encoder $(NEAR) --base work/reranker --teacher work/reranker --distil 0.6 \
	  --altered 0.3 --withheld 0.06 --hard 2 --depth 15 --easy 0 --temperature 1 --frozen-layers 2 \
	  --max-length 192 --batch 64 --steps 324 --learning-rate 7e-5 --seed 7 --validation 0 \
	  --check-every 40 --average 3 --out work/near --pack models/minilm-reranker
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
	@test -f $(DATA)/corpus.jsonl || $(BIN)/rerank data build pydata --out $(DATA)
	$(BIN)/rerank train cross-encoder $(addprefix $(SETS)/,$(SMALL_SETS)) $(addprefix $(PAIRS)/,$(SMALL_PAIRS)) \
	  $(DATA):495 --base minilm-reranker --teacher minilm-reranker --distil 1 --layers 3 --hard 3 \
	  --easy 1 --temperature 1 --max-length 192 --steps 2000 --learning-rate 2e-4 --validation 0 \
	  --check-every 100 --seed 7 --within-group tatqa dstc9_faq --out work/small \
	  --pack models/minilm-reranker-small

RERANKER := minilm-reranker
pooled: .venv/installed ## maps to start from before the first label: make pooled SETS=folder [RERANKER=name]
	@test -d "$(SETS)" || { echo "give the folder of the labelled sets: make pooled SETS=folder"; exit 2; }
	$(BIN)/rerank train prior $(wildcard $(SETS)/*/) --reranker $(RERANKER) \
	  --out models/$(RERANKER)/pooled.json
