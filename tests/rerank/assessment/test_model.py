"""The model folder as production loads it: what it answers, and every part that it refuses."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coherence import check_coherent
from hand_made import make_scored
from processes import run_python

from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import bound_to
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.predictions import predict, to_assessments, unlike_labelled
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.inference.model_files import resolve
from rerank.inference.score_cache import ScoreCache
from rerank.storage.files import sha256_file
from rerank.storage.folder import Workspace, with_digest
from rerank.types import Passage, Query, Scored

Run = Any  # the session's run, see conftest
UNUSED = ("sklearn", "mlflow", "pandas", "matplotlib")


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


@pytest.fixture(scope="module")
def queries(run: Run) -> list[Query]:
    """Every query of the run."""
    return [*run.plan.fit.items, *run.plan.report.items]


@pytest.fixture
def copied(run: Run, tmp_path: Path) -> Path:
    """A copy of the model folder that a test may damage."""
    return Path(shutil.copytree(run.folder, tmp_path / "model"))


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(with_digest(manifest)))


def reconfigure(folder: Path, **values: Any) -> None:
    """Change the configuration and bind the maps to it: only the models behind it differ."""
    edit_manifest(folder, lambda m: m["config"].update(values))
    manifest = json.loads((folder / "manifest.json").read_text())
    bound = bound_to(manifest["config"], manifest["fingerprints"])
    rewrite_calibrators(folder, lambda kept: kept.update(bound_to=bound), mode=None)


def rewrite_calibrators(
    folder: Path, change: Callable[[dict[str, Any]], None], *, mode: str | None = "search"
) -> None:
    """Change the maps of a mode, or the whole file where it is None, and give the manifest the
    right hash: only the content is wrong.
    """
    path = folder / "calibrators.json"
    kept = json.loads(path.read_text())
    change(kept[mode] if mode else kept)
    path.write_text(json.dumps(kept))
    entry = {"sha256": sha256_file(path), "size": path.stat().st_size}
    edit_manifest(folder, lambda m: m["files"].update({"calibrators.json": entry}))


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        CalibratedReranker.load(folder)
    return str(caught.value)


def test_assessments_keep_the_order_and_are_probabilities(
    model: CalibratedReranker, queries: list[Query], pipeline: Pipeline
) -> None:
    """One assessment a query, in order; 0 <= confidence <= sufficiency <= 1."""
    found = model.assess(queries)
    assert [a.ranking.query for a in found] == queries
    provided = dict(zip((q.query_id for q in queries), pipeline.retrieve(queries), strict=True))
    for a in found:
        assert 0 <= a.confidence <= a.sufficiency <= 1
        assert a.accepted == (a.confidence >= 0.7)
        assert list(a.relevance) == sorted(a.relevance, reverse=True)
        candidates = provided[a.ranking.query.query_id].passages
        assert set(a.ranking.doc_ids) == {p.doc_id for p in candidates}
    assert len({a.confidence for a in found}) > len(found) / 2


def test_an_assessment_does_not_depend_on_its_neighbours(
    model: CalibratedReranker, queries: list[Query], maps: FittedMaps, config: Config
) -> None:
    """A query alone, in a batch, or in a reversed batch gets the same numbers to the bit."""
    some = model.pipeline.run(queries[:12], maps.policy)

    def predicted(scored: Sequence[Scored]) -> list[Any]:
        found = to_assessments(
            predict(scored, maps, config), maps, config, ["search"] * len(scored)
        )
        return [a.to_dict() for a in found]

    whole = predicted(some)
    assert [predicted([s])[0] for s in some] == whole
    assert predicted(some[::-1]) == whole[::-1]


def test_sure_queries_are_right_more_often(
    model: CalibratedReranker, queries: list[Query], small: LabelledSet
) -> None:
    """The surer half of all queries is right more often than the other half."""
    found = sorted(model.assess(queries), key=lambda a: -a.confidence)
    right = [a.ranking.doc_ids[0] in small.relevant(a.ranking.query.query_id) for a in found]
    half = len(right) // 2
    assert np.mean(right[:half]) > np.mean(right[half:]) + 0.2


def test_no_query_gives_no_assessment(model: CalibratedReranker) -> None:
    """Nothing in, nothing out."""
    assert model.assess([]) == model.assess_each([]) == []


def test_a_query_without_passages_is_no_answer(maps: FittedMaps, config: Config) -> None:
    """Where nothing was found confidence and sufficiency are 0, and the reason says it."""
    (found,) = to_assessments(predict([make_scored()], maps, config), maps, config, ["search"])
    assert (found.confidence, found.sufficiency) == (0.0, 0.0)
    assert (found.level, found.verdict, found.accepted) == ("VERY_LOW", "INSUFFICIENT", False)
    assert found.reasons == ("against: no passage was found",)
    assert found.to_dict()["ranking"] == []


def test_search_is_ranking_and_assessing(model: CalibratedReranker, run: Run) -> None:
    """`search` gives the numbers that the bulk path gives for the same words."""
    query = run.plan.report.items[0]
    found, expected = model.search(query.text), model.assess([query])[0]
    assert found.confidence == expected.confidence
    assert found.sufficiency == expected.sufficiency
    assert found.ranking.doc_ids == expected.ranking.doc_ids


@pytest.mark.parametrize("passages", ["The median", [1, 2], {"a": "The median"}, None, 5])
def test_passages_that_are_none_are_refused(model: CalibratedReranker, passages: Any) -> None:
    """The letters of one text are not ranked, and nor are the keys of a dictionary."""
    with pytest.raises(InputError, match=r"expected a|should be text"):
        model.rerank("median", passages)


@pytest.mark.parametrize("queries", ["median", [5], [None]])
def test_queries_that_are_none_are_refused(model: CalibratedReranker, queries: Any) -> None:
    """The message says what came."""
    with pytest.raises(InputError, match=r"expected .* got"):
        model.assess(queries)


def test_a_plain_string_is_a_query(model: CalibratedReranker, run: Run) -> None:
    """As for `search`."""
    text = run.plan.report.items[0].text
    (found,) = model.assess([text])
    assert found.confidence == model.search(text).confidence


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Passage("a", None, "text"), "`title` of a passage should be text, got None"),
        (lambda: Passage("a", "t", None), "`text` of a passage should be text, got None"),
        (lambda: Passage(7, "t", "text"), "`doc_id` of a passage should be text, got 7"),
        (lambda: Query(None), "the query should be text, got None"),
        (lambda: Query("q", passages=5), "expected a list of passages, got 5"),
        (lambda: Query("q", passages="one text"), "expected a list of passages, got 'one text'"),
        (lambda: Query("q", passages=[], scores={}), "expected scores by stage"),
        (lambda: Query("q", passages=[], scores=[0.1]), "expected scores by stage"),
    ],
)
def test_values_of_another_type_are_refused(make: Any, sentence: str) -> None:
    """Where they come in, and not in the middle of a search."""
    with pytest.raises(InputError, match=re.escape(sentence)):
        make()


@pytest.mark.parametrize("question", ["", "  \n "])
def test_an_empty_question_is_refused(model: CalibratedReranker, question: str) -> None:
    """There is nothing to search for."""
    with pytest.raises(InputError, match="the query is empty"):
        model.search(question)


def test_any_other_question_is_answered(model: CalibratedReranker) -> None:
    """Punctuation, another script, an unknown word and a very long text all get a ranking."""
    for question in ("?!", "何ですか", "xyzzyx", "fill " * 700):
        found = model.search(question)
        assert len(found.ranking) > 0
        assert 0 <= found.confidence <= found.sufficiency <= 1


@pytest.mark.parametrize("rank_by", ["relevance", "logit", "fused"])
def test_the_order_is_the_one_asked_for(
    run: Run, queries: list[Query], copied: Path, rank_by: str
) -> None:
    """`rank_by` decides what the passages are sorted by, unscored ones after those scored."""
    reconfigure(copied, rank_by=rank_by)
    model = CalibratedReranker.load(copied, cache=ScoreCache(Workspace(run.work).scores))
    for found in model.assess(queries[:10]):
        r = found.ranking
        key = {
            "relevance": r.score,
            "logit": np.where(r.scored, r.logits, -np.inf),
            "fused": r.first_stage.fused,
        }[rank_by]
        assert (key[:-1] >= key[1:]).all()
        assert (np.diff(found.relevance) <= 0).all()


# --- without the heavy libraries --------------------------------------------------------------


def test_searching_needs_none_of_the_training_libraries(
    model: CalibratedReranker, run: Run
) -> None:
    """Loading and searching work, with the same numbers, where these libraries cannot load."""
    question = run.plan.report.items[0].text
    code = f"""
import json
from rerank.assessment.predictions import predict
from rerank.assessment.model import CalibratedReranker
found = CalibratedReranker.load({str(run.folder)!r}).search({question!r})
print(json.dumps([found.to_dict(), sorted({{m.split(".")[0] for m in sys.modules}})]))
"""
    kept, modules = json.loads(run_python("import sys\n" + code, blocked=UNUSED))
    assert kept == json.loads(json.dumps(model.search(question).to_dict()))
    assert not {"torch", "transformers", "sentence_transformers", *UNUSED} & set(modules)


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["calibrators.json", "reliability.json", "index/vectors.npy", "index/corpus.jsonl"]
)
def test_a_changed_byte_is_refused(copied: Path, name: str) -> None:
    """One other byte in any file of the folder, and the refusal names the file."""
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / name).write_bytes(content)
    assert f"{name} is changed" in refusal(copied)


def test_a_file_that_does_not_belong_is_refused(copied: Path) -> None:
    """Nothing can be smuggled into a folder."""
    (copied / "code.py").write_text("print()")
    assert "code.py" in refusal(copied)


def test_a_missing_file_is_refused(copied: Path) -> None:
    """The refusal names the file that is gone."""
    (copied / "calibrators.json").unlink()
    assert "calibrators.json is missing" in refusal(copied)


@pytest.mark.parametrize("logits", [None, [0.5, 9.0, -1.0, 9.0]])
@pytest.mark.parametrize("empty", ["", " \n", "\u200b\ufeff", "\u00ad"])
def test_a_passage_without_text_is_last(
    model: CalibratedReranker, empty: str, logits: list[float] | None
) -> None:
    """It has relevance 0 and its own id and row; the others are answered as without it."""
    texts = ["Sort an array in place.", empty, "Median that ignores NaNs.", empty]
    passages = [Passage(f"d{i}", "", text) for i, text in enumerate(texts)]
    of_two = None if logits is None else logits[::2]
    found, alone = model.assess(
        [
            Query("sort an array", passages=tuple(passages), logits=logits),  # type: ignore[arg-type]
            Query("sort an array", passages=tuple(passages[::2]), logits=of_two),  # type: ignore[arg-type]
        ]
    )
    assert [p.row for p in found.first(4)][2:] == [1, 3]
    assert [p.doc_id for p in found.first(4)] == [p.doc_id for p in alone.first(2)] + ["d1", "d3"]
    assert found.relevance.tolist() == [*alone.relevance.tolist(), 0, 0]
    assert (found.confidence, found.sufficiency) == (alone.confidence, alone.sufficiency)
    assert [p.logit for p in found.first(4)][2:] == [None, None]
    check_coherent(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_passages_of_which_none_has_text_hold_no_answer(model: CalibratedReranker) -> None:
    """All of them are listed, with confidence and relevance 0."""
    found = model.rerank("sort an array", ["", " "])
    assert (found.confidence, found.sufficiency, found.accepted) == (0, 0, False)
    assert [(p.doc_id, p.relevance) for p in found.first(9)] == [("0", 0), ("1", 0)]
    check_coherent(found)


@pytest.mark.parametrize("make", ["nothing", "empty", "broken", "index"])
def test_what_is_no_model_folder_is_refused(run: Run, tmp_path: Path, make: str) -> None:
    """A missing folder, an empty one, a broken manifest and an index are all refused by name."""
    folder = run.folder / "index" if make == "index" else tmp_path / "model"
    if make in ("empty", "broken"):
        folder.mkdir()
    if make == "broken":
        (folder / "manifest.json").write_text("{")
    assert str(folder) in refusal(folder)


def test_another_max_length_is_refused(copied: Path) -> None:
    """A confidence fitted at one cut is not given at another; the sentence says which part."""
    reconfigure(copied, max_length=100)
    message = refusal(copied)
    assert "its max_length was 128 when it was calibrated and is 100 here" in message


def test_another_reranker_is_refused(copied: Path, other_reranker: Callable[..., Path]) -> None:
    """A confidence fitted on one cross-encoder's logits is not given on another's."""
    folder = str(other_reranker())
    reconfigure(copied, reranker=folder)
    message = refusal(copied)
    assert "its reranker was" in message
    assert resolve(folder).fingerprint[:16] in message
    assert resolve("minilm-reranker").fingerprint[:16] in message


def test_another_tokenizer_is_another_reranker(
    copied: Path, other_reranker: Callable[..., Path]
) -> None:
    """The fingerprint covers the tokenizer: a changed one makes another model."""
    folder = other_reranker()
    before = resolve(str(folder)).fingerprint
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"lowercase":true', '"lowercase":false') + " ")
    assert resolve(str(folder)).fingerprint != before


@pytest.mark.parametrize("part", ["encoder_max_length", "encoder"])
def test_another_encoder_is_refused(
    copied: Path, other_reranker: Callable[..., Path], part: str
) -> None:
    """The index's vectors belong to the encoder, and the cut, that made them."""
    value = 32 if part == "encoder_max_length" else str(other_reranker())
    reconfigure(copied, **{part: value})
    assert f"its {part} was" in refusal(copied)


def test_maps_are_bound_to_their_configuration(copied: Path) -> None:
    """A configuration changed in the manifest alone is not what the maps were fitted with."""
    edit_manifest(copied, lambda m: m["config"].update(rank_by="fused"))
    assert "fitted with another configuration" in refusal(copied)


def test_an_unknown_configuration_field_is_refused(copied: Path) -> None:
    """A folder of a later version, with options that this one does not know."""
    reconfigure(copied, shiny=True)
    assert "unknown configuration fields ['shiny']" in refusal(copied)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda k: k["ranking_features"].pop(), "the model's ranking_features differ"),
        (lambda k: k["passage_features"].reverse(), "the model's passage_features differ"),
        (lambda k: k.pop("hazard"), "calibrators.json cannot be read"),
        (lambda k: k["score"].update(intercept="x"), "calibrators.json cannot be read"),
        (lambda k: k.update(score=k["confidence"]), "map should be logistic"),
        (lambda k: k.update(prior=k["confidence"]), "map should be logistic"),
        (lambda k: k["certificate"].update(colour=1), "calibrators.json cannot be read"),
        (lambda k: k.update(cutoff=1.5), "the cutoff should be in [0, 1]"),
        (lambda k: k.update(confidence=k["score"]), "should have two stages"),
    ],
)
def test_maps_of_another_shape_are_refused(
    copied: Path, change: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    """A right hash does not help wrong maps: the refusal says what is wrong with them."""
    rewrite_calibrators(copied, change)
    assert complaint in refusal(copied)


@pytest.mark.parametrize("name", ["prior", "score", "confidence", "hazard", "another"])
def test_maps_of_another_width_are_refused(copied: Path, name: str) -> None:
    """A map with fewer inputs than there are features is refused at load, not when asked."""

    def narrow(kept: dict[str, Any]) -> None:
        learned = kept[name]["first"] if name == "confidence" else kept[name]
        for key in ("coef", "mean", "scale", "low", "high"):
            learned[key].pop()

    rewrite_calibrators(copied, narrow)
    refusal(copied)


@pytest.mark.parametrize("mode", ["search", "rerank"])
def test_maps_survive_json_to_the_bit(run: Run, mode: str) -> None:
    """`to_dict` and `from_dict` are each other's inverse."""
    whole = json.loads((run.folder / "calibrators.json").read_text())
    kept = whole[mode]
    learned = FittedMaps.from_dict(copy.deepcopy(kept))
    assert json.loads(json.dumps(learned.to_dict())) == kept
    assert len(whole["bound_to"]) == 64
    assert kept["ranking_features"] == list(RANKING_FEATURES)
    assert kept["passage_features"] == list(PASSAGE_FEATURES)


def test_probabilities_of_an_answer_agree(model: CalibratedReranker, queries: list[Query]) -> None:
    """In both modes and without passages; the verdict is of the fifth sufficiency."""
    some = model.search(queries[0].text).ranking.passages
    provided = [Query("median of a sample", passages=some[:n]) for n in (0, 1, 2, 12)]
    for found in model.assess([*queries, *provided]):
        assert len(found.sufficiency_at) == 10
        assert found.sufficiency_at[4] == found.sufficiency
        check_coherent(found)


@pytest.mark.parametrize("threshold", [None, 0.004, 0.8])
def test_the_certified_threshold_decides(
    run: Run, queries: list[Query], copied: Path, threshold: float | None
) -> None:
    """Certified is what reaches the certified threshold, is accepted, and is not unlike the labels.

    Without a threshold, none is.
    """
    rewrite_calibrators(copied, lambda k: k["certificate"].update(threshold=threshold))
    model = CalibratedReranker.load(copied, cache=ScoreCache(Workspace(run.work).scores))
    maps = model.maps["search"]
    for found in model.assess(queries):
        reached = threshold is not None and found.confidence >= max(0.7, threshold)
        unlike = unlike_labelled(found.features[np.newaxis], maps).any()
        assert found.certified == (reached and not unlike)
        assert found.accepted or not found.certified


def test_thresholds_of_the_folder_decide(run: Run, queries: list[Query], copied: Path) -> None:
    """The bands kept in the folder are the ones that are applied."""
    bands = {"high": 0.2, "medium": 0.1, "low": 0.0, "sufficient": 0.0, "partial": 0.0}
    reconfigure(copied, thresholds=bands)
    model = CalibratedReranker.load(copied, cache=ScoreCache(Workspace(run.work).scores))
    for found in model.assess(queries[:20]):
        assert found.accepted == (found.confidence >= 0.1)
        assert found.verdict == "SUFFICIENT"
        assert found.level in ("HIGH", "MEDIUM", "LOW")


def test_the_configuration_is_the_one_calibrated_with(
    model: CalibratedReranker, config: Config
) -> None:
    """A loaded model runs on the configuration that it was given, seed included."""
    assert model.pipeline.config == config
    assert model.pipeline.config != replace(config, seed=config.seed + 1)
