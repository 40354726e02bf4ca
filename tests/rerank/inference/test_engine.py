"""The engine and the cross-encoder: the numbers of sentence-transformers, whatever the batch."""

from __future__ import annotations

import json
import logging
import resource
import shutil
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run_python

from rerank.assessment.pipeline import Pipeline
from rerank.config import Precision
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.inference import engine, torch_models
from rerank.inference.cross_encoder import Reranker, open_reranker
from rerank.inference.engine import (
    Engine,
    open_engine,
)
from rerank.inference.model_cache import cache_folder
from rerank.inference.model_files import Kind, ModelFiles, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.inference.tokenizer import Tokenizer, Tokens
from rerank.storage.folder import with_digest

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
LENGTH = 96  # of the pairs below, some are longer
SHORT = Tokens((101, 2054, 102, 2003, 102), (0, 0, 0, 1, 1), cut=False)


@pytest.fixture(scope="module")
def pairs(small: LabelledSet) -> list[tuple[str, str]]:
    """Real questions with real passages: short, long, and cut."""
    passages = sorted(small.corpus.values(), key=lambda p: len(p.text))
    chosen = [*passages[:4], *passages[120:124], *passages[-2:]]
    queries = list(small.queries.values())
    return [(q.text, p.full_text) for q, p in zip(queries, chosen, strict=False)]


@pytest.fixture(scope="module")
def reranker(run: object) -> Reranker:
    """The bundled cross-encoder, its graph exported by the session's run."""
    return open_reranker(resolve("minilm-reranker"), max_length=LENGTH)


def test_logits_are_those_of_sentence_transformers(
    reranker: Reranker, pairs: list[tuple[str, str]]
) -> None:
    """Logits equal CrossEncoder.predict without activation to 1e-5, cut pairs included."""
    import torch
    from sentence_transformers import CrossEncoder as Oracle

    oracle = Oracle(str(resolve("minilm-reranker").folder), device="cpu", max_length=LENGTH)
    expected = oracle.predict(pairs, activation_fn=torch.nn.Identity(), batch_size=3)
    logits, cut = reranker.score(pairs)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    assert 0 < cut.sum() < len(pairs)
    assert np.ptp(logits) > 0.5


def test_truncation_is_counted_as_the_tokenizer_counts(
    reranker: Reranker, pairs: list[tuple[str, str]]
) -> None:
    """A pair is cut exactly where transformers' own tokenizer gives more tokens than fit."""
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(resolve("minilm-reranker").folder)
    expected = [len(oracle(a, b)["input_ids"]) > LENGTH for a, b in pairs]
    assert reranker.score(pairs)[1].tolist() == expected


def test_tokens_are_those_of_transformers(pairs: list[tuple[str, str]]) -> None:
    """Ids and types of pairs and of single texts, cut or not, are transformers' own."""
    from transformers import AutoTokenizer

    folder = resolve("minilm").folder
    oracle, ours = AutoTokenizer.from_pretrained(folder), Tokenizer(folder, max_length=LENGTH)
    for found, pair in zip(ours(pairs), pairs, strict=True):
        expected = oracle(*pair, truncation=True, max_length=LENGTH)
        assert list(found.ids) == expected["input_ids"]
        assert list(found.types) == expected["token_type_ids"]
    (found,) = ours([pairs[-1][1]])
    assert list(found.ids) == oracle(pairs[-1][1], truncation=True, max_length=LENGTH)["input_ids"]


def test_a_logit_depends_on_its_pair_alone(
    reranker: Reranker, pairs: list[tuple[str, str]]
) -> None:
    """One by one, reversed, or all at once: the same logits to the bit."""
    logits, _ = reranker.score(pairs)
    alone = [reranker.score([pair])[0][0] for pair in pairs]
    assert logits.tolist() == alone
    assert reranker.score(pairs[::-1])[0].tolist() == alone[::-1]


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(6)), size=st.integers(1, 6), workers=st.integers(1, 4))
def test_a_logit_is_the_same_in_any_batch_order_and_number_of_threads(
    reranker: Reranker,
    pairs: list[tuple[str, str]],
    order: list[int],
    size: int,
    workers: int,
) -> None:
    """However the pairs are cut into calls, and whatever runs them, each has its own logit."""
    expected = reranker.score(pairs[:6])[0]
    tokenizer = Tokenizer(resolve("minilm-reranker").folder, max_length=LENGTH)
    engine = Engine(open_engine(resolve("minilm-reranker"), "cross_encoder").run, workers=workers)
    found = np.empty(6)
    for start in range(0, 6, size):
        part = order[start : start + size]
        found[part] = engine(tokenizer([pairs[i] for i in part]))[:, 0]
    assert np.array_equal(found, expected)


def test_a_logit_is_the_same_in_another_process(
    reranker: Reranker, pairs: list[tuple[str, str]]
) -> None:
    """A fresh process gives the very same numbers."""
    asked = json.dumps([resolve("minilm-reranker").name, LENGTH, pairs[:3]])
    code = (
        "import json\n"
        "from rerank.inference.model_files import resolve\n"
        "from rerank.inference.cross_encoder import open_reranker\n"
        f"name, length, pairs = json.loads({asked!r})\n"
        "reader = open_reranker(resolve(name), max_length=length)\n"
        "print(json.dumps(reader.score([tuple(p) for p in pairs])[0].tolist()))"
    )
    assert json.loads(run_python(code)) == reranker.score(pairs[:3])[0].tolist()


def test_the_number_of_workers_changes_nothing() -> None:
    """One thread or five: the same rows in the same order."""
    tokens = [Tokens((101, 2000 + k, 102), (0, 0, 0), cut=False) for k in range(12)]
    one_run = open_engine(resolve("minilm"), "bi_encoder").run
    one, five = (Engine(one_run, workers=n)(tokens) for n in (1, 5))
    assert np.array_equal(one, five)
    assert len({row.tobytes() for row in one}) == len(tokens)


def test_vectors_do_not_depend_on_the_batch(pipeline: Pipeline, texts: list[str]) -> None:
    """A text's vector is the same alone and among others, and has length 1."""
    some = texts[:6]
    together = pipeline.encoder.encode(some)
    alone = np.concatenate([pipeline.encoder.encode([t]) for t in some])
    assert np.array_equal(together, alone)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert together.dtype == np.float32


def test_int8_is_close_to_fp32_and_kept_apart(
    reranker: Reranker, pairs: list[tuple[str, str]], small: LabelledSet, tmp_path: Path
) -> None:
    """Logits of right and wrong passages correlate to 0.99, and a cache keeps each by itself."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    right = [
        (small.queries[i].text, small.corpus[doc_id].full_text)
        for i in list(small.qrels)[:20]
        for doc_id in small.relevant(i)
    ]
    every = [*pairs, *right]
    found = {
        precision: open_reranker(
            resolve("minilm-reranker"), max_length=LENGTH, precision=precision, cache=cache
        ).score(every)[0]
        for precision in PRECISIONS * 2
    }
    exact, fast = (found[precision] for precision in PRECISIONS)
    assert exact.tolist() == reranker.score(every)[0].tolist()
    assert np.corrcoef(exact, fast)[0, 1] > 0.99
    assert (exact != fast).mean() > 0.9


def test_no_pair_gives_no_logit(reranker: Reranker) -> None:
    """Nothing in, nothing out, with the right types."""
    logits, cut = reranker.score([])
    assert logits.shape == cut.shape == (0,)
    assert cut.dtype == np.bool_


@pytest.fixture(scope="module")
def tiny(other_reranker: Callable[..., Path]) -> Path:
    """A small untrained cross-encoder."""
    return other_reranker()


def test_models_with_the_same_weights_share_one_network(
    other_reranker: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network is in memory once, and no longer than a model that reads with it."""
    monkeypatch.setattr(engine, "_running", weakref.WeakValueDictionary())  # as for a user
    files = resolve(str(other_reranker()))
    first, second = (open_engine(files, "cross_encoder") for _ in range(2))
    assert first.run is second.run
    assert first.run is not open_engine(files, "cross_encoder", "int8").run
    held = weakref.ref(first.run)
    del first
    assert held() is not None
    del second
    assert held() is None


def test_a_model_that_does_not_export_runs_in_torch(
    other_reranker: Callable[..., Path],
    pairs: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Where the exporter fails, the library scores, with one warning that says why."""

    def fail(*_: object) -> None:
        raise RuntimeError("no such operator")

    tiny = other_reranker()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(engine, "_export", fail)
        patch.setenv("RERANK_CACHE", str(tmp_path))
        with pytest.raises(InputError, match="does not export, so it has no int8 form"):
            open_reranker(resolve(str(tiny)), max_length=64, precision="int8").score(pairs)
        in_torch, _ = open_reranker(resolve(str(tiny)), max_length=64).score(pairs)
    assert "no such operator" in caplog.text
    exported, _ = open_reranker(resolve(str(tiny)), max_length=64).score(pairs)
    np.testing.assert_allclose(in_torch, exported, rtol=0, atol=1e-5)


def test_an_export_that_differs_from_torch_is_not_used(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that shows other numbers than torch is thrown away."""
    path = cache_folder() / "differs.onnx"
    module = torch_models.load(resolve(str(tiny)), "cross_encoder")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "TOLERANCE", -1.0)
        with pytest.raises(ValueError, match="differs from torch"):
            engine._export(module, [SHORT], path)
    assert not path.exists()
    assert not list(path.parent.glob(".export-*"))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_last_layer_is_computed_for_the_first_token_only(
    other_reranker: Callable[..., Path], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheaper form gives transformers' own logits, and its graph is the one that is kept."""
    import torch
    from transformers import AutoModelForSequenceClassification

    folder = other_reranker(family=family)
    module = torch_models.load(resolve(str(folder)), "cross_encoder")
    cheap, whole = torch_models.forms(module)
    oracle = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = torch.randint(5, 1000, (1, 37), generator=torch.Generator().manual_seed(0))
    types = torch.zeros_like(ids)
    with torch.inference_mode():
        expected = oracle(ids, token_type_ids=types).logits
        for form in (cheap, whole):
            torch.testing.assert_close(form(ids, types), expected, rtol=0, atol=1e-5)
    assert isinstance(cheap, torch_models.FirstToken)
    written: list[object] = []
    original = torch_models.to_onnx

    def recording(form: Any, *rest: Any, **options: Any) -> None:
        written.append(form)
        original(form, *rest, **options)

    monkeypatch.setattr(torch_models, "to_onnx", recording)
    path = cache_folder() / f"{family}.onnx"
    samples = [Tokens(tuple(row), (0,) * len(row), cut=False) for row in (ids[0].tolist(), [5, 9])]
    engine._export(module, samples, path)
    assert [type(form) for form in written] == [torch_models.FirstToken]
    assert engine._onnx_runner(path)(samples[0]) == pytest.approx(expected[0].numpy(), abs=1e-5)


def test_where_the_cheaper_form_fails_the_whole_model_is_exported(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cheaper form that gives other numbers is left aside, and the right ones are exported."""
    module = torch_models.load(resolve(str(tiny)), "cross_encoder")
    wrong, whole = torch_models.forms(module)
    right = module.run
    monkeypatch.setattr(wrong, "forward", lambda ids, _types: ids[:, :1].float())
    monkeypatch.setattr(torch_models, "forms", lambda _: [wrong, whole])
    path = cache_folder() / "whole.onnx"
    engine._export(module, [SHORT], path)
    tokens = Tokens(tuple(range(1000, 1030)), (0,) * 30, cut=False)
    np.testing.assert_allclose(engine._onnx_runner(path)(tokens), right(tokens), atol=1e-5)


def test_a_model_with_several_outputs_is_no_reranker(other_reranker: Callable[..., Path]) -> None:
    """A classifier of three classes is refused by name."""
    folder = other_reranker(outputs=3)
    with pytest.raises(InputError, match="has 3 outputs; expected one"):
        open_reranker(resolve(str(folder)), max_length=32).score([("a", "b")])


def test_a_cut_that_the_model_cannot_read_is_refused(tiny: Path) -> None:
    """More tokens than the model has positions is bad input; as many is not."""
    pairs = [("gap", "word " * 600)]
    assert open_reranker(resolve(str(tiny)), max_length=512).score(pairs)[1].tolist() == [True]
    with pytest.raises(InputError, match="at most 512 tokens, got 513"):
        open_reranker(resolve(str(tiny)), max_length=513).score(pairs)


def test_a_broken_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    """A tokenizer or a configuration that no library can read is bad input, named."""
    for name, what in (("tokenizer.json", "tokenizer"), ("config.json", "cannot be loaded")):
        folder = Path(shutil.copytree(tiny, tmp_path / name))
        (folder / name).write_text('{"version": "of a file that lies elsewhere"}')
        with pytest.raises(InputError, match=what):
            open_reranker(resolve(str(folder)), max_length=32).score([("a", "b")])


def test_positions_behind_padding_are_not_counted(other_reranker: Callable[..., Path]) -> None:
    """A RoBERTa with 514 positions, padding at 1, reads 512 tokens."""
    folder = other_reranker(family="roberta")
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 514, "pad_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    Tokenizer(folder, max_length=512)
    with pytest.raises(InputError, match="at most 512 tokens, got 513"):
        Tokenizer(folder, max_length=513)


def test_weights_in_16_bits_are_scored_in_32(
    other_reranker: Callable[..., Path], pairs: list[tuple[str, str]]
) -> None:
    """A reranker kept in bfloat16 gives the logits of its fp32 values."""
    import torch
    from transformers import AutoModelForSequenceClassification

    folder = other_reranker()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    halves, _ = open_reranker(resolve(str(folder)), max_length=64).score(pairs)
    model.to(torch.float32).save_pretrained(folder)
    whole, _ = open_reranker(resolve(str(folder)), max_length=64).score(pairs)
    np.testing.assert_allclose(halves, whole, atol=1e-6)


def test_broken_weights_are_refused_and_nothing_is_kept(
    other_reranker: Callable[..., Path], tmp_path: Path
) -> None:
    """Logits that are not numbers are an error; the scores of other models stay."""
    import torch
    from transformers import AutoModelForSequenceClassification

    cache = ScoreCache(tmp_path / "scores.sqlite")
    cache.put({b"k" * 16: (1.5, True)})
    folder = other_reranker()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    model.save_pretrained(folder)
    with pytest.raises(InputError, match="not finite"):
        open_reranker(resolve(str(folder)), max_length=64, cache=cache).score([("a", "b")])
    assert cache.get([b"k" * 16]) == {b"k" * 16: (1.5, True)}


def test_a_bi_encoder_is_no_reranker() -> None:
    """A model without the head of a cross-encoder would score at random, and is refused."""
    with pytest.raises(InputError, match="not a cross-encoder"):
        open_reranker(resolve("minilm"), max_length=32).score([("a", "b")])


def _emptied(home: Path) -> None:
    (home / "graph.onnx").write_bytes(b"")


def _one_bit(home: Path) -> None:
    content = bytearray((home / "graph.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (home / "graph.onnx").write_bytes(content)


def _of_other_weights(home: Path) -> None:
    manifest = json.loads((home / "manifest.json").read_text())
    (home / "manifest.json").write_text(json.dumps(with_digest({**manifest, "weights": "0" * 64})))


def _no_manifest(home: Path) -> None:
    (home / "manifest.json").unlink()


def _a_file(home: Path) -> None:
    shutil.rmtree(home)
    home.write_bytes(b"no folder")


def _lost_link(home: Path) -> None:
    shutil.rmtree(home)
    home.symlink_to("nothing")


@pytest.mark.parametrize(
    "change", [_emptied, _one_bit, _of_other_weights, _no_manifest, _a_file, _lost_link]
)
def test_an_export_that_is_changed_is_made_again(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None],
) -> None:
    """Its hash is compared whenever it is read; a line of the log says that it is made anew."""
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path))
    files = resolve(str(tiny))
    tokens = Tokenizer(files.folder, max_length=16)([("one text", "another")])
    expected = engine.open_engine(files, "cross_encoder")(tokens)
    (home,) = (tmp_path / "models").iterdir()
    change(home)
    np.testing.assert_array_equal(engine.open_engine(files, "cross_encoder")(tokens), expected)
    assert f"{home} is made again" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(engine.open_engine(files, "cross_encoder")(tokens), expected)
    assert not caplog.text


def test_an_export_that_another_process_makes_meanwhile_is_kept(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process may be reading it."""
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path))
    files, load = resolve(str(tiny)), torch_models.load
    written: list[int] = []

    def time_of_writing() -> int:
        (home,) = (tmp_path / "models").glob("[!.]*")
        return (home / engine.GRAPH).stat().st_mtime_ns

    def slowly(files: ModelFiles, kind: Kind) -> Any:
        monkeypatch.setattr(torch_models, "load", load)
        engine.open_engine(files, "cross_encoder")  # as the other process does
        written.append(time_of_writing())
        return load(files, kind)

    monkeypatch.setattr(torch_models, "load", slowly)
    engine.open_engine(files, "cross_encoder")
    assert written == [time_of_writing()]


@pytest.mark.parametrize("where", ["exported", "unpacked"])
def test_a_full_cache_is_told_in_a_sentence(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Neither a slower way in silence nor a traceback: the folder is named, and nothing is left."""
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path))
    files = resolve(str(tiny))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match=rf"{tmp_path}/models: no .* there: .*File too large"):
            open_engine(files, "cross_encoder") if where == "exported" else resolve(
                "minilm-reranker"
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list((tmp_path / "models").iterdir())
