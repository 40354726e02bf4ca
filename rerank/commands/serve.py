"""`rerank serve`."""

from __future__ import annotations

from rerank.commands.command import Typed, command
from rerank.commands.options import WORK, ModelChoice, Work
from rerank.rooms import offered
from rerank.serving.settings import Settings


@command("work/model --port 8000")
def serve(
    chosen: ModelChoice, settings: Settings, typed: Typed, *, mcp: bool = False, work: Work = WORK
) -> None:
    """Answer queries over HTTP, and take over new models as they come; or over MCP.

    Args:
        mcp: serve the tools search and assess_retrieval_confidence over MCP instead, on standard
            input and output
    """
    if mcp:
        typed.refuse("not with --mcp, which starts no HTTP server", "work")
        typed.refuse("not with --mcp, which starts no HTTP server", kind=Settings)
        offered("MCP")(chosen.load()).run()
        return
    typed.refuse("only with --mcp", "download")
    from rerank.serving.model_place import place_of_model
    from rerank.serving.server import serve as serve_http

    place = place_of_model(str(chosen.model), work)
    serve_http(place, settings, manifest_sha256=chosen.manifest_sha256)
