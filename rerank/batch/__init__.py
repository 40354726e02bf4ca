"""Batch rescoring: a file of queries in, a file of predictions out, in the order of the input.

Rows to what they ask for (`rows`), rows by the chunk (`chunks`, `jsonl`, `parquet`) of an input
(`source`), chunks to lines (`score`, or on a cluster `on_ray`), and lines kept through a crash
(`journal`, `recovery`); and the job.
"""

from rerank.batch.job import Summary, rescore

__all__ = ["Summary", "rescore"]
