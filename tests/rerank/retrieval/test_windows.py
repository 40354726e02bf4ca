"""Windows of long passages: what they hold, and that a passage is as near as its nearest one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import Tokenizer, open_tokenizer, windows_of
from rerank.retrieval.dense import Encoder, windows
from rerank.retrieval.index import Index, build_index
from rerank.types import Passage

WEATHER = "The weather was mild and the road was long. "
ANSWER = "The incubation period of the virus is five days. "
LONG = Passage("long", "A journey", WEATHER * 30 + ANSWER + WEATHER * 2)
SHORT = Passage("short", "", "The road was long and the incubation slow.")
MANY = [LONG, SHORT, Passage("other", "Cooking", "Boil the rice for ten minutes. " * 40)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_tokenizer(resolve("minilm"), max_length=64)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(resolve("minilm"), max_length=64, windows=8)


@pytest.fixture(scope="module")
def made(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(MANY, tmp_path_factory.mktemp("windows") / "index", encoder)


def test_windows_are_the_whole_passage_behind_its_title(tokenizer: Tokenizer) -> None:
    """Each fits, begins with the title, and together they hold the text without a gap."""
    (texts,) = windows([LONG], tokenizer, 20)
    assert len(texts) > 5
    assert not any(tokens.cut for tokens in tokenizer(texts))
    parts = [text.removeprefix("A journey. ") for text in texts]
    assert all(len(p) < len(t) for p, t in zip(parts, texts, strict=True))
    covered = 0
    for part in parts:
        place = LONG.text.index(part) if covered == 0 else LONG.text.rindex(part, 0, len(LONG.text))
        assert part == LONG.text[place : place + len(part)]
        covered = max(covered, place + len(part))
    assert LONG.text.rstrip().endswith(parts[-1].rstrip())
    assert any(ANSWER.split()[1] in part for part in parts)


def test_at_most_so_many_windows_are_read(tokenizer: Tokenizer) -> None:
    assert [len(t) for t in windows(MANY, tokenizer, 3)] == [3, 1, 3]
    assert windows(MANY, tokenizer, 1) == [[p.full_text] for p in MANY]
    assert windows([], tokenizer, 3) == []


def test_a_title_that_leaves_no_room_is_read_from_the_beginning(tokenizer: Tokenizer) -> None:
    crowded = Passage("a", "word " * 60, WEATHER * 30)
    assert windows([crowded], tokenizer, 4) == [[crowded.full_text]]


def test_a_passage_is_as_near_as_its_nearest_window(made: Index, encoder: Encoder) -> None:
    """By hand: the cosines of all windows, the highest per passage, and their order."""
    query = encoder.encode(["how long is the incubation period of the virus"])[0]
    by_hand = [float(np.max(v @ query)) for v in encoder.encode_passages(MANY)]
    rows = np.array([2, 0, 1])
    np.testing.assert_allclose(
        made.vectors.cosines(query, rows), np.array(by_hand)[rows], rtol=0, atol=1e-6
    )
    expected = sorted(range(3), key=lambda i: -by_hand[i])
    assert made.vectors.nearest(query, 3).tolist() == expected
    assert made.vectors.nearest(query, 1).tolist() == expected[:1]
    beginning = float(encoder.encode([LONG.full_text])[0] @ query)
    assert by_hand[0] > beginning + 0.2


def test_the_graph_finds_the_same_passages(made: Index, encoder: Encoder, tmp_path: Path) -> None:
    graph = build_index(MANY, tmp_path / "graph", encoder, approximate=True)
    query = encoder.encode(["how long is the incubation period of the virus"])[0]
    assert graph.vectors.nearest(query, 3).tolist() == made.vectors.nearest(query, 3).tolist()
    graph.check()


def test_one_window_leaves_the_files_as_they_were(encoder: Encoder, tmp_path: Path) -> None:
    """Without longer passages no second array is written, and an index without it is read."""
    one = Encoder(encoder.model, max_length=64)
    index = build_index(MANY, tmp_path / "one", one)
    assert not (index.folder / "vector_starts.npy").exists()
    np.testing.assert_array_equal(
        np.asarray(index.vectors.array), one.encode([p.full_text for p in MANY])
    )
    assert index.vectors.starts.tolist() == [0, 1, 2, 3]


def test_known_windows_are_not_encoded_again(
    made: Index, encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index of the same windows gives its vectors, one of others does not."""
    encoded: list[str] = []
    real = encoder.encode_passages
    monkeypatch.setattr(
        encoder, "encode_passages", lambda p: encoded.extend(x.doc_id for x in p) or real(p)
    )
    new = Passage("new", "", "A text of its own.")
    again = build_index([*MANY, new], tmp_path / "again", encoder, known=[made.folder])
    assert encoded == ["new"]
    np.testing.assert_array_equal(again.vectors.of(0), made.vectors.of(0))
    fewer = Encoder(encoder.model, max_length=64, windows=2)
    index = build_index(MANY, tmp_path / "fewer", fewer, known=[made.folder])
    assert np.diff(index.vectors.starts).tolist() == [2, 1, 2]


def test_text_without_spaces_has_windows_too() -> None:
    """Where no word begins near, a window begins at any token: each character is in one."""
    text = "".join(chr(0x4E00 + i) for i in range(100))
    spans = np.c_[np.arange(100), np.arange(1, 101)]
    parts, more = windows_of(text, spans, 30, most=4)
    assert parts == [text[:30], text[30:60], text[60:90], text[70:]]
    assert not more
    assert windows_of(text, spans, 30, most=3) == (parts[:3], True)
    words = " ".join(text)
    apart = np.c_[2 * np.arange(100), 2 * np.arange(100) + 1]
    assert [part[0] for part in windows_of(words, apart, 30, most=4)[0]] == [p[0] for p in parts]
