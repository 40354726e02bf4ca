"""The training job, on ten real queries: what it writes, how it resumes, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finetuning import CHEAP, TEN, Trained, weights

from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet
from rerank.errors import FolderError, InputError
from rerank.fitting.plan import plan
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.model_files import resolve, trained_on
from rerank.inference.score_cache import ScoreCache
from rerank.storage.files import sha256_file
from rerank.storage.folder import MANIFEST, Workspace, verify_folder
from rerank.training.finetune import add_teacher_scores, finetune, write_network
from rerank.training.mining import Example, TrainingSet
from rerank.training.settings import FinetuneConfig

pytestmark = pytest.mark.usefixtures("one_list_chooses")


def test_the_report_says_what_was_trained_on_and_how_it_went(
    trained: Trained, ten: LabelledSet, cheap: FinetuneConfig
) -> None:
    """`finetune.json` holds the sets with digest and counts, the configuration, the curves."""
    kept = json.loads((trained.folder / "finetune.json").read_text())
    assert kept == json.loads(json.dumps(trained.report))
    (about,) = kept["sets"]
    assert (about["name"], about["digest"], about["split"]) == ("ten", ten.digest(), "train")
    assert TEN - 2 <= about["examples"] == kept["examples"] < TEN
    assert FinetuneConfig(**kept["config"]) == cheap
    assert set(kept["loss"]) <= {"1", "2"}
    assert set(kept["ndcg10"]) == {"1", "2"}
    best = max(kept["ndcg10"].values())
    assert kept["ndcg10"][str(kept["best_step"])] == best
    assert kept["base_fingerprint"] == resolve(cheap.base).fingerprint
    assert kept["base_training"] is None


def test_the_folder_is_whole_and_checkpoints_are_gone(trained: Trained) -> None:
    """Every file has its hash in the manifest; what only an interrupted run needs is removed."""
    verify_folder(trained.folder)
    assert not list((trained.work / "checkpoints").iterdir())


def test_the_run_is_tracked_with_its_curves(trained: Trained) -> None:
    """MLflow has the settings, the loss and the validation by step."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{trained.work}/mlflow.db")
    noted = Workspace(trained.work).tracked(sha256_file(trained.folder / MANIFEST))
    assert noted is not None
    tracked = client.get_run(noted["run_id"])
    experiment = client.get_experiment(tracked.info.experiment_id)
    assert experiment.name == "calibrated-rerank-finetune"
    assert tracked.data.params["steps"] == "2"
    curve = client.get_metric_history(tracked.info.run_id, "validation_ndcg10")
    assert {str(m.step): m.value for m in curve} == pytest.approx(
        {str(k): v for k, v in trained.report["ndcg10"].items()}
    )


def test_queries_trained_on_are_left_out_of_calibration(
    trained: Trained, ten: LabelledSet, small: LabelledSet
) -> None:
    """The model's own list keeps the queries it saw out of fitting and reporting."""
    seen = trained_on(resolve(str(trained.folder)))
    everything = {query_hash(q.text) for q in ten.queries.values()}
    assert trained.report["examples"] <= len(seen) <= TEN
    assert seen <= everything
    planned = plan(small, trained_hashes=seen, max_queries=None, seed=0)
    assert planned.seen_by_reranker >= len(seen)
    used = {query_hash(q.text) for q in (*planned.fit.items, *planned.report.items)}
    assert not used & seen


def test_a_finished_run_is_not_made_again(
    trained: Trained, ten: LabelledSet, cheap: FinetuneConfig
) -> None:
    """The same call trains nothing, and finds the run."""
    again = finetune([TrainingSet(ten)], trained.folder, cheap, work=trained.work)
    assert not again.made
    assert again.run is not None
    assert again.run.found
    assert again.report == json.loads(json.dumps(trained.report))


def test_a_finished_run_that_was_not_tracked_is_tracked(
    trained: Trained, ten: LabelledSet, tmp_path: Path, cheap: FinetuneConfig
) -> None:
    """As after an interruption before MLflow's answer: no training, the run from the folder."""
    (tmp_path / "mlflow.db").write_bytes((trained.work / "mlflow.db").read_bytes())
    before = (trained.folder / "manifest.json").stat().st_mtime_ns
    again = finetune([TrainingSet(ten)], trained.folder, cheap, work=tmp_path)
    assert again.run is not None
    noted = Workspace(tmp_path).tracked(sha256_file(trained.folder / MANIFEST))
    assert noted is not None
    assert noted["run_id"] == again.run.run_id
    assert (trained.folder / "manifest.json").stat().st_mtime_ns == before


def test_a_taken_folder_is_refused_before_any_work(
    trained: Trained, ten: LabelledSet, tmp_path: Path, cheap: FinetuneConfig
) -> None:
    """Another run does not replace a model unasked, and says so before it builds an index."""
    with pytest.raises(FolderError, match="exists"):
        finetune([TrainingSet(ten)], trained.folder, replace(cheap, seed=1), work=tmp_path)
    with pytest.raises(FolderError, match="exists"):
        finetune([TrainingSet(ten, limit=3)], trained.folder, cheap, work=tmp_path)
    assert not any(tmp_path.iterdir())


def test_an_interrupted_run_goes_on_to_the_same_weights(
    trained: Trained,
    ten: LabelledSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cheap: FinetuneConfig,
) -> None:
    """Stopped after its first checkpoint, the second call ends where an unbroken one ends."""
    from rerank.training import trainer

    steps: list[int] = []
    original = trainer.Progress.on_step_end

    def stopping(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        original(self, args, state, control)
        steps.append(state.global_step)
        if steps == [1, 2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer.Progress, "on_step_end", stopping)
    out = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        finetune([TrainingSet(ten)], out, cheap, work=trained.work)
    assert not out.exists()
    torn = next((trained.work / "checkpoints").glob("*/checkpoint-1")).with_name("checkpoint-2")
    torn.mkdir()  # as a kill leaves it that comes while the second is written
    (torn / "model.safetensors").write_bytes(b"")
    made = finetune([TrainingSet(ten)], out, cheap, work=trained.work)
    assert steps == [1, 2, 2]
    assert made.report["ndcg10"] == pytest.approx(trained.report["ndcg10"])
    assert set(made.report["loss"]) == {1, 2}
    assert made.report["loss"] == pytest.approx(trained.report["loss"])
    for name, tensor in weights(trained.folder).items():
        np.testing.assert_allclose(weights(out)[name], tensor, atol=1e-6)


def test_a_finished_training_is_not_trained_further(
    trained: Trained,
    ten: LabelledSet,
    last: FinetuneConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped before its folder was written, it takes no other step: its weights are the same."""
    config = replace(last, steps=3, check_every=1, average=2)
    whole = finetune([TrainingSet(ten)], tmp_path / "whole", config, work=trained.work)

    def stopping(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr("rerank.training.finetune.write_network", stopping)
        with pytest.raises(KeyboardInterrupt):
            finetune([TrainingSet(ten)], out, config, work=trained.work)
    made = finetune([TrainingSet(ten)], out, config, work=trained.work)
    assert made.report["best_step"] == 3
    assert made.report["loss"] == pytest.approx(whole.report["loss"])
    for name, tensor in weights(whole.folder).items():
        np.testing.assert_allclose(weights(out)[name], tensor, atol=1e-6)


def test_sets_are_mixed_by_temperature(
    trained: Trained, ten: LabelledSet, tmp_path: Path, last: FinetuneConfig
) -> None:
    """At a high one two sets give as many examples each, whatever they hold; all steps are fed."""
    few = replace(ten, splits={"train": ten.splits["train"][:2]}, name="few")
    config = replace(last, steps=4, check_every=4, temperature=1e6)
    made = finetune(
        [TrainingSet(ten), TrainingSet(few)], tmp_path / "model", config, work=trained.work
    )
    assert [s["examples"] for s in made.report["sets"]] == [4, 4]


def test_a_teacher_judges_every_passage_of_every_list(
    other_reranker: Callable[..., Path], tmp_path: Path
) -> None:
    """Its logits stand beside the passages, in their order."""
    teacher = resolve(str(other_reranker()))
    examples = [
        Example("median", ("one text", "another"), (1, 0)),
        Example("mean", ("a third text",), (0,)),
    ]
    found = add_teacher_scores(examples, teacher, CHEAP, ScoreCache(Workspace(tmp_path).scores))
    pairs = [(e.query, p) for e in examples for p in e.passages]
    logits, _ = open_reranker(teacher, max_length=CHEAP.max_length).score(pairs)
    assert [x for e in found for x in e.teacher] == logits.tolist()
    assert [replace(e, teacher=()) for e in found] == examples


def test_more_frozen_layers_than_there_are_is_refused(ten: LabelledSet, tmp_path: Path) -> None:
    """The error says how many layers the model has."""
    with pytest.raises(InputError, match="has 6 layers, cannot freeze 7"):
        finetune([TrainingSet(ten)], tmp_path / "m", replace(CHEAP, frozen_layers=7), work=tmp_path)


def test_a_teacher_that_gives_no_score_is_refused_before_any_work(
    ten: LabelledSet, tmp_path: Path
) -> None:
    """A bi-encoder is no teacher; no index is built."""
    with pytest.raises(InputError, match="minilm gives no score; expected a cross-encoder"):
        finetune(
            [TrainingSet(ten)], tmp_path / "o", replace(CHEAP, teacher="minilm"), work=tmp_path
        )
    assert not (tmp_path / "o").exists()
    assert not list(tmp_path.glob("ind*"))


def test_groups_that_are_all_too_large_are_refused(ten: LabelledSet, tmp_path: Path) -> None:
    """A limit takes whole groups; where none is small enough the sentence says so."""
    queries = {i: replace(q, metadata={"group": "one"}) for i, q in ten.queries.items()}
    labelled = replace(ten, queries=queries)
    with pytest.raises(InputError, match="ten: every group of its 'train' has more than the 3"):
        finetune([TrainingSet(labelled, limit=3)], tmp_path / "out", CHEAP, work=tmp_path)
    assert not (tmp_path / "out").exists()


def test_no_source_is_refused(tmp_path: Path) -> None:
    """There is nothing to train on."""
    with pytest.raises(InputError, match="no labelled set"):
        finetune([], tmp_path / "model", CHEAP, work=tmp_path)


def test_a_base_that_cannot_be_trained_is_refused_before_any_work(
    ten: LabelledSet, tmp_path: Path
) -> None:
    """Several outputs, too few positions or layers, no transformer: a sentence, and no index."""
    base = Path(shutil.copytree(resolve("minilm").folder, tmp_path / "base"))
    config = json.loads((base / "config.json").read_text())
    labels = {str(i): f"LABEL_{i}" for i in range(3)}
    three = {"architectures": ["BertForSequenceClassification"], "id2label": labels}
    for changed, asked, sentence in (
        (three, {}, "has 3 outputs"),
        ({"max_position_embeddings": 32}, {}, "reads 32 tokens at most"),
        ({}, {"frozen_layers": 7}, "6 layers, cannot freeze 7"),
        ({}, {"layers": 7}, "6 layers, cannot keep 7"),
        ({}, {"layers": 3, "frozen_layers": 4}, "3 layers, cannot freeze 4"),
        ({"model_type": "none such"}, {}, "is not a transformer"),
    ):
        (base / "config.json").write_text(json.dumps({**config, **changed}))
        settings = replace(CHEAP, base=str(base), **asked)
        with pytest.raises(InputError, match=sentence):
            finetune([TrainingSet(ten)], tmp_path / "model", settings, work=tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_no_text_of_the_queries_is_in_the_folder(trained: Trained, ten: LabelledSet) -> None:
    """What was trained on is named by hashes; the files may be read by others than their owner."""
    os.umask(umask := os.umask(0))
    for path in trained.folder.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o444 == 0o444 & ~umask
            if path.suffix in (".json", ".txt", ".md"):
                text = path.read_text()
                assert not any(query.text in text for query in ten.queries.values())


def test_a_training_that_diverged_is_not_written(tmp_path: Path) -> None:
    """Its weights are not numbers; the model that was there stays."""
    import torch

    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.bias, float("nan"))
    with pytest.raises(InputError, match="the training diverged"):
        write_network(
            tmp_path / "m", model, frozenset(), {}, {}, overwrite=True, kind="cross-encoder"
        )
    assert not (tmp_path / "m").exists()
