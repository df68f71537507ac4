"""The files that environments are: from the pool's bucket to this machine, from the owner's machine to the bucket."""

from collections.abc import Callable, Iterator
from typing import Protocol

from environments.data import data_folder, needs_file
from protocol.config import PoolConfig
from protocol.environments import MAX_FILE_BYTES, EnvironmentConfig
from protocol.errors import ConfigError
from protocol.files import explained, read_bounded, write_atomic
from storage.keys import object_key


class EnvironmentStore(Protocol):
    """The part of a bucket that is used here."""

    def put(self, key: str, data: bytes) -> bool: ...
    def size(self, key: str) -> int | None: ...


def fetch_files(config: PoolConfig, objects: Callable[[str, int], bytes]) -> None:
    """Bring every file that this machine lacks. `objects` checks what it brings against the hash in the key; raises
    what it raises."""
    folder = data_folder()
    for one in _with_files(config):
        path = folder / one.content
        if not path.is_file():
            data = objects(object_key("environments", bytes.fromhex(one.content)), MAX_FILE_BYTES)
            with explained(f"write {path}", "check the folder and the room on its disk, or set XDG_CACHE_HOME"):
                write_atomic(path, data)


def publish_files(config: PoolConfig, store: EnvironmentStore) -> None:
    """Put every file into the pool's bucket. Raises ConfigError where neither it nor this machine has one."""
    for one in _with_files(config):
        key, path = object_key("environments", bytes.fromhex(one.content)), data_folder() / one.content
        if store.size(key) is not None:
            continue
        if not path.is_file():
            raise ConfigError(
                f"environment {one.called}: neither the bucket nor {path.parent} has the file {one.content[:16]}…",
                "put it there under the name of its SHA-256",
            )
        store.put(key, read_bounded(path, MAX_FILE_BYTES))


def _with_files(config: PoolConfig) -> Iterator[EnvironmentConfig]:
    asked = (one.environment for one in config.evaluation.sets if one.environment is not None)
    yield from (one for one in (*config.environments, *asked) if needs_file(one) and one.content)
