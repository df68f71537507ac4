"""A stranger's model folder: its JSON files before any library reads them, its tokenizer, and its EOS ids."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from protocol.encoding import parse_json
from protocol.errors import IntegrityError, first_line
from protocol.files import file_sha256

MAX_JSON_BYTES = 64 << 20
REFETCH = "fetch the weights again"
EOS = "<|end|>"
PAD = "<|pad|>"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TEXT_FILES = (*TOKENIZER_FILES, "chat_template.jinja", "generation_config.json", "config.json")
"""All that says how text becomes tokens, and where it ends."""
TEMPLATES = "additional_chat_templates"  # A folder of named chat templates beside the default one
LIBRARY_FILES = frozenset(TEXT_FILES) | {
    "adapter_config.json", "chat_template.json", "hf_quant_config.json", "modules.json", "params.json",
    "quantize_config.json", "sentence_bert_config.json", "vocab.json",
}  # fmt: skip


def check_documents(folder: Path) -> None:
    """Raise IntegrityError unless the JSON files that libraries read of a folder are of bounded size and depth: a
    hundred kilobytes of brackets can make `json` end the process."""
    for path in sorted(folder.glob("*.json")):
        if path.name in LIBRARY_FILES or path.name.endswith((".safetensors.index.json", "processor_config.json")):
            read_document(path)


def read_object(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the object that a JSON file holds. Raises IntegrityError as `read_document`, and for anything else."""
    value = read_document(path, limit)
    if not isinstance(value, dict):
        raise IntegrityError(f"{path} holds no JSON object", REFETCH)
    return value


def read_document(path: Path, limit: int = MAX_JSON_BYTES) -> Any:
    """Return what a JSON file holds. Raises IntegrityError if it is missing, larger than `limit` bytes, or not JSON."""
    try:
        if path.stat().st_size > limit:
            raise IntegrityError(f"{path} is larger than {limit >> 10} KiB", REFETCH)
        return parse_json(path.read_bytes())
    except OSError as error:
        what = f"{path.parent} is not a model folder: {error.strerror or error} ({path.name})"
        raise IntegrityError(what, REFETCH) from None
    except ValueError as error:
        raise IntegrityError(f"{path} is not JSON: {str(error)[:200]}", REFETCH) from None


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that the protocol uses."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...  # with `content`, and whether it is `special`
    def __len__(self) -> int: ...
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str: ...
    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        tokenize: bool,
        strftime_now: Callable[[str], str],
    ) -> str: ...


def save_byte_tokenizer(folder: Path, phrases: Sequence[str]) -> int:
    """Write a fast tokenizer of 256 bytes (in ByteLevel's order), then each of `phrases` as one token, then EOS and
    PAD; return its size."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as TokenizerOfLibrary
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = TokenizerOfLibrary(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    tokenizer.add_special_tokens([EOS, PAD])
    fast_class: Any = PreTrainedTokenizerFast
    fast = fast_class(tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD)
    fast.save_pretrained(str(folder))
    return len(fast)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a model folder, offline and without running code from the folder. Raises IntegrityError.

    `tokenizer.json` alone says how text becomes tokens: a family's own class would put other rules in their place.
    """
    from transformers import PreTrainedTokenizerFast

    if not folder.is_dir():
        raise IntegrityError(f"no model folder at {folder}", f"check the path, or {REFETCH}")
    check_documents(folder)
    if not (folder / "tokenizer.json").is_file():
        raise IntegrityError(
            f"{folder} holds no tokenizer.json",
            "make one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers",
        )
    library: Any = PreTrainedTokenizerFast
    try:
        loaded = library.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a hostile folder can make the parsers raise anything
        raise IntegrityError(f"the tokenizer in {folder} cannot be read: {first_line(error)}", REFETCH) from None
    return cast(Tokenizer, loaded)


def text_digest(folder: Path) -> bytes:
    """Return a SHA-256 over a model folder's text files, which alone decide the prompts made of a text."""
    digest = hashlib.sha256()
    for name in (*TEXT_FILES, *sorted(f"{TEMPLATES}/{path.name}" for path in (folder / TEMPLATES).glob("*.jinja"))):
        path = folder / name
        digest.update(f"{name} {path.is_file()}\n".encode())
        if path.is_file():
            digest.update(bytes.fromhex(file_sha256(path)))
    return digest.digest()


def eos_ids(folder: Path) -> tuple[int, ...]:
    """Return the ids that end a completion, ascending: `eos_token_id` of generation_config.json, else of config.json.
    Raises IntegrityError if neither names one."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        value = read_object(path).get("eos_token_id") if path.exists() else None
        ids = value if isinstance(value, list) else [value]
        if ids and all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in ids):
            return tuple(sorted(set(ids)))
    raise IntegrityError(f"{folder} names no eos_token_id", "add it to generation_config.json")


def check_vocabulary(folder: Path, rows: int) -> None:
    """Raise IntegrityError if a folder's tokenizer has tokens beyond the model's `rows`: a prompt with such a token
    would end the process that computes with it."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    document = read_object(path)
    model, added = document.get("model"), document.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else range(len(vocabulary or ()))
    ids = [*ids, *(token.get("id") for token in added or () if isinstance(token, dict))]
    largest = max((number for number in ids if isinstance(number, int)), default=-1)
    if largest >= rows:
        raise IntegrityError(
            f"the tokenizer in {folder} has token {largest}, the model {rows} rows",
            "resize the model's embeddings: model.resize_token_embeddings(len(tokenizer))",
        )
