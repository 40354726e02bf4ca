"""The terms of an answer, one line each: what a user acts on, and what that is made from."""

from __future__ import annotations

GLOSSARY = {
    "Act on": {
        "accepted": "confidence is 0.7 or more (--medium): show the answer; else it is advisory",
        "certified": "accepted, and of all such 70% or more are right, with 95% confidence",
        "calibrated": "false before the first label of the corpus: then nothing is accepted",
        "verdict": "whether the first 5 passages hold an answer: SUFFICIENT, PARTIAL, INSUFFICIENT",
        "context_certified": "SUFFICIENT, and of all such 70% or more hold an answer, with 95% "
        "confidence",
    },
    "Made from": {
        "confidence": "probability that the top passage is right",
        "sufficiency": "probability that one of the first 5 passages is right (--sufficiency-k)",
        "relevance": "probability that this passage is right; of the top one it is the confidence",
        "level": "confidence in a word: HIGH (0.9 up), MEDIUM (0.7), LOW (0.5), VERY_LOW",
    },
}


def glossary_text() -> str:
    """The glossary on one screen."""
    parts = []
    for title, words in GLOSSARY.items():
        parts.append("\n".join([f"{title}:", *(f"  {w:<17} {line}" for w, line in words.items())]))
    return "\n\n".join(parts)
