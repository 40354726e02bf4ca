"""The terms of an answer, one sentence each: what a user acts on, and what that is made from."""

from __future__ import annotations

from textwrap import fill

from calibration.thresholds import percent
from rerank.config import Config


def glossary(config: Config | None = None) -> dict[str, dict[str, str]]:
    """The terms of the answers of a model of this configuration, in two groups."""
    config = config or Config()
    t, k = config.thresholds, config.sufficiency_k
    return {
        "Act on": {
            "accepted": f"confidence is {t.advisory:g} or more (--medium): show the answer; else "
            "it is advisory",
            "certified": "accepted, and the question resembles the labelled ones; at least "
            f"{percent(t.advisory)} of such answers are right, with 95% confidence",
            "calibrated": "false before the first label of the corpus: then nothing is accepted",
            "verdict": f"whether the first {k} passages hold an answer: SUFFICIENT, PARTIAL, "
            "INSUFFICIENT",
            "context_certified": f"SUFFICIENT, and of all such {percent(t.sufficient)} or more "
            "hold an answer, with 95% confidence",
        },
        "Made from": {
            "confidence": "probability that the top passage is right",
            "sufficiency": f"probability that one of the first {k} passages is right "
            "(--sufficiency-k)",
            "relevance": "probability that this passage is right; of the top one it is the "
            "confidence",
            "level": f"confidence in a word: HIGH ({t.high:g} up), MEDIUM ({t.medium:g}), LOW "
            f"({t.low:g}), VERY_LOW",
        },
    }


def glossary_text() -> str:
    """The glossary of the default configuration, on one screen."""
    parts = []
    for title, words in glossary().items():
        lines = [
            fill(f"  {word:<17} {meaning}", 100, subsequent_indent=" " * 20)
            for word, meaning in words.items()
        ]
        parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts)
