"""Long texts: the tokens of the whole text, at the cost of its beginning."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers, processors, trainers

from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import FIRST, LAST, READ, Tokenizer, open_tokenizer
from rerank.normal_form import normal_form

PARTS = [
    "the median ",
    "a ",
    ". ",
    "中",
    "e\u0301",
    "x",
    "   ",
    "\x01",
    "😀",
    "ก",
    "\ufdfa",  # of 18 characters in the normal form
    "한글 ",
    "[SEP] ",
]


@pytest.fixture(params=[32, 33])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer with an even, and one with an odd room for a pair."""
    return open_tokenizer(resolve("minilm"), max_length=request.param)


def test_tokens_are_those_of_the_whole_text(tokenizer: Tokenizer) -> None:
    """The library's own truncation is the oracle, with texts and pairs of all lengths."""
    oracle = open_tokenizer(resolve("minilm"), max_length=tokenizer.max_length)._fast
    oracle.enable_truncation(tokenizer.max_length)
    draw = random.Random(0)
    texts = [
        "".join(draw.choice(PARTS) * draw.choice([1, 3, 50]) for _ in range(draw.choice([1, 4, 8])))
        for _ in range(20)
    ]
    for sides in [*((t,) for t in texts), *product(texts[:6], texts[6:])]:
        (found,) = tokenizer([sides[0]] if len(sides) == 1 else [(sides[0], sides[1])])
        wanted = oracle.encode(*sides)
        assert list(found.ids) == wanted.ids
        assert list(found.types) == wanted.type_ids
        assert found.cut == bool(wanted.overflowing)
        assert tokenizer.room(*sides) == tokenizer.max_length - len(wanted.ids)


@pytest.mark.parametrize("removed", [" ", "\x01", "x"])
def test_a_text_that_begins_without_tokens_is_read_on(tokenizer: Tokenizer, removed: str) -> None:
    """Many spaces, removed characters or letters of one word hide no words; `READ` of them do."""
    (found,) = tokenizer([removed * (READ - 30) + " the median of a sample"])
    assert len(found.ids) == len(
        tokenizer(["a" * (removed == "x") + " the median of a sample"])[0].ids
    )
    (found,) = tokenizer([removed * READ + " the median of a sample"])
    assert len(found.ids) == 2 + (removed == "x")


@pytest.mark.parametrize("part", ["b ", ". ", "\ufdfa", "\ufdfa "])
def test_of_a_long_text_the_beginning_is_tokenised(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A pair of thousands of characters costs no more than a multiple of `max_length`.

    Characters are counted as the network's tokenizer reads them: one may become eighteen.
    """
    read: list[int] = []

    class Counted:
        def encode_batch(self, texts: list[str], **options: bool) -> object:
            read.extend(len(normal_form(text)) for text in texts)
            return fast.encode_batch(texts, **options)

    fast = tokenizer._fast
    monkeypatch.setattr(tokenizer, "_fast", Counted())
    (found,) = tokenizer([(part * 4_000, part * 250_000)])
    assert found.cut
    assert len(found.ids) == tokenizer.max_length
    assert sum(read) <= 100 * FIRST * (tokenizer.max_length + LAST)


KINDS = ["bpe", "bytes", "unigram"]


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small tokenizer of a kind that has no limit for the length of a word."""
    kind = request.param
    fast = {
        "bpe": lambda: Fast(models.BPE(unk_token="<unk>")),
        "bytes": lambda: Fast(models.BPE()),
        "unigram": lambda: Fast(models.Unigram()),
    }[kind]()
    special = ["<s>", "</s>", "<unk>"]
    if kind == "bytes":
        fast.pre_tokenizer = pre_tokenizers.ByteLevel()
    else:
        fast.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = {
        "bpe": lambda: trainers.BpeTrainer(vocab_size=400, special_tokens=special),
        "bytes": lambda: trainers.BpeTrainer(vocab_size=500, special_tokens=special),
        "unigram": lambda: trainers.UnigramTrainer(
            vocab_size=400, special_tokens=special, unk_token="<unk>"
        ),
    }[kind]()
    draw = random.Random(1)
    sample = ["the median of a sample ", "x" * 40, "abab " * 9, "中文 한글 ก e\u0301 "]
    fast.train_from_iterator(
        ["".join(draw.choices([*PARTS, *sample], k=30)) for _ in range(300)], trainer
    )
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[(token, fast.token_to_id(token)) for token in special[:2]],
    )
    folder = tmp_path_factory.mktemp(kind)
    fast.save(str(folder / "tokenizer.json"))
    return folder


def test_other_kinds_of_tokenizers_give_the_tokens_of_the_whole_text(trained: Path) -> None:
    """BPE of characters and of bytes, and Unigram: the cut moves none of the first tokens."""
    tokenizer = Tokenizer(trained, max_length=32)
    oracle = Tokenizer(trained, max_length=32)._fast
    oracle.enable_truncation(32)
    draw = random.Random(2)
    texts = ["".join(draw.choices(PARTS, k=5_000)) for _ in range(12)]
    texts += [
        "".join(draw.choices(letters, k=9_000)) for letters in ("xyz", "abdeimnt", "中文한글")
    ]
    texts += ["the median " * 900, "中" * 9_000]
    if trained.name[:7] != "unigram":  # which splits one word of equal letters in many equal ways
        texts.append("x" * 9_000)
    for text in texts:
        assert len(text) > 2 * FIRST * 32
        assert list(tokenizer([text])[0].ids) == oracle.encode(text).ids
        assert (
            list(tokenizer([("the median", text)])[0].ids) == oracle.encode("the median", text).ids
        )
