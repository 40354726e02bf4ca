"""Digests of corpora, computed once each: the session of every annotator compares the same two."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from weakref import WeakKeyDictionary

from rerank.data.beir import read_corpus
from rerank.data.labelled_set import corpus_digest
from rerank.retrieval.corpus import Corpus
from rerank.storage.files import file_state

_of_index: WeakKeyDictionary[Corpus, str] = WeakKeyDictionary()


def digest_of_index(corpus: Corpus) -> str:
    """The digest of the passages that a model searches, which never change."""
    found = _of_index.get(corpus)
    if found is None:
        found = _of_index[corpus] = corpus_digest(corpus)
    return found


def digest_of_file(path: Path) -> str:
    """The digest of a file of passages, computed again if the file has changed.

    Raises:
        InputError: a line is not a passage.
    """
    return _of_file(path.resolve(), *file_state(path))


@lru_cache(maxsize=4)
def _of_file(path: Path, *_state: int) -> str:
    return corpus_digest(read_corpus(path).values())
