"""A loaded model as tools of the Model Context Protocol: search, and retrieval confidence."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rerank.advice import explanation
from rerank.advice.adaptive import take
from rerank.advice.settings import Strategy
from rerank.assessment.model import CalibratedReranker
from rerank.data.checks import as_text
from rerank.data.records import LONGEST_QUERY
from rerank.errors import InputError, RerankError, nearest, optional
from rerank.rag.decisions import gate_handed_on
from rerank.types import Assessment

with optional():
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import ValidationError

EXPLAIN_ALIAS = "assess_retrieval_confidence"  # the name that some clients know
Filter = dict[str, Any] | None
SHOWN = 50  # characters of an unknown argument's name
ABOUT = {  # by whether the model is calibrated
    True: "Every probability is calibrated: of answers with a confidence of 0.7, seven in ten are "
    "right.",
    False: "The confidence is not calibrated: it orders answers, and is not a probability; say so.",
}


def mcp_server(model: CalibratedReranker) -> MCPServer:
    """The server; `run()` serves over standard input and output."""
    known = ", ".join(sorted(model.segments))
    instructions = (
        f"Search indexed documents. {ABOUT[model.calibrated]} Answer only from the passages, cite "
        "their doc_id, and say so where the confidence is below "
        f"{model.pipeline.config.thresholds.advisory:g}."
        + (f" Segments ({model.segment_by}): {known}." if known else "")
    )
    server = _StrictServer("calibrated-rerank", instructions=instructions, log_level="ERROR")

    def assessed(query: str, segment: str, where: Filter) -> Assessment:
        return model.search(query, metadata=model.of_segment(segment), where=where)

    def search(
        query: str, min_k: int = 1, max_k: int = 8, segment: str = "", filter: Filter = None
    ) -> dict[str, Any]:
        """Find passages: as many as the question needs, from min_k to max_k, at most 10.

        `confidence` is P(the first passage answers the question), `sufficiency` is P(one of the
        passages does). A `note` that is not empty belongs in front of the passages. `segment` is
        the kind of question, if the model has segments. `filter` is metadata that a passage must
        have, such as {"language": "en", "source": ["manual", "faq"], "year": {"gte": 2020}}.
        """
        with _as_tool_errors():
            taken = take(assessed(query, segment, filter), Strategy(min_k, max_k))
        return {**taken.to_dict(), "note": gate_handed_on(taken.assessment, taken.k).note()}

    def explain(query: str, segment: str = "", filter: Filter = None) -> dict[str, Any]:
        """Say how sure the retrieval is that its best passage answers the question, and why.

        It gives the signals, what each moved the confidence by, and recommendations. `segment` and
        `filter` are as of `search`.
        """
        with _as_tool_errors():
            return explanation.explain(model, assessed(query, segment, filter)).to_dict()

    server.add_tool(search, description=inspect.getdoc(search))
    server.add_tool(explain, description=inspect.getdoc(explain))
    server.add_tool(explain, name=EXPLAIN_ALIAS, description="The same as `explain`.")
    return server


class _StrictServer(MCPServer):  # type: ignore[misc]
    """A server whose tools refuse unknown arguments, and queries that are too long."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Check the arguments, then call the tool."""
        for tool in await self.list_tools():
            if tool.name == name:
                with _as_tool_errors():
                    _check(arguments, tool.input_schema["properties"])
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = [f"{e['loc'][0]!r}: {e['msg']}" for e in error.__cause__.errors()]
            raise ToolError("; ".join(wrong)) from None


def _check(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse unknown arguments, and a query that is missing, no text, or too long."""
    for name in arguments:
        if name not in known:
            cut = name[:SHOWN]
            ending = nearest(cut, known) or f"; the arguments are {', '.join(known)}"
            raise InputError(f"unknown argument {cut!a}{ending}")
    if "query" not in arguments:
        raise InputError("'query' is missing")
    as_text("query", arguments["query"], max_length=LONGEST_QUERY, empty=True)


@contextmanager
def _as_tool_errors() -> Iterator[None]:
    """Raise our errors as those of a tool, whose message is sent to the client."""
    try:
        yield
    except RerankError as error:
        raise ToolError(str(error)) from None
