"""A model before the first label: it searches and reranks, and says that it is not calibrated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from server import serving

import rerank
from rerank.assessment import fitted_maps
from rerank.assessment.fitted_maps import FILES, PooledMaps, scored_by
from rerank.batch.job import rescore
from rerank.config import Config
from rerank.errors import FolderError, InputError
from rerank.fitting.fit import Fitted
from rerank.inference.model_files import BUNDLED, resolve
from rerank.jobs.update import init, update

NEEDS_MAPS = pytest.mark.skipif(
    not list((BUNDLED / Config().reranker).glob(FILES)), reason="`make pooled` has not been run"
)


@pytest.fixture
def known(
    fitted: Fitted, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PooledMaps:
    """Pooled maps of the session's configuration, where the bundled ones are looked for."""
    maps = replace(fitted.maps, calibrated=False)
    here = scored_by(resolve(config.encoder), resolve(config.reranker), config)
    made = PooledMaps({"search": maps, "rerank": maps}, here, [{"name": "some set"}])
    (tmp_path / "bundled" / "reranker").mkdir(parents=True)
    (tmp_path / "bundled" / "reranker" / "pooled.json").write_text(json.dumps(made.to_dict()))
    monkeypatch.setattr(fitted_maps, "BUNDLED", tmp_path / "bundled")
    return made


def test_a_model_without_labels_is_served(
    known: PooledMaps, small_folder: Path, config: Config, work: Path, tmp_path: Path
) -> None:
    """Its answers say that they are not calibrated, and its reliability that nothing is known."""
    folder = init(small_folder, tmp_path / "model", config, work=work)
    with serving(folder) as started, httpx.Client(base_url=started.url, timeout=600) as client:
        told = client.post("/v1/ask", json={"query": "median of an array"}).json()
        assert (told["assessment"]["calibrated"], told["assessment"]["accepted"]) == (False, False)
        reliability = client.get("/v1/reliability").json()
    assert reliability["curves"]["thresholds"] == []
    assert "no label" in reliability["headline"][0]


def test_a_corpus_becomes_a_model_that_searches(
    known: PooledMaps, small_folder: Path, config: Config, work: Path, tmp_path: Path
) -> None:
    """It answers, decides nothing, and names the way to a calibrated one."""
    model = rerank.load(init(small_folder, tmp_path / "model", config, work=work))
    answer = model.search("median along an axis while ignoring NaNs")
    assert len(answer.passages) > 1
    assert (answer.calibrated, answer.accepted, answer.certified) == (False, False, False)
    assert answer.level in {"LOW", "VERY_LOW"}
    assert "label at least" in answer.reasons[0]
    assert model.manifest["fitted_around"] == known.described()
    with pytest.raises(InputError, match="not calibrated"):
        _ = model.sketch


def test_a_corpus_of_one_passage_is_searched(
    known: PooledMaps, config: Config, work: Path, tmp_path: Path
) -> None:
    """As one short document gives it; a second one may come with `update`."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "1", "text": "A queue holds at most 10^6 messages."}\n')
    model = rerank.load(init(corpus, tmp_path / "model", config, work=work))
    answer = model.search("how many messages does a queue hold")
    assert [passage.doc_id for passage in answer.passages] == ["1"]
    assert not answer.accepted


def test_every_part_of_a_corpus_is_read(
    known: PooledMaps, config: Config, work: Path, tmp_path: Path
) -> None:
    """By `init`, and by an update of what it made."""
    for part in range(3):
        line = f'{{"_id": "{part}", "text": "Queue number {part} holds 10 messages."}}\n'
        (tmp_path / f"corpus-0000{part}-of-00003.jsonl").write_text(line)
    folder = init(tmp_path, tmp_path / "model", config, work=work)
    assert rerank.load(folder).manifest["dataset"]["passages"] == 3
    assert update(folder, tmp_path).passages == 3


@NEEDS_MAPS
def test_a_language_that_the_reranker_does_not_read_is_ordered_by_both_stages(
    tmp_path: Path,
) -> None:
    """Right first more often than by the encoder alone, on two sets of other languages."""
    texts = (
        "Der Median ist der mittlere Wert einer sortierten Liste von Zahlen.",
        "Der Mittelwert ist die Summe der Zahlen, geteilt durch ihre Anzahl.",
    )
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": t.split()[1], "text": t}) + "\n" for t in texts))
    folder = init(corpus, tmp_path / "model", work=tmp_path / "work")
    model = rerank.load(folder)
    config = model.pipeline.config
    assert (config.language, config.rank_by) == ("german", "fused")
    assert model.search("Was ist der Median?").top.doc_id == "Median"


def test_without_pooled_maps_it_says_what_to_do(
    small_folder: Path, config: Config, tmp_path: Path
) -> None:
    """The session's configuration reads fewer tokens than the bundled maps' scores came from."""
    with pytest.raises(InputError, match="before the first label"):
        init(small_folder, tmp_path / "model", config, work=tmp_path)


@NEEDS_MAPS
def test_the_default_model_reranks_and_does_not_search() -> None:
    """In one line, without an index; the maps are the bundled ones."""
    model = rerank.load("default")
    answer = model.rerank("fill missing values", ["Fill NA values.", "Draw a circle."])
    assert answer.top is not None
    assert answer.top.doc_id == "0"
    assert not answer.calibrated
    with pytest.raises(InputError, match="rerank model init"):
        model.search("fill missing values")


@NEEDS_MAPS
def test_what_records_its_model_folder_refuses_the_default_model(tmp_path: Path) -> None:
    """It has no folder; the sentence says what to do."""
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "a", "passages": [{"_id": "p", "text": "b"}]}\n')
    with pytest.raises(InputError, match="default is not a model folder; for this"):
        rescore(rerank.load("default"), queries, tmp_path / "out.jsonl")


@NEEDS_MAPS
def test_maps_beside_the_folder_of_a_reranker_are_found(
    other_reranker: Callable[..., Path],
) -> None:
    """If they were fitted on its own scores; a file that is not JSON is named."""
    folder = other_reranker()
    config = Config(reranker=str(folder))
    models = (resolve(config.encoder), resolve(config.reranker))
    assert fitted_maps.pooled_for(*models, config) is None
    values = json.loads(next(BUNDLED.glob(f"*/{FILES}")).read_text(encoding="utf-8"))
    file = folder.with_name(f"{folder.name}.pooled.json")
    file.write_text(json.dumps(values), encoding="utf-8")
    assert fitted_maps.pooled_for(*models, config) is None
    values["fingerprints"] = fitted_maps.scored_by(*models, config)
    file.write_text(json.dumps(values), encoding="utf-8")
    assert fitted_maps.pooled_for(*models, config) is not None
    file.write_text("{", encoding="utf-8")
    with pytest.raises(FolderError, match=r"pooled\.json is not JSON"):
        fitted_maps.pooled_for(*models, config)


@NEEDS_MAPS
@pytest.mark.parametrize(
    "path", sorted(BUNDLED.glob(f"*/{FILES}")), ids=lambda p: f"{p.parts[-2:]}"
)
def test_the_bundled_maps_are_of_this_version_and_of_the_bundled_weights(path: Path) -> None:
    """Where a feature or the weights change they are to be made again: `make pooled`."""
    config = Config(reranker=path.parent.name)
    models = (resolve(config.encoder), resolve(config.reranker))
    found = fitted_maps.pooled_for(*models, config)
    assert found is not None
    assert not any(maps.calibrated for maps in found.maps.values())
    assert "wikiqa_passages" not in {one["name"] for one in found.sets}
