"""Models as sentence-transformers runs them: any architecture, prompt, template and pooling.

`engine` and `varlen` are faster, are compared with it, and stand aside where they give other
numbers. Importing this file imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rerank.cores import cores
from rerank.errors import InputError, RerankError, optional
from rerank.inference.model_files import SAVED, Kind, ModelFiles, interacts_late
from rerank.inference.tokenizer import READ, Tokenizer, Tokens, positions
from rerank.inference.user_choices import device, local
from rerank.normal_form import normal_form
from rerank.protocols import Role

ON_GPU = 64  # pairs or texts in a batch; on a CPU one, so that none depends on its neighbours
PROMPTS = {"query": ("query",), "passage": ("document", "passage", "corpus")}  # their names

Rows = Callable[[Sequence[Tokens]], NDArray[np.float32]]


def open_model(
    files: ModelFiles, kind: Kind, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Any:
    """The model of a folder as its class in sentence-transformers."""
    try:
        with optional():
            import sentence_transformers
        named = {"cross_encoder": "CrossEncoder", "bi_encoder": "SentenceTransformer"}[kind]
        if interacts_late(files):
            named = "MultiVectorEncoder"
        elif kind == "cross_encoder":
            _check_trained(files)
        of_kind = getattr(sentence_transformers, named)
        made = of_kind(str(files.folder), device=device, model_kwargs={"dtype": dtype}, **local())
    except RerankError:
        raise
    except Exception as error:  # each library reports a broken file in its own way
        raise InputError(f"{files.name} cannot be loaded as a {kind}: {error}") from error
    if named == "CrossEncoder" and made.num_labels != 1:
        raise InputError(
            f"{files.name} has {made.num_labels} outputs; expected one, as rerankers have"
        )
    return made.eval()


def prompts_of(model: Any) -> dict[str, str]:
    """What a `SentenceTransformer` puts before a query, and before a passage, if it is not empty.

    `encode_document` overlooks a prompt that was saved as "passage", as those of E5 are.
    """
    saved = ((role, map(model.prompts.get, names)) for role, names in PROMPTS.items())
    return {role: prompt for role, found in saved if (prompt := next(filter(None, found), ""))}


class LibraryScorer:
    """Logits of pairs, without any activation, and whether each was truncated to `max_length`."""

    def __init__(self, files: ModelFiles, max_length: int, *, bf16: bool = False) -> None:
        check_length(files, max_length)
        dtype = torch.bfloat16 if bf16 else torch.float32
        self._model = open_model(files, "cross_encoder", dtype=dtype, device=device())
        self._max_length = max_length
        self._turn = Lock()  # a tokenizer is for one thread

    def __call__(
        self, pairs: Sequence[tuple[str, str]], instruction: str = ""
    ) -> tuple[NDArray[np.float32], list[bool]]:
        """Rows of shape (n, 1) and n flags, n >= 1; an instruction replaces the saved prompt."""
        given = [(_read(query), _read(text)) for query, text in pairs]
        prompt = self._prompt(instruction)
        with self._turn:
            few_threads()
            self._model.max_seq_length = self._max_length
            rows = self._rows(given, prompt)
            return rows, [self._left(pair, prompt) < 0 for pair in given]

    def room(self, query: str, instruction: str = "") -> int:
        """How many tokens of a passage are read beside a query, its prompt and its template."""
        with self._turn:
            return self._left((_read(query), ""), self._prompt(instruction))

    def _prompt(self, instruction: str) -> str | None:
        return instruction or self._model.prompts.get(self._model.default_prompt_name)

    def _rows(self, pairs: Sequence[tuple[str, str]], prompt: str | None) -> NDArray[np.float32]:
        return logits(self._model, pairs, prompt)

    def _left(self, pair: tuple[str, str], prompt: str | None) -> int:
        """How many more tokens would be read; -1 if they are too many already."""
        tokens = self._model.preprocess([pair], prompt=prompt, max_length=self._max_length + 1)
        return self._max_length - int(tokens["attention_mask"].sum())


class LateInteraction(LibraryScorer):
    """MaxSim of the token vectors of query and passage, and whether the passage was truncated.

    Each query token takes its most similar passage token; their similarities are added (Khattab and
    Zaharia 2020, "ColBERT"). A query takes no room from a passage.
    """

    def _rows(self, pairs: Sequence[tuple[str, str]], prompt: str | None) -> NDArray[np.float32]:
        queries, texts = zip(*pairs, strict=True)
        options = {"batch_size": _batch(self._model), **SILENT}
        asked = list(dict.fromkeys(queries))
        of_query = dict(zip(asked, self._model.encode_query(asked, **options), strict=True))
        of_texts = self._model.encode_document(list(texts), **options)
        both = zip(queries, of_texts, strict=True)
        scores = [float(self._model.similarity([of_query[q]], [d])[0, 0]) for q, d in both]
        return np.array(scores, dtype=np.float32)[:, np.newaxis]

    def _left(self, pair: tuple[str, str], prompt: str | None) -> int:
        self._model.max_seq_length = self._max_length + 1
        tokens = self._model.preprocess([pair[1]], task="document")
        return self._max_length - int(tokens["attention_mask"].sum())


class LibraryEncoder:
    """Unit vectors of texts, with the model's prompts, pooling and dimensions."""

    def __init__(self, files: ModelFiles, max_length: int) -> None:
        check_length(files, max_length)
        self._model = open_model(files, "bi_encoder", device=device())
        limit(self._model, max_length)
        self.prompts = prompts_of(self._model)
        self._turn = Lock()

    def __call__(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Vectors of shape (n, d), n >= 1."""
        with self._turn:
            few_threads()
            return vectors(self._model, [_read(text) for text in texts], role)


def logits(
    model: Any, pairs: Sequence[tuple[str, str]], prompt: str | None = None
) -> NDArray[np.float32]:
    """What `CrossEncoder.predict` gives before its activation, shape (n, 1)."""
    found: NDArray[np.float32] = model.predict(
        list(pairs),
        prompt=prompt,
        activation_fn=torch.nn.Identity(),
        batch_size=_batch(model),
        **SILENT,
    )
    return found.reshape(len(pairs), -1)


def vectors(model: Any, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
    """What `encode_query` and `encode_document` give, as unit vectors of shape (n, d)."""
    encode = model.encode_query if role == "query" else model.encode_document
    found: NDArray[np.float32] = encode(
        list(texts),
        prompt=prompts_of(model).get(role, ""),
        normalize_embeddings=True,
        batch_size=_batch(model),
        **SILENT,
    )
    return found


SILENT = {"show_progress_bar": False}


def largest_gap(
    model: Any, kind: Kind, rows: Rows, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> float:
    """How far the numbers of an engine, `rows` of tokens, are from those of the library.

    A bi-encoder embeds both texts of each pair.
    """
    limit(model, tokenizer.max_length)
    if kind == "cross_encoder":
        return float(np.abs(rows(tokenizer(pairs)) - logits(model, pairs)).max())
    prompts = prompts_of(model)
    roles: tuple[Role, Role] = ("query", "passage")
    both = zip(roles, zip(*pairs, strict=True), strict=True)
    gaps = [
        rows(tokenizer([prompts.get(role, "") + t for t in texts])) - vectors(model, texts, role)
        for role, texts in both
    ]
    return float(np.abs(np.concatenate(gaps)).max())


def limit(model: Any, max_length: int) -> None:
    """Let a model read this many tokens; static embeddings read all of them."""
    if np.isfinite(model.max_seq_length or 0):
        model.max_seq_length = max_length


def check_length(files: ModelFiles, max_length: int) -> None:
    """Refuse a length that the model has no positions for."""
    longest = positions(files.folder)
    if max_length > longest:
        raise InputError(f"{files.name} reads at most {longest} tokens, got {max_length}")


def few_threads() -> None:
    """Let an operator of the calling thread use `cores` threads at most."""
    if torch.get_num_threads() > cores():
        torch.set_num_threads(cores())


def _batch(model: Any) -> int:
    return 1 if model.device.type == "cpu" else ON_GPU


def _read(text: str) -> str:
    return normal_form(text[:READ])


def _check_trained(files: ModelFiles) -> None:
    """Refuse a model whose scores would come from weights that are drawn at random."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    saved = files.folder / SAVED
    own = saved.is_file() and (files.folder / "modules.json").is_file()
    if own and json.loads(saved.read_bytes()).get("model_type") == "CrossEncoder":
        return
    named = AutoConfig.from_pretrained(str(files.folder), **local()).architectures or [""]
    if named[0].endswith("ForCausalLM"):  # its answer is the logit of "yes" less that of "no"
        return
    missing = AutoModelForSequenceClassification.from_pretrained(
        str(files.folder), output_loading_info=True, **local()
    )[1]["missing_keys"]
    if missing:
        raise InputError(
            f"{files.folder} is not a cross-encoder: it lacks {sorted(missing)}, which "
            "would be drawn at random; give a reranker, or train one with "
            "`rerank train cross-encoder`"
        )
