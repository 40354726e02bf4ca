"""The index: exact scores of both stages, the fused order, and the trip to disk and back."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_python
from rank_bm25 import BM25Okapi

from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.words import words
from rerank.errors import FolderError, InputError, MissingExtraError
from rerank.inference.model_files import resolve
from rerank.retrieval.dense import Encoder, PassageText, cosines
from rerank.retrieval.index import Index, build_index
from rerank.storage.folder import verify_folder, with_digest
from rerank.types import Passage

FEW = 12


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(resolve("minilm"), max_length=64)


@pytest.fixture(scope="module")
def few(small: LabelledSet) -> list[Passage]:
    """A dozen real passages, with metadata that only the disk would lose."""
    found = list(small.corpus.values())[:FEW]
    odd = Passage("odd/ö\u2028", "", "No title;\na line separator \u2028 and “quotes”.", {"t": [1]})
    return [*found, odd]


@pytest.fixture(scope="module")
def made(few: list[Passage], encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(few, tmp_path_factory.mktemp("index") / "few", encoder)


def found(index: Index, encoder: Encoder, text: str, **options: Any) -> Any:
    chosen = {"pool": 5, "count": 8, "rrf_k": 60} | options
    return index.search(text, encoder.encode([text])[0], **chosen)


def test_passages_are_read_back_from_disk(made: Index, few: list[Passage]) -> None:
    """Each row gives the very passage that was indexed there, title and metadata included."""
    assert len(made) == len(few)
    assert [made.passage(i) for i in range(len(few))] == few


def test_vectors_are_those_of_sentence_transformers(index: Index, config: Config) -> None:
    """Passages lie in the index as SentenceTransformer.encode gives them, normalised, to 1e-5."""
    from sentence_transformers import SentenceTransformer

    oracle = SentenceTransformer(str(resolve("minilm").folder), device="cpu")
    oracle.max_seq_length = config.encoder_max_length
    rows = list(range(0, len(index), 6))
    texts = [index.passage(i).full_text for i in rows]
    expected = oracle.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(index.vectors.array[rows], expected, rtol=0, atol=1e-5)


def test_candidates_carry_exact_scores_of_both_stages(
    small: LabelledSet, index: Index, pipeline: Pipeline
) -> None:
    """BM25 is BM25Okapi's score and dense the cosine, also of what only the other stage found."""
    oracle = BM25Okapi([words(index.passage(i).full_text) for i in range(len(index))])
    for query in list(small.queries.values())[:10]:
        vector = pipeline.encoder.encode([query.text])[0]
        c = index.search(query.text, vector, pool=5, count=10, rrf_k=60)
        np.testing.assert_allclose(
            c.bm25, oracle.get_scores(words(query.text))[c.rows], rtol=0, atol=1e-9
        )
        exact = [np.max(index.vectors.of(row).astype(np.float64) @ vector) for row in c.rows]
        np.testing.assert_allclose(c.dense, exact, rtol=0, atol=1e-6)


def test_candidates_are_the_fusion_of_two_exact_rankings(
    small: LabelledSet, index: Index, pipeline: Pipeline
) -> None:
    """Ranks and fused scores follow by hand from two sorted lists, 5 passages deep each."""
    for query in list(small.queries.values())[:10]:
        vector = pipeline.encoder.encode([query.text])[0]
        c = index.search(query.text, vector, pool=5, count=10, rrf_k=60)
        lexical = index.bm25.scores(words(query.text))
        dense = [np.max(index.vectors.of(row) @ vector) for row in range(len(index))]
        by_bm25 = [i for i in _best(lexical, 5) if lexical[i] > 0]
        by_dense = _best(dense, 5)
        assert set(c.rows.tolist()) == set(by_bm25) | set(by_dense)
        for k, row in enumerate(c.rows.tolist()):
            first = by_bm25.index(row) + 1 if row in by_bm25 else None
            second = by_dense.index(row) + 1 if row in by_dense else None
            assert c.bm25_rank[k] == (first or 6)
            assert c.dense_rank[k] == (second or 6)
            expected = sum(1 / (60 + r) for r in (first, second) if r)
            assert c.fused[k] == pytest.approx(expected, abs=1e-15)
        assert (np.diff(c.fused) <= 0).all()


def _best(scores: Sequence[float] | np.ndarray, count: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: -scores[i])[:count]


def test_a_query_without_a_known_word_has_dense_candidates_only(
    made: Index, encoder: Encoder
) -> None:
    """What BM25 does not match it does not find: score 0 and the rank for missing ones."""
    c = found(made, encoder, "xyzzyx qwrtzp")
    assert len(c) == 5
    assert c.bm25.tolist() == [0.0] * 5
    assert c.bm25_rank.tolist() == [6] * 5
    assert c.dense_rank.tolist() == [1, 2, 3, 4, 5]


def test_count_and_pool_bound_the_candidates(made: Index, encoder: Encoder) -> None:
    """No more than `count`, and no more than both pools and the corpus together hold."""
    text = "compute the sum of array elements"
    assert len(found(made, encoder, text, count=3)) == 3
    assert len(found(made, encoder, text, pool=1, count=50)) <= 2
    assert len(found(made, encoder, text, pool=100, count=100)) == len(made)


def test_an_index_is_the_same_when_opened_again(made: Index, encoder: Encoder) -> None:
    """A second open index gives the same candidates, and the folder matches its hashes."""
    verify_folder(made.folder)
    again = Index(made.folder)
    assert [again.passage(i) for i in range(len(again))] == [
        made.passage(i) for i in range(len(made))
    ]
    one, other = (found(i, encoder, "missing values") for i in (made, again))
    for name in ("rows", "bm25", "dense", "fused", "bm25_rank", "dense_rank"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_texts_of_another_index_are_not_encoded_again(
    made: Index,
    few: list[Passage],
    encoder: Encoder,
    tmp_path: Path,
) -> None:
    """The files are those of a fresh build, to the byte; a damaged index gives nothing."""
    moved = [*reversed(few[2:]), Passage("new", "", "A text of its own."), few[2]]
    fresh = build_index(moved, tmp_path / "fresh", encoder)
    damaged = Path(shutil.copytree(made.folder, tmp_path / "damaged"))
    wrong = np.load(damaged / "vectors.npy")
    np.save(damaged / "vectors.npy", wrong[::-1])
    other = build_index(few, tmp_path / "other", Encoder(encoder.model, max_length=16)).folder
    encoded: list[str] = []

    class Counting(Encoder):
        def encode(self, texts: Any, *, label: str | None = None) -> Any:
            encoded.extend(texts)
            return encoder.encode(texts, label=label)

    counting, known = Counting(encoder.model, max_length=64), (damaged, other, tmp_path / "none")
    build_index(moved, tmp_path / "alone", counting, known=known)
    assert len(encoded) == len({p.full_text for p in moved})
    encoded.clear()
    again = build_index(moved, tmp_path / "again", counting, known=(*known, made.folder))
    assert encoded == [PassageText("A text of its own.")]
    assert again.manifest == fresh.manifest


def test_an_index_of_another_layout_is_refused(made: Index, tmp_path: Path) -> None:
    """Files that another version wrote are not read as if they were ours."""
    folder = shutil.copytree(made.folder, tmp_path / "index")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(with_digest(manifest | {"layout": 1})))
    with pytest.raises(InputError, match=r"layout 1.*build it again"):
        Index(folder)


def test_the_manifest_names_the_encoder(made: Index, encoder: Encoder) -> None:
    """The folder says which encoder made its vectors, at which length."""
    kept = json.loads((made.folder / "manifest.json").read_text())
    assert kept["encoder"] == {
        "name": "minilm",
        "fingerprint": encoder.model.fingerprint,
        "max_length": 64,
        "windows": 1,
        "precision": "fp32",
    }
    assert kept["passages"] == FEW + 1


def test_an_index_made_with_another_cut_is_refused(made: Index) -> None:
    """A pipeline that encodes at another length than the index refuses it, naming both."""
    with pytest.raises(InputError, match=r"--encoder-max-length 64 instead of 128; build it again"):
        _open(made, Config(encoder_max_length=128))
    with pytest.raises(InputError, match=r"--encoder-windows 1 instead of 2; build it again"):
        _open(made, Config(encoder_max_length=64, encoder_windows=2))
    with pytest.raises(InputError, match=r"--encoder-precision fp32 instead of int8; build"):
        _open(made, Config(encoder_max_length=64, encoder_precision="int8"))


def test_vectors_in_int8_are_close_and_not_taken_for_others(
    made: Index, few: list[Passage], tmp_path: Path
) -> None:
    """An index in int8 takes none of an index in fp32, and equal passages are encoded once."""
    encoder, encoded = Encoder(resolve("minilm"), max_length=64, precision="int8"), list[str]()
    encode = encoder.encode_passages
    encoder.encode_passages = lambda some: encoded.extend(p.doc_id for p in some) or encode(some)
    again = [replace(p, doc_id=f"{p.doc_id} again") for p in few]
    other = build_index([*few, *again], tmp_path / "int8", encoder, known=[made.folder])
    assert len(encoded) == len(few)
    first, second = np.split(other.vectors.array, 2)
    assert first.tobytes() == second.tobytes()
    cosine = (first * made.vectors.array).sum(axis=1)
    assert 0.95 < cosine.min() < 0.9999


def _open(index: Index, config: Config) -> Pipeline:
    return Pipeline(OwnIndex(index, config), Models.open(config))


def test_an_empty_corpus_is_refused(tmp_path: Path, encoder: Encoder) -> None:
    """An index needs a passage, and a refusal leaves no folder."""
    with pytest.raises(InputError, match="no passage"):
        build_index([], tmp_path / "index", encoder)
    assert not (tmp_path / "index").exists()


def test_a_folder_that_exists_is_not_replaced_unasked(
    made: Index, few: list[Passage], encoder: Encoder
) -> None:
    """Building over an index needs leave."""
    before = (made.folder / "manifest.json").read_bytes()
    with pytest.raises(FolderError, match="exists"):
        build_index(few[:1], made.folder, encoder)
    assert (made.folder / "manifest.json").read_bytes() == before


def test_approximate_search_finds_what_exact_search_finds(
    made: Index, few: list[Passage], encoder: Encoder, tmp_path: Path
) -> None:
    """On a corpus that the graph is walked whole, candidates, scores and ranks are the same."""
    near = build_index(few, tmp_path / "near", encoder, approximate=True)
    assert near.vectors.graph is not None
    for text in ("missing values", few[3].text, few[7].full_text):
        one, other = found(made, encoder, text), found(near, encoder, text)
        assert one.rows.tolist() == other.rows.tolist()
        assert one.dense.tolist() == other.dense.tolist()
        assert one.dense_rank.tolist() == other.dense_rank.tolist()


def test_approximate_search_needs_its_package(
    few: list[Passage], encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without USearch the refusal comes before the encoding, and says what to install."""
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    monkeypatch.setattr(encoder, "encode", pytest.fail)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[approximate\]'$"):
        build_index(few, tmp_path / "index", encoder, approximate=True)
    assert not (tmp_path / "index").exists()


FULL = """
import resource, signal
from pathlib import Path
from rerank.retrieval.dense import Encoder, cosines
from rerank.retrieval.index import build_index
from rerank.inference.model_files import resolve
from rerank.types import Passage

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, -1))  # of each file, as on a disk that is full
passages = [Passage(str(i), "", "text") for i in range(9)]
try:
    build_index(passages, Path({folder!r}), Encoder(resolve("minilm"), max_length=8))
except OSError as error:
    print("refused:", error)
"""


def test_a_full_disk_is_an_error(tmp_path: Path, encoder: Encoder, few: list[Passage]) -> None:
    """Vectors that find no room end in an exception, not in a signal, and leave nothing."""
    encoder.encode([few[0].text])  # exported by now
    assert "refused: " in run_python(FULL.format(folder=str(tmp_path / "index")))
    assert not list(tmp_path.iterdir())


def test_one_passage_is_a_corpus(tmp_path: Path, encoder: Encoder, few: list[Passage]) -> None:
    """The smallest corpus is indexed and searched."""
    one = build_index(few[:1], tmp_path / "one", encoder)
    c = found(one, encoder, few[0].full_text)
    assert one.passage(int(c.rows[0])) == few[0]
    assert len(c) == 1


def test_cosines_stay_within_one() -> None:
    """Rounding does not carry a cosine beyond 1."""
    vector = np.full(384, 1 / np.sqrt(384), dtype=np.float32) * np.float32(1.0001)
    assert cosines(vector[None, :], vector).tolist() == [1.0]
    assert cosines(vector[None, :], -vector).tolist() == [-1.0]
