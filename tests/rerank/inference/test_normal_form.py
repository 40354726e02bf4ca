"""What the networks read of a text: the normal form, with spans in the text as it is written."""

from __future__ import annotations

import pytest

from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import TOKENIZER_JSON, Tokenizer, open_tokenizer
from rerank.normal_form import normal_form


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_tokenizer(resolve("minilm"), max_length=64)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("con\ufb01gure the o\ufb03ce", "configure the office"),
        ("fire\u00adwall\u200b", "firewall"),
        ("\uff12\uff10\uff12\uff14", "2024"),
        ("10\u2076 is 10\u207b\u2076", "10^6 is 10^\u22126"),
    ],
)
def test_networks_read_the_normal_form(tokenizer: Tokenizer, written: str, plain: str) -> None:
    """Both sides of a pair; and the spans of its tokens are places in the text as written."""
    assert normal_form(written) == plain
    assert tokenizer([(written, written)]) == tokenizer([(plain, plain)])
    (spans,) = tokenizer.spans([f"{written} end"])
    assert [f"{written} end"[a:b] for a, b in spans][-1] == "end"


def test_a_text_in_the_normal_form_has_the_tokens_of_the_models_own_tokenizer(
    tokenizer: Tokenizer,
) -> None:
    from tokenizers import Tokenizer as Fast

    texts = [
        "A cat, 10^6 times!",
        "Größe, naïve – “so”",
        "返品は三十日以内。",
        "नमस्ते",
        "a\tb\n\x00c",
    ]
    own = Fast.from_file(str(resolve("minilm").folder / TOKENIZER_JSON))
    own.no_padding()
    own.enable_truncation(64)
    assert [t.ids for t in tokenizer(texts)] == [tuple(own.encode(text).ids) for text in texts]
