"""Models in torch, as sentence-transformers runs them, and their export; it imports torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnx  # torch exports with it, and its error is unclear if it is missing
import torch
from numpy.typing import NDArray

from rerank.errors import InputError, RerankError, optional
from rerank.inference.model_files import Kind, ModelFiles, interacts_late, saved_as
from rerank.inference.tokenizer import READ, Tokenizer, Tokens, check_length
from rerank.normal_form import beginning, normal_form
from rerank.process import cores, device, local
from rerank.protocols import Role

ON_GPU = 64  # pairs or texts in a batch; on a CPU one, so that none depends on its neighbours
# their names; `encode_document` overlooks one that was saved as "passage", as those of E5 are
PROMPTS = {"query": ("query",), "passage": ("document", "passage", "corpus")}

FIRST_TOKEN_FAMILIES = ("bert", "roberta", "xlm-roberta")  # their layers have `FirstToken`'s parts

Pair = tuple[str, str]
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
    return made.eval()


def prompts_of(model: Any) -> dict[str, str]:
    """What a `SentenceTransformer` puts before a query and before a passage, if it is not empty."""
    saved = ((role, map(model.prompts.get, names)) for role, names in PROMPTS.items())
    return {role: prompt for role, found in saved if (prompt := next(filter(None, found), ""))}


class LibraryScorer:
    """Logits of pairs, without any activation, and whether each was truncated to `max_length`."""

    def __init__(self, files: ModelFiles, max_length: int, *, bf16: bool = False) -> None:
        check_length(files.name, files.folder, max_length)
        dtype = torch.bfloat16 if bf16 else torch.float32
        self._model = open_model(files, "cross_encoder", dtype=dtype, device=device())
        self._max_length = max_length
        self._turn = Lock()  # a tokenizer is for one thread

    def __call__(
        self, pairs: Sequence[Pair], instruction: str = ""
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

    def _rows(self, pairs: Sequence[Pair], prompt: str | None) -> NDArray[np.float32]:
        return logits(self._model, pairs, prompt)

    def _left(self, pair: Pair, prompt: str | None) -> int:
        """How many more tokens would be read; -1 if they are too many already."""
        tokens = self._model.preprocess([pair], prompt=prompt, max_length=self._max_length + 1)
        return self._max_length - int(tokens["attention_mask"].sum())


class LateInteraction(LibraryScorer):
    """MaxSim of the token vectors of query and passage, and whether the passage was truncated.

    Each query token takes its most similar passage token; their similarities are added (Khattab and
    Zaharia 2020, "ColBERT"). A query takes no room from a passage.
    """

    def _rows(self, pairs: Sequence[Pair], prompt: str | None) -> NDArray[np.float32]:
        queries, texts = zip(*pairs, strict=True)
        options, asked = _options(self._model), list(dict.fromkeys(queries))
        of_query = dict(zip(asked, self._model.encode_query(asked, **options), strict=True))
        of_texts = self._model.encode_document(list(texts), **options)
        both = zip(queries, of_texts, strict=True)
        scores = [float(self._model.similarity([of_query[q]], [d])[0, 0]) for q, d in both]
        return np.array(scores, dtype=np.float32)[:, np.newaxis]

    def _left(self, pair: Pair, prompt: str | None) -> int:
        self._model.max_seq_length = self._max_length + 1
        tokens = self._model.preprocess([pair[1]], task="document")
        return self._max_length - int(tokens["attention_mask"].sum())


class LibraryEncoder:
    """Unit vectors of texts, with the model's prompts, pooling and dimensions."""

    def __init__(self, files: ModelFiles, max_length: int) -> None:
        check_length(files.name, files.folder, max_length)
        self._model = open_model(files, "bi_encoder", device=device())
        limit(self._model, max_length)
        self.prompts = prompts_of(self._model)
        self._turn = Lock()

    def __call__(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Vectors of shape (n, d), n >= 1."""
        with self._turn:
            few_threads()
            return vectors(self._model, [_read(text) for text in texts], role)


def logits(model: Any, pairs: Sequence[Pair], prompt: str | None = None) -> NDArray[np.float32]:
    """What `CrossEncoder.predict` gives before its activation, shape (n, 1)."""
    plain = torch.nn.Identity()
    found: NDArray[np.float32] = model.predict(
        list(pairs), prompt=prompt, activation_fn=plain, **_options(model)
    )
    return found.reshape(len(pairs), -1)


def vectors(model: Any, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
    """What `encode_query` and `encode_document` give, as unit vectors of shape (n, d)."""
    encode = model.encode_query if role == "query" else model.encode_document
    prompt = prompts_of(model).get(role, "")
    found: NDArray[np.float32] = encode(
        list(texts), prompt=prompt, normalize_embeddings=True, **_options(model)
    )
    return found


def _options(model: Any) -> dict[str, Any]:
    return {"batch_size": 1 if model.device.type == "cpu" else ON_GPU, "show_progress_bar": False}


def largest_gap(
    model: Any, kind: Kind, rows: Rows, tokenizer: Tokenizer, pairs: Sequence[Pair]
) -> float:
    """How far the numbers of an engine, `rows` of tokens, are from those of the library."""
    limit(model, tokenizer.max_length)
    if kind == "cross_encoder":
        return float(np.abs(rows(tokenizer(pairs)) - logits(model, pairs)).max())
    gaps, prompts = [], prompts_of(model)
    roles: tuple[Role, Role] = ("query", "passage")
    for role, texts in zip(roles, zip(*pairs, strict=True), strict=True):
        ours = rows(tokenizer([prompts.get(role, "") + text for text in texts]))
        gaps.append(float(np.abs(ours - vectors(model, texts, role)).max()))
    return float(np.max(gaps))


def limit(model: Any, max_length: int) -> None:
    """Let a model read this many tokens; static embeddings read all of them."""
    if np.isfinite(model.max_seq_length or 0):
        model.max_seq_length = max_length


def few_threads() -> None:
    """Let an operator of the calling thread use `cores` threads at most."""
    if torch.get_num_threads() > cores():
        torch.set_num_threads(cores())


def _read(text: str) -> str:
    return normal_form(beginning(text, READ))


def _check_trained(files: ModelFiles) -> None:
    """Refuse a model of which some weights would be drawn at random."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    if saved_as(files) == "CrossEncoder" and (files.folder / "modules.json").is_file():
        return
    named = AutoConfig.from_pretrained(str(files.folder), **local()).architectures or [""]
    if named[0].endswith("ForCausalLM"):  # its answer is the logit of "yes" less that of "no"
        return
    missing = AutoModelForSequenceClassification.from_pretrained(
        str(files.folder), output_loading_info=True, **local()
    )[1]["missing_keys"]
    if missing:
        raise InputError(
            f"{files.folder} is not a cross-encoder: it lacks {sorted(missing)}, which would be "
            "drawn at random; give a reranker, or train one with `rerank train cross-encoder`"
        )


class RowModule(torch.nn.Module):
    """(ids, types), each of shape (1, length), to one output of a sentence-transformers model.

    A cross-encoder reads its logit from the first token only: for some families `forms` is cheaper.
    """

    def __init__(
        self, model: Any, output: str, *, width: int | None = None, unit: bool = False
    ) -> None:
        super().__init__()
        self.model, self.output, self.width, self.unit = model, output, width, unit

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Rows of shape (1, width), of length 1 if `unit`."""
        features = {"input_ids": ids, "token_type_ids": types}
        features["attention_mask"] = torch.ones_like(ids)
        output: torch.Tensor = self.model(features)[self.output]
        output = output if output.ndim == 2 else output.unsqueeze(-1)
        output = output if self.width is None else output[:, : self.width]
        return torch.nn.functional.normalize(output) if self.unit else output

    def run(self, tokens: Tokens) -> NDArray[np.float32]:
        """The row of one sequence."""
        few_threads()
        with torch.inference_mode():
            row = self(torch.tensor([tokens.ids]), torch.tensor([tokens.types]))[0]
        return np.asarray(row)


class FirstToken(torch.nn.Module):
    """The logits of a BERT-like classifier; its last layer is computed for the first token only."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Logits of shape (1, outputs)."""
        body = self.model.base_model
        hidden = body.embeddings(input_ids=ids, token_type_ids=types)
        *layers, last = body.encoder.layer
        for layer in layers:
            hidden = layer(hidden)
        first = last.feed_forward_chunk(_attend(last.attention, hidden))
        if body.pooler is not None:  # RoBERTa's head takes the first token itself
            first = body.pooler(first)
        logits: torch.Tensor = self.model.classifier(first)
        return logits


def _attend(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The attention block's output at the first token, (1, 1, width), from all tokens' `hidden`."""
    layer, first = attention.self, hidden[:, :1]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, layer.num_attention_heads, layer.attention_head_size).transpose(1, 2)

    query, key, value = map(heads, (layer.query(first), layer.key(hidden), layer.value(hidden)))
    weights = torch.softmax(query @ key.transpose(2, 3) * layer.attention_head_size**-0.5, dim=-1)
    mixed = (weights @ value).transpose(1, 2).reshape(1, 1, -1)
    out: torch.Tensor = attention.output(mixed, first)
    return out


def load(files: ModelFiles, kind: Kind) -> RowModule:
    """The module that gives rows of shape (1, width): a pair's logits, or a text's unit vector."""
    model = open_model(files, kind)
    if kind == "cross_encoder":
        return RowModule(model, "scores").eval()
    return RowModule(model, "sentence_embedding", width=model.truncate_dim, unit=True).eval()


def forms(module: RowModule) -> list[torch.nn.Module]:
    """Modules that give the same rows as `module`, the cheapest first; the last is `module`."""
    classifier = getattr(module.model, "model", None)
    family = getattr(getattr(classifier, "config", None), "model_type", None)
    if module.output == "scores" and family in FIRST_TOKEN_FAMILIES:
        return [FirstToken(classifier).eval(), module]
    return [module]


def to_onnx(
    module: torch.nn.Module, tokens: Tokens, path: Path, *, data: str, largest: int
) -> None:
    """Write the module's graph to `path`, traced on one sequence; it accepts any length.

    The numbers of a graph of more than `largest` bytes are put into one other file, named `data`.
    """
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.tensor([tokens.ids]), torch.tensor([tokens.types])),
            str(path),
            input_names=["input_ids", "token_type_ids"],
            output_names=["row"],
            dynamic_axes={"input_ids": {1: "length"}, "token_type_ids": {1: "length"}},
            opset_version=17,
            dynamo=False,
        )
    if sum(file.stat().st_size for file in path.parent.iterdir()) <= largest:
        return
    graph = onnx.load(str(path))
    if max(len(matrix.raw_data) for matrix in graph.graph.initializer) >= 2**31:
        raise ValueError("one of its matrices has 2 GiB or more")
    for file in path.parent.iterdir():
        file.unlink()
    onnx.save_model(
        graph, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=data
    )
