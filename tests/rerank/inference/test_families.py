"""Models of every family that people run: the numbers of sentence-transformers' own front door.

The models are small and untrained; their weights are large enough for scores to differ.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from server import serving
from small_sets import two_word_questions

import rerank
from rerank.cli import main
from rerank.errors import InputError
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.model_files import resolve
from rerank.inference.score_cache import ScoreCache
from rerank.retrieval.dense import Encoder, PassageText

pytestmark = pytest.mark.usefixtures("untracked")
PAIRS = [
    ("what is the median", "The middle value of a sorted sample, as large as half of the others."),
    ("Mean", "The sum over the count."),
    ("how long is it", "As long as it takes to say what has to be said. " * 20),
]
LENGTH = 64  # tokens, which the last pair exceeds
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 160,
    "vocab_size": 30522,
    "pad_token_id": 0,
    "initializer_range": 0.4,
}
CAUSAL = SHAPE | {"num_key_value_heads": 1, "head_dim": 8, "eos_token_id": 102, "bos_token_id": 101}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": SHAPE,
    "xlm-roberta": SHAPE | {"type_vocab_size": 2},
    "deberta-v2": SHAPE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "modernbert": SHAPE | {"reference_compile": False, "cls_token_id": 101, "sep_token_id": 102},
    "electra": SHAPE | {"embedding_size": 16},
    "qwen2": {key: value for key, value in CAUSAL.items() if key != "head_dim"},
    "qwen3": CAUSAL,
}
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }} {% endif %}"
    "{% if m.role == 'query' %}query {{ m.content }} {% endif %}"
    "{% if m.role == 'document' %}document {{ m.content }} {% endif %}{% endfor %}answer"
)


def tokenizer(*, template: str | None = None) -> Any:
    """The tokenizer of the bundled encoder, which has the words yes and no."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(resolve("minilm").folder)
    made.chat_template = template
    return made


def network(family: str, kind: str, folder: Path, *, outputs: int = 1) -> None:
    """Save an untrained model of a family: a `SequenceClassification`, a `CausalLM`, or a body."""
    import transformers

    torch.manual_seed(1)
    shape = transformers.AutoConfig.for_model(family, **FAMILIES[family], num_labels=outputs)
    of_kind = getattr(transformers, f"AutoModel{kind}")
    model = of_kind.from_config(shape)
    model.save_pretrained(folder)


def reranker(folder: Path, family: str) -> None:
    network(family, "ForSequenceClassification", folder)
    tokenizer().save_pretrained(folder)


def with_answers(folder: Path, family: str) -> None:
    """As Qwen3-Reranker: a language model, whose yes and no count, and a template."""
    network(family, "ForCausalLM", folder)
    tokenizer(template=TEMPLATE).save_pretrained(folder)


def converted(folder: Path, family: str) -> None:
    """The same with a head instead of words, saved by the library with a prompt."""
    from sentence_transformers import CrossEncoder

    network(family, "ForSequenceClassification", folder)
    tokenizer(template=TEMPLATE).save_pretrained(folder)
    prompts = {"web": "judge the document"}
    model = CrossEncoder(str(folder), device="cpu", prompts=prompts, default_prompt_name="web")
    model.save_pretrained(str(folder))


def prompted(folder: Path, family: str) -> None:
    """A plain one with a prompt and a saved activation, which raw scores do without."""
    from sentence_transformers import CrossEncoder

    reranker(folder, family)
    model = CrossEncoder(
        str(folder),
        device="cpu",
        prompts={"web": "judge: "},
        default_prompt_name="web",
        activation_fn=torch.nn.Tanh(),
    )
    model.save_pretrained(str(folder))


PLAIN = ("bert", "xlm-roberta", "deberta-v2", "modernbert", "electra")
RERANKERS: list[tuple[Callable[[Path, str], None], str]] = [
    *((reranker, family) for family in PLAIN),
    *((make, family) for make in (with_answers, converted) for family in ("qwen2", "qwen3")),
    (prompted, "bert"),
]


@pytest.mark.parametrize(("make", "family"), RERANKERS)
def test_a_reranker_has_the_scores_of_the_library(
    make: Callable[[Path, str], None], family: str, tmp_path: Path
) -> None:
    """In fp32 to 1e-5, in bf16 to its rounding; what is cut off is counted."""
    from sentence_transformers import CrossEncoder

    make(tmp_path, family)
    oracle = CrossEncoder(str(tmp_path), device="cpu", max_length=LENGTH)
    expected = oracle.predict(PAIRS, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    files = resolve(str(tmp_path))
    found, cut = open_reranker(files, max_length=LENGTH).score(PAIRS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert np.ptp(found) > 0.01
    prompt = oracle.prompts.get(oracle.default_prompt_name)
    lengths = [
        int(oracle.preprocess([pair], prompt=prompt, max_length=999)["attention_mask"].sum())
        for pair in PAIRS
    ]
    assert cut.tolist() == [length > LENGTH for length in lengths]
    assert cut.tolist()[1:] == [False, True]
    again = open_reranker(files, max_length=LENGTH)  # from the cache
    assert again.score(PAIRS)[0].tolist() == found.tolist()
    assert again.truncates(PAIRS).tolist() == cut.tolist()
    halves, _ = open_reranker(files, max_length=LENGTH, precision="bf16").score(PAIRS)
    np.testing.assert_allclose(halves, expected, rtol=0.1, atol=0.1 * float(np.abs(expected).max()))


def of_library(kind: str, folder: Path) -> None:
    """Save an untrained BERT as a class of sentence-transformers."""
    import sentence_transformers

    body = folder / "body"
    network("bert", "ForMaskedLM" if kind == "SparseEncoder" else "", body)
    tokenizer().save_pretrained(body)
    torch.manual_seed(1)
    getattr(sentence_transformers, kind)(str(body), device="cpu").save_pretrained(str(folder))


@pytest.mark.parametrize(("precision", "room"), [("fp32", 1e-5), ("bf16", 0.1)])
def test_late_interaction_has_the_scores_of_the_library(
    precision: Any, room: float, tmp_path: Path
) -> None:
    """A ColBERT: the sums of its similarities; a passage that is cut off is counted."""
    from sentence_transformers import MultiVectorEncoder

    of_library("MultiVectorEncoder", tmp_path)
    oracle = MultiVectorEncoder(str(tmp_path), device="cpu")
    oracle.max_seq_length = LENGTH
    expected = [
        float(oracle.similarity(oracle.encode_query([q]), oracle.encode_document([text]))[0, 0])
        for q, text in PAIRS
    ]
    model = open_reranker(resolve(str(tmp_path)), max_length=LENGTH, precision=precision)
    found, cut = model.score(PAIRS)
    np.testing.assert_allclose(found, expected, rtol=room, atol=room)
    assert cut.tolist() == model.truncates(PAIRS).tolist() == [False, False, True]
    assert np.ptp(found) > 0.01
    with pytest.raises(InputError, match="late interaction"):
        open_reranker(resolve(str(tmp_path)), max_length=LENGTH, precision="int8")


@pytest.mark.parametrize("open_as", [open_reranker, Encoder])
def test_sparse_vectors_are_refused_before_anything_is_read(
    open_as: Callable[..., Any], tmp_path: Path
) -> None:
    """A SPLADE is neither a reranker nor a bi-encoder."""
    of_library("SparseEncoder", tmp_path)
    with pytest.raises(InputError, match=r"sparse|no single vector"):
        open_as(resolve(str(tmp_path)), max_length=LENGTH)


@pytest.mark.parametrize("make", [with_answers, converted])
def test_an_instruction_takes_the_place_of_the_saved_one(
    make: Callable[[Path, str], None], tmp_path: Path
) -> None:
    """As `predict` with a prompt; scores of another instruction are others."""
    from sentence_transformers import CrossEncoder

    make(tmp_path, "qwen3")
    files, asked = resolve(str(tmp_path)), "only texts of statisticians answer"
    oracle = CrossEncoder(str(tmp_path), device="cpu", max_length=LENGTH)
    raw = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
    expected = oracle.predict(PAIRS, prompt=asked, **raw)
    model = open_reranker(files, max_length=LENGTH, instruction=asked)
    plain = open_reranker(files, max_length=LENGTH)
    foreseen = model.truncates(PAIRS).tolist()
    found, cut = model.score(PAIRS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert foreseen == cut.tolist()
    assert model.scorer.traits.identity != plain.scorer.traits.identity
    assert np.abs(plain.score(PAIRS)[0] - expected).max() > 0.01


def test_a_window_that_an_instruction_leaves_no_room_for_is_told(tmp_path: Path) -> None:
    """A template and an instruction take room in each window; what is cut off there is told."""
    converted(tmp_path, "qwen3")
    long = [(PAIRS[0][0], "It rained all day in the little harbour town. " * 8)]
    asked = "only texts of statisticians answer, " * 12
    model = open_reranker(
        resolve(str(tmp_path)), max_length=LENGTH, windows=9, instruction=asked.strip()
    )
    assert model.truncates(long).tolist() == model.score(long)[1].tolist() == [True]


@pytest.mark.parametrize("late", [False, True])
def test_windows_are_as_long_as_the_model_reads(late: bool, tmp_path: Path) -> None:
    """A template and a prompt take their tokens from each window; of late interaction, the query
    takes none.
    """
    if late:
        of_library("MultiVectorEncoder", tmp_path)
    else:
        converted(tmp_path, "qwen3")
    words = " ".join(f"{word} day" for word in ("rainy", "sunny", "cold") * 30)
    asked = " ".join(["how"] * 20)
    model = open_reranker(resolve(str(tmp_path)), max_length=LENGTH, windows=9)
    assert model.score([(asked, words)])[1].tolist() == [False]
    scorer: Any = model.scorer
    opened = scorer._opened()
    read = scorer._windows([(asked, words)], opened.room)[0]
    longest = max(read, key=lambda pair: len(pair[1]))
    assert opened([longest])[1] == [False]  # whole
    assert opened([(asked, f"{longest[1]} {'day ' * 3}")])[1] == [True]  # and no shorter than that
    spare = opened.room(asked, "") - opened.room("how", "")
    assert spare == (0 if late else -19)


def test_an_instruction_of_a_query_shares_the_weights(tmp_path: Path) -> None:
    """Its scores are those of a reranker that always has it, and are kept apart."""
    with_answers(tmp_path, "qwen3")
    asked, files = "only texts of statisticians answer", resolve(str(tmp_path))
    plain = open_reranker(files, max_length=LENGTH, cache=ScoreCache(tmp_path / "scores"))
    before = plain.score(PAIRS)[0].tolist()
    instructed = plain.with_instruction(asked)
    expected = open_reranker(files, max_length=LENGTH, instruction=asked).score(PAIRS)[0]
    assert instructed.score(PAIRS)[0].tolist() == expected.tolist()
    assert plain.score(PAIRS)[0].tolist() == before != expected.tolist()
    opened = [r.scorer._opened() for r in (plain, instructed)]  # type: ignore[attr-defined]
    assert opened[0] is opened[1]


def test_a_reranker_without_a_place_for_an_instruction_is_refused_one(tmp_path: Path) -> None:
    """A plain cross-encoder would read it as a part of the query."""
    reranker(tmp_path, "bert")
    with pytest.raises(InputError, match="--instruction"):
        open_reranker(resolve(str(tmp_path)), max_length=LENGTH, instruction="be strict")
    with pytest.raises(InputError, match="reads no instruction"):
        open_reranker(resolve(str(tmp_path)), max_length=LENGTH).with_instruction("be strict")


@pytest.mark.parametrize("windows", [2, 9])
def test_the_best_window_of_a_long_passage_counts(windows: int) -> None:
    """A passage whose answer stands far down scores as its best part; the rest is told."""
    answer = "The median is the middle value of a sorted sample."
    filler = "It rained all day in the little harbour town. " * 20
    pairs = [("what is the median", f"{filler}{answer}"), ("what is the median", answer)]
    files = resolve("minilm-reranker")
    one = open_reranker(files, max_length=LENGTH)
    several = open_reranker(files, max_length=LENGTH, windows=windows)
    (first, short), _ = one.score(pairs)
    (best, same), cut = several.score(pairs)
    assert same == short
    assert cut.tolist() == several.truncates(pairs).tolist() == [windows == 2, False]
    scorer: Any = several.scorer
    parts = scorer._windows(pairs[:1], scorer._opened().room)[0]
    assert len(parts) <= windows
    assert best == max(one.score(parts)[0])
    assert (best > 0 > first) == (windows == 9)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_two_outputs_are_refused_before_anything_is_read(precision: Any, tmp_path: Path) -> None:
    """By the configuration alone: the weights are not even there."""
    network("bert", "ForSequenceClassification", tmp_path, outputs=2)
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(InputError, match="has 2 outputs; expected one"):
        open_reranker(resolve(str(tmp_path)), max_length=LENGTH, precision=precision)


def test_a_language_model_has_no_int8_form(tmp_path: Path) -> None:
    """Said before anything is read."""
    with_answers(tmp_path, "qwen3")
    with pytest.raises(InputError, match="precision"):
        open_reranker(resolve(str(tmp_path)), max_length=LENGTH, precision="int8")


def with_modules(folder: Path, *modules: Any, **settings: Any) -> None:
    """Save a bi-encoder of a small BERT, CLS or mean pooling, and what comes after it."""
    from sentence_transformers import SentenceTransformer, models

    body = folder / "body"
    network("bert", "", body)
    tokenizer().save_pretrained(body)
    first = models.Transformer(str(body))
    pooling = models.Pooling(16, pooling_mode=settings.pop("pooling", "mean"))
    if "include_prompt" in settings:
        pooling.include_prompt = settings.pop("include_prompt")
    model = SentenceTransformer(modules=[first, pooling, *modules], device="cpu", **settings)
    model.save_pretrained(str(folder))


def static(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer, models

    torch.manual_seed(1)
    words = tokenizer().backend_tokenizer
    words.no_truncation()
    SentenceTransformer(
        modules=[models.StaticEmbedding(words, embedding_dim=16)], device="cpu"
    ).save_pretrained(str(folder))


E5 = {"query": "query: ", "document": "passage: "}
ENCODERS: dict[str, Callable[[Path], None]] = {
    "plain": with_modules,
    "cls": lambda folder: with_modules(folder, pooling="cls"),
    "prompts": lambda folder: with_modules(folder, prompts=E5),
    "prompts that are not pooled": lambda f: with_modules(f, prompts=E5, include_prompt=False),
    "Matryoshka": lambda folder: with_modules(folder, truncate_dim=8),
    "static": static,
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_has_the_vectors_of_the_library(name: str, tmp_path: Path) -> None:
    """Of queries and of passages, of all its dimensions and no more, to 1e-5."""
    from sentence_transformers import SentenceTransformer

    ENCODERS[name](tmp_path)
    oracle = SentenceTransformer(str(tmp_path), device="cpu")
    if name != "static":
        oracle.max_seq_length = LENGTH
    queries, texts = [list(side) for side in zip(*PAIRS, strict=True)]
    how = {"normalize_embeddings": True, "show_progress_bar": False}
    expected = [oracle.encode_query(queries, **how), oracle.encode_document(texts, **how)]
    files = resolve(str(tmp_path))
    for _ in range(2):  # made, and from the cache
        encoder = Encoder(files, max_length=LENGTH)
        found = encoder.encode([*queries, *map(PassageText, texts)])
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=0, atol=1e-5)
    assert found.shape[1] == (8 if name == "Matryoshka" else 16)


def test_a_prompt_that_is_saved_as_passage_is_applied(tmp_path: Path) -> None:
    """As published E5 models have it; `encode_document` of the library overlooks that name."""
    from sentence_transformers import SentenceTransformer

    with_modules(tmp_path)
    saved = tmp_path / "config_sentence_transformers.json"
    plain = resolve(str(tmp_path)).fingerprint
    prompts = {"query": "query: ", "passage": "passage: "}
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "prompts": prompts}))
    files = resolve(str(tmp_path))
    (found,) = Encoder(files, max_length=LENGTH).encode([PassageText("a text")])
    oracle = SentenceTransformer(str(tmp_path), device="cpu")
    expected = oracle.encode("a text", prompt="passage: ", normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert files.fingerprint != plain


def test_windows_leave_room_for_the_prompt(tmp_path: Path) -> None:
    """Each window and its prompt are read to the end."""
    from rerank.types import Passage

    with_modules(tmp_path, prompts={"query": "q: ", "document": "one two three four five: "})
    encoder = Encoder(resolve(str(tmp_path)), max_length=LENGTH, windows=3)
    words = " ".join(f"word{i}" for i in range(90))
    (texts,) = encoder.windows_of([Passage("d", "title", words)])
    read = tokenizer()
    lengths = [len(read("one two three four five: " + text)["input_ids"]) for text in texts]
    assert len(texts) == 3
    assert max(lengths) <= LENGTH


def late(folder: Path, family: str) -> None:
    of_library("MultiVectorEncoder", folder)


@pytest.mark.parametrize(
    ("make", "family", "exports"),
    [(reranker, "bert", True), (with_answers, "qwen3", False), (late, "bert", False)],
)
def test_every_job_runs_a_reranker_of_a_family(
    make: Callable[[Path, str], None], family: str, exports: bool, tmp_path: Path
) -> None:
    """Calibrate, rescore and serve; export, or one sentence that says why not."""
    weights, folder = tmp_path / "weights", tmp_path / "model"
    weights.mkdir()
    make(weights, family)
    labelled = rerank.LabelledSet.read(two_word_questions(tmp_path / "set"))
    small: Any = {"rerank_depth": 3, "candidates": 6, "pool": 12, "folds": 2}
    config = rerank.Config(precision="fp32", max_length=LENGTH, **small)
    rerank.calibrate(labelled, folder, config, work=tmp_path / "work", reranker=str(weights))
    expected = rerank.load(folder).search("redhouse n7")
    assert expected.calibrated
    queries, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    queries.write_text('{"_id": "a", "query": "redhouse n7"}\n')
    assert main(["rescore", str(folder), str(queries), "--out", str(out)]) == 0
    assert json.loads(out.read_text())["confidence"] == expected.confidence
    with serving(folder) as started:
        body = {"query": "redhouse n7"}
        answer = httpx.post(f"{started.url}/v1/search", json=body, timeout=600).json()
    assert answer["confidence"] == expected.confidence
    deployed = tmp_path / "deployed"
    assert main(["model", "export", str(folder), "--out", str(deployed)]) == (0 if exports else 2)
    if exports:
        shutil.rmtree(weights)
        assert rerank.load(deployed).search("redhouse n7").confidence == expected.confidence
    assert deployed.exists() == exports
