"""A model folder as an MLflow model: MLflow logs this file with it, and runs it to load it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pandas as pd  # MLflow looks at the type hint of `predict`

with warnings.catch_warnings():  # it warns of types of its own
    warnings.simplefilter("ignore")
    from mlflow.models import set_model
    from mlflow.pyfunc import PythonModel

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker


class Assessor(PythonModel):  # type: ignore[misc]  # MLflow has no types
    """A data frame of queries to one of predictions; see `rerank.batch.table`."""

    model: CalibratedReranker

    def load_context(self, context: Any) -> None:
        """Load the model folder that was logged."""
        from rerank.assessment.model import CalibratedReranker

        self.model = CalibratedReranker.load(context.artifacts["folder"])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row per query, in their order."""
        from rerank.batch.table import assess_table

        return assess_table(self.model, model_input)


set_model(Assessor())
