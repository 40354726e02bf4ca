"""calibrated-rerank: retrieval that knows when it is right.

What is named here is the public surface. The training job is `rerank.jobs.calibrate.calibrate`.
"""

from rerank.assessment.model import CalibratedReranker
from rerank.config import Config, Thresholds
from rerank.data.beir import read_labelled_set, write_labelled_set
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.types import Assessment, Passage, Query, Ranking

__all__ = [
    "Assessment",
    "CalibratedReranker",
    "Config",
    "InputError",
    "LabelledSet",
    "Passage",
    "Query",
    "Ranking",
    "Thresholds",
    "read_labelled_set",
    "write_labelled_set",
]
