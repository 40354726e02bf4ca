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
    label_next,
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
    label_next.COMMAND,
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
