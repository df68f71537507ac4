"""The index of a corpus kept on disk, so that a restart need not read every file again."""

import hashlib
import io
import logging
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from protocol.encoding import canonical_json
from protocol.errors import ConfigError
from protocol.files import explained, write_atomic
from trainer.text.corpus import Corpus, FileState, IndexedFile, TextFormat, documents_of, index_file

log = logging.getLogger("muster.sites")
_VERSION, _TOLD_BYTES = 1, 100 << 20


def open_corpus(paths: Sequence[Path], form: TextFormat, folder: Path) -> Corpus:
    """The documents of files and folders. Files of which size and time of change are those of the last start are not
    read again: `folder` has their index. Raises ConfigError, also where there is no document at all."""
    corpus = Corpus([_indexed(path, form, folder) for path in documents_of(paths)], form)
    if not len(corpus):
        raise ConfigError(f"no document in {', '.join(map(str, paths))}", "check `text.files`")
    return corpus


def _indexed(path: Path, form: TextFormat, folder: Path) -> IndexedFile:
    with explained(f"read {path}", "check `text.files`"):
        state = FileState.of(path.stat(), path)
    facts = [_VERSION, str(path.resolve()), state.size, state.changed, form.field, form.separator]
    kept = folder / f"{hashlib.sha256(canonical_json(facts)).hexdigest()}.npz"
    try:
        with np.load(kept) as data:
            return IndexedFile(path, state, str(data["sha256"]), data["starts"], data["ends"])
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        if state.size >= _TOLD_BYTES:
            log.info("reading %s, %.0f MB", path, state.size / 1e6)
    made = index_file(path, form)
    out = io.BytesIO()
    np.savez(out, sha256=np.array(made.sha256), starts=made.starts, ends=made.ends)
    with explained(f"write {kept}", "free the disk"):
        write_atomic(kept, out.getvalue())
    return made
