"""calibrated-rerank: retrieval that knows when it is right.

The names below are the public API; each is imported on first use.

>>> model = rerank.load("work/model")                 # doctest: +SKIP
>>> answer = model.search("median ignoring NaNs")     # doctest: +SKIP
>>> answer.top.doc_id, answer.confidence              # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker, load
    from rerank.batch.job import rescore
    from rerank.batch.table import assess_lists
    from rerank.client import AsyncClient, Client
    from rerank.config import Config, Thresholds
    from rerank.data.feedback import Feedback
    from rerank.data.labelled_set import LabelledSet
    from rerank.errors import (
        EndpointError,
        FolderError,
        InputError,
        JournalError,
        MissingExtraError,
        RerankError,
        RetrieverError,
        TrackingError,
    )
    from rerank.jobs.calibrate import calibrate
    from rerank.jobs.evaluate import detect_drift, evaluate
    from rerank.jobs.recalibrate import recalibrate
    from rerank.protocols import Scores, Traits
    from rerank.types import Assessment, Passage, Query, RankedPassage

_MODULES = {
    "rerank.assessment.model": ("CalibratedReranker", "load"),
    "rerank.batch.job": ("rescore",),
    "rerank.batch.table": ("assess_lists",),
    "rerank.client": ("AsyncClient", "Client"),
    "rerank.config": ("Config", "Thresholds"),
    "rerank.data.feedback": ("Feedback",),
    "rerank.data.labelled_set": ("LabelledSet",),
    "rerank.errors": (
        *("EndpointError", "FolderError", "InputError", "JournalError", "MissingExtraError"),
        *("RerankError", "RetrieverError", "TrackingError"),
    ),
    "rerank.jobs.calibrate": ("calibrate",),
    "rerank.jobs.evaluate": ("detect_drift", "evaluate"),
    "rerank.jobs.recalibrate": ("recalibrate",),
    "rerank.protocols": ("Scores", "Traits"),
    "rerank.types": ("Assessment", "Passage", "Query", "RankedPassage"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["Assessment", "AsyncClient", "CalibratedReranker", "Client", "Config", "EndpointError"]
__all__ += ["Feedback", "FolderError", "InputError", "JournalError", "LabelledSet"]
__all__ += ["MissingExtraError", "Passage", "Query", "RankedPassage", "RerankError"]
__all__ += ["RetrieverError", "Scores", "Thresholds", "TrackingError", "Traits", "assess_lists"]
__all__ += ["calibrate", "detect_drift", "evaluate", "load", "recalibrate", "rescore"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from rerank.storage.files import package_version

        return package_version()
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rerank.errors import optional

    with optional():
        return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
