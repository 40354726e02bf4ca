"""Every command, in the order of `rerank --help`."""

from __future__ import annotations

from rerank.commands import (
    answer,
    assess,
    calibrate,
    dataset,
    drift,
    evaluate,
    export,
    finetune,
    glossary,
    index,
    mcp,
    promote,
    recalibrate,
    rescore,
    retrieve,
    search,
    serve,
    track,
)

COMMANDS = (
    dataset.BUILD,
    dataset.CHECK,
    index.COMMAND,
    finetune.COMMAND,
    calibrate.COMMAND,
    evaluate.COMMAND,
    drift.COMMAND,
    recalibrate.COMMAND,
    export.COMMAND,
    track.COMMAND,
    promote.COMMAND,
    search.COMMAND,
    assess.COMMAND,
    retrieve.COMMAND,
    answer.COMMAND,
    rescore.COMMAND,
    glossary.COMMAND,
    serve.COMMAND,
    mcp.COMMAND,
)
