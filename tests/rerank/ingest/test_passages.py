"""Passages: bounded, whole sentences, nothing lost, ids that stay."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from rerank.data.labelled_set import LabelledSet
from rerank.ingest.document import Block, Document
from rerank.ingest.passages import estimate_tokens, split_document

DOCS = Path(__file__).parents[3] / "docs"
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def prose(sentences: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    return " ".join(
        " ".join(rng.choices(WORDS, k=rng.randint(4, 14))).capitalize() + "."
        for _ in range(sentences)
    )


@pytest.mark.parametrize("max_pieces", [48, 120, 480])
def test_passages_are_bounded_and_nothing_is_lost(max_pieces: int) -> None:
    """All words in their order, of about equal length, each passage ending with a sentence."""
    text = prose(80)
    found = split_document(Document((Block(text, ("A",)),), "Title"), "a.md", max_pieces=max_pieces)
    assert " ".join(p.text for p in found) == text
    assert all(estimate_tokens(p.full_text) <= max_pieces for p in found)
    assert all(p.text.endswith(".") for p in found)
    lengths = [estimate_tokens(p.text) for p in found]
    assert sorted(lengths)[len(lengths) // 2] > 0.6 * max(lengths)


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        *(
            (junk, False)
            for junk in (
                "untitled",
                "Untitled document",
                "Layout 1",
                "Untitled-1",
                "Document1",
                "",
                "  ",
                "Title",
                "(anonymous)",
            )
        ),
        *(
            (junk, False)
            for junk in (
                "Microsoft Word - plan.doc",
                "Microsoft PowerPoint - Plan",
                "PowerPoint-Präsentation",
                "Présentation PowerPoint",
                "New Microsoft Word Document",
                "Diapositiva 1",
                "スライド 1",
                "20240531_scan",
                "plan.ppt [Compatibility Mode]",
                "i-xx_Book.indd",
            )
        ),
        *(
            (junk, False)
            for junk in (
                "C:\\texts\\plan",
                "/tmp/plan",
                "file:///tmp/plan",
                "scan0012",
                "Unbenannt",
            )
        ),
        *(
            (junk, False)
            for junk in ("PowerPoint Presentation", "[Document title]", "2024-05-31", "plan.PDF")
        ),
        *(
            (title, True)
            for title in ("Plan", "Title IX", "Scanning documents", "Document object model")
        ),
        *(
            (title, True)
            for title in ("Microsoft Word for beginners", "Node.js", "ISO 9001", "1984 and after")
        ),
    ],
)
def test_a_title_that_a_program_made_up_is_none(title: str, kept: bool) -> None:
    """Then the file's name is its title, in every format."""
    (found,) = split_document(Document((Block("Some text."),), title), "plan.pdf", max_pieces=99)
    assert found.title == (title if kept else "plan")


def test_the_only_heading_is_a_title_whatever_it_says() -> None:
    """Only what a program may have made up is left out."""
    document = Document((Block("It prints.", ("Output",)),), "Output")
    assert [p.title for p in split_document(document, "a.html", max_pieces=99)] == ["Output"]


def test_the_bound_is_one_in_tokens_of_the_models() -> None:
    """Of our own pages the models' tokenizer makes hardly more tokens than there are pieces."""
    from tokenizers import Tokenizer

    from rerank.inference.model_files import resolve

    tokenizer = Tokenizer.from_file(str(resolve("minilm").folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pages = [path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")]
    texts = [part for page in pages for part in page.split("\n\n") if len(part) > 200]
    counts = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
    within = [estimate_tokens(text) >= 0.9 * n for text, n in zip(texts, counts, strict=True)]
    assert len(within) > 50
    assert sum(within) > 0.9 * len(texts)


def test_a_passage_does_not_cross_a_heading() -> None:
    """Title: the document's and the last heading. Metadata: document, heading, page, position."""
    blocks = (
        Block("One.", ("Guide", "Install"), 1),
        Block("Two.", ("Guide", "Install"), 2),
        Block("Three.", ("Guide", "Use"), 2),
    )
    found = split_document(
        Document(blocks, "Guide", "2024-01-02"), "docs/guide.pdf", max_pieces=120
    )
    assert [(p.title, p.text) for p in found] == [
        ("Guide: Install", "One.\nTwo."),
        ("Guide: Use", "Three."),
    ]
    shared = {"document": "docs/guide.pdf", "revised": "2024-01-02"}
    assert [dict(p.metadata) for p in found] == [
        {**shared, "position": 1, "heading": "Guide > Install", "page": 1},
        {**shared, "position": 2, "heading": "Guide > Use", "page": 2},
    ]


@pytest.mark.parametrize("short", ["Fig.", "Mrs.", "e.g.", "cf.", "No."])
def test_no_passage_ends_after_an_abbreviation(short: str) -> None:
    """Wherever the cut falls."""
    text = " ".join(f"Now look at {short} {WORDS[i % 10].capitalize()} again." for i in range(40))
    found = split_document(Document((Block(text),)), "a.md", max_pieces=48)
    assert len(found) > 5
    assert all(p.text.endswith("again.") for p in found)


def test_a_label_stays_with_what_it_introduces() -> None:
    """The word "Note" and the term of a definition do not end a passage."""
    blocks = (
        Block(prose(5)),
        Block("Note"),
        Block(prose(5, seed=1)),
        Block("read(size)", leads=True),
        Block(prose(5, seed=2)),
    )
    found = split_document(Document(blocks), "a.md", max_pieces=80)
    assert len(found) > 2
    assert not [p.text for p in found if p.text.endswith(("Note", "read(size)"))]


def test_code_is_cut_between_lines_and_endless_words_within() -> None:
    """A line is a unit of code; what no space divides is cut all the same."""
    code = "\n".join(f"    x{i} = y{i}" for i in range(60))
    found = split_document(Document((Block(code, code=True),)), "a.md", max_pieces=60)
    assert "\n".join(p.text for p in found) == code
    endless = split_document(Document((Block("x" * 5000),)), "a.md", max_pieces=60)
    assert "".join(p.text for p in endless) == "x" * 5000
    assert all(estimate_tokens(p.full_text) <= 60 for p in endless)
    chinese = split_document(Document((Block("文" * 500 + "。"),)), "a.md", max_pieces=60)
    assert "".join(p.text for p in chinese) == "文" * 500 + "。"


def test_one_line_of_megabytes_is_cut_in_linear_time() -> None:
    """Cutting has no limit of time as reading has, so a long line must not hold up the rest."""
    text = "word " * 1_000_000
    start = time.process_time()
    found = split_document(Document((Block(text),)), "a.md", max_pieces=120)
    assert time.process_time() - start < 60, "it takes about 2 seconds; hours if quadratic"
    assert sum(len(p.text.split()) for p in found) == 1_000_000


def test_an_id_stays_while_the_text_stays() -> None:
    """Text before it changes no id; the same text twice has two; ids can be stored."""
    old = split_document(
        Document((Block("One.", ("A",)), Block("Two.", ("B",)))), "a.md", max_pieces=120
    )
    new = split_document(
        Document((Block("Zero.", ("Z",)), Block("Two.", ("B",)))), "a.md", max_pieces=120
    )
    assert old[1].doc_id == new[1].doc_id
    twice = split_document(
        Document((Block("One.", ("A",)), Block("One.", ("B",)))), "a.md", max_pieces=120
    )
    assert len({p.doc_id for p in twice}) == 2
    (odd,) = split_document(Document((Block("One."),)), f"a\tb\n{'c' * 600}.md", max_pieces=120)
    assert "\t" not in odd.doc_id
    assert len(odd.doc_id) <= 512


def test_what_is_cut_is_a_corpus() -> None:
    """A document comes back equal from JSON, and its passages can be labelled."""
    document = Document((Block("One.", ("A",), 3, True, True),), "T", "2024-01-02")
    assert Document.from_dict(json.loads(json.dumps(document.to_dict()))) == document
    corpus = {p.doc_id: p for p in split_document(document, "a.md", max_pieces=120)}
    assert LabelledSet(corpus, {}, {}, {}).corpus_digest()


def test_a_number_and_a_note_stay_with_their_sentence() -> None:
    """Where a passage ends, too: "2." is no sentence, and a note none of its own."""
    words = "word " * 20
    blocks = (
        Block(f"1. Open {words.strip()}. Then {words.strip()}."),
        Block(f"2. Wait {words.strip()}. [Note: Until it stops.]"),
    )
    made = split_document(Document(blocks), "a.md", max_pieces=36)
    assert [p.text.split()[0] for p in made] == ["1.", "Then", "2."]
    assert made[-1].text.endswith("[Note: Until it stops.]")


def test_a_japanese_passage_is_as_long_as_the_encoder_reads() -> None:
    """e5-multilingual has 85 tokens of these 172 characters; an estimate below would cut some."""
    text = (
        "日本語の文書は、単語の間に空白がありません。そのため、文字の数から長さを見積もります。" * 4
    )
    assert len(text) == 172
    assert 85 <= estimate_tokens(text) <= 140
