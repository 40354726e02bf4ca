"""`rerank mcp`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_model


def _run(o: argparse.Namespace) -> None:
    from rerank.rag.mcp_server import mcp_server

    mcp_server(load_model(o)).run()


COMMAND = Command(
    "mcp",
    "serve the tools search and assess_retrieval_confidence over MCP, on standard input and output",
    "mcp work/model",
    add_model,
    _run,
)
