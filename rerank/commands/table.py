"""Every command, in the order of `rerank --help`."""

from __future__ import annotations

from rerank.commands import (
    calibrate,
    dataset,
    drift,
    evaluate,
    export,
    finetune,
    glossary,
    index,
    promote,
    recalibrate,
    rescore,
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
    rescore.COMMAND,
    glossary.COMMAND,
    serve.COMMAND,
)
