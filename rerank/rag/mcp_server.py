"""A loaded model as tools of the Model Context Protocol: search, and retrieval confidence."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.errors import RerankError, optional
from rerank.rag.adaptive import take
from rerank.rag.context import assess_context
from rerank.rag.retrieval_assessment import assess_with
from rerank.rag.settings import ContextGate, Strategy

with optional():
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

INSTRUCTIONS = (
    "Search indexed documents. {about} Answer only from the passages, cite their doc_id, and say "
    "so where the confidence is below 0.7."
)
ABOUT = {  # by whether the model is calibrated
    True: "Every probability is calibrated: of answers with a confidence of 0.7, seven in ten are "
    "right.",
    False: "The confidence is not calibrated: it orders answers, and is no probability; say so.",
}


def mcp_server(model: CalibratedReranker) -> MCPServer:
    """The server; `run()` serves over standard input and output.

    Raises:
        MissingExtraError: on import, if the protocol's package is not installed.
    """
    instructions = INSTRUCTIONS.format(about=ABOUT[model.calibrated])
    server = MCPServer("calibrated-rerank", instructions=instructions, log_level="ERROR")

    def search(query: str, min_k: int = 1, max_k: int = 8) -> dict[str, Any]:
        """Find passages: as many as the question needs, from min_k to max_k, at most 10.

        `confidence` is P(one of the passages answers the question). A `note` that is not empty
        belongs in front of the passages.
        """
        with _as_tool_errors():
            found = take(model.search(query), Strategy(min_k, max_k))
        verdict = assess_context(found.assessment, ContextGate(max(1, found.k)))
        return {**found.to_dict(), "verdict": verdict.verdict, "note": verdict.note()}

    def assess_retrieval_confidence(query: str) -> dict[str, Any]:
        """Say how sure the retrieval is that its best passage answers the question, and why.

        It gives the signals, what each moved the confidence by, and recommendations.
        """
        with _as_tool_errors():
            return assess_with(model, model.search(query)).to_dict()

    for tool in (search, assess_retrieval_confidence):
        server.add_tool(tool, description=inspect.getdoc(tool))
    return server


@contextmanager
def _as_tool_errors() -> Iterator[None]:
    """Our errors as those of a tool, whose sentence the client gets to read."""
    try:
        yield
    except RerankError as error:
        raise ToolError(str(error)) from None
