"""What all sites of a text run must have alike: documents, which of them are kept apart, and the tokenizer."""

from pathlib import Path
from typing import Any

from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError
from protocol.files import file_sha256
from protocol.models import TOKENIZER_FILES
from protocol.sites.run import SitesRun
from trainer.sites.config import TextConfig
from trainer.text.corpus import Corpus, TextFormat
from trainer.text.kept_index import open_corpus


def text_corpus(config: TextConfig, home: Path) -> Corpus:
    """The documents that a site's configuration names. Raises ConfigError."""
    corpus = open_corpus(config.files, TextFormat(config.field, config.separator), home / "corpus")
    if len(corpus) <= config.heldout:
        raise ConfigError(
            f"{len(corpus)} documents, of which {config.heldout} are kept apart", "lower `text.heldout`, or give more"
        )
    return corpus


def data_digest(corpus: Corpus, config: TextConfig, folder: Path) -> str:
    """SHA-256, in hex, of what all sites of a text run must have alike: its documents, in which order they are
    numbered, which are kept apart, and the tokenizer of the model in `folder`."""
    tokenizer = {name: file_sha256(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}
    facts: dict[str, Any] = {
        "files": list(corpus.sha256), "field": config.field, "separator": config.separator, "heldout": config.heldout,
        "tokenizer": tokenizer,
    }  # fmt: skip
    return sha256_hex(canonical_json(facts))


def check_data(run: SitesRun, digest: str) -> None:
    """Raise ConfigError unless this site's documents and tokenizer are those of the run."""
    if run.work != "own":
        raise ConfigError(f"the sites of {run.name} train on what its keeper gives them", 'set `work` to "own"')
    if run.data is None:
        raise ConfigError(
            f"{run.name} does not say what its sites train on: each might have other documents",
            f'set `data` to "{digest}", which is what this site has',
        )
    if run.data != digest:
        raise ConfigError(
            f"this site's documents and tokenizer are {digest[:16]}…, those of {run.name} {run.data[:16]}…",
            "use the same files in the same order, `field`, `separator`, `heldout` and model as the other sites",
        )
