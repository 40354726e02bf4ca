"""What each key of an assessment means, once for every surface: HTTP, MCP, commands, Python."""

from __future__ import annotations

from collections.abc import Mapping

JSON_KEYS: Mapping[str, str] = {
    "id": "of the answer, for feedback; over HTTP that of the request, as in X-Request-ID",
    "model": "version of the model that has answered, as at /v1/model",
    "query_id": "of the query; over HTTP that of the request",
    # the decision
    "confidence": "P(the first passage is right)",
    "level": "of the confidence: HIGH, MEDIUM, LOW or VERY_LOW",
    "flag": "the level as a name of its own, such as HIGH_CONFIDENCE",
    "action": "what to do at this level",
    "accepted": "confidence reaches the advisory threshold",
    "flagged": "not accepted: a person must check it before use",
    "threshold": "confidence from which an answer is accepted",
    "sufficiency": "P(one of the passages that are handed on is right), or of the first few",
    "sufficiency_at": "P(one of the first k is right), for k = 1 to 10",
    "sufficiency_k": "how many passages the sufficiency of a search is about",
    "verdict": "of the sufficiency: SUFFICIENT, PARTIAL or INSUFFICIENT",
    "note": "text to put before the passages; empty if they are sufficient",
    "certified": "accepted, the confidence reaches the certified threshold, and the question is "
    "like those that were labelled",
    "context_accepted": "the sufficiency reaches the threshold of SUFFICIENT, and is calibrated",
    "context_certified": "SUFFICIENT, and the sufficiency reaches its certified threshold",
    "calibrated": "false: no label of this corpus was fitted on; the numbers order, and no more",
    "reasons": "where the confidence starts and what moved it",
    # passages
    "ranking": "the passages, best first",
    "passages": "the passages that are handed on, best first",
    "k": "how many passages are handed on",
    "stop_reason": "why there are so many",
    "doc_id": "id of the passage",
    "relevance": "P(this passage is right)",
    "logit": "of the cross-encoder, where it scored it",
    "bm25": "score of BM25",
    "dense": "cosine of the bi-encoder",
    "scores": "by stage, of another search system's passage",
    "title": "of the passage",
    "text": "of the passage",
    # why
    "headline": "level and confidence in one line",
    "interpretation": "the level in words",
    "signals": "properties of the ranking, and how much each moved the confidence",
    "recommendations": "what to do about a low confidence",
    # a generated answer
    "answer": "sentences that the sources support, with citations such as [S1]; or the refusal",
    "refused": "the sources hold no answer, or support none",
    "low_confidence": "answered, although the verdict is PARTIAL or UNASSESSED",
    "sources": "the passages that support the answer, each with a quotation",
    "attribution_coverage": "share of the generated sentences that sources support",
    "model_calls": "calls of a language model",
    "answer_confidence": "P(the answer is right), if it was fitted on labelled answers",
    "answer_level": "as level, of the confidence of the answer",
    "cut_off": "the language model reached its limit of tokens: the end is missing",
    "error": "why the language model gave no answer",
}
