"""An index and a model over a changed corpus: what a fresh build gives, and no promise kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.config import Config
from rerank.data.beir import write_corpus
from rerank.data.labelled_set import LabelledSet, corpus_digest
from rerank.errors import FolderError, InputError
from rerank.jobs.calibrate import calibrate
from rerank.jobs.update import CHANGED, update
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index, build_index
from rerank.storage.folder import MANIFEST, verify_folder
from rerank.types import Passage

Run = Any  # the session's run, see conftest

QUERY = "median along an axis while ignoring NaNs"


@pytest.fixture
def changed(small: LabelledSet, tmp_path: Path) -> tuple[dict[str, Passage], Path]:
    """The small corpus with one passage gone, one changed and one added; and its folder."""
    corpus = dict(small.corpus)
    gone, other, *_ = corpus
    del corpus[gone]
    corpus[other] = replace(corpus[other], text="This passage says something else now.")
    corpus["new"] = Passage("new", "A new page", "How to fold a paper plane.", {"page": 3})
    folder = tmp_path / "changed"
    folder.mkdir()
    write_corpus(corpus.values(), folder)
    return corpus, folder


class Counting(Encoder):
    """Counts the texts that are encoded."""

    count = 0

    def encode(self, texts: Any, *, label: str | None = None) -> Any:
        """As the encoder."""
        Counting.count += len(texts)
        return super().encode(texts, label=label)


def test_an_index_equals_a_fresh_one_to_the_byte(
    index: Index,
    config: Config,
    changed: tuple[Mapping[str, Passage], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the texts that are new are encoded; the same corpus again writes nothing."""
    corpus, folder = changed
    ours = Path(shutil.copytree(index.folder, tmp_path / "index"))
    monkeypatch.setattr("rerank.jobs.update.Encoder", Counting)
    found = update(ours, folder)
    assert (found.added, found.removed, found.changed, found.uncertified) == (1, 1, 1, False)
    assert Counting.count == 2
    encoder = Encoder.from_config(_files(config), config)
    fresh = build_index(corpus.values(), tmp_path / "fresh", encoder).folder
    assert _bytes(ours) == _bytes(fresh)
    before = (ours / MANIFEST).stat().st_mtime_ns
    assert not update(ours, folder)
    assert (ours / MANIFEST).stat().st_mtime_ns == before


def test_a_model_searches_the_new_corpus_and_promises_nothing_of_it(
    run: Run, changed: tuple[Mapping[str, Passage], Path], tmp_path: Path
) -> None:
    """It finds what is new, keeps its maps, and says why nothing is certified."""
    corpus, folder = changed
    ours = Path(shutil.copytree(run.folder, tmp_path / "model"))
    old = CalibratedReranker.load(run.folder)
    found = update(ours, folder)
    assert found.uncertified
    model = CalibratedReranker.load(ours)
    assert model.search("fold a paper plane").passages[0].doc_id == "new"
    assert model.manifest["corpus_digest"] == corpus_digest(corpus.values())
    assert model.manifest["updated"]["fitted_on_corpus"] == old.manifest["corpus_digest"]
    for mode, maps in model.maps.items():
        assert maps.certificate.threshold is None
        assert maps.certificate.refused.endswith(CHANGED)
        assert maps.confidence == old.maps[mode].confidence
    assert not update(ours, folder)


def test_an_updated_model_is_not_taken_for_a_calibrated_one(
    run: Run,
    small: LabelledSet,
    config: Config,
    changed: tuple[Mapping[str, Passage], Path],
    tmp_path: Path,
) -> None:
    """Not even if the corpus is the old one again: the certificates are gone."""
    ours = Path(shutil.copytree(run.folder, tmp_path / "model"))
    old = tmp_path / "old"
    old.mkdir()
    write_corpus(small.corpus.values(), old)
    for corpus in (changed[1], old):
        assert update(ours, corpus)
        with pytest.raises(FolderError, match="exists"):
            calibrate(small, ours, config, work=run.work)


def test_an_accepted_answer_says_why_it_is_not_certified(
    run: Run, changed: tuple[Mapping[str, Passage], Path], small: LabelledSet, tmp_path: Path
) -> None:
    """The reason stands first; an answer that is not accepted needs none."""
    ours = Path(shutil.copytree(run.folder, tmp_path / "model"))
    update(ours, changed[1])
    model = CalibratedReranker.load(ours)
    answers = model.assess(list(small.queries.values()))
    assert not any(answer.certified for answer in answers)
    assert any(answer.accepted for answer in answers)
    for answer in answers:
        assert answer.accepted == answer.reasons[0].startswith("not certified: The corpus")


def test_what_is_no_target_is_refused(small_folder: Path, tmp_path: Path) -> None:
    """A folder of another kind, and a corpus of one passage."""
    with pytest.raises(InputError, match=MANIFEST):
        update(tmp_path, small_folder)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "one"}\n')
    with pytest.raises(InputError, match="1 passage"):
        update(tmp_path / "model", tmp_path)


def _files(config: Config) -> Any:
    from rerank.inference.model_files import resolve

    return resolve(config.encoder)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes() for name in [MANIFEST, *verify_folder(folder)["files"]]
    }
