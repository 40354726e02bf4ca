"""Concatenated sequences in bf16: each gets what it gets alone in fp32, but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from rerank.data.labelled_set import LabelledSet
from rerank.inference import varlen as unpadded
from rerank.inference.cross_encoder import Reranker, open_reranker
from rerank.inference.engine import NoExportError
from rerank.inference.model_files import resolve
from rerank.inference.score_cache import ScoreCache
from rerank.inference.tokenizer import Tokens
from rerank.inference.varlen import (
    Spans,
    Unpadded,
    mix_by_kernel,
    mix_in_turn,
)
from rerank.progress import by_size

ROUNDING = 0.15  # of a logit in bf16, where logits differ by ten


def sequences(lengths: Sequence[int]) -> list[Tokens]:
    """Sequences of such lengths, of different ids."""
    rng = np.random.default_rng(0)
    return [Tokens(tuple(rng.integers(5, 1000, n).tolist()), (0,) * n, cut=False) for n in lengths]


@pytest.fixture(scope="module")
def pairs(small: LabelledSet) -> list[tuple[str, str]]:
    """Each question with its right passage, and with one that is right for another."""
    asked = list(small.qrels)[:24]
    right = [next(iter(small.relevant(i))) for i in asked]
    texts = [small.corpus[d].full_text for d in right]
    return [
        (small.queries[i].text, text)
        for i, own, other in zip(asked, texts, texts[1:] + texts[:1], strict=True)
        for text in (own, other)
    ]


@pytest.fixture(scope="module")
def in_bf16() -> Reranker:
    """The bundled cross-encoder."""
    return open_reranker(resolve("minilm-reranker"), max_length=96, precision="bf16")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_before_rounding_logits_are_those_of_transformers(
    other_reranker: Callable[..., Path], family: str
) -> None:
    """Sequences of 1 to 60 tokens in one batch: each has the logit that it has alone."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(other_reranker(family=family)).eval()
    given_ = sequences([7, 1, 60, 2, 33])
    with torch.inference_mode():
        found = Unpadded(model)(given_, "cpu")
        expected = torch.cat([model(torch.tensor([t.ids])).logits for t in given_])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_bf16_is_close_to_fp32_and_kept_apart(
    in_bf16: Reranker, pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Right and wrong passages: logits within rounding, and a cache keeps each by itself."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    files = resolve("minilm-reranker")
    exact, cut = open_reranker(files, max_length=96, cache=cache).score(pairs)
    found, also_cut = open_reranker(files, max_length=96, precision="bf16", cache=cache).score(
        pairs
    )
    assert np.ptp(exact) > 5
    np.testing.assert_allclose(found, exact, rtol=0, atol=ROUNDING)
    assert (found != exact).mean() > 0.9
    assert cut.tolist() == also_cut.tolist()
    assert len(np.unique(found)) > 0.9 * len(np.unique(exact))  # the head does not tie them


@settings(max_examples=4, deadline=None)
@given(order=st.permutations(range(8)), size=st.integers(1, 8))
def test_a_logit_is_the_same_in_any_batch_but_for_rounding(
    in_bf16: Reranker, pairs: list[tuple[str, str]], order: list[int], size: int
) -> None:
    """However the pairs are cut into calls, each has its own logit."""
    expected = in_bf16.score(pairs[:8])[0]
    found = np.empty(8)
    for start in range(0, 8, size):
        part = order[start : start + size]
        found[part] = in_bf16.score([pairs[i] for i in part])[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30), budget=st.integers(1, 120))
def test_a_batch_holds_as_many_as_its_budget_lets_in(lengths: list[int], budget: int) -> None:
    """Nothing lost, nothing twice, in order; no batch could have taken the next sequence."""
    given_ = sequences(lengths)
    found = list(by_size(given_, lambda tokens: len(tokens.ids), budget))
    assert [t for part in found for t in part] == given_
    sizes = [sum(len(t.ids) for t in part) for part in found]
    assert all(n <= budget or len(part) == 1 for n, part in zip(sizes, found, strict=True))
    following = [len(part[0].ids) for part in found[1:]]
    assert all(n + more > budget for n, more in zip(sizes, following, strict=False))


def test_several_batches_give_what_one_gives(
    in_bf16: Reranker, pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget of a few sequences changes nothing but rounding."""
    expected = in_bf16.score(pairs[:12])[0]
    monkeypatch.setitem(unpadded.BUDGET, "cpu", 200)
    found = in_bf16.score(pairs[:12])[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)


def test_the_kernel_is_asked_for_what_the_products_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does as its documentation says, in 16 bits, gives the products' rows."""

    def documented(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor,
        max_q: int,
        max_k: int,
    ) -> torch.Tensor:
        assert {x.dtype for x in (query, key, value)} == {torch.bfloat16}
        assert {x.dtype for x in (cu_seq_q, cu_seq_k)} == {torch.int32}
        asking, lengths = cu_seq_q.diff(), cu_seq_k.diff()
        assert (max_q, max_k) == (int(asking.max()), int(lengths.max()))
        each = torch.arange(len(lengths))
        allowed = each.repeat_interleave(asking)[:, None] == each.repeat_interleave(lengths)
        q, k, v = (x.float().transpose(0, 1) for x in (query, key, value))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
        mixed: torch.Tensor = (weights @ v).transpose(0, 1).to(query.dtype)
        return mixed

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", documented)
    for lengths, asking in (([2, 3, 1], [2, 3, 1]), ([2, 5], [1, 1])):
        q, k, v = (torch.randn(sum(n), 12, 32).bfloat16() for n in (asking, lengths, lengths))
        asked, spans = Spans.of(asking, "cpu"), Spans.of(lengths, "cpu")
        found, expected = (f(q, k, v, asked, spans) for f in (mix_by_kernel, mix_in_turn))
        torch.testing.assert_close(found, expected, rtol=0, atol=0.03)


def test_the_kernel_has_these_parameters() -> None:
    """On a GPU that is only imagined, it takes the call and gives a row for each that asks."""
    with FakeTensorMode():
        q, k, v = (torch.empty(n, 12, 32, dtype=torch.bfloat16, device="cuda") for n in (2, 5, 5))
        asking, lengths = (
            Spans(tuple(b), torch.empty(3, dtype=torch.int32, device="cuda"), longest)
            for b, longest in (([0, 1, 2], 1), ([0, 2, 5], 3))
        )
        found = mix_by_kernel(q, k, v, asking, lengths)
    assert (found.shape, found.device.type) == ((2, 12, 32), "cuda")


@pytest.mark.parametrize("has", [True, False])
def test_a_processor_without_bf16_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, has: bool
) -> None:
    """There bf16 takes several times as long as fp32."""
    monkeypatch.setattr(unpadded, "device", lambda: "cpu")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has})
    unpadded.open_unpadded(resolve("minilm-reranker"))
    assert ("fp32 would be faster" in caplog.text) is not has


def test_a_family_that_is_not_laid_end_to_end_runs_in_the_library(
    other_reranker: Callable[..., Path],
) -> None:
    """DistilBERT's layers have other parts: bf16 is a type of numbers, for every family."""
    files = resolve(str(other_reranker(family="distilbert")))
    with pytest.raises(NoExportError, match="distilbert"):
        unpadded.open_unpadded(files)
    pairs = [("a", "b"), ("median", "the middle value")]
    exact, found = (
        open_reranker(files, max_length=64, precision=p).score(pairs)[0] for p in ("fp32", "bf16")
    )
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.01)
    assert (found != exact).all()
