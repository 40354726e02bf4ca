"""The training job: the loss against torch, the short lists, and two steps on ten queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.labelled_set import LabelledSet
from rerank.models import resolve, trained_on, training
from rerank.packing import pack_finetuned
from rerank.plan import plan
from rerank.reranking import finetune as job
from rerank.reranking.finetune import Example, FinetuneConfig, Source, finetune, mine
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index
from rerank.text import query_hash
from rerank.types import InputError, Passage

TEN = 10
LIMITED = 8
CHEAP = FinetuneConfig(steps=2, batch=2, max_length=48)
Relabel = Callable[[LabelledSet, Callable[[str], str]], LabelledSet]

# --- the loss ---------------------------------------------------------------------------------

LOGITS = st.lists(st.floats(-20, 20), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, data=st.data())
def test_with_one_right_passage_it_is_torchs_cross_entropy(
    logits: list[float], data: st.DataObject
) -> None:
    """The loss is cross_entropy over the passages and a candidate "none" with logit 0."""
    import torch

    from rerank.reranking.losses import listwise_or_none

    right = data.draw(st.one_of(st.none(), st.integers(0, len(logits) - 1)))
    labels = torch.tensor([1.0 if i == right else 0.0 for i in range(len(logits))])
    every = torch.tensor([0.0, *logits], dtype=torch.float64)
    target = torch.tensor(0 if right is None else right + 1)
    expected = torch.nn.functional.cross_entropy(every, target)
    found = listwise_or_none(torch.tensor(logits, dtype=torch.float64), labels)
    assert float(found) == pytest.approx(float(expected), abs=1e-9)


def test_several_right_passages_share_the_probability() -> None:
    """Of logits 0, log 2, log 5 and the null, two right ones hold 3 of 9 parts, by hand."""
    import torch

    from rerank.reranking.losses import listwise_or_none

    logits = torch.log(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    found = listwise_or_none(logits, torch.tensor([1.0, 1.0, 0.0]))
    assert float(found) == pytest.approx(np.log(9 / 3), abs=1e-12)


# --- mining -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(run: Any) -> Encoder:
    return Encoder(resolve("minilm"), max_length=64)


@pytest.fixture(scope="module")
def mined(small: LabelledSet, index: Index, encoder: Encoder) -> list[Example]:
    return mine(small, "train", index, encoder, FinetuneConfig(hard=2, easy=1))


def test_every_list_is_labelled_as_the_set_says(mined: list[Example], small: LabelledSet) -> None:
    """A query has one right passage, first, if it has any; what is labelled 0 is not right."""
    by_text = {q.text: q.query_id for q in small.queries.values()}
    texts: dict[str, set[str]] = {}
    for passage in small.corpus.values():
        texts.setdefault(passage.full_text, set()).add(passage.doc_id)
    assert len(mined) == len(small.splits["train"])
    for example in mined:
        right = small.relevant(by_text[example.query])
        assert len(example.labels) == len(example.passages)
        assert list(example.labels) == [1] * bool(right) + [0] * (
            len(example.passages) - bool(right)
        )
        for text, label in zip(example.passages, example.labels, strict=True):
            assert bool(texts[text] & right) == bool(label)
        assert 3 <= len(example.passages) <= 4


def test_unanswerable_queries_teach_as_well(mined: list[Example]) -> None:
    """A query without a right passage has a list of wrong ones."""
    none = [e for e in mined if not any(e.labels)]
    assert len(none) >= 5
    assert all(e.passages for e in none)


def test_mining_is_drawn_by_seed(small: LabelledSet, index: Index, encoder: Encoder) -> None:
    """The same seed draws the same lists, another seed others; a limit bounds them."""
    one, again, other = (
        mine(small, "test", index, encoder, FinetuneConfig(seed=s), limit=6) for s in (0, 0, 1)
    )
    assert one == again
    assert one != other
    assert len(one) == 6


def test_a_limit_above_the_queries_goes_round_again(
    ten: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """Every query comes twice, with the same right passage and mostly other wrong ones."""
    twice = mine(ten, "train", index, encoder, FinetuneConfig(), limit=2 * TEN)
    first, again = twice[:TEN], twice[TEN:]
    assert [e.query for e in first] == [e.query for e in again]
    assert len({e.query for e in first}) == TEN
    assert sum(a.passages != b.passages for a, b in zip(first, again, strict=True)) > TEN / 2


def test_a_copy_of_the_answer_is_no_hard_negative(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """A passage that says the same as the right one, but is not judged, is not called wrong."""
    answerable = [i for i in small.splits["test"] if small.relevant(i)]
    found = {
        i: c
        for i in answerable
        for c in [
            index.candidates(
                small.queries[i],
                encoder.encode([small.queries[i].text])[0],
                pool=50,
                count=5,
                rrf_k=60,
            )
        ]
    }
    query_id, candidates = next(iter(found.items()))
    near = index.passage(int(candidates.rows[0]))
    labelled = LabelledSet(
        {**small.corpus, "copy": Passage("copy", near.title, near.text)},
        {query_id: small.queries[query_id]},
        {query_id: {"copy": 1.0}},
        {"test": (query_id,)},
    )
    config = FinetuneConfig(hard=5, easy=0)
    (example,) = mine(labelled, "test", index, encoder, config)
    assert example.passages[0] == near.full_text
    assert near.full_text not in example.passages[1:]
    assert len(example.passages) > 2


def test_an_unknown_split_is_refused(small: LabelledSet, index: Index, encoder: Encoder) -> None:
    """The error names the splits that there are."""
    with pytest.raises(InputError, match=r"no split 'dev'; it has \['train', 'test'\]"):
        mine(small, "dev", index, encoder, FinetuneConfig())


def test_no_example_is_refused(tmp_path: Path) -> None:
    """There is nothing to train on."""
    with pytest.raises(InputError, match="no training example"):
        finetune([], resolve("minilm"), tmp_path, CHEAP)


# --- two steps on ten queries -----------------------------------------------------------------


@pytest.fixture(scope="module")
def ten(small: LabelledSet) -> LabelledSet:
    """Ten queries of the small set and forty of its passages, the right ones among them."""
    ids = small.splits["train"][:TEN]
    right = {d for i in ids for d in small.relevant(i)}
    others = [d for d in small.corpus if d not in right][: 40 - len(right)]
    return LabelledSet(
        {d: small.corpus[d] for d in [*sorted(right), *others]},
        {i: small.queries[i] for i in ids},
        {i: small.qrels[i] for i in ids if i in small.qrels},
        {"train": ids},
        "ten",
    )


@pytest.fixture(scope="module")
def trained(
    run: Any, ten: LabelledSet, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Mapping[str, Any]]:
    """The folder and the report of two training steps."""
    out = tmp_path_factory.mktemp("finetuned")
    return out, job.run([Source(ten, limit=LIMITED)], out, CHEAP)


def test_the_report_names_what_was_trained_on(
    trained: tuple[Path, Mapping[str, Any]], ten: LabelledSet
) -> None:
    """`finetune.json` holds the sets with digest and count, and the configuration."""
    out, report = trained
    kept = json.loads((out / "model" / "finetune.json").read_text())
    expected = {"name": "ten", "digest": ten.digest(), "split": "train", "examples": LIMITED}
    assert kept["sets"] == [expected]
    assert kept["examples"] == report["examples"] == LIMITED
    assert FinetuneConfig(**kept["config"]) == CHEAP


def test_training_moves_the_weights_and_not_the_embeddings(
    trained: tuple[Path, Mapping[str, Any]],
) -> None:
    """Two steps change the transformer's layers; frozen word embeddings stay the base's."""
    from safetensors.numpy import load_file

    after = load_file(trained[0] / "model" / "model.safetensors")
    before = load_file(resolve("minilm").folder / "model.safetensors")
    shared = [n for n in before if f"bert.{n}" in after and before[n].dtype.kind == "f"]
    same = {n for n in shared if np.array_equal(before[n], after[f"bert.{n}"])}
    assert "embeddings.word_embeddings.weight" in same
    assert len(same) < len(shared) / 2
    assert all(np.isfinite(after[name]).all() for name in after)


def test_training_goes_on_from_a_trained_cross_encoder(
    trained: tuple[Path, Mapping[str, Any]], small: LabelledSet, tmp_path: Path
) -> None:
    """From another run's model: frozen layers stay its own, its list of queries is carried on."""
    from safetensors.numpy import load_file

    base = trained[0] / "model"
    other = replace(small, splits={"train": small.splits["test"][:4]}, name="other")
    config = replace(CHEAP, base=str(base), frozen_layers=4)
    report = job.run([Source(other)], tmp_path, config)
    assert report["base_fingerprint"] == resolve(str(base)).fingerprint
    assert report["base_training"] == json.loads(json.dumps(trained[1]))
    before, after = (load_file(f / "model.safetensors") for f in (base, tmp_path / "model"))
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert {f"bert.encoder.layer.{k}.output.dense.weight" for k in range(4)} < same
    assert {f"bert.encoder.layer.{k}.output.dense.weight" for k in (4, 5)}.isdisjoint(same)
    assert "classifier.weight" not in same
    new = {query_hash(small.queries[i].text) for i in other.splits["train"]}
    assert trained_on(resolve(str(tmp_path / "model"))) == trained_on(resolve(str(base))) | new


def test_more_frozen_layers_than_there_are_is_refused(
    run: Any, ten: LabelledSet, tmp_path: Path
) -> None:
    """The error says how many layers the model has."""
    with pytest.raises(InputError, match="has 6 layers, cannot freeze 7"):
        job.run([Source(ten)], tmp_path, replace(CHEAP, frozen_layers=7))


def test_queries_trained_on_are_left_out_of_calibration(
    trained: tuple[Path, Mapping[str, Any]], ten: LabelledSet, small: LabelledSet
) -> None:
    """The model's own list keeps exactly the queries it saw out of fitting and reporting."""
    seen = trained_on(resolve(str(trained[0] / "model")))
    assert len(seen) == LIMITED
    assert seen < {query_hash(q.text) for q in ten.queries.values()}
    planned = plan(small, trained_on=seen, max_queries=None, seed=0)
    assert planned.seen_by_reranker == LIMITED
    used = {query_hash(small.queries[i].text) for i in (*planned.fit, *planned.report)}
    assert not used & seen


def test_the_trained_model_and_its_packed_form_score_alike(
    trained: tuple[Path, Mapping[str, Any]],
    ten: LabelledSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Packed to int8 and unpacked under a bundled name, logits stay within 0.05."""
    import torch
    from sentence_transformers import CrossEncoder

    monkeypatch.setattr("rerank.models.BUNDLED", tmp_path)
    pack_finetuned(trained[0], tmp_path / "tiny-reranker")
    manifest = json.loads((tmp_path / "tiny-reranker/manifest.json").read_text())
    assert manifest["training"]["sets"][0]["digest"] == ten.digest()
    packed = resolve("tiny-reranker")
    assert training(packed) == manifest["training"]
    assert trained_on(packed) == trained_on(resolve(str(trained[0] / "model")))
    pairs = [
        (q.text, p.full_text)
        for q, p in zip(ten.queries.values(), ten.corpus.values(), strict=False)
    ]
    whole, small_logits = (
        CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
        for folder in (trained[0] / "model", packed.folder)
    )
    np.testing.assert_allclose(small_logits, whole, rtol=0, atol=0.05)
    assert not np.array_equal(small_logits, whole)
