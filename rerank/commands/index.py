"""`rerank index`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.options import add_json, add_on_bad_lines, add_options, add_out, from_options
from rerank.commands.printing import print_json
from rerank.config import Config


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="folder with corpus.jsonl")
    add_out(p, "index")
    add_options(p, Config, "encoder", "encoder_max_length", "encoder_windows", "dense", "language")
    add_on_bad_lines(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.data.beir import read_corpus
    from rerank.inference.model_files import resolve
    from rerank.retrieval.dense import Encoder
    from rerank.retrieval.index import INDEX_KIND, build_index
    from rerank.storage.locks import output_folder

    chosen = from_options(Config, o)
    with output_folder(o.out, overwrite=o.overwrite, kind=INDEX_KIND):
        corpus = read_corpus(o.dataset, o.on_bad_lines).values()
        encoder = Encoder.from_config(resolve(chosen.encoder), chosen)
        index = build_index(
            corpus,
            o.out,
            encoder,
            language=chosen.language,
            approximate=chosen.dense == "approximate",
            overwrite=o.overwrite,
            known=[o.out],  # if it replaces an index, unchanged passages are not encoded again
        )
    if o.json:
        print_json(index=o.out, passages=len(index))
    else:
        print(f"{o.out}: {len(index)} passages indexed")


COMMAND = Command(
    "index",
    "index a corpus: BM25 and dense",
    "index datasets/pydata --out work/pydata-index",
    _arguments,
    _run,
)
