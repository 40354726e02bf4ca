"""Batch rescoring: a file of queries in, a file of predictions out, in the order of the input.

`input` opens an input; `readers` and `parquet` read it in chunks; `rows` parses and scores
rows, also for the room `rerank.cluster`; `checkpoint` keeps the results through a crash; `job` runs
it all.
"""

from rerank.batch.job import RescoreSummary, rescore

__all__ = ["RescoreSummary", "rescore"]
