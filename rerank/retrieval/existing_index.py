"""An index that the user names: opened if it is the one that a run would have built."""

from __future__ import annotations

from pathlib import Path

from rerank.config import Config
from rerank.data.labelled_set import corpus_digest
from rerank.errors import FolderError, InputError
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import INDEX_KIND, Index
from rerank.storage.folder import verify_folder


def existing_index(folder: Path, corpus: str, encoder: Encoder, config: Config) -> Index:
    """The index in a folder, if it is of the corpus with this digest and made as `config` says.

    Raises:
        InputError: it is not an index, is damaged, or was made of or by something else.
    """
    try:
        manifest = verify_folder(folder)
    except FolderError as error:
        raise InputError(f"--index: {error}") from None
    if manifest.get("kind") != INDEX_KIND:
        raise InputError(f"--index: {folder} is not an index; expected what `rerank index` wrote")
    index = Index(folder)
    differing = index.differences(config, encoder)
    if corpus_digest(index.corpus) != corpus:
        differing.append("another corpus")
    if differing:
        raise InputError(
            f"--index: {folder} has {', '.join(differing)}; make it of the same corpus with the "
            "same options: rerank index"
        )
    return index
